//! Why a scenario cannot be run.

use std::path::PathBuf;

use nearpage_sim::costs::CostsError;
use nearpage_sim::sim::MachineError;

/// What is wrong, where, and what would be accepted.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A file cannot be read.
    #[error("{path}: {error}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// No scenario, no file.
    #[error("there is no scenario called {name:?} and no such file; scenarios: {known}")]
    Unknown {
        /// The name.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// A scenario file is wrong.
    #[error("{file}: {message}")]
    File {
        /// The file.
        file: String,
        /// Line, key, and what is accepted.
        message: String,
    },
    /// A table of costs is wrong.
    #[error("costs {name}: {error}")]
    Costs {
        /// The table.
        name: String,
        /// Why.
        error: CostsError,
    },
    /// There can be no such machine.
    #[error("{name}: {error}")]
    Machine {
        /// The scenario.
        name: String,
        /// Why.
        error: MachineError,
    },
}
