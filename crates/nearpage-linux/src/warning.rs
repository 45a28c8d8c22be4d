//! What a memory has otherwise than it was asked for.

use std::fmt;
use std::io;

/// Something that is not as it was asked for, and that a memory does without. See
/// [`Memory::warnings`](crate::Memory::warnings) and [`Environment::warnings`](crate::Environment::warnings).
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Warning {
    /// A variable of the environment, or an item of its value, that means nothing.
    #[error("{0}; ignored")]
    Ignored(VariableWarning),
    /// The topology file names CPUs that are not there.
    #[error("{file}: CPUs that are not online here, so that nobody runs there: {cpus}")]
    AbsentCpus {
        /// The file.
        file: String,
        /// The CPUs, as a list.
        cpus: String,
    },
    /// The topology file leaves CPUs out.
    #[error(
        "{file}: CPUs of this machine that are on no node, so that they have no pagesets: {cpus}"
    )]
    UnnamedCpus {
        /// The file.
        file: String,
        /// The CPUs, as a list.
        cpus: String,
    },
    /// The kernel does not bind memory to nodes for this process.
    #[error(
        "mbind is refused ({}); the first thread to touch a page places it",
        io::Error::from_raw_os_error(*errno)
    )]
    MbindRefused {
        /// What the kernel said.
        errno: i32,
    },
    /// The kernel does not let this process stop sequences on other CPUs.
    #[error(
        "membarrier is refused ({}); pagesets use a lock per CPU",
        io::Error::from_raw_os_error(*errno)
    )]
    MembarrierRefused {
        /// What the kernel said.
        errno: i32,
    },
}

/// A variable of the environment, or an item of its value, that is not understood.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct VariableWarning {
    /// The variable.
    pub variable: String,
    /// The value, or an item of it; `None` if there is no such variable.
    pub found: Option<String>,
    /// What may have been meant.
    pub nearest: Option<&'static str>,
    /// What would be accepted.
    pub expected: &'static str,
}

impl fmt::Display for VariableWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.found {
            Some(found) => write!(f, "{}: found {found:?}", self.variable)?,
            None => write!(f, "{}: there is no such variable", self.variable)?,
        }
        if let Some(nearest) = self.nearest {
            write!(f, " (did you mean {nearest}?)")?;
        }
        write!(f, ", expected {}", self.expected)
    }
}
