//! What a topology must satisfy, and what is said of one that does not.

use core::fmt;

use super::node::{LOCAL_DISTANCE, MAX_NODES, Node};
use crate::units::{CpuId, NodeId, PfnRange};

/// Checks everything that [`Topology::new`](super::Topology::new) promises.
pub(super) fn check(nodes: &[Node<'_>], distances: &[u8]) -> Result<(), TopologyError> {
    check_ids(nodes)?;
    check_distances(nodes, distances)?;
    for node in nodes {
        check_cpus(node)?;
        check_memory(node)?;
    }
    for (position, later) in nodes.iter().enumerate() {
        for earlier in &nodes[..position] {
            check_disjoint(earlier, later)?;
        }
    }
    Ok(())
}

fn check_ids(nodes: &[Node<'_>]) -> Result<(), TopologyError> {
    if nodes.is_empty() {
        return Err(TopologyError::NoNodes);
    }
    if nodes.len() > MAX_NODES {
        return Err(TopologyError::TooManyNodes { nodes: nodes.len() });
    }
    match nodes.windows(2).find(|pair| pair[1].id <= pair[0].id) {
        Some(pair) => {
            Err(TopologyError::NodesNotAscending { id: pair[1].id, previous: pair[0].id })
        }
        None => Ok(()),
    }
}

fn check_distances(nodes: &[Node<'_>], distances: &[u8]) -> Result<(), TopologyError> {
    if distances.len() != nodes.len() * nodes.len() {
        let (nodes, distances) = (nodes.len(), distances.len());
        return Err(TopologyError::DistanceCount { nodes, distances });
    }
    for (from, row) in nodes.iter().zip(distances.chunks_exact(nodes.len())) {
        for (to, &distance) in nodes.iter().zip(row) {
            if from.id == to.id && distance != LOCAL_DISTANCE {
                return Err(TopologyError::LocalDistance { node: from.id, distance });
            }
            if distance < LOCAL_DISTANCE {
                return Err(TopologyError::DistanceTooSmall { from: from.id, to: to.id, distance });
            }
        }
    }
    Ok(())
}

fn check_cpus(node: &Node<'_>) -> Result<(), TopologyError> {
    for pair in node.cpus.windows(2) {
        let (previous, cpu, node) = (pair[0], pair[1], node.id);
        if cpu == previous {
            return Err(TopologyError::CpuListedTwice { node, cpu });
        }
        if cpu < previous {
            return Err(TopologyError::CpusNotAscending { node, cpu, previous });
        }
    }
    Ok(())
}

fn check_memory(node: &Node<'_>) -> Result<(), TopologyError> {
    let id = node.id;
    if let Some(&range) = node.memory.iter().find(|range| range.is_empty()) {
        return Err(TopologyError::EmptyRange { node: id, range });
    }
    for pair in node.memory.windows(2) {
        let (previous, range) = (pair[0], pair[1]);
        if !previous.intersection(range).is_empty() {
            return Err(TopologyError::RangesOverlap {
                nodes: [id, id],
                ranges: [previous, range],
            });
        }
        if range.start < previous.start {
            return Err(TopologyError::RangesNotAscending { node: id, range, previous });
        }
    }
    Ok(())
}

/// Checks that two nodes share no CPU and no frame; the lists of each are ascending.
fn check_disjoint(a: &Node<'_>, b: &Node<'_>) -> Result<(), TopologyError> {
    let nodes = [a.id, b.id];
    if let Some(&cpu) = a.cpus.iter().find(|cpu| b.cpus.binary_search(cpu).is_ok()) {
        return Err(TopologyError::CpuOnTwoNodes { cpu, nodes });
    }
    for &range in a.memory {
        let above = b.memory.partition_point(|other| other.end <= range.start);
        if let Some(&other) = b.memory.get(above)
            && other.start < range.end
        {
            return Err(TopologyError::RangesOverlap { nodes, ranges: [range, other] });
        }
    }
    Ok(())
}

/// What is wrong with the data of a topology.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TopologyError {
    /// There is no node.
    NoNodes,
    /// There are more than [`MAX_NODES`] nodes.
    TooManyNodes {
        /// Number of nodes given.
        nodes: usize,
    },
    /// A node id occurs twice, or after a larger one.
    NodesNotAscending {
        /// The node at fault.
        id: NodeId,
        /// The id before it.
        previous: NodeId,
    },
    /// The table of distances has not one entry for each pair of nodes.
    DistanceCount {
        /// Number of nodes.
        nodes: usize,
        /// Number of distances given.
        distances: usize,
    },
    /// A distance is below 10.
    DistanceTooSmall {
        /// Row.
        from: NodeId,
        /// Column.
        to: NodeId,
        /// The distance given.
        distance: u8,
    },
    /// The distance of a node to itself is not 10.
    LocalDistance {
        /// The node.
        node: NodeId,
        /// The distance given.
        distance: u8,
    },
    /// A node lists a CPU twice.
    CpuListedTwice {
        /// The node.
        node: NodeId,
        /// The CPU.
        cpu: CpuId,
    },
    /// A node lists a CPU after a larger one.
    CpusNotAscending {
        /// The node.
        node: NodeId,
        /// The CPU at fault.
        cpu: CpuId,
        /// The CPU before it.
        previous: CpuId,
    },
    /// Two nodes list the same CPU.
    CpuOnTwoNodes {
        /// The CPU.
        cpu: CpuId,
        /// The two nodes, lower id first.
        nodes: [NodeId; 2],
    },
    /// A range has no frame.
    EmptyRange {
        /// The node.
        node: NodeId,
        /// The range.
        range: PfnRange,
    },
    /// A node lists a range after a higher one.
    RangesNotAscending {
        /// The node.
        node: NodeId,
        /// The range at fault.
        range: PfnRange,
        /// The range before it.
        previous: PfnRange,
    },
    /// Two ranges share a frame; both may be of the same node.
    RangesOverlap {
        /// The two nodes, lower id first.
        nodes: [NodeId; 2],
        /// A range of each.
        ranges: [PfnRange; 2],
    },
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NoNodes => write!(f, "no node; a machine has at least one"),
            Self::TooManyNodes { nodes } => {
                write!(f, "{nodes} nodes; at most {MAX_NODES} are accepted")
            }
            Self::NodesNotAscending { id, previous } => {
                write!(f, "node {id} follows node {previous}; ids must be strictly ascending")
            }
            Self::DistanceCount { nodes, distances } => write!(
                f,
                "{distances} distances for {nodes} nodes; one for each pair is needed, {nodes} rows of {nodes}"
            ),
            Self::DistanceTooSmall { from, to, distance } => write!(
                f,
                "distance from node {from} to node {to} is {distance}; 10 to 255 are accepted"
            ),
            Self::LocalDistance { node, distance } => {
                write!(f, "distance from node {node} to itself is {distance}; it must be 10")
            }
            Self::CpuListedTwice { node, cpu } => {
                write!(f, "node {node} lists CPU {cpu} twice; once is accepted")
            }
            Self::CpusNotAscending { node, cpu, previous } => write!(
                f,
                "node {node} lists CPU {cpu} after CPU {previous}; CPUs must be strictly ascending"
            ),
            Self::CpuOnTwoNodes { cpu, nodes: [a, b] } => {
                write!(f, "CPU {cpu} is on node {a} and on node {b}; a CPU has one node")
            }
            Self::EmptyRange { node, range } => write!(
                f,
                "node {node} has the empty range {range}; a range must end above its start \
                 (a memoryless node has no range)"
            ),
            Self::RangesNotAscending { node, range, previous } => write!(
                f,
                "node {node} lists range {range} after {previous}; ranges must be ascending"
            ),
            Self::RangesOverlap { nodes: [a, b], ranges: [first, second] } => write!(
                f,
                "range {first} of node {a} and range {second} of node {b} overlap; \
                 a frame may be in one range only"
            ),
        }
    }
}

