//! The heap: [`GlobalAlloc`] over the allocator's size classes, usable from the first line of a kernel on.
//!
//! **Early.** Until [`Heap::start`], memory comes from a fixed area in the heap itself: each allocation lies behind the one
//! before, and a free gives memory back if it was the last. What is left there stays there, and may be freed at any time.
//!
//! **Started.** What fits a size class is an object of the slab allocator, near the CPU that asks; what is larger is a block
//! of pages. A free finds out by the address which it was. What is larger than a block of the highest order is a range of pages
//! one behind the other, as many as it needs, and the layout says that it was.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicUsize, Ordering};

use nearpage::{Address, AllocError, Gfp, NodeId, NodeIndex, Order, PageCount, PfnRange, Request};
use nearpage_slab::{
    CreateError, SizeClasses, SizeError, SlabAllocator, SlabBuildError, SlabConfig,
};

use crate::Pages;
use crate::platform::KernelPlatform;
use crate::seam::Kernel;

/// The slab allocator of a kernel.
pub type Objects<K> = SlabAllocator<'static, 'static, KernelPlatform<K>>;

/// The heap of a kernel, with `EARLY` bytes for the time before its pages are there.
///
/// ```
/// # use nearpage::CpuId;
/// # use nearpage_kernel::{Interrupts, Kernel};
/// # struct Mine;
/// # // SAFETY: one thread plays the only CPU, and nothing interrupts it.
/// # unsafe impl Kernel for Mine {
/// #     type Rules = nearpage::rules::Places;
/// #     fn this_cpu() -> CpuId { CpuId(0) }
/// #     fn interrupts_off() -> Interrupts { Interrupts(0) }
/// #     fn interrupts_restore(_: Interrupts) {}
/// #     fn now_ns() -> u64 { 0 }
/// #     fn phys_to_virt(address: u64) -> *mut u8 { std::ptr::without_provenance_mut(address as usize) }
/// # }
/// use nearpage_kernel::Heap;
///
/// #[global_allocator]
/// static HEAP: Heap<Mine, { 1 << 20 }> = Heap::new();
///
/// let early = vec![1, 2, 3];
/// assert!(HEAP.early_bytes() >= 12);
/// drop(early);
/// ```
pub struct Heap<K: Kernel, const EARLY: usize> {
    early: Early<EARLY>,
    state: AtomicUsize,
    started: UnsafeCell<MaybeUninit<Started<K>>>,
}

/// Nobody has called `start` yet, somebody is in there, or it is done.
const NOT_STARTED: usize = 0;
const STARTING: usize = 1;
const STARTED: usize = 2;

struct Started<K: Kernel> {
    slab: Objects<K>,
    classes: SizeClasses<'static, KernelPlatform<K>>,
}

// SAFETY: `started` is written once, before `state` says so, and shared afterwards; what is in it has locks of its own.
unsafe impl<K: Kernel, const EARLY: usize> Sync for Heap<K, EARLY> {}

/// Why a heap could not be started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum HeapError {
    /// Somebody started it before, or tried to and failed.
    Twice,
    /// The slab allocator could not be made.
    Build(SlabBuildError),
    /// A size class could not be made.
    Create(CreateError),
}

impl core::fmt::Display for HeapError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Twice => f.write_str(
                "the heap was started before, or a start of it failed; one start is accepted",
            ),
            Self::Build(error) => write!(f, "the heap's slab allocator: {error}"),
            Self::Create(error) => write!(f, "the heap's size classes: {error}"),
        }
    }
}

impl core::error::Error for HeapError {}

