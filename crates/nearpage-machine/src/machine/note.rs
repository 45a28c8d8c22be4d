//! What a reader had to assume about a machine.

use std::fmt;

use nearpage::NodeId;

use crate::idlist;

/// An assumption of a reader, where the input lacks something or contradicts itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Note {
    /// The distances of nodes are unknown: taken as 10 to themselves, 20 to others.
    DistancesAssumed {
        /// The nodes, ascending.
        nodes: Vec<u32>,
    },
    /// Two emulated nodes list the same CPUs: the first keeps them.
    CpusShared {
        /// The node that lost them.
        node: NodeId,
        /// The node that keeps them.
        first: NodeId,
    },
    /// A node's CPUs are unknown: taken as none.
    CpusUnknown {
        /// The node.
        node: NodeId,
    },
    /// CPUs are online and on no node's list: taken as a node's.
    CpusWithoutNode {
        /// The CPUs, ascending.
        cpus: Vec<u32>,
        /// The node that has them now: the one that the CPUs' folders name, else the only one without a list, else the first.
        node: NodeId,
    },
    /// The text describes the machine several times.
    Again {
        /// How often.
        times: usize,
    },
    /// A node's memory is unknown: taken as none.
    MemoryUnknown {
        /// The node.
        node: NodeId,
    },
    /// A node has more free memory than memory: all of it is taken as free. A running kernel prints this, because it
    /// counts the two at different moments, and free pages on each CPU apart. Every reader treats it alike.
    FreeExceedsSize {
        /// The node.
        node: NodeId,
        /// What is free, in bytes.
        free: u64,
        /// What there is, in bytes.
        size: u64,
    },
    /// /proc/zoneinfo lacks the extent of a zone: all zones are left out.
    ZonesUnknown,
    /// /proc/zoneinfo exists and has no bytes: all zones are left out. `tar` makes such copies of /proc, whose files have
    /// a size of 0, and containers hide files like this.
    ZonesEmpty,
    /// The zones lack much of a node's memory: all zones are left out.
    ZonesIncomplete {
        /// The node.
        node: NodeId,
        /// What its zones manage, in bytes.
        managed: u64,
        /// What there is, in bytes.
        size: u64,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::DistancesAssumed { nodes } => {
                let (s, whose) = if nodes.len() == 1 { ("", "itself") } else { ("s", "themselves") };
                let nodes = idlist::format(nodes);
                write!(
                    f,
                    "the distances of node{s} {nodes} are unknown: taken as 10 to {whose}, 20 to others"
                )
            }
            Note::CpusShared { node, first } => {
                write!(f, "nodes {first} and {node} list the same CPUs: taken as node {first}'s")
            }
            Note::CpusWithoutNode { cpus, node } => {
                let cpus = idlist::format(cpus);
                write!(f, "CPUs {cpus} are online and on no node's list: taken as node {node}'s")
            }
            Note::Again { times } => {
                write!(f, "the text describes this machine {times} times: what is free is the first's")
            }
            Note::MemoryUnknown { node } => {
                write!(f, "the memory of node {node} is unknown: taken as none")
            }
            Note::CpusUnknown { node } => {
                write!(f, "the CPUs of node {node} are unknown: taken as none")
            }
            Note::FreeExceedsSize { node, free, size } => {
                let (free, size) = (free >> 10, size >> 10);
                write!(
                    f,
                    "node {node} has {free} kB free and a size of {size} kB: taken as all free"
                )
            }
            Note::ZonesUnknown => f.write_str(
                "proc/zoneinfo does not tell where each zone lies: zones and addresses are taken as unknown",
            ),
            Note::ZonesEmpty => f.write_str(
                "proc/zoneinfo is empty, as tar leaves files that it takes from /proc itself: zones and addresses are \
                 taken as unknown",
            ),
            Note::ZonesIncomplete { node, managed, size } => {
                let (managed, size) = (managed >> 10, size >> 10);
                write!(
                    f,
                    "proc/zoneinfo tells of {managed} kB of node {node}, which has {size} kB: \
                     zones and addresses are taken as unknown"
                )
            }
        }
    }
}
