//! snmalloc 2, as its Rust interface calls it. It keeps freed memory by itself.

use std::ffi::c_void;

use snmalloc_sys::{sn_rust_alloc, sn_rust_dealloc};

use crate::contestant::{Contestant, enlist};
use crate::peers::heap::Heap;

struct Snmalloc;

pub fn build() -> Result<Box<dyn Contestant>, String> {
    Ok(enlist(Snmalloc))
}

impl Heap for Snmalloc {
    #[inline]
    fn alloc(bytes: usize) -> *mut c_void {
        // SAFETY: `bytes` is a power of two and so a valid alignment.
        unsafe { sn_rust_alloc(bytes, bytes) }
    }

    #[inline]
    unsafe fn free(block: *mut c_void, bytes: usize) {
        // SAFETY: passed on from the caller; alignment and size are those of the allocation.
        unsafe { sn_rust_dealloc(block, bytes, bytes) };
    }
}