impl<K: Kernel, const EARLY: usize> Heap<K, EARLY> {
    /// A heap that has its early area alone.
    pub const fn new() -> Self {
        Self {
            early: Early::new(),
            state: AtomicUsize::new(NOT_STARTED),
            started: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// Lets the heap take its memory from `pages` from now on. `buffer` gives the metadata of the slab allocator, zeroed, as
    /// [`SlabAllocator::new`] asks for it; [`SlabConfig::metadata_size`] says how much that is.
    ///
    /// # Errors
    /// [`HeapError`]. After an error other than [`HeapError::Twice`] the heap goes on with its early area, for good.
    pub fn start(
        &self,
        pages: &'static Pages<'static, K>,
        config: SlabConfig,
        buffer: impl FnMut(NodeIndex, usize) -> &'static mut [u8],
    ) -> Result<&Objects<K>, HeapError> {
        let begun = self.state.compare_exchange(
            NOT_STARTED,
            STARTING,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        begun.map_err(|_| HeapError::Twice)?;
        let slab = SlabAllocator::new(pages, config, buffer).map_err(HeapError::Build)?;
        let classes = SizeClasses::new(&slab).map_err(HeapError::Create)?;
        // SAFETY: `state` let this one call in, and nobody reads the place until it says `STARTED`.
        let started = unsafe { (*self.started.get()).write(Started { slab, classes }) };
        // Release pairs with the Acquire in `started`.
        self.state.store(STARTED, Ordering::Release);
        Ok(&started.slab)
    }

    /// The slab allocator, once the heap is started: for caches of objects of the kernel's choice.
    pub fn objects(&self) -> Option<&Objects<K>> {
        Some(&self.started()?.slab)
    }

    /// Bytes of the early area that are used up.
    pub fn early_bytes(&self) -> usize {
        self.early.used.load(Ordering::Relaxed)
    }

    /// Allocates near a node, or near the CPU that asks, with flags of the caller's choice: `None` if there is no memory, or
    /// before the heap is started and the early area is full.
    pub fn alloc_with(&self, layout: Layout, gfp: Gfp, node: Option<NodeId>) -> Option<*mut u8> {
        let Some(Started { slab, classes }) = self.started() else {
            return self.early.alloc(layout);
        };
        if is_range::<K>(layout) {
            return alloc_range(slab, layout, gfp, node).ok();
        }
        let (size, align) = (layout.size() as u64, layout.align() as u64);
        let address = match node {
            None if is_plain(layout) => slab.alloc_bytes(classes, size, gfp),
            node => slab.alloc_bytes_aligned(classes, size, align, gfp, node),
        };
        address.ok().map(|address: Address| K::phys_to_virt(address.0))
    }

    /// As [`alloc_with`](Self::alloc_with), and says why there is nothing.
    ///
    /// # Errors
    /// [`SizeError`]; `None` before the heap is started.
    pub fn try_alloc_with(
        &self,
        layout: Layout,
        gfp: Gfp,
        node: Option<NodeId>,
    ) -> Option<Result<*mut u8, SizeError>> {
        let Started { slab, classes } = self.started()?;
        if is_range::<K>(layout) {
            return Some(alloc_range(slab, layout, gfp, node).map_err(SizeError::Pages));
        }
        let (size, align) = (layout.size() as u64, layout.align() as u64);
        let address = slab.alloc_bytes_aligned(classes, size, align, gfp, node);
        Some(address.map(|address| K::phys_to_virt(address.0)))
    }

    /// The heap, near one node: what it gives comes from there, if the node has memory.
    pub fn on(&self, node: NodeId) -> OnNode<'_, K, EARLY> {
        OnNode { heap: self, node }
    }

    #[inline]
    fn started(&self) -> Option<&Started<K>> {
        // Acquire pairs with the Release in `start`.
        if self.state.load(Ordering::Acquire) != STARTED {
            return None;
        }
        // SAFETY: it was written before `state` said so, and is not written again.
        Some(unsafe { (*self.started.get()).assume_init_ref() })
    }

    /// Gives memory back, of the early area or not.
    #[inline]
    fn give_back(&self, address: *mut u8, layout: Layout) {
        if self.early.contains(address) {
            return self.early.free(address, layout);
        }
        if let Some(Started { slab, .. }) = self.started() {
            // A refusal was told to the kernel (`Kernel::misuse`), which decides whether it goes on.
            if is_range::<K>(layout) {
                return self.free_range(range_at::<K>(address, pages_of::<K>(layout)));
            }
            let _ = slab.free_bytes(Address(K::virt_to_phys(address)));
        }
    }

    #[cold]
    fn free_range(&self, range: PfnRange) {
        if let Some(objects) = self.objects() {
            // As above.
            let _ = objects.pages().free_range(range);
        }
    }
}

/// Whether all size classes are aligned enough.
#[inline(always)]
fn is_plain(layout: Layout) -> bool {
    layout.align() <= 8
}

/// Whether a layout is larger, or aligned to more, than a block of the highest order: a block is as large as its alignment.
#[inline(always)]
fn is_range<K: Kernel>(layout: Layout) -> bool {
    layout.size().max(layout.align()) as u64 > Order::MAX.pages().to_bytes(K::PAGE_SHIFT)
}

/// Pages that a layout takes as a range.
fn pages_of<K: Kernel>(layout: Layout) -> PageCount {
    PageCount((layout.size() as u64).div_ceil(1 << K::PAGE_SHIFT))
}

/// So many pages from an address on.
fn range_at<K: Kernel>(address: *mut u8, pages: PageCount) -> PfnRange {
    let start = Address(K::virt_to_phys(address)).to_pfn(K::PAGE_SHIFT);
    PfnRange { start, end: start + pages }
}

#[cold]
#[inline(never)]
fn alloc_range<K: Kernel>(
    slab: &Objects<K>,
    layout: Layout,
    gfp: Gfp,
    node: Option<NodeId>,
) -> Result<*mut u8, AllocError> {
    let order = layout.align().trailing_zeros().saturating_sub(K::PAGE_SHIFT);
    let request = Request { node, ..Request::new(Order(0), gfp) };
    let range =
        slab.pages().alloc_contiguous(pages_of::<K>(layout), Order(order as u8), request)?;
    Ok(crate::page_address::<K>(range.start))
}

impl<K: Kernel, const EARLY: usize> Default for Heap<K, EARLY> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Kernel, const EARLY: usize> core::fmt::Debug for Heap<K, EARLY> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Heap")
            .field("early_bytes", &self.early_bytes())
            .field("objects", &self.objects())
            .finish_non_exhaustive()
    }
}

