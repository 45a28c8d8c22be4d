//! A machine as data.

use nearpage::internals::SECTION_FRAMES;
use nearpage::{AddressMap, CpuId, NodeBuf, NodeId, PfnRange, TopologyBuf};

/// A node of a [`Machine`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeSpec {
    /// Its number; ids may have gaps.
    pub id: NodeId,
    /// Memory; 0 for a memoryless node.
    pub bytes: u64,
    /// CPUs; none for a node that has memory only.
    pub cpus: Vec<CpuId>,
}

/// Nodes, CPUs, distances, memory and page size.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Machine {
    /// Nodes, ascending by id.
    pub nodes: Vec<NodeSpec>,
    /// Distances, row by row in the order of `nodes`.
    pub distances: Vec<u8>,
    /// Log2 of the page size in bytes.
    pub page_shift: u32,
}

impl Machine {
    /// A machine of equal nodes, at distance 20 from each other, with pages of 4 KiB.
    pub fn uniform(nodes: u32, cpus_per_node: u32, bytes_per_node: u64) -> Self {
        let cpus = |id| (id * cpus_per_node..(id + 1) * cpus_per_node).map(CpuId).collect();
        let node = |id| NodeSpec { id: NodeId(id), bytes: bytes_per_node, cpus: cpus(id) };
        let distance = |at| if at / nodes == at % nodes { 10 } else { 20 };
        Self {
            nodes: (0..nodes).map(node).collect(),
            distances: (0..nodes * nodes).map(distance).collect(),
            page_shift: 12,
        }
    }

    /// The topology for the core: all memory in Normal zones, each node's from a section of its own, so that no
    /// two nodes share metadata.
    pub fn topology(&self) -> TopologyBuf {
        let mut next = SECTION_FRAMES as u64;
        let mut nodes = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let pages = node.bytes >> self.page_shift;
            let memory = PfnRange::new(next, next + pages);
            next = memory.end.0.next_multiple_of(SECTION_FRAMES as u64);
            nodes.push(NodeBuf {
                id: node.id,
                memory: if pages > 0 { vec![memory] } else { Vec::new() },
                cpus: node.cpus.clone(),
                movable_from: None,
            });
        }
        TopologyBuf { nodes, distances: self.distances.clone(), address_map: AddressMap::Flat }
    }

    /// The distinct distances, ascending: class 0 is a node's own.
    pub fn distance_classes(&self) -> Vec<u8> {
        let mut classes = self.distances.clone();
        classes.sort_unstable();
        classes.dedup();
        classes
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> u64 {
        1 << self.page_shift
    }

    /// All CPUs with the position of their node, in order of nodes.
    pub fn cpus(&self) -> impl Iterator<Item = (CpuId, usize)> + '_ {
        let of_node = |(index, node): (usize, &NodeSpec)| {
            node.cpus.iter().map(move |&cpu| (cpu, index)).collect::<Vec<_>>()
        };
        self.nodes.iter().enumerate().flat_map(of_node)
    }
}

/// Nodes, CPUs, distances, page size and memory by size. Memory that is not known is none.
impl From<&nearpage_machine::Machine> for Machine {
    fn from(described: &nearpage_machine::Machine) -> Self {
        let node = |node: &nearpage_machine::MachineNode| NodeSpec {
            id: node.id,
            bytes: node.memory_bytes.unwrap_or(0),
            cpus: node.cpus.clone(),
        };
        Self {
            nodes: described.nodes.iter().map(node).collect(),
            distances: described.distances.clone(),
            page_shift: described.page_bytes.trailing_zeros(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_lie_in_sections_of_their_own() {
        let mut machine = Machine::uniform(3, 2, 100 << 20);
        machine.nodes[1].bytes = 0;
        let topology = machine.topology();
        assert!(topology.with(|topology| topology.len()).is_ok());
        let starts: Vec<u64> = topology
            .nodes
            .iter()
            .flat_map(|node| &node.memory)
            .map(|range| range.start.0)
            .collect();
        assert_eq!(starts, [32_768, 65_536]);
        assert_eq!(machine.distance_classes(), [10, 20]);
        assert_eq!(machine.cpus().nth(3), Some((CpuId(3), 1)));
    }
}