impl core::error::Error for TopologyError {}

#[cfg(test)]
mod tests {
    use std_alloc::string::{String, ToString};
    use std_alloc::vec;
    use std_alloc::vec::Vec;

    use super::*;
    use crate::topology::tests::{machine, node, vector_b};
    use crate::topology::{NodeBuf, TopologyBuf};
    use crate::units::Pfn;

    /// The printed error of a machine, or "".
    fn refusal(machine: &TopologyBuf) -> String {
        machine.with(|_| ()).err().map_or(String::new(), |error| error.to_string())
    }

    type Change<'a> = &'a dyn Fn(&mut TopologyBuf);

    #[test]
    fn refusals_name_what_is_wrong() {
        let good = vector_b();
        assert_eq!(refusal(&good), "");
        let with = |change: Change<'_>| {
            let mut bad = good.clone();
            change(&mut bad);
            refusal(&bad)
        };
        let cases: [(Change<'_>, &str); 13] = [
            (&|m| *m = machine(vec![]), "no node; a machine has at least one"),
            (
                &|m| m.nodes[1].id = NodeId(0),
                "node 0 follows node 0; ids must be strictly ascending",
            ),
            (
                &|m| m.distances.truncate(3),
                "3 distances for 2 nodes; one for each pair is needed, 2 rows of 2",
            ),
            (
                &|m| m.distances[2] = 9,
                "distance from node 1 to node 0 is 9; 10 to 255 are accepted",
            ),
            (&|m| m.distances[3] = 20, "distance from node 1 to itself is 20; it must be 10"),
            (&|m| m.nodes[0].cpus[1] = CpuId(0), "node 0 lists CPU 0 twice; once is accepted"),
            (
                &|m| m.nodes[0].cpus[0] = CpuId(9),
                "node 0 lists CPU 1 after CPU 9; CPUs must be strictly ascending",
            ),
            (
                &|m| m.nodes[1].cpus[0] = CpuId(1),
                "CPU 1 is on node 0 and on node 1; a CPU has one node",
            ),
            (
                &|m| m.nodes[1].memory[0] = PfnRange::new(0x18_0000, 0x18_0000),
                "node 1 has the empty range 0x180000..0x180000; a range must end above its start \
                 (a memoryless node has no range)",
            ),
            (
                &|m| m.nodes[0].memory.swap(0, 1),
                "node 0 lists range 0x1..0x9f after 0x100..0xbffe0; ranges must be ascending",
            ),
            (
                &|m| m.nodes[0].memory[0].end = Pfn(0x101),
                "range 0x1..0x101 of node 0 and range 0x100..0xbffe0 of node 0 overlap; \
                 a frame may be in one range only",
            ),
            (
                &|m| m.nodes[1].memory[0].start = Pfn(0x17_ffff),
                "range 0x100000..0x180000 of node 0 and range 0x17ffff..0x240000 of node 1 overlap; \
                 a frame may be in one range only",
            ),
            (
                &|m| *m = machine((0..=MAX_NODES as u32).map(|id| node(id, &[], &[])).collect()),
                "16385 nodes; at most 16384 are accepted",
            ),
        ];
        for (change, message) in cases {
            assert_eq!(with(change), message);
        }
    }

    proptest::proptest! {
        /// Overlaps are found wherever they are: the same verdict as comparing all pairs.
        #[test]
        fn overlaps_are_found(
            ranges in proptest::collection::vec((0u64..60, 1u64..6, 0usize..3), 1..8),
        ) {
            let mut nodes: Vec<NodeBuf> = (0..3).map(|id| node(id, &[], &[])).collect();
            for &(start, length, owner) in &ranges {
                nodes[owner].memory.push(PfnRange::new(start, start + length));
            }
            nodes.iter_mut().for_each(|node| node.memory.sort());
            let all: Vec<PfnRange> = nodes.iter().flat_map(|node| node.memory.clone()).collect();
            let overlap = (0..all.len())
                .any(|i| (0..i).any(|j| !all[i].intersection(all[j]).is_empty()));
            let error = machine(nodes).with(|_| ()).err();
            proptest::prop_assert_eq!(
                matches!(error, Some(TopologyError::RangesOverlap { .. })), overlap, "{:?}", error
            );
        }
    }
}
