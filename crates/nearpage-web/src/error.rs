//! Why there is no answer.

use nearpage_bundle::BundleError;
use nearpage_bundle::predict::UnknownModel;
use nearpage_machine::InputError;
use nearpage_machine::tunable::{OverrideError, TunableError};
use nearpage_replay::{ReplayError, SubjectError};

/// Why there is no answer. The texts are the libraries' own.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WebError {
    /// The question is no JSON of a [`Question`].
    #[error("the question: {0}")]
    Question(#[from] serde_json::Error),
    /// No such rules.
    #[error(transparent)]
    Model(#[from] UnknownModel),
    /// Rules that do not go with a machine.
    #[error("the rules auto go with a recording, which tells the kernel")]
    Auto,
    /// No such setting.
    #[error("{0}")]
    Set(#[from] OverrideError),
    /// No such tunable.
    #[error("{0}")]
    Tunable(#[from] TunableError),
    /// No such thing to explain.
    #[error("{0}")]
    Subject(#[from] SubjectError),
    /// No machine.
    #[error(transparent)]
    Machine(#[from] InputError),
    /// No log.
    #[error("{name}: {what}")]
    Log {
        /// The log.
        name: String,
        /// Why it is none.
        what: String,
    },
    /// No recording.
    #[error(transparent)]
    Recording(#[from] ReplayError),
    /// Nothing that is recorded.
    #[error(transparent)]
    Bundle(#[from] BundleError),
}
