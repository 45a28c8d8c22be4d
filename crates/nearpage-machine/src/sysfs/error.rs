//! Why a copy of /sys and /proc could not be read.

use std::io;

use nearpage::{CpuId, NodeId};

/// Why a tree of files describes no machine. The message names the file, the place, and what would be
/// accepted.
#[derive(Debug, thiserror::Error)]
pub enum SysfsError {
    /// The file is there and cannot be read.
    #[error("{file}: {error}")]
    Unreadable {
        /// The file.
        file: String,
        /// Why not.
        error: io::Error,
    },
    /// The file's content is not what the kernel writes there.
    #[error("{file}:{line}:{column}: found {found:?}, expected {expected}")]
    Syntax {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
        /// The character in the line, from 1.
        column: usize,
        /// What stands there.
        found: String,
        /// What would be accepted.
        expected: String,
    },
    /// The file ends before its content does.
    #[error("{file}:{line}: ends here, expected {expected}")]
    CutOff {
        /// The file.
        file: String,
        /// Its last line, from 1.
        line: usize,
        /// What should follow.
        expected: String,
    },
    /// A node is listed as online, and its folder lacks a file that every node has.
    #[error("{file}: missing, expected the CPUs of node {node}, which is online")]
    NodeWithoutCpuList {
        /// The missing file.
        file: String,
        /// The node.
        node: NodeId,
    },
    /// Two nodes list the same CPU.
    #[error("{file}: CPU {cpu} is already on node {first}, expected each CPU on one node")]
    CpuOnTwoNodes {
        /// The list that names the CPU again.
        file: String,
        /// The CPU.
        cpu: CpuId,
        /// The node that had it first.
        first: NodeId,
    },
    /// Neither nodes nor CPUs.
    #[error(
        "{root}: has no sys/devices/system/node and no sys/devices/system/cpu, \
         expected the root of a copy of /sys and /proc"
    )]
    NoMachine {
        /// Where they were looked for.
        root: String,
    },
}

impl SysfsError {
    /// The file that is wrong or missing, as messages show it; `None` where it is no single one.
    pub fn file(&self) -> Option<&str> {
        match self {
            SysfsError::Unreadable { file, .. }
            | SysfsError::Syntax { file, .. }
            | SysfsError::CutOff { file, .. }
            | SysfsError::NodeWithoutCpuList { file, .. }
            | SysfsError::CpuOnTwoNodes { file, .. } => Some(file),
            SysfsError::NoMachine { .. } => None,
        }
    }
}
