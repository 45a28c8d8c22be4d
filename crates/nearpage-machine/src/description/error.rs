//! Why a text describes no machine: what is wrong, in which line, and what would be accepted.

use std::fmt;

use nearpage::{CpuId, NodeId};

use crate::idlist::{IdListProblem, excerpt};
use crate::machine::NODES_MAX;

/// Where in the input something stands.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
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
    /// A place in a line, both from 1.
    Column {
        /// The input's name.
        input: String,
        /// The line.
        line: usize,
        /// The byte in it.
        column: usize,
    },
    /// The values of the short form as a whole, where a program hands them over without a text.
    Values,
    /// One of the values that describe a node, from 1.
    NodeValue(usize),
    /// One of the values that set a distance, from 1.
    DistanceValue(usize),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Input(input) => f.write_str(input),
            Place::Line { input, line } => write!(f, "{input}:{line}"),
            Place::Column { input, line, column } => write!(f, "{input}:{line}:{column}"),
            Place::Values => f.write_str("short form"),
            Place::NodeValue(number) => write!(f, "node number {number}"),
            Place::DistanceValue(number) => write!(f, "distance number {number}"),
        }
    }
}

/// A text that describes no machine.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct DescriptionError {
    /// Where.
    pub place: Place,
    /// What is wrong.
    #[source]
    pub problem: DescriptionProblem,
}

/// What is wrong with a description.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DescriptionProblem {
    /// The text is wrong at its place.
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
        #[source]
        problem: IdListProblem,
    },
    /// The text says something twice.
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
    #[error("node {node} is not there, expected {}", some_of(.known))]
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
    /// There are more nodes than a machine may have.
    #[error(
        "one node more than {NODES_MAX}, expected at most {NODES_MAX}, as Linux has (MAX_NUMNODES)"
    )]
    TooManyNodes,
    /// No node is described.
    #[error("describes no node, expected {expected}")]
    NoNodes {
        /// What would be accepted.
        expected: &'static str,
    },
}

impl DescriptionProblem {
    /// The problem of a text that has `found`, here shortened, where `expected` belongs.
    pub fn syntax(found: &str, expected: impl Into<String>) -> DescriptionProblem {
        DescriptionProblem::Syntax { found: excerpt(found), expected: expected.into() }
    }

    /// This problem at a place.
    pub fn at(self, place: &Place) -> DescriptionError {
        DescriptionError { place: place.clone(), problem: self }
    }
}

/// What would be accepted in the place of a node that is not there.
fn some_of(known: &str) -> String {
    match known {
        "" => "nodes with CPUs or memory before distances between them".into(),
        _ => format!("some of {known}"),
    }
}
