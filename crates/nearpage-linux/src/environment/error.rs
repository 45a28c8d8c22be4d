//! What is wrong with the environment, or with what it names.

use std::io;

use super::Warning;
use nearpage_machine::DescriptionError;
use nearpage_machine::InputError;
use nearpage_machine::SysfsError;

/// Why the environment does not tell what machine there is.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    /// With `NEARPAGE_ENV=strict`, something that is not understood.
    #[error("{}; NEARPAGE_ENV=strict makes this an error", list(warnings))]
    Strict {
        /// What is not understood; at least one.
        warnings: Vec<Warning>,
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
        error: io::Error,
    },
    /// The topology file describes no machine.
    #[error("NEARPAGE_NUMA: {0}")]
    Topology(#[from] DescriptionError),
    /// No machine can be made of what was read.
    #[error(transparent)]
    Machine(#[from] InputError),
}

fn list(warnings: &[Warning]) -> String {
    warnings.iter().map(Warning::to_string).collect::<Vec<_>>().join("; ")
}

/// How the CPUs of a topology file differ from those of this machine.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TopologyNote {
    /// The file names CPUs that are not there.
    #[error("{file}: CPUs that are not online here, so that nobody runs there: {cpus}")]
    AbsentCpus {
        /// The file.
        file: String,
        /// The CPUs, as a list.
        cpus: String,
    },
    /// The file leaves CPUs out.
    #[error(
        "{file}: CPUs of this machine that are on no node, so that they have no pagesets: {cpus}"
    )]
    UnnamedCpus {
        /// The file.
        file: String,
        /// The CPUs, as a list.
        cpus: String,
    },
}