// SAFETY: memory is of the layout's size and alignment (`SlabAllocator::alloc_bytes_aligned`, `Early::alloc`), nobody else has it
// until it is freed, and the allocator never unwinds into its caller.
unsafe impl<K: Kernel, const EARLY: usize> GlobalAlloc for Heap<K, EARLY> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.alloc_with(layout, K::HEAP_GFP, None).unwrap_or(core::ptr::null_mut())
    }

    #[inline]
    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        self.give_back(address, layout);
    }

    unsafe fn realloc(&self, address: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let usable = match self.started() {
            Some(Started { slab, .. }) if !self.early.contains(address) => {
                slab.usable_size(Address(K::virt_to_phys(address))).unwrap_or(0)
            }
            _ => layout.size() as u64,
        };
        let Ok(new_layout) = Layout::from_size_align(new_size, layout.align()) else {
            return core::ptr::null_mut();
        };
        // The layout says how it is freed, and of a range how many pages it has.
        let is_range = [layout, new_layout].map(is_range::<K>);
        if is_range == [true; 2] && !self.early.contains(address) {
            let [old, new] = [layout, new_layout].map(pages_of::<K>);
            if new <= old {
                let range = range_at::<K>(address, old);
                self.free_range(PfnRange { start: range.start + new, ..range });
                return address;
            }
        }
        // Less than half of it would waste the rest.
        if is_range == [false; 2] && (usable / 2..=usable).contains(&(new_size as u64)) {
            return address;
        }
        // SAFETY: `new_size` is not 0, says who calls `realloc`.
        let new = unsafe { self.alloc(new_layout) };
        if !new.is_null() {
            // SAFETY: both are as large as what is copied, and the new one is nobody else's.
            unsafe { core::ptr::copy_nonoverlapping(address, new, layout.size().min(new_size)) };
            self.give_back(address, layout);
        }
        new
    }
}

/// A heap near one node ([`Heap::on`]).
#[derive(Debug)]
pub struct OnNode<'a, K: Kernel, const EARLY: usize> {
    heap: &'a Heap<K, EARLY>,
    node: NodeId,
}

impl<K: Kernel, const EARLY: usize> Clone for OnNode<'_, K, EARLY> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: Kernel, const EARLY: usize> Copy for OnNode<'_, K, EARLY> {}

impl<K: Kernel, const EARLY: usize> OnNode<'_, K, EARLY> {
    /// Allocates near the node.
    pub fn alloc(&self, layout: Layout) -> Option<*mut u8> {
        self.heap.alloc_with(layout, K::HEAP_GFP, Some(self.node))
    }

    /// Frees what [`alloc`](Self::alloc) gave.
    ///
    /// # Safety
    /// `address` is from an allocation of this heap with this layout, and nobody uses it any more.
    pub unsafe fn free(&self, address: *mut u8, layout: Layout) {
        self.heap.give_back(address, layout);
    }
}

