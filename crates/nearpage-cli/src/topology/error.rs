//! Why an input describes no machine: what is wrong, in which line, and what would be accepted.

use std::fmt;
use std::io;

use nearpage::topology::TopologyError;
use nearpage::units::{CpuId, NodeId};
use nearpage::watermark::SettingError;
use nearpage_linux::idlist::IdListProblem;
use nearpage_linux::sysfs::SysfsError;

/// Where in the input something stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// The whole input.
    Input(String),
    /// A line of it, from 1.
    Line {
        /// The input's name.
        input: String,
        /// The line.
        line: usize,
    },
    /// An option of the command line: the `number`th of its name, from 1.
    Option {
        /// The option, `--numa` or `--numa-distance`.
        name: &'static str,
        /// Which one of them.
        number: usize,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Input(input) => f.write_str(input),
            Place::Line { input, line } => write!(f, "{input}:{line}"),
            Place::Option { name, number } => write!(f, "{name} number {number}"),
        }
    }
}

/// An input that describes no machine.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The input cannot be opened or read.
    #[error("{input}: {error}")]
    Unreadable {
        /// The input's name.
        input: String,
        /// Why not.
        error: io::Error,
    },
    /// The input's content is wrong somewhere.
    #[error("{place}: {problem}")]
    Content {
        /// Where.
        place: Place,
        /// What is wrong.
        problem: Problem,
    },
    /// A copy of /sys and /proc is wrong; the message has the place.
    #[error(transparent)]
    Sysfs(#[from] SysfsError),
}

/// What is wrong with an input.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// Something else stands where something known belongs.
    #[error("found {found:?}, expected {expected}")]
    Syntax {
        /// What stands there.
        found: String,
        /// What would be accepted.
        expected: String,
    },
    /// A list of CPUs or nodes is wrong.
    #[error("in {list:?}: {problem}")]
    Ids {
        /// The list.
        list: String,
        /// What is wrong with it.
        problem: IdListProblem,
    },
    /// Something is said twice.
    #[error("{what} is given again, expected it once")]
    Repeated {
        /// What is repeated.
        what: String,
    },
    /// A CPU is on two nodes, or twice on one.
    #[error("CPU {cpu} is already on node {first}, expected each CPU on one node")]
    CpuTaken {
        /// The CPU.
        cpu: CpuId,
        /// The node that has it.
        first: NodeId,
    },
    /// A distance names a node that is not there.
    #[error("node {node} is not there, expected some of {known}")]
    UnknownNode {
        /// The node.
        node: NodeId,
        /// The nodes that are there, as a list.
        known: String,
    },
    /// A distance out of range.
    #[error("the distance from node {from} to node {to} is {distance}, expected 10 to 255")]
    Distance {
        /// From this node.
        from: NodeId,
        /// To this node.
        to: NodeId,
        /// The distance as written.
        distance: String,
    },
    /// A node's distance to itself is not 10.
    #[error("the distance of node {node} to itself is {distance}, expected 10")]
    LocalDistance {
        /// The node.
        node: NodeId,
        /// The distance as written.
        distance: String,
    },
    /// The table of distances has no row for a node.
    #[error("the table of distances has no row for node {node}, expected one for each node")]
    DistancesMissing {
        /// The node.
        node: NodeId,
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
    /// No node is described.
    #[error("describes no node, expected {expected}")]
    NoNodes {
        /// What would be accepted.
        expected: &'static str,
    },
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
    /// An archive that cannot be unpacked.
    #[error("{what}: {error}")]
    Archive {
        /// What kind of archive it was taken for.
        what: &'static str,
        /// Why not.
        error: io::Error,
    },
    /// A setting of the machine that no Linux accepts.
    #[error("{0}")]
    Setting(SettingError),
    /// What the core refuses and no reader names.
    #[error("{0}")]
    Topology(TopologyError),
}

impl Problem {
    /// `found` where `expected` belongs.
    pub(super) fn syntax(found: &str, expected: impl Into<String>) -> Problem {
        Problem::Syntax { found: excerpt(found), expected: expected.into() }
    }

    /// This problem at a place.
    pub fn at(self, place: &Place) -> InputError {
        InputError::Content { place: place.clone(), problem: self }
    }
}

/// The start of an input, short enough for a message.
fn excerpt(text: &str) -> String {
    const CHARACTERS_MAX: usize = 60;
    let mut short: String = text.chars().take(CHARACTERS_MAX).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
