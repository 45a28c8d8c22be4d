//! Requests of 4 MiB and more: mappings of their own, which `realloc` grows without a copy.
//!
//! A table by address knows them all, so that a free of anything else is noticed. Mappings cost a call of the kernel anyway:
//! the table is simple, and behind a lock.

use std::ptr::null_mut;

use crate::boot::map_table;
use crate::lock::Lock;

/// The first table has room for as many.
const FIRST_ROOM: usize = 1 << 10;
/// In place of an entry that was.
const GONE: usize = 1;

#[derive(Clone, Copy)]
struct Entry {
    /// 0: never used.
    address: usize,
    bytes: usize,
}

pub(crate) struct Table {
    entries: *mut Entry,
    room: usize,
    /// Entries that are not 0.
    filled: usize,
    live: usize,
    bytes: usize,
}

// SAFETY: whoever has the lock has the entries.
unsafe impl Send for Table {}

pub(crate) static TABLE: Lock<Table> =
    Lock::new(Table { entries: null_mut(), room: 0, filled: 0, live: 0, bytes: 0 });

fn page_bytes(size: usize) -> Option<usize> {
    size.max(1).checked_next_multiple_of(4096).filter(|bytes| *bytes < 1 << 47)
}

/// Maps zeroes; null without memory.
pub(crate) fn map(size: usize, align: usize) -> *mut u8 {
    let Some(bytes) = page_bytes(size) else { return null_mut() };
    let extra = if align > 4096 { align } else { 0 };
    let Some(all) = bytes.checked_add(extra).filter(|all| *all < 1 << 47) else {
        return null_mut();
    };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let usable = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping where the kernel likes.
    let start = unsafe { libc::mmap(null_mut(), all, usable, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return null_mut();
    }
    let first = start.addr().next_multiple_of(align.max(4096));
    // SAFETY: the parts in front of and behind what is needed belong to the new mapping.
    unsafe {
        if first > start.addr() {
            libc::munmap(start, first - start.addr());
        }
        let end = start.addr() + all;
        if end > first + bytes {
            libc::munmap(start.with_addr(first + bytes), end - first - bytes);
        }
    }
    let mapped: *mut u8 = start.with_addr(first).cast();
    if !TABLE.lock().insert(first, bytes) {
        // SAFETY: nobody has it.
        unsafe { libc::munmap(mapped.cast(), bytes) };
        return null_mut();
    }
    mapped
}

/// The bytes of the mapping that starts at an address.
pub(crate) fn size_of_mapping(address: usize) -> Option<usize> {
    TABLE.lock().find(address).map(|(_, bytes)| bytes)
}

/// Unmaps what starts at an address; whether there was something.
///
/// # Safety
/// * Nobody uses the mapping any more, if there is one.
pub(crate) unsafe fn unmap(mapped: *mut u8) -> bool {
    let Some(bytes) = TABLE.lock().remove(mapped.addr()) else { return false };
    // SAFETY: the table had it, so it is a whole mapping of this module.
    unsafe { libc::munmap(mapped.cast(), bytes) };
    true
}

/// Grows or shrinks a mapping, which may move; null if it cannot, and then it stays as it is.
///
/// # Safety
/// * Nobody else uses the mapping.
pub(crate) unsafe fn remap(mapped: *mut u8, size: usize) -> *mut u8 {
    let Some(wanted) = page_bytes(size) else { return null_mut() };
    let Some(bytes) = TABLE.lock().remove(mapped.addr()) else { return null_mut() };
    // SAFETY: a whole mapping of this module, whose owner asks.
    let moved = unsafe { libc::mremap(mapped.cast(), bytes, wanted, libc::MREMAP_MAYMOVE) };
    // Its entry was there: there is room for it again.
    if moved == libc::MAP_FAILED {
        TABLE.lock().insert(mapped.addr(), bytes);
        return null_mut();
    }
    TABLE.lock().insert(moved.addr(), wanted);
    moved.cast()
}

/// Mappings that live, and their bytes.
pub(crate) fn live() -> (usize, usize) {
    let table = TABLE.lock();
    (table.live, table.bytes)
}

impl Table {
    fn slot(&self, address: usize, at: usize) -> *mut Entry {
        let hash = (address >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        self.entries.wrapping_add((hash + at) & (self.room - 1))
    }

    fn find(&self, address: usize) -> Option<(*mut Entry, usize)> {
        for at in 0..self.room {
            let slot = self.slot(address, at);
            // SAFETY: a slot is one of the table.
            let entry = unsafe { slot.read() };
            match entry.address {
                0 => return None,
                found if found == address && found != GONE => return Some((slot, entry.bytes)),
                _ => {}
            }
        }
        None
    }

    fn insert(&mut self, address: usize, bytes: usize) -> bool {
        if self.filled * 2 >= self.room && !self.renew() {
            return false;
        }
        for at in 0..self.room {
            let slot = self.slot(address, at);
            // SAFETY: a slot is one of the table.
            unsafe {
                if (*slot).address <= GONE {
                    self.filled += usize::from((*slot).address == 0);
                    slot.write(Entry { address, bytes });
                    self.live += 1;
                    self.bytes += bytes;
                    return true;
                }
            }
        }
        false
    }

    fn remove(&mut self, address: usize) -> Option<usize> {
        let (slot, bytes) = self.find(address)?;
        // SAFETY: a slot is one of the table.
        unsafe { (*slot).address = GONE };
        self.live -= 1;
        self.bytes -= bytes;
        Some(bytes)
    }

    /// A table with room for twice what lives, without what was.
    fn renew(&mut self) -> bool {
        let room = (self.live * 4).next_power_of_two().max(FIRST_ROOM);
        let Some(entries) = map_table(room * size_of::<Entry>()) else { return false };
        let (old, old_room) = (self.entries, self.room);
        *self = Table { entries: entries.as_ptr().cast(), room, filled: 0, live: 0, bytes: 0 };
        for at in 0..old_room {
            // SAFETY: the old table is still there.
            let entry = unsafe { old.add(at).read() };
            if entry.address > GONE {
                self.insert(entry.address, entry.bytes);
            }
        }
        if old_room > 0 {
            // SAFETY: nobody else knew it.
            unsafe { libc::munmap(old.cast(), old_room * size_of::<Entry>()) };
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_come_grow_and_go() {
        let mut live: Vec<(*mut u8, usize)> = Vec::new();
        let mut random = fastrand::Rng::with_seed(3);
        for turn in 0..5000 {
            let size = random.usize(1..100_000);
            match random.u8(..4) {
                0 | 1 => {
                    let align = 1 << random.u32(..20);
                    let mapped = map(size, align);
                    assert!(!mapped.is_null() && mapped.addr().is_multiple_of(align));
                    // SAFETY: it is new.
                    unsafe { mapped.cast::<usize>().write(turn) };
                    live.push((mapped, turn));
                }
                2 if !live.is_empty() => {
                    let at = random.usize(..live.len());
                    let (mapped, stamp) = live[at];
                    // SAFETY: it is this test's.
                    unsafe {
                        let moved = remap(mapped, size);
                        assert_eq!(moved.cast::<usize>().read(), stamp);
                        assert!(size_of_mapping(moved.addr()).unwrap() >= size);
                        live[at].0 = moved;
                    }
                }
                _ if !live.is_empty() => {
                    let (mapped, stamp) = live.swap_remove(random.usize(..live.len()));
                    // SAFETY: it is this test's.
                    unsafe {
                        assert_eq!(mapped.cast::<usize>().read(), stamp);
                        assert!(unmap(mapped) && !unmap(mapped));
                    }
                }
                _ => {}
            }
        }
        for (mapped, _) in live {
            // SAFETY: it is this test's.
            assert!(unsafe { unmap(mapped) });
        }
        assert!(map(usize::MAX, 1).is_null() && map(4096, 1 << 62).is_null());
    }
}
