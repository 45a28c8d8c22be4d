//! Why a copy of /sys and /proc could not be read.

use std::io;

use nearpage::{CpuId, NodeId};

/// Why a tree of files describes no machine. The message names the file, the place, and what would be
/// accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SysfsError {
    /// The file is there and cannot be read.
    #[error("{file}: {error}")]
    Unreadable {
        /// The file.
        file: String,
        /// Why not.
        #[source]
        error: io::Error,
    },
    /// The kernel never writes such a content.
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
    /// No node's list of CPUs has any bytes: a container mounted /dev/null over them.
    #[error("{file}: has no bytes, nor have the others of its kind, expected a node with CPUs")]
    CpuListsHidden {
        /// The first of the lists.
        file: String,
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
    /// Neither nodes nor CPUs, on the machine that runs this.
    #[error(
        "this machine: /sys has no devices/system/node and no devices/system/cpu, \
         expected sysfs to be mounted there"
    )]
    NoSysfs,
}

impl SysfsError {
    /// The file that is wrong or missing, as messages show it; `None` if the error is about several files.
    pub fn file(&self) -> Option<&str> {
        match self {
            SysfsError::Unreadable { file, .. }
            | SysfsError::Syntax { file, .. }
            | SysfsError::CutOff { file, .. }
            | SysfsError::NodeWithoutCpuList { file, .. }
            | SysfsError::CpuOnTwoNodes { file, .. } => Some(file),
            SysfsError::CpuListsHidden { file } => Some(file),
            SysfsError::NoMachine { .. } | SysfsError::NoSysfs => None,
        }
    }
}
