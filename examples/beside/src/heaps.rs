//! Heaps.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::NonNull;

use nearpage_kernel::{Heap, Kernel, TicketLock};
use talc::DefaultBinning;
use talc::base::Talc;
use talc::source::Manual;

use crate::work::Blocks;

/// A byte of memory that a heap is made of.
pub type Byte = core::mem::MaybeUninit<u8>;

/// nearpage's.
#[derive(Debug)]
pub struct Ours<K: Kernel, const EARLY: usize>(pub &'static Heap<K, EARLY>);

impl<K: Kernel, const EARLY: usize> Blocks for Ours<K, EARLY> {
    const NAME: &'static str = "nearpage-kernel";

    #[inline]
    fn alloc(&self, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: the work asks for no layout of size 0.
        NonNull::new(unsafe { self.0.alloc(layout) })
    }

    #[inline]
    unsafe fn free(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise is the same.
        unsafe { self.0.dealloc(block.as_ptr(), layout) };
    }
}

/// `linked_list_allocator`.
pub struct LinkedList<K: Kernel>(TicketLock<K, linked_list_allocator::Heap>);

impl<K: Kernel> LinkedList<K> {
    /// A heap of this memory.
    pub fn new(memory: &'static mut [Byte]) -> Self {
        Self(TicketLock::new(linked_list_allocator::Heap::from_slice(memory)))
    }
}

impl<K: Kernel> core::fmt::Debug for LinkedList<K> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("LinkedList")
    }
}

impl<K: Kernel> Blocks for LinkedList<K> {
    const NAME: &'static str = "linked_list_allocator";

    #[inline]
    fn alloc(&self, layout: Layout) -> Option<NonNull<u8>> {
        self.0.lock().allocate_first_fit(layout).ok()
    }

    #[inline]
    unsafe fn free(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise is the same.
        unsafe { self.0.lock().deallocate(block, layout) };
    }
}

/// `talc`.
pub struct TalcHeap<K: Kernel>(TicketLock<K, Talc<Manual, DefaultBinning>>);

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
        Self(TicketLock::new(talc))
    }
}

impl<K: Kernel> core::fmt::Debug for TalcHeap<K> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("TalcHeap")
    }
}

impl<K: Kernel> Blocks for TalcHeap<K> {
    const NAME: &'static str = "talc";

    #[inline]
    fn alloc(&self, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: the work asks for no layout of size 0.
        unsafe { self.0.lock().allocate(layout) }
    }

    #[inline]
    unsafe fn free(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise is the same.
        unsafe { self.0.lock().deallocate(block.as_ptr(), layout) };
    }
}
