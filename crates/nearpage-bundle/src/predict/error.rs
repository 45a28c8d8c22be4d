//! Why a capture cannot be predicted.

use nearpage::{SettingError, TopologyError};

use crate::BundleError;

/// Why a capture could not be predicted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PredictError {
    /// The recording cannot be read.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// A setting that no Linux accepts.
    #[error("{input}: {error}")]
    Setting {
        /// The recording.
        input: String,
        /// What is wrong with it.
        #[source]
        error: SettingError,
    },
    /// Nodes or distances that no machine has.
    #[error("{input}: {error}")]
    Topology {
        /// The recording.
        input: String,
        /// What is wrong with them.
        #[source]
        error: TopologyError,
    },
}
