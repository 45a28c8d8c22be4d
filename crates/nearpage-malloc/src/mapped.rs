//! Requests of 4 MiB and more: mappings of their own, under the policy, which `realloc` grows without a copy.
//!
//! A table by address knows them all, so that a free of anything else is noticed. Mappings cost a call of the kernel anyway:
//! the table is simple, and behind a lock.

use std::ptr::null_mut;

use crate::boot::map_table;
use crate::errno;
use crate::kept::KEPT;
use crate::lock::Lock;
use crate::policy;
use crate::usage;

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

/// A mapping, and whether it is all zeroes.
pub(crate) struct Mapped {
    pub start: *mut u8,
    pub is_zero: bool,
}

const FAILED: Mapped = Mapped { start: null_mut(), is_zero: false };

/// Maps so many bytes; null without memory.
pub(crate) fn map(size: usize, align: usize) -> Mapped {
    let Some(bytes) = page_bytes(size) else { return FAILED };
    let kept = if align <= 4096 { KEPT.lock().take(bytes) } else { None };
    let (start, is_zero) = match kept {
        Some(start) => (std::ptr::with_exposed_provenance_mut(start), false),
        None => (map_new(bytes, align), true),
    };
    if start.is_null() {
        return FAILED;
    }
    if !TABLE.lock().insert(start.addr(), bytes) {
        // SAFETY: nobody has it.
        unsafe { libc::munmap(start.cast(), bytes) };
        return FAILED;
    }
    Mapped { start, is_zero }
}

fn map_new(bytes: usize, align: usize) -> *mut u8 {
    let extra = if align > 4096 { align } else { 0 };
    let Some(all) = bytes.checked_add(extra).filter(|all| *all < 1 << 47) else {
        return null_mut();
    };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let usable = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping where the kernel likes.
    let map = || unsafe { libc::mmap(null_mut(), all, usable, flags, -1, 0) };
    let mut start = map();
    if start == libc::MAP_FAILED && drop_all() {
        start = map();
    }
    if start == libc::MAP_FAILED {
        return null_mut();
    }
    let first = start.expose_provenance().next_multiple_of(align.max(4096));
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
    policy::apply(mapped, bytes);
    mapped
}

fn give_to_kernel(start: usize, bytes: usize) {
    // SAFETY: what is kept belongs to nobody else.
    unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(start), bytes) };
}

/// Gives mappings back that nobody wanted for a while; whether some are left.
pub(crate) fn drop_old() -> bool {
    KEPT.lock().look(false, give_to_kernel)
}

/// Gives all back that is kept; whether there was something.
pub(crate) fn drop_all() -> bool {
    let mut kept = KEPT.lock();
    let had = kept.bytes() > 0;
    kept.look(true, give_to_kernel);
    had
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
    errno::kept(|| {
        // What is kept must go back some time.
        let is_kept = usage::has_thread() && KEPT.lock().keep(mapped.expose_provenance(), bytes);
        if is_kept {
            usage::want();
        } else {
            give_to_kernel(mapped.addr(), bytes);
        }
    });
    true
}

/// Grows or shrinks a mapping, which may move; null if it cannot, and then it stays as it is.
///
/// # Safety
/// * Nobody else uses the mapping.
pub(crate) unsafe fn remap(mapped: *mut u8, size: usize) -> *mut u8 {
    let Some(wanted) = page_bytes(size) else { return null_mut() };
    let Some(bytes) = TABLE.lock().remove(mapped.addr()) else { return null_mut() };
    let is_in_place = wanted > bytes && KEPT.lock().take_at(mapped.addr() + bytes, wanted - bytes);
    let moved = if is_in_place {
        mapped
    } else {
        // SAFETY: a whole mapping of this module, whose owner asks.
        unsafe { libc::mremap(mapped.cast(), bytes, wanted, libc::MREMAP_MAYMOVE).cast::<u8>() }
    };
    // Its entry was there: there is room for it again.
    if moved.cast() == libc::MAP_FAILED {
        TABLE.lock().insert(mapped.addr(), bytes);
        return null_mut();
    }
    TABLE.lock().insert(moved.expose_provenance(), wanted);
    moved
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
        // Freed ones are kept, and this test is the thread that drops them.
        usage::set_maker(|| ());
        let mut live: Vec<(*mut u8, usize)> = Vec::new();
        let mut random = fastrand::Rng::with_seed(3);
        let mut remaps = (0, 0);
        for turn in 0..5000 {
            let size = random.usize(1..100_000);
            match random.u8(..4) {
                0 | 1 => {
                    let align = 1 << random.u32(..20);
                    let mapped = map(size, align).start;
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
                        let before = size_of_mapping(mapped.addr()).unwrap();
                        let moved = remap(mapped, size);
                        remaps.0 += 1;
                        if moved.is_null() {
                            // It took in what was behind it, and for the kernel these are two mappings still.
                            remaps.1 += 1;
                            assert_eq!(mapped.cast::<usize>().read(), stamp);
                            assert_eq!(size_of_mapping(mapped.addr()).unwrap(), before);
                            continue;
                        }
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
        assert!(remaps.1 * 10 < remaps.0, "{} of {} were refused", remaps.1, remaps.0);
        for (mapped, _) in live {
            // SAFETY: it is this test's.
            assert!(unsafe { unmap(mapped) });
        }
        assert!(drop_all() && !drop_all() && !drop_old());
        assert!(map(usize::MAX, 1).start.is_null() && map(4096, 1 << 62).start.is_null());
    }
}
