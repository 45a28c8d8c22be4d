//! Why a scenario cannot be run.

use std::path::PathBuf;

use nearpage_machine::shown;
use nearpage_machine::work::Stopped;
use nearpage_sim::{CostsError, MachineError};

/// What is wrong, where, and what would be accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// A file cannot be read.
    #[error("{}: {error}", shown(path))]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: std::io::Error,
    },
    /// A file is no text.
    #[error("{}: byte {at} is no UTF-8 text, expected {expected}", shown(path))]
    NoText {
        /// The file.
        path: PathBuf,
        /// Where the text ends that there is.
        at: usize,
        /// What the file should have.
        expected: &'static str,
    },
    /// No scenario, no file.
    #[error("there is no scenario called {name:?} and no such file; scenarios: {known}")]
    Unknown {
        /// The name.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// No table of costs, no file.
    #[error("there is no table of costs called {name:?} and no such file; tables: {known}")]
    UnknownCosts {
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
        #[source]
        error: CostsError,
    },
    /// There can be no such machine.
    #[error("{name}: {error}")]
    Machine {
        /// The scenario.
        name: String,
        /// Why.
        #[source]
        error: MachineError,
    },
    /// A load by name cannot run on a machine.
    #[error("{load}: {problem}")]
    Load {
        /// The load.
        load: &'static str,
        /// Why, and what would do.
        problem: String,
    },
    /// The observer ended the run.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}
