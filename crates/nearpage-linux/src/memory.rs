//! [`Memory`]: one allocator on real memory.
//!
//! Each node has a reserved range of addresses, aligned to sections; a frame number is an address divided
//! by 4096. Memory is brought online in that range, bound to its node as far as the kernel lets us, and
//! handed to the core, whose metadata lies on the node it describes.

mod block;
mod mapped;
mod online;
mod placed;
mod texts;
mod upkeep;
mod verify;

use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use nearpage::{
    AllocError, BulkFreeError, FreeError, Gfp, NodeId, Order, Pfn, PfnRange, Request, Topology,
};

use crate::binding::Binding;
use crate::fork::Registration;
use crate::frame::FRAME_SHIFT;
use crate::growth::Growth;
use crate::huge::HugePagesByNode;
use crate::in_use::StorageInUse;
use crate::metadata::Metadata;
use crate::objects::{Objects, Upkeep};
use crate::pages::{Allocator, Pages};
use crate::region::Region;
use crate::topology::OwnedTopology;
use crate::waiting::Line;
use crate::warning::Warning;

pub use block::{OwnedPages, PageBlock};
pub use mapped::MappedBytes;
pub(crate) use texts::text;

/// An allocator on real memory of this machine.
///
/// [`alloc`](Self::alloc) and [`alloc_pages`](Self::alloc_pages) give blocks that free themselves.
/// [`alloc_frames`](Self::alloc_frames) gives frame numbers, for pools that keep those. All methods may be called by many
/// threads at once, and a memory may move while no thread uses it.
///
/// ```
/// use nearpage_linux::Memory;
///
/// let memory = Memory::builder().bytes_per_node(64 << 20).build()?;
/// let mut block = memory.alloc_pages(4)?;
/// block[0] = 1;
/// assert_eq!(block.len(), 4 * 4096);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Memory {
    // Dropped in this order: forks and the allocator refer to the metadata, and all to the topology.
    pub(crate) _registration: Registration,
    pub(crate) allocator: Allocator,
    pub(crate) binding: Binding,
    pub(crate) storage: StorageInUse,
    pub(crate) warnings: Vec<Warning>,
    pub(crate) node_ranges: Vec<(NodeId, PfnRange)>,
    pub(crate) huge_pages: HugePagesByNode,
    pub(crate) growth: Growth,
    /// The line of threads that wait for memory.
    pub(crate) line: Line,
    /// What each CPU had done when caches last decayed.
    pub(crate) moves_seen: Box<[AtomicU64]>,
    /// The place of the slab allocator takes part in forks. It is the outermost: what is made later registers inside of it.
    pub(crate) objects_at_forks: Registration,
    pub(crate) objects: Objects,
    pub(crate) region: Region,
    pub(crate) _metadata: Metadata,
    pub(crate) _topology: OwnedTopology,
}

impl Memory {
    /// The allocator, for calls that need not be fast.
    #[inline]
    pub(crate) fn pages(&self) -> &dyn Pages {
        self.allocator.cold()
    }

    /// Calls `act` with the slab allocator of this memory, if there is one.
    pub(crate) fn with_objects<R: Default>(&self, act: impl FnOnce(&dyn Upkeep) -> R) -> R {
        self.objects.with(self.pages().platform_address(), act)
    }

    /// Allocates a block and returns its first frame; the caller must free it. The call does not touch the block's memory:
    /// `__GFP_ZERO` clears nothing here.
    ///
    /// # Errors
    /// [`AllocError`].
    #[inline(always)]
    pub fn alloc_frames(&self, request: Request) -> Result<Pfn, AllocError> {
        // The common type is inlined into the caller, the others are a call away.
        match &self.allocator {
            Allocator::Rseq(pages) => pages.alloc(request),
            _ => {
                let Request { order, gfp, node } = request;
                let mut error = None;
                let found = self.alloc_frames_otherwise(order, gfp, node, &mut error);
                found.ok_or_else(|| error.expect("a request that gets nothing is told why"))
            }
        }
    }

