//! Memory for the time before the rest works, and for the rest itself: lists, names and locks of nearpage's memory.
//!
//! It is a range of addresses, cut from its start on. A block has a header with its size and goes back to a list of blocks
//! of its size, a power of two. Little is allocated here, and rarely: it is simple, and behind one lock. When nothing else
//! can be had (no addresses, no memory), the whole process lives on it.

use std::alloc::{GlobalAlloc, Layout};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::lock::Lock;

/// Bytes in front of a block: its class, and for blocks that were aligned further the distance to the true start.
const HEADER: usize = 16;
/// The least block has 2^5 bytes.
const LEAST_SHIFT: u32 = 5;
const LISTS: usize = 44;
/// Memory becomes usable in pieces of this size.
const PIECE: usize = 1 << 20;
/// What is tried to reserve, most first.
const RESERVES: [usize; 7] = [64 << 30, 4 << 30, 512 << 20, 128 << 20, 32 << 20, 8 << 20, 2 << 20];

pub(crate) struct Range {
    start: usize,
    used: usize,
    usable: usize,
    reserved: usize,
    lists: [*mut u8; LISTS],
}

// SAFETY: the pointers are to free blocks, which belong to whoever has the lock.
unsafe impl Send for Range {}

pub(crate) static RANGE: Lock<Range> =
    Lock::new(Range { start: 0, used: 0, usable: 0, reserved: 0, lists: [null_mut(); LISTS] });
/// Start and end of the range, for [`owns`].
static START: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);

/// The allocator for what `malloc` stands on. A library that replaces `malloc` makes it its `#[global_allocator]`: what Rust
/// allocates inside then never comes back to `malloc`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Boot;

/// Whether an address belongs to this allocator.
#[inline]
pub(crate) fn owns(address: usize) -> bool {
    // END is written before START is: an address above START is compared with the END that belongs to it.
    let start = START.load(Ordering::Acquire);
    start != 0 && address >= start && address < END.load(Ordering::Relaxed)
}

/// Bytes that were cut off so far.
pub(crate) fn used() -> usize {
    RANGE.lock().used
}

/// Allocates; null without memory.
pub(crate) fn alloc(size: usize, align: usize) -> *mut u8 {
    let extra = if align > HEADER { align } else { 0 };
    let Some(bytes) = size.max(1).checked_add(HEADER + extra) else { return null_mut() };
    let Some(rounded) = bytes.checked_next_power_of_two() else { return null_mut() };
    let shift = rounded.ilog2().max(LEAST_SHIFT);
    let list = (shift - LEAST_SHIFT) as usize;
    if list >= LISTS {
        return null_mut();
    }
    let mut range = RANGE.lock();
    let taken = range.lists[list];
    let block = if taken.is_null() {
        range.cut(1 << shift)
    } else {
        // SAFETY: a free block starts with the address of the next.
        range.lists[list] = unsafe { taken.cast::<*mut u8>().read() };
        taken
    };
    drop(range);
    if block.is_null() {
        return null_mut();
    }
    let address = if extra == 0 {
        block.addr() + HEADER
    } else {
        (block.addr() + HEADER).next_multiple_of(align)
    };
    // SAFETY: header and object lie in the block: `extra` is at least what the alignment skips.
    unsafe {
        let object = block.with_addr(address);
        object.sub(16).cast::<u64>().write(u64::from(shift));
        object.sub(8).cast::<u64>().write((address - block.addr()) as u64);
        object
    }
}

/// The bytes that may be used of a block.
///
/// # Safety
/// * [`alloc`] gave it, and it is not freed.
pub(crate) unsafe fn usable(object: *mut u8) -> usize {
    // SAFETY: the header, by the caller's promise.
    unsafe {
        let shift = object.sub(16).cast::<u64>().read();
        (1_usize << shift) - object.sub(8).cast::<u64>().read() as usize
    }
}

/// # Safety
/// * [`alloc`] gave it, and nobody uses it any more.
pub(crate) unsafe fn free(object: *mut u8) {
    // SAFETY: the header, by the caller's promise.
    unsafe {
        let shift = object.sub(16).cast::<u64>().read() as u32;
        let block = object.sub(object.sub(8).cast::<u64>().read() as usize);
        let mut range = RANGE.lock();
        let list = (shift - LEAST_SHIFT) as usize;
        block.cast::<*mut u8>().write(range.lists[list]);
        range.lists[list] = block;
    }
}

impl Range {
    fn cut(&mut self, bytes: usize) -> *mut u8 {
        if self.start == 0 && !self.reserve() {
            return null_mut();
        }
        let Some(end) = self.used.checked_add(bytes).filter(|end| *end <= self.reserved) else {
            return null_mut();
        };
        if end > self.usable {
            let more = (end - self.usable).next_multiple_of(PIECE).min(self.reserved - self.usable);
            let from = std::ptr::without_provenance_mut(self.start + self.usable);
            // SAFETY: the pages are of this range, and nobody uses them yet.
            if unsafe { libc::mprotect(from, more, libc::PROT_READ | libc::PROT_WRITE) } != 0 {
                return null_mut();
            }
            self.usable += more;
        }
        let block = std::ptr::with_exposed_provenance_mut(self.start + self.used);
        self.used = end;
        block
    }

    fn reserve(&mut self) -> bool {
        for bytes in RESERVES {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            // SAFETY: a new mapping where the kernel likes.
            let start = unsafe { libc::mmap(null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
            if start != libc::MAP_FAILED {
                self.start = start.expose_provenance();
                self.reserved = bytes;
                END.store(self.start + bytes, Ordering::Relaxed);
                // Pairs with the load in `owns`.
                START.store(self.start, Ordering::Release);
                return true;
            }
        }
        false
    }
}

// SAFETY: blocks are as large and as aligned as asked, and nobody else's.
unsafe impl GlobalAlloc for Boot {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        alloc(layout.size(), layout.align())
    }

    unsafe fn dealloc(&self, object: *mut u8, _: Layout) {
        // SAFETY: the caller's promise.
        unsafe { free(object) };
    }
}

/// Memory of the kernel's for tables: zeroes, never given back.
pub(crate) fn map_table(bytes: usize) -> Option<NonNull<u8>> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let usable = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping where the kernel likes.
    let start = unsafe { libc::mmap(null_mut(), bytes, usable, flags, -1, 0) };
    if start == libc::MAP_FAILED { None } else { NonNull::new(start.cast()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_apart_and_come_again() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut live: Vec<(*mut u8, usize, u8)> = Vec::new();
        for stamp in 0..20_000_u32 {
            if live.len() > 100 {
                let (object, size, stamp) = live.swap_remove(random.usize(..live.len()));
                // SAFETY: this test wrote `size` bytes there, and frees it once.
                unsafe {
                    assert!((0..size).all(|at| object.add(at).read() == stamp));
                    free(object);
                }
            }
            let (size, align) = (random.usize(..5000), 1 << random.u32(..13));
            let object = alloc(size, align);
            assert!(
                !object.is_null() && object.addr().is_multiple_of(align) && owns(object.addr())
            );
            // SAFETY: it has at least `size` bytes.
            unsafe {
                assert!(usable(object) >= size);
                object.write_bytes(stamp as u8, size);
            }
            live.push((object, size, stamp as u8));
        }
        assert!(used() < 32 << 20, "{}", used());
        assert!(alloc(usize::MAX, 1).is_null() && alloc(1 << 50, 1).is_null());
    }
}
