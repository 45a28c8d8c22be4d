//! What is wrong with the environment, or with what it names.

use std::io;

use nearpage_machine::DescriptionError;
use nearpage_machine::InputError;
use nearpage_machine::SysfsError;

use crate::warning::VariableWarning;

/// Why the environment does not name a machine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnvironmentError {
    /// A value is not understood, and `NEARPAGE_ENV` is `strict`.
    #[error("{}; NEARPAGE_ENV=strict makes this an error", list(warnings))]
    Strict {
        /// The values; at least one.
        warnings: Vec<VariableWarning>,
    },
    /// This machine cannot be read.
    #[error("this machine cannot be read: {0}")]
    ThisMachine(#[from] SysfsError),
    /// The topology file cannot be read.
    #[error("NEARPAGE_NUMA: {file}: {error}")]
    Unreadable {
        /// The file.
        file: String,
        /// Why not.
        #[source]
        error: io::Error,
    },
    /// The topology file describes no machine.
    #[error("NEARPAGE_NUMA: {0}")]
    Topology(#[from] DescriptionError),
    /// The description of the machine contradicts itself.
    #[error(transparent)]
    Machine(#[from] InputError),
}

fn list(warnings: &[VariableWarning]) -> String {
    warnings.iter().map(VariableWarning::to_string).collect::<Vec<_>>().join("; ")
}
