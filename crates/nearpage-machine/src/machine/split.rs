//! Emulated nodes: one real machine presented as several.

use std::num::NonZeroU16;

use nearpage::{CpuId, NodeId};

use super::{Machine, MachineNode, default_distance};

impl Machine {
    /// This machine as `count` equal nodes, numbered from 0. The memory of all nodes is put in a row and cut into equal
    /// pieces, and the CPUs likewise. With more nodes than CPUs some nodes have none. Distances are 10 and 20. Zones are
    /// dropped, because the pieces have no addresses.
    pub fn split(&self, count: NonZeroU16) -> Machine {
        let cpus: Vec<CpuId> =
            self.nodes.iter().flat_map(|node| node.cpus.iter().copied()).collect();
        let memory = total(&self.nodes, |node| node.memory_bytes);
        let free = total(&self.nodes, |node| node.free_bytes);
        let count = usize::from(count.get());
        let node = |index: usize| MachineNode {
            id: NodeId(index as u32),
            cpus: cpus[share(cpus.len(), index, count)..share(cpus.len(), index + 1, count)]
                .to_vec(),
            memory_bytes: memory.map(|bytes| self.piece(bytes, index, count)),
            free_bytes: free.map(|bytes| self.piece(bytes, index, count)),
            zones: Vec::new(),
        };
        Machine {
            nodes: (0..count).map(node).collect(),
            distances: (0..count * count)
                .map(|entry| default_distance(entry / count, entry % count))
                .collect(),
            possible_nodes: (0..count as u32).map(NodeId).collect(),
            ..self.clone()
        }
    }

    /// The share of `bytes` that node `index` of `count` gets, in whole pages.
    fn piece(&self, bytes: u64, index: usize, count: usize) -> u64 {
        let pages = (bytes / self.page_bytes) as usize;
        (share(pages, index + 1, count) - share(pages, index, count)) as u64 * self.page_bytes
    }
}

fn total(nodes: &[MachineNode], bytes: fn(&MachineNode) -> Option<u64>) -> Option<u64> {
    nodes.iter().map(bytes).try_fold(0u64, |sum, bytes| sum.checked_add(bytes?))
}

/// Where share `index` of `count` starts in `length` items. Rounding up gives node 0 something if any node has it.
fn share(length: usize, index: usize, count: usize) -> usize {
    // In 128 bits, so that the bytes of the largest machine cannot overflow.
    (length as u128 * index as u128).div_ceil(count as u128) as usize
}
