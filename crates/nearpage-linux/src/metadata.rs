//! Memory for what describes memory: each node's on the node itself.

use nearpage::{NodeId, NodeIndex, Topology};

use crate::binding::Binding;
use crate::error::MemoryError;
use crate::region::{Region, page_size};

/// A region for each node that has something to describe.
#[derive(Debug)]
pub(crate) struct Metadata(Vec<(NodeIndex, Region)>);

impl Metadata {
    /// Regions of the size that `bytes_of` asks for, which the kernel is asked to place on their nodes.
    pub fn new(
        topology: &Topology<'_>,
        binding: &mut Binding,
        bytes_of: impl Fn(NodeIndex) -> Result<usize, MemoryError>,
    ) -> Result<Self, MemoryError> {
        let mut regions = Vec::new();
        for index in topology.indexes() {
            let bytes = bytes_of(index)?;
            if bytes > 0 {
                regions.push((index, region(topology.node(index).id, bytes, binding)?));
            }
        }
        Ok(Self(regions))
    }

    /// The memory of a node: zeroes.
    ///
    /// # Safety
    /// * It is asked for once for each node, with the size that `bytes_of` told.
    /// * Nothing refers to it when this is dropped.
    pub unsafe fn of_node(&self, node: NodeIndex, bytes: usize) -> &'static mut [u8] {
        let region = self.0.iter().find(|(index, _)| *index == node);
        let (_, region) = region.expect("a size was told for this node");
        // SAFETY: the region is `bytes` long and usable; that it is the caller's alone, he promised.
        unsafe { std::slice::from_raw_parts_mut(region.start().as_ptr(), bytes) }
    }
}

fn region(node: NodeId, bytes: usize, binding: &mut Binding) -> Result<Region, MemoryError> {
    let no_memory = |error| MemoryError::NoMemory { node, bytes: bytes as u64, error };
    let region = Region::reserve(bytes, page_size()).map_err(no_memory)?;
    region.make_usable(0, bytes).map_err(no_memory)?;
    binding
        .bind(region.start(), bytes.next_multiple_of(page_size()), node)
        .map_err(|error| MemoryError::CannotBind { node, error })?;
    Ok(region)
}
