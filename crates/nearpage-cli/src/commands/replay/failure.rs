//! Why there is no result: the errors of the library, by the options that they come from.

use nearpage_machine::over::OverError;
use nearpage_replay::{CombinationError, ReplayError, SubjectError, TunableError};

use crate::commands::interrupt::INTERRUPTED;

/// A replay without a result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayFailure {
    /// The bundle cannot be read or replayed.
    #[error(transparent)]
    Replay(ReplayError),
    /// `--set` with something else than a tunable.
    #[error("--set {0}")]
    Set(#[source] TunableError),
    /// `--explain` with something else than a page or a time.
    #[error("--explain {0}")]
    Explain(#[source] SubjectError),
    /// `--over` without values.
    #[error("--over {0}")]
    Over(#[source] OverError),
    /// An option with what cannot be combined.
    #[error("{option} {source}")]
    Combinations {
        /// The option.
        option: &'static str,
        /// Why not.
        source: CombinationError,
    },
    /// Rules were compared, and did not reach what they must.
    #[error("{} missed", if *.0 == 1 { "a must is".into() } else { format!("{} musts are", .0) })]
    Missed(usize),
    /// Ctrl-C.
    #[error("interrupted: there is no result, and no file was written")]
    Interrupted,
}

impl From<ReplayError> for ReplayFailure {
    fn from(error: ReplayError) -> Self {
        match error {
            ReplayError::Stopped(_) => Self::Interrupted,
            other => Self::Replay(other),
        }
    }
}

impl ReplayFailure {
    /// What cannot be combined was given by this option.
    pub(in crate::commands) fn combinations(
        option: &'static str,
    ) -> impl Fn(CombinationError) -> Self {
        move |source| Self::Combinations { option, source }
    }

    pub(in crate::commands) fn exit_code(&self) -> u8 {
        match self {
            Self::Interrupted => INTERRUPTED,
            Self::Missed(_) => 1,
            _ => 2,
        }
    }
}
