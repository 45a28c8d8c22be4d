//! mimalloc 3.

use std::ffi::{c_int, c_long, c_void};

use libmimalloc_sys::{mi_free, mi_malloc_aligned, mi_option_set};

use crate::contestant::{Contestant, enlist};
use crate::peers::heap::Heap;

/// `mi_option_purge_delay` of mimalloc 3 (`include/mimalloc.h`); the bindings do not name it.
const PURGE_DELAY: c_int = 15;
/// Never give freed memory back to the kernel.
const NEVER: c_long = -1;

struct Mimalloc;

pub fn build() -> Result<Box<dyn Contestant>, String> {
    // SAFETY: the option exists in the mimalloc that these bindings compile, and takes any value.
    unsafe { mi_option_set(PURGE_DELAY, NEVER) };
    Ok(enlist(Mimalloc))
}

impl Heap for Mimalloc {
    #[inline]
    fn alloc(bytes: usize) -> *mut c_void {
        // SAFETY: `bytes` is a power of two and so a valid alignment.
        unsafe { mi_malloc_aligned(bytes, bytes) }
    }

    #[inline]
    unsafe fn free(block: *mut c_void, _bytes: usize) {
        // SAFETY: passed on from the caller.
        unsafe { mi_free(block) };
    }
}
