//! Why an input describes no machine: what is wrong, in which line, and what would be accepted.

use std::io;

use nearpage::{NodeId, SettingError, TopologyError};

use crate::description::{DescriptionError, DescriptionProblem, Place};
use crate::sysfs::SysfsError;

/// An input that describes no machine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// The input cannot be opened or read.
    #[error("{input}: {error}")]
    Unreadable {
        /// The input's name.
        input: String,
        /// Why not.
        #[source]
        error: io::Error,
    },
    /// The input's content is wrong somewhere.
    #[error("{place}: {problem}")]
    Content {
        /// Where.
        place: Place,
        /// What is wrong.
        #[source]
        problem: InputProblem,
    },
    /// A copy of /sys and /proc is wrong; the message has the place.
    #[error(transparent)]
    Sysfs(#[from] SysfsError),
}

/// What is wrong with an input.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InputProblem {
    /// A problem that every kind of description can have.
    #[error(transparent)]
    Description(#[from] DescriptionProblem),
    /// The table of distances has no row for a node.
    #[error("the table of distances has no row for node {node}, expected one for each node")]
    DistancesMissing {
        /// The node.
        node: NodeId,
    },
    /// The number of nodes at the beginning of the text is not the number that it describes.
    #[error(
        "{announced} nodes are announced and {described} described, expected the whole text of one machine"
    )]
    NodeCount {
        /// How many there are.
        announced: usize,
        /// How many are described.
        described: usize,
    },
    /// A row of the table of distances has too many or too few values.
    #[error("the row of node {node} has {found} distances, expected {expected}, one for each node")]
    DistanceCount {
        /// The row's node.
        node: NodeId,
        /// How many there are.
        found: usize,
        /// How many there should be.
        expected: usize,
    },
    /// numactl ran on a kernel without NUMA and printed neither memory nor CPUs.
    #[error(
        "numactl found no NUMA on that system and says nothing of its memory and CPUs, \
         expected --numa SIZE,cpus=LIST for its only node, or a copy of its /sys and /proc"
    )]
    NoNuma,
    /// More memory than addresses.
    #[error("the nodes have more memory than the {max_tebibytes} TiB that can be addressed")]
    TooMuchMemory {
        /// The most there can be.
        max_tebibytes: u64,
    },
    /// Bytes that are neither text nor an archive.
    #[error("byte {offset} is {byte:#04x}: neither text nor an archive, expected {expected}")]
    Binary {
        /// Where, from 0.
        offset: usize,
        /// What stands there.
        byte: u8,
        /// What would be accepted.
        expected: &'static str,
    },
    /// Zeros and nothing else.
    #[error("all {bytes} bytes are zero, as of a tar archive without files, expected {expected}")]
    Zeros {
        /// How many there are.
        bytes: usize,
        /// What would be accepted.
        expected: &'static str,
    },
    /// A file that is no copy of /sys and /proc.
    #[error("not an archive, expected a folder or a tar archive with a copy of /sys and /proc")]
    NoTree,
    /// An archive that cannot be unpacked.
    #[error(
        "{what}: {error}, expected a whole tar archive of /sys and /proc, plain or packed with \
         gzip, bzip2, xz or zstd"
    )]
    Archive {
        /// What kind of archive it was taken for.
        what: &'static str,
        /// Why not.
        #[source]
        error: io::Error,
    },
    /// A text that begins as XML and is none.
    #[error("{0}, expected the XML that `lstopo --of xml` writes")]
    Xml(String),
    /// A setting of the machine that no Linux accepts.
    #[error("{0}")]
    Setting(#[source] SettingError),
    /// The core refuses the machine for a reason that no reader checks.
    #[error("{0}")]
    Topology(#[source] TopologyError),
}

impl InputProblem {
    /// The problem of a text that has `found` where `expected` belongs.
    pub(crate) fn syntax(found: &str, expected: impl Into<String>) -> InputProblem {
        DescriptionProblem::syntax(found, expected).into()
    }

    /// This problem at a place.
    pub fn at(self, place: &Place) -> InputError {
        InputError::Content { place: place.clone(), problem: self }
    }
}

impl From<DescriptionError> for InputError {
    fn from(error: DescriptionError) -> InputError {
        InputError::Content { place: error.place, problem: error.problem.into() }
    }
}