    /// Request and page pass in registers: through memory, the fast path would write them there too.
    #[cold]
    #[inline(never)]
    fn alloc_frames_otherwise(
        &self,
        order: Order,
        gfp: Gfp,
        node: Option<NodeId>,
        error: &mut Option<AllocError>,
    ) -> Option<Pfn> {
        self.pages().alloc(&Request { order, gfp, node }, error)
    }

    /// Allocates up to `out.len()` single pages; see
    /// [`PageAllocator::alloc_bulk`](nearpage::PageAllocator::alloc_bulk).
    ///
    /// # Errors
    /// [`AllocError`] if not even one page could be had.
    #[inline]
    pub fn alloc_frames_bulk(
        &self,
        request: Request,
        out: &mut [Pfn],
    ) -> Result<usize, AllocError> {
        match &self.allocator {
            Allocator::Rseq(pages) => pages.alloc_bulk(request, out),
            _ => self.pages().alloc_bulk(request, out),
        }
    }

    /// Frees a block by its first frame and its order.
    ///
    /// # Errors
    /// [`FreeError`] if no block with this first frame and this order is allocated; the call then changes nothing.
    ///
    /// # Safety
    /// * The caller owns the block. No thread uses its memory any more, and no [`PageBlock`] owns it.
    #[inline(always)]
    pub unsafe fn free_frames(&self, first: Pfn, order: Order) -> Result<(), FreeError> {
        match &self.allocator {
            Allocator::Rseq(pages) => pages.free(first, order),
            _ => self.free_frames_otherwise(first, order),
        }
    }

    #[cold]
    #[inline(never)]
    fn free_frames_otherwise(&self, first: Pfn, order: Order) -> Result<(), FreeError> {
        self.pages().free(first, order)
    }

    /// Frees single pages, of any nodes and in any order.
    ///
    /// # Errors
    /// [`BulkFreeError`] if some frees were refused; the other pages are free then.
    ///
    /// # Safety
    /// * As [`free_frames`](Self::free_frames), for each page.
    #[inline]
    pub unsafe fn free_frames_bulk(&self, pages: &[Pfn]) -> Result<(), BulkFreeError> {
        match &self.allocator {
            Allocator::Rseq(allocator) => allocator.free_bulk(pages),
            _ => self.pages().free_bulk(pages),
        }
    }

    /// The address of a frame.
    ///
    /// # Panics
    /// If the frame is outside the addresses of this memory; [`node_of`](Self::node_of) returns `None` for such a frame.
    #[inline]
    pub fn address(&self, pfn: Pfn) -> NonNull<u8> {
        self.region.address(pfn)
    }

    /// The frame that an address lies in.
    #[inline]
    pub fn frame_of(&self, address: NonNull<u8>) -> Pfn {
        Pfn(address.as_ptr().addr() as u64 >> FRAME_SHIFT)
    }

    /// The node that a frame belongs to, or `None` if the frame is not in the range of any node.
    pub fn node_of(&self, pfn: Pfn) -> Option<NodeId> {
        self.node_ranges.iter().find(|(_, range)| range.contains(pfn)).map(|(node, _)| *node)
    }

    /// The nodes and CPUs that the allocator works with.
    pub fn topology(&self) -> &Topology<'_> {
        self.pages().topology()
    }

    /// Which storage the pagesets have, and why.
    pub fn storage(&self) -> StorageInUse {
        self.storage
    }

    /// How memory is bound to its nodes.
    pub fn binding(&self) -> &Binding {
        &self.binding
    }

    /// Where this memory differs from what was asked for: variables of the environment that mean nothing, and system calls
    /// that the kernel refused. The memory works all the same.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("nodes", &self.node_ranges)
            .field("storage", &self.storage)
            .field("binding", &self.binding)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
