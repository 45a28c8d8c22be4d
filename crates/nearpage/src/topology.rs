//! The machine as plain data: nodes, their memory and CPUs, distances between them.
//!
//! Node ids are sparse, nodes may have no memory or no CPU, distances need not be symmetric, a node may
//! have several ranges with holes between them. Nothing here indexes by id.

use crate::units::{CpuId, NodeId, NodeIndex, PfnRange};

/// One node of a machine.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    /// The number by which the machine knows the node.
    pub id: NodeId,
    /// All memory that the node has or may get later, ascending, not overlapping; empty for a memoryless node.
    pub memory: &'a [PfnRange],
    /// CPUs of the node, ascending; empty for a CPU-less node.
    pub cpus: &'a [CpuId],
}

/// How addresses are divided into zones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AddressMap {
    /// All memory is in a Normal zone: user space.
    Flat,
    /// DMA below 16 MiB, DMA32 below 4 GiB, Normal above (pages of 4 KiB). `arch/x86/mm/init.c: zone_sizes_init`.
    X86,
}

/// A machine: validated nodes in ascending order of ids and the distances between them.
#[derive(Clone, Copy, Debug)]
pub struct Topology<'a> {
    nodes: &'a [Node<'a>],
    distances: &'a [u8],
    address_map: AddressMap,
}

impl<'a> Topology<'a> {
    /// The nodes, ascending by id.
    pub fn nodes(&self) -> &'a [Node<'a>] {
        self.nodes
    }

    /// How addresses are divided into zones.
    pub fn address_map(&self) -> AddressMap {
        self.address_map
    }

    /// The distance from node `from` to node `to`.
    pub fn distance(&self, from: NodeIndex, to: NodeIndex) -> u8 {
        self.distances[from.0 as usize * self.nodes.len() + to.0 as usize]
    }
}

/// A node of a [`TopologyBuf`].
#[cfg(any(test, feature = "alloc"))]
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeBuf {
    /// The number by which the machine knows the node.
    pub id: NodeId,
    /// Memory, ascending; empty for a memoryless node.
    pub memory: std_alloc::vec::Vec<PfnRange>,
    /// CPUs, ascending; empty for a CPU-less node.
    pub cpus: std_alloc::vec::Vec<CpuId>,
}

/// A machine that owns its data, for hosts with a heap. Not validated until it is used.
#[cfg(any(test, feature = "alloc"))]
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopologyBuf {
    /// The nodes, ascending by id.
    pub nodes: std_alloc::vec::Vec<NodeBuf>,
    /// Distances, row by row in the order of `nodes`: entry `from * nodes.len() + to`.
    pub distances: std_alloc::vec::Vec<u8>,
    /// How addresses are divided into zones.
    pub address_map: AddressMap,
}
