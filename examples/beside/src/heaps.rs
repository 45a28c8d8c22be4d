//! Heaps.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::NonNull;

use nearpage_kernel::{Heap, Kernel};
use talc::DefaultBinning;
use talc::base::Talc;
use talc::source::Manual;

use crate::spin::Spin;
use crate::work::Blocks;

/// A byte of memory that a heap is made of.
pub type Byte = core::mem::MaybeUninit<u8>;

/// nearpage's.
#[derive(Debug)]
pub struct Ours<K: Kernel, const EARLY: usize>(pub &'static Heap<K, EARLY>);

impl<K: Kernel, const EARLY: usize> Blocks for Ours<K, EARLY> {
    const NAME: &'static str = "nearpage-kernel";

    #[inline(always)]
    fn alloc(&self, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: the work asks for no layout of size 0.
        NonNull::new(unsafe { self.0.alloc(layout) })
    }

    #[inline(always)]
    unsafe fn free(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise is the same.
        unsafe { self.0.dealloc(block.as_ptr(), layout) };
    }
}

/// `linked_list_allocator`.
pub struct LinkedList<K: Kernel>(Spin<K, linked_list_allocator::Heap>);

impl<K: Kernel> LinkedList<K> {
    /// A heap of this memory.
    pub fn new(memory: &'static mut [Byte]) -> Self {
        Self(Spin::new(linked_list_allocator::Heap::from_slice(memory)))
    }
}

impl<K: Kernel> core::fmt::Debug for LinkedList<K> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("LinkedList")
    }
}

impl<K: Kernel> Blocks for LinkedList<K> {
    const NAME: &'static str = "linked_list_allocator";

    #[inline(always)]
    fn alloc(&self, layout: Layout) -> Option<NonNull<u8>> {
        self.0.with(|heap| heap.allocate_first_fit(layout).ok())
    }

    #[inline(always)]
    unsafe fn free(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise is the same.
        unsafe { self.0.with(|heap| heap.deallocate(block, layout)) };
    }
}

/// `talc`.
pub struct TalcHeap<K: Kernel>(Spin<K, Talc<Manual, DefaultBinning>>);

impl<K: Kernel> TalcHeap<K> {
    /// A heap of this memory.
    ///
    /// # Panics
    /// If it is smaller than a heap's own bookkeeping.
    pub fn new(memory: &'static mut [Byte]) -> Self {
        let mut talc = Talc::new(Manual);
        // SAFETY: the memory is this heap's alone from now on.
        let end = unsafe { talc.claim(memory.as_mut_ptr().cast(), memory.len()) };
        assert!(end.is_some(), "the memory holds the heap's own tables");
        Self(Spin::new(talc))
    }
}

impl<K: Kernel> core::fmt::Debug for TalcHeap<K> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("TalcHeap")
    }
}

impl<K: Kernel> Blocks for TalcHeap<K> {
    const NAME: &'static str = "talc";

    #[inline(always)]
    fn alloc(&self, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: the work asks for no layout of size 0.
        unsafe { self.0.with(|heap| heap.allocate(layout)) }
    }

    #[inline(always)]
    unsafe fn free(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise is the same.
        unsafe { self.0.with(|heap| heap.deallocate(block.as_ptr(), layout)) };
    }
}
