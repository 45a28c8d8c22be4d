//! jemalloc 5.3, by its own functions that take alignment and size.
//!
//! Its `malloc(4096)` takes half the time of the aligned request here, and its blocks happen to be
//! aligned; it does not promise that.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;

use tikv_jemalloc_sys::{MALLOCX_ALIGN, mallctl, mallocx, sdallocx};

use crate::contestant::{Contestant, enlist};
use crate::peers::heap::Heap;

/// Of arenas to come, and of the one that is there from the start.
const DECAYS: [&CStr; 4] = [
    c"arenas.dirty_decay_ms",
    c"arenas.muzzy_decay_ms",
    c"arena.0.dirty_decay_ms",
    c"arena.0.muzzy_decay_ms",
];

struct Jemalloc;

pub fn build() -> Result<Box<dyn Contestant>, String> {
    for decay in DECAYS {
        keep_freed_memory(decay)?;
    }
    Ok(enlist(Jemalloc))
}

fn keep_freed_memory(decay: &CStr) -> Result<(), String> {
    let mut never: isize = -1;
    let value = (&raw mut never).cast::<c_void>();
    // SAFETY: these settings are of type `ssize_t`, and jemalloc copies the value.
    let error =
        unsafe { mallctl(decay.as_ptr(), null_mut(), null_mut(), value, size_of::<isize>()) };
    match error {
        0 => Ok(()),
        _ => Err(format!("jemalloc does not take {decay:?}: error {error}")),
    }
}

impl Heap for Jemalloc {
    #[inline]
    fn alloc(bytes: usize) -> *mut c_void {
        // SAFETY: the size is not zero, and a power of two as an alignment must be.
        unsafe { mallocx(bytes, MALLOCX_ALIGN(bytes)) }
    }

    #[inline]
    unsafe fn free(block: *mut c_void, bytes: usize) {
        // SAFETY: passed on from the caller. A size that is aligned to itself is of the same size class
        // with the flag and without; without it, jemalloc takes its shortest path.
        unsafe { sdallocx(block, bytes, 0) };
    }
}
