//! The kernel itself: `mmap` and `munmap` for each block.
//!
//! The mapping is populated by the call: the other peers give out memory that is there, and page
//! faults at the first touch would cost more than this. It is a thousand times slower than the fastest,
//! so that the work that takes longest is left out.

use std::ffi::c_void;
use std::ptr::null_mut;

use rustix::io;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::contestant::{Contestant, enlist};
use crate::peers::heap::Heap;
use crate::source::PAGE_BYTES;
use crate::task::Work;

struct Mmap;

pub fn build() -> Result<Box<dyn Contestant>, String> {
    Ok(enlist(Mmap))
}

impl Heap for Mmap {
    #[inline]
    fn alloc(bytes: usize) -> *mut c_void {
        let block = match bytes {
            PAGE_BYTES => map(bytes, MapFlags::POPULATE),
            _ => map_aligned(bytes),
        };
        block.unwrap_or(null_mut())
    }

    #[inline]
    unsafe fn free(block: *mut c_void, bytes: usize) {
        // SAFETY: passed on from the caller.
        let unmapped = unsafe { munmap(block, bytes) };
        unmapped.expect("a whole mapping can be unmapped");
    }

    fn runs(work: Work) -> bool {
        matches!(work, Work::Pair { .. } | Work::HugePair | Work::Cross)
    }
}

fn map(bytes: usize, flags: MapFlags) -> io::Result<*mut c_void> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address that the kernel chooses touches nothing else.
    unsafe { mmap_anonymous(null_mut(), bytes, protection, MapFlags::PRIVATE | flags) }
}

/// Maps twice as much, keeps the aligned half, and populates it.
fn map_aligned(bytes: usize) -> io::Result<*mut c_void> {
    let wide = map(2 * bytes, MapFlags::empty())?;
    let front = wide.addr().next_multiple_of(bytes) - wide.addr();
    let block = wide.wrapping_byte_add(front);
    // SAFETY: all three ranges lie in the new mapping, and nothing uses them yet.
    unsafe {
        if front > 0 {
            munmap(wide, front)?;
        }
        munmap(block.wrapping_byte_add(bytes), bytes - front)?;
        madvise(block, bytes, Advice::LinuxPopulateWrite)?;
    }
    Ok(block)
}
