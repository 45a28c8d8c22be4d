//! A memory as an allocator of collections: `allocator_api2::Allocator`.

use std::alloc::Layout;
use std::ptr::NonNull;

use allocator_api2::alloc::{AllocError, Allocator};
use nearpage::{Gfp, NodeId, Order, Pfn, Placement, Request};

use crate::frame::{FRAME_BYTES, order_of};
use crate::memory::Memory;

/// A memory as an allocator of collections. It gives whole pages: near the calling thread's CPU, near one node, or by a
/// placement. Sizes are rounded up to 2^n pages, and more than 4 MiB are refused.
///
/// ```
/// use allocator_api2::vec::Vec;
/// use nearpage_linux::Memory;
///
/// let memory = Memory::builder().bytes_per_node(16 << 20).build()?;
/// let mut numbers = Vec::new_in(memory.allocator(None));
/// numbers.push(7);
/// assert_eq!(numbers[0], 7);
/// # Ok::<(), nearpage_linux::MemoryError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct NodeAllocator<'a> {
    memory: &'a Memory,
    request: Request,
    placement: Option<Placement<'a>>,
}

impl Memory {
    /// This memory as an allocator of collections, near `node` or near the calling thread's CPU.
    pub fn allocator(&self, node: Option<NodeId>) -> NodeAllocator<'_> {
        self.allocator_for(Request { node, ..Request::new(Order(0), Gfp::HIGHUSER_MOVABLE) })
    }

    /// This memory as an allocator of collections. Each allocation is a request like this one, of the order that it needs.
    pub fn allocator_for(&self, request: Request) -> NodeAllocator<'_> {
        NodeAllocator { memory: self, request, placement: None }
    }
}

impl<'a> NodeAllocator<'a> {
    /// The same by a placement.
    #[must_use]
    pub fn placed(self, placement: Placement<'a>) -> Self {
        Self { placement: Some(placement), ..self }
    }

    fn alloc_frames(&self, order: Order) -> Result<Pfn, AllocError> {
        let request = Request { order, ..self.request };
        let pfn = match &self.placement {
            None => self.memory.alloc_frames(request),
            Some(placement) => self.memory.alloc_frames_with(placement, request),
        };
        pfn.map_err(|_| AllocError)
    }
}

/// The smallest block that has room for `layout`: blocks are aligned to their size.
fn order_for(layout: Layout) -> Result<Order, AllocError> {
    let bytes = layout.size().max(layout.align()) as u64;
    order_of(bytes.div_ceil(FRAME_BYTES)).map_err(|_| AllocError)
}

// SAFETY: a block is its owner's until it is freed, wherever the handle is copied or moved, since the memory is
// borrowed for as long as any handle lives.
unsafe impl Allocator for NodeAllocator<'_> {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if layout.size() == 0 {
            let dangling = std::ptr::without_provenance_mut(layout.align());
            let dangling = NonNull::new(dangling).ok_or(AllocError)?;
            return Ok(NonNull::slice_from_raw_parts(dangling, 0));
        }
        let order = order_for(layout)?;
        let pfn = self.alloc_frames(order)?;
        let bytes = (order.pages().0 * FRAME_BYTES) as usize;
        Ok(NonNull::slice_from_raw_parts(self.memory.address(pfn), bytes))
    }

    unsafe fn deallocate(&self, start: NonNull<u8>, layout: Layout) {
        if layout.size() == 0 {
            return;
        }
        let Ok(order) = order_for(layout) else { return };
        // A layout that fits the block has its order: `allocate` rounds up to it. A wrong free is reported.
        // SAFETY: the caller gives up a block that `allocate` returned.
        let _ = unsafe { self.memory.free_frames(self.memory.frame_of(start), order) };
    }
}

#[cfg(test)]
mod tests {
    use allocator_api2::boxed::Box;
    use allocator_api2::vec::Vec;
    use nearpage::{CpuId, NodeSet, Policy};

    use super::*;
    use crate::machine::{HostMachine, HostNode};

    #[test]
    fn collections_live_in_a_memory() {
        let memory = Memory::builder().bytes_per_node(64 << 20).build().unwrap();
        let node = memory.topology().nodes()[0].id;
        let allocator = memory.allocator(Some(node));
        {
            let mut numbers = Vec::new_in(allocator);
            (0..200_000_u64).for_each(|number| numbers.push(number));
            assert!(numbers.iter().copied().eq(0..200_000));
            let first = NonNull::from(&numbers[0]).cast();
            assert_eq!(memory.node_of(memory.frame_of(first)), Some(node));
            assert!(memory.misuses() == 0 && memory.free_pages(node) < memory.managed_pages(node));
            let empty: Box<(), _> = Box::new_in((), allocator);
            drop(empty);
            numbers.shrink_to_fit();
        }
        memory.drain_all().unwrap();
        assert_eq!((memory.check().unwrap().allocated.0, memory.misuses()), (0, 0));
    }

    /// The trait is that of the crates that people use: a map of `hashbrown` takes the memory, and `bumpalo` has the same one.
    #[test]
    fn other_peoples_collections_take_it() {
        let memory = Memory::builder().bytes_per_node(16 << 20).build().unwrap();
        let mut map = hashbrown::HashMap::with_capacity_in(4, memory.allocator(None));
        map.extend((0..10_000_u64).map(|number| (number, number * number)));
        assert_eq!(map[&99], 9801);
        drop(map);
        let bump = bumpalo::Bump::new();
        let both: (Vec<u8, _>, Vec<u8, _>) =
            (Vec::new_in(&bump), Vec::new_in(memory.allocator(None)));
        drop(both);
        memory.drain_all().unwrap();
        assert_eq!(memory.check().unwrap().allocated.0, 0);
    }

    #[test]
    fn collections_follow_a_policy() {
        let cpus = (0..256).map(CpuId).collect();
        let node = |id, cpus| HostNode { id: NodeId(id), cpus, has_memory: true };
        let nodes = vec![node(0, cpus), node(1, std::vec::Vec::new())];
        let machine = HostMachine { nodes, distances: vec![10, 20, 20, 10], emulated: true };
        let memory = Memory::builder().machine(machine).bytes_per_node(64 << 20).build().unwrap();
        let mut words = [0];
        let set = NodeSet::new(memory.topology(), [NodeId(1)], &mut words).unwrap();
        let allocator = memory.allocator(None).placed(Placement::by(Policy::Bind(set)));
        let number = Box::new_in(7, allocator);
        let frame = memory.frame_of(NonNull::from(&*number).cast());
        assert_eq!(memory.node_of(frame), Some(NodeId(1)));
    }

    #[test]
    fn what_is_too_large_is_refused() {
        let memory = Memory::builder().bytes_per_node(64 << 20).build().unwrap();
        let allocator = memory.allocator(None);
        let layout = |bytes, align| Layout::from_size_align(bytes, align).unwrap();
        assert!(allocator.allocate(layout((4 << 20) + 1, 1)).is_err());
        let aligned = allocator.allocate(layout(8, 1 << 20)).unwrap();
        assert_eq!(
            (aligned.cast::<u8>().as_ptr().align_offset(1 << 20), aligned.len()),
            (0, 1 << 20)
        );
        // SAFETY: just allocated with this layout.
        unsafe { allocator.deallocate(aligned.cast(), layout(8, 1 << 20)) };
        assert_eq!(memory.misuses(), 0);
    }
}