#[cfg(feature = "allocator-api2")]
mod api2 {
    use core::alloc::Layout;
    use core::ptr::NonNull;

    use allocator_api2::alloc::{AllocError, Allocator};

    use super::{Heap, Kernel, OnNode};

    fn block(address: Option<*mut u8>, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let start = address.and_then(NonNull::new).ok_or(AllocError)?;
        Ok(NonNull::slice_from_raw_parts(start, layout.size()))
    }

    fn dangling(layout: Layout) -> NonNull<[u8]> {
        NonNull::slice_from_raw_parts(layout.dangling_ptr(), 0)
    }

    // SAFETY: as for `GlobalAlloc`; a shared reference and its copies stand for the same heap.
    unsafe impl<K: Kernel, const EARLY: usize> Allocator for &Heap<K, EARLY> {
        fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
            if layout.size() == 0 {
                return Ok(dangling(layout));
            }
            block(self.alloc_with(layout, K::HEAP_GFP, None), layout)
        }

        unsafe fn deallocate(&self, address: NonNull<u8>, layout: Layout) {
            if layout.size() != 0 {
                self.give_back(address.as_ptr(), layout);
            }
        }
    }

    // SAFETY: as above.
    unsafe impl<K: Kernel, const EARLY: usize> Allocator for OnNode<'_, K, EARLY> {
        fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
            if layout.size() == 0 {
                return Ok(dangling(layout));
            }
            block(self.alloc(layout), layout)
        }

        unsafe fn deallocate(&self, address: NonNull<u8>, layout: Layout) {
            if layout.size() != 0 {
                self.heap.give_back(address.as_ptr(), layout);
            }
        }
    }
}

/// The area of a heap that has no pages yet: allocations lie one behind the other.
#[repr(align(4096))]
struct Early<const EARLY: usize> {
    area: UnsafeCell<[MaybeUninit<u8>; EARLY]>,
    used: AtomicUsize,
}

impl<const EARLY: usize> Early<EARLY> {
    const fn new() -> Self {
        Self { area: UnsafeCell::new([MaybeUninit::uninit(); EARLY]), used: AtomicUsize::new(0) }
    }

    fn start(&self) -> *mut u8 {
        self.area.get().cast()
    }

    fn contains(&self, address: *mut u8) -> bool {
        (self.start().addr()..self.start().addr() + EARLY).contains(&address.addr())
    }

    fn alloc(&self, layout: Layout) -> Option<*mut u8> {
        let base = self.start().addr();
        let mut used = self.used.load(Ordering::Relaxed);
        loop {
            let start = (base + used).checked_next_multiple_of(layout.align())? - base;
            let end = start.checked_add(layout.size()).filter(|&end| end <= EARLY)?;
            match self.used.compare_exchange(used, end, Ordering::Relaxed, Ordering::Relaxed) {
                // In bounds: `start <= end <= EARLY`.
                Ok(_) => return Some(self.start().wrapping_add(start)),
                Err(other) => used = other,
            }
        }
    }

    /// Gives back what was the last allocation; what lies before others stays used.
    fn free(&self, address: *mut u8, layout: Layout) {
        let start = address.addr() - self.start().addr();
        let end = start + layout.size();
        // Another allocation came meanwhile, or lies behind: then this one stays.
        let _ = self.used.compare_exchange(end, start, Ordering::Relaxed, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_early_area_is_a_pile() {
        let early = Early::<4096>::new();
        let layout = |size, align| Layout::from_size_align(size, align).expect("a layout");
        let first = early.alloc(layout(10, 1)).expect("room");
        let second = early.alloc(layout(64, 64)).expect("room");
        assert_eq!(second.addr() % 64, 0);
        assert!(early.contains(first) && early.contains(second));
        early.free(first, layout(10, 1));
        let third = early.alloc(layout(4, 4)).expect("room");
        assert_eq!(third.addr(), second.addr() + 64, "what is below others stays");
        early.free(third, layout(4, 4));
        early.free(second, layout(64, 64));
        assert_eq!(early.alloc(layout(5, 1)).expect("room").addr(), second.addr());
        assert_eq!(early.alloc(layout(4096, 1)), None);
        assert_eq!(early.alloc(layout(1, 8192)), None);
    }
}
