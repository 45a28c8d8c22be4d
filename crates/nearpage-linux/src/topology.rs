//! The topology of a memory, which its allocator borrows.

use nearpage::{
    AddressMap, Node, NodeBuf, NodeId, Pfn, PfnRange, Topology, TopologyBuf, TopologyError,
};

use crate::machine::HostMachine;

/// A topology that lives as long as the allocator that borrows it.
pub(crate) struct OwnedTopology {
    topology: Topology<'static>,
    nodes: *mut [Node<'static>],
    buf: *mut TopologyBuf,
}

// SAFETY: plain data that nobody writes; the pointers are its owners.
unsafe impl Send for OwnedTopology {}
// SAFETY: as for Send.
unsafe impl Sync for OwnedTopology {}

impl OwnedTopology {
    pub fn new(
        machine: &HostMachine,
        ranges: &[(NodeId, PfnRange)],
    ) -> Result<Self, TopologyError> {
        let memory_of = |id: NodeId| {
            ranges.iter().filter(|(node, _)| *node == id).map(|(_, range)| *range).collect()
        };
        let nodes = machine.nodes.iter().map(|node| NodeBuf {
            id: node.id,
            memory: memory_of(node.id),
            cpus: node.cpus.clone(),
            movable_from: None::<Pfn>,
        });
        let buf: &'static TopologyBuf = Box::leak(Box::new(TopologyBuf {
            nodes: nodes.collect(),
            distances: machine.distances.clone(),
            address_map: AddressMap::Flat,
        }));
        let nodes: &'static [Node<'static>] =
            Box::leak(buf.nodes.iter().map(NodeBuf::as_node).collect());
        let owners = (std::ptr::from_ref(nodes).cast_mut(), std::ptr::from_ref(buf).cast_mut());
        match Topology::new(nodes, &buf.distances, buf.address_map) {
            Ok(topology) => Ok(Self { topology, nodes: owners.0, buf: owners.1 }),
            Err(error) => {
                // SAFETY: both were just leaked from boxes, and nothing borrows them any more.
                unsafe { free_leaked(owners.0, owners.1) };
                Err(error)
            }
        }
    }

    /// The topology, for those who are dropped before this.
    pub fn get(&self) -> Topology<'static> {
        self.topology
    }
}

/// # Safety
/// * Both pointers come from leaked boxes, and nothing borrows from them any more.
unsafe fn free_leaked(nodes: *mut [Node<'static>], buf: *mut TopologyBuf) {
    // SAFETY: as the caller promised.
    unsafe {
        drop(Box::from_raw(nodes));
        drop(Box::from_raw(buf));
    }
}

impl Drop for OwnedTopology {
    fn drop(&mut self) {
        // SAFETY: `new` leaked both; `Memory` drops the allocator, the only borrower, before this.
        unsafe { free_leaked(self.nodes, self.buf) };
    }
}
