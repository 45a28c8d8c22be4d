//! What the peers with an interface like malloc's have in common.

use std::ffi::c_void;
use std::ptr::NonNull;

use nearpage::Order;

use crate::source::{PageSource, block_bytes};
use crate::task::Work;

/// The two functions of an allocator that the process has one of.
pub trait Heap: Send + Sync + 'static {
    /// Allocates `bytes`, a power of two, aligned to itself; null if there is no memory left.
    fn alloc(bytes: usize) -> *mut c_void;

    /// Frees a block.
    ///
    /// # Safety
    ///
    /// * `block` came from `alloc` of this heap, with the same `bytes`.
    /// * It was not freed since.
    unsafe fn free(block: *mut c_void, bytes: usize);

    /// As [`PageSource::runs`].
    fn runs(_work: Work) -> bool {
        true
    }
}

/// An address that may change threads.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Address(pub NonNull<c_void>);

// SAFETY: these are blocks of allocators that let any thread free what another one allocated, and the
// benchmarks never follow the pointer.
unsafe impl Send for Address {}

impl<H: Heap> PageSource for H {
    type Block = Address;
    const BLANK: Address = Address(NonNull::dangling());

    #[inline]
    fn alloc(&self, order: Order) -> Option<Address> {
        NonNull::new(H::alloc(block_bytes(order))).map(Address)
    }

    #[inline]
    unsafe fn free(&self, block: Address, order: Order) {
        // SAFETY: passed on from the caller.
        unsafe { H::free(block.0.as_ptr(), block_bytes(order)) };
    }

    fn address(&self, block: Address) -> usize {
        block.0.addr().get()
    }

    fn runs(&self, work: Work) -> bool {
        H::runs(work)
    }
}
