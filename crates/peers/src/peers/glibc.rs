//! glibc's malloc.

use std::ffi::{c_int, c_void};

use crate::contestant::{Contestant, enlist};
use crate::peers::heap::Heap;

/// The largest threshold that glibc takes (`HEAP_MAX_SIZE / 2`): 2 MiB blocks come from the heap too.
const MMAP_THRESHOLD_BYTES: c_int = 32 << 20;

struct Glibc;

pub fn build() -> Result<Box<dyn Contestant>, String> {
    // SAFETY: `mallopt` takes any values, and no other thread calls it.
    let taken = unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES) == 1
            && libc::mallopt(libc::M_TRIM_THRESHOLD, c_int::MAX) == 1
    };
    match taken {
        true => Ok(enlist(Glibc)),
        false => Err("mallopt does not take the thresholds".into()),
    }
}

impl Heap for Glibc {
    #[inline]
    fn alloc(bytes: usize) -> *mut c_void {
        // SAFETY: the size is a multiple of the alignment, which is a power of two.
        unsafe { libc::aligned_alloc(bytes, bytes) }
    }

    #[inline]
    unsafe fn free(block: *mut c_void, _bytes: usize) {
        // SAFETY: passed on from the caller.
        unsafe { libc::free(block) };
    }
}
