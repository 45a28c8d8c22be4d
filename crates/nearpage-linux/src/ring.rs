//! A ring of numbers with two ends: how both storages of this host keep a list of frames or a stack of objects.
//!
//! ```text
//!            cold                     hot
//!   ring  …  | coldest … … … … hottest |  …        slot of position p: ring[p & mask]
//!   drains take here, refills append   pops and pushes are here
//!
//!   cursor (64 bits)   bits 0-15 position of the hot end, bits 16-63 number of pops
//!   cold   (64 bits)   position of the cold end; only its low 16 bits meet the cursor
//! ```
//!
//! A pop adds 0xffff to the cursor (one position down, one pop more), a push adds 1; so the cursor counts both
//! exactly, and nothing else need be counted on the fast path: with the hot end at position `h` (64 bits, from `cold`
//! and the count) `cursor = 65536 * pops + h` and `h = pushes - pops`.
//!
//! The operations here are for who has the list to himself: the holder of its CPU's lock, and who stopped its CPU.
//! [Restartable sequences](crate::rseq) have their own.

use core::marker::PhantomData;

use nearpage::pcp::storage::{CountedList, ListCounts, Pop, Push};
use nearpage::sync::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use nearpage::units::{CpuId, Order};

/// Largest ring: positions are compared in 16 bits, so a count must stay well below 65536.
const ENTRIES_MAX: u32 = 32768;

/// A ring of numbers; see the module text. 40 bytes, two lists share no more than a line. What
/// sequences need of `ring` is its first entry; `entries` stands for the rest.
#[derive(Debug)]
#[repr(C)]
pub struct RingList<'m> {
    pub(crate) cursor: AtomicU64,
    pub(crate) cold: AtomicU64,
    pub(crate) ring: *const AtomicU32,
    entries: PhantomData<&'m [AtomicU32]>,
    // The next three are read with one load.
    pub(crate) owner: AtomicU32,
    pub(crate) limit: AtomicU16,
    pub(crate) mask: u16,
    /// The CPU to which `owner` returns after a drain.
    pub(crate) cpu: u32,
}

// SAFETY: `ring` is a shared slice of atomics that outlives the list, and all other fields are atomics or
// constant.
unsafe impl Send for RingList<'_> {}
// SAFETY: as for Send.
unsafe impl Sync for RingList<'_> {}

impl<'m> RingList<'m> {
    /// Entries of a list of `order` in a zone whose pagesets may hold `high_max` pages.
    pub(crate) fn entries_for(order: Order, high_max: u32) -> u32 {
        let blocks = (high_max >> order.0).clamp(8, ENTRIES_MAX);
        1 << blocks.ilog2()
    }

    /// An empty list of `cpu`.
    pub(crate) fn new(cpu: CpuId, ring: &'m [AtomicU32]) -> Self {
        assert!(ring.len().is_power_of_two() && ring.len() <= ENTRIES_MAX as usize);
        Self {
            cursor: AtomicU64::new(0),
            cold: AtomicU64::new(0),
            ring: ring.as_ptr(),
            entries: PhantomData,
            owner: AtomicU32::new(cpu.0),
            limit: AtomicU16::new(ring.len() as u16),
            mask: (ring.len() - 1) as u16,
            cpu: cpu.0,
        }
    }

    #[inline]
    pub(crate) fn ends(&self) -> (u64, u64) {
        (self.cursor.load(Ordering::Relaxed), self.cold.load(Ordering::Relaxed))
    }

    /// The ends as they were at one moment, for readers on other CPUs: a drain between the two loads could
    /// leave the cold end above the hot one, and counts off by 65535.
    fn ends_together(&self) -> (u64, u64) {
        loop {
            // Acquire keeps the three loads in this order; the cold end moves in refills and drains only.
            let cold = self.cold.load(Ordering::Acquire);
            let cursor = self.cursor.load(Ordering::Acquire);
            if self.cold.load(Ordering::Relaxed) == cold {
                return (cursor, cold);
            }
        }
    }

    /// The slot of `position`.
    #[inline(always)]
    fn slot(&self, position: u64) -> &AtomicU32 {
        let slot = (position as u16 & self.mask) as usize;
        // SAFETY: the ring has `mask + 1` entries (`new`) and lives for `'m`.
        unsafe { &*self.ring.add(slot) }
    }

    /// The entry at `position`.
    #[inline(always)]
    pub(crate) fn entry(&self, position: u64) -> u32 {
        self.slot(position).load(Ordering::Relaxed)
    }

    /// Takes the hottest entry.
    #[inline(always)]
    pub(crate) fn pop(&self) -> Pop {
        let (cursor, cold) = self.ends();
        if cursor as u16 == cold as u16 {
            return Pop::EMPTY;
        }
        let popped = self.entry(cursor.wrapping_sub(1));
        self.cursor.store(cursor.wrapping_add(0xffff), Ordering::Relaxed);
        Pop(popped)
    }

    /// Puts an entry at the hot end.
    #[inline(always)]
    pub(crate) fn push(&self, number: u32) -> Push {
        let (cursor, cold) = self.ends();
        if count_between(cursor, cold) >= self.limit() {
            return Push::FULL;
        }
        self.slot(cursor).store(number, Ordering::Relaxed);
        self.cursor.store(cursor.wrapping_add(1), Ordering::Relaxed);
        Push::DONE
    }

    /// Takes up to `out.len()` entries from the hot end, hottest first; returns how many.
    pub(crate) fn pop_batch(&self, out: &mut [u32]) -> usize {
        let (cursor, cold) = self.ends();
        let popped = out.len().min(count_between(cursor, cold) as usize);
        for (entry, below) in out[..popped].iter_mut().zip(1..) {
            *entry = self.entry(cursor.wrapping_sub(below));
        }
        self.cursor.store(cursor.wrapping_add(0xffff * popped as u64), Ordering::Relaxed);
        popped
    }

    /// Puts entries at the hot end, the last one hottest, as far as the limit allows; returns how many.
    pub(crate) fn push_batch(&self, numbers: &[u32]) -> usize {
        let (cursor, cold) = self.ends();
        let room = self.limit().saturating_sub(count_between(cursor, cold));
        let pushed = numbers.len().min(room as usize);
        for (number, above) in numbers[..pushed].iter().zip(0..) {
            self.slot(cursor.wrapping_add(above)).store(*number, Ordering::Relaxed);
        }
        self.cursor.store(cursor.wrapping_add(pushed as u64), Ordering::Relaxed);
        pushed
    }

    /// Appends `first`, `first + step`, … at the cold end, `first` hottest, as far as there is room; returns how many.
    pub(crate) fn append_run(&self, first: u32, step: u32, blocks: u32) -> u32 {
        let (cursor, cold) = self.ends();
        let appended = blocks.min(self.capacity() - count_between(cursor, cold));
        for block in 0..appended {
            let slot = self.slot(cold.wrapping_sub(1 + block as u64));
            slot.store(first + block * step, Ordering::Relaxed);
        }
        self.cold.store(cold.wrapping_sub(appended as u64), Ordering::Relaxed);
        appended
    }

    /// Takes up to `out.len()` entries from the cold end, coldest first; returns how many.
    pub(crate) fn pop_cold(&self, out: &mut [u32]) -> usize {
        let (cursor, cold) = self.ends();
        let taken = out.len().min(count_between(cursor, cold) as usize);
        for (entry, above) in out[..taken].iter_mut().zip(0..) {
            *entry = self.entry(cold.wrapping_add(above));
        }
        self.cold.store(cold.wrapping_add(taken as u64), Ordering::Relaxed);
        taken
    }

    /// Calls `each` for every entry, hottest first. Only while nobody uses the list.
    pub(crate) fn for_each(&self, each: &mut dyn FnMut(u32)) {
        let (cursor, cold) = self.ends();
        for position in 1..=count_between(cursor, cold) as u64 {
            each(self.entry(cursor.wrapping_sub(position)));
        }
    }
}

impl CountedList for RingList<'_> {
    fn counts(&self) -> ListCounts {
        let (cursor, cold) = self.ends_together();
        let count = count_between(cursor, cold);
        let hot = cold.wrapping_add(count as u64);
        let pops = cursor.wrapping_sub(hot) >> 16;
        ListCounts { count, pops, pushes: hot.wrapping_add(pops) }
    }

    #[inline]
    fn count(&self) -> u32 {
        let (cursor, cold) = self.ends();
        count_between(cursor, cold).min(self.capacity())
    }

    #[inline(always)]
    fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed) as u32
    }

    fn set_limit(&self, entries: u32) -> u32 {
        let limit = entries.min(self.capacity());
        self.limit.store(limit as u16, Ordering::Relaxed);
        limit
    }

    #[inline]
    fn capacity(&self) -> u32 {
        self.mask as u32 + 1
    }
}

/// Entries between the two ends.
#[inline(always)]
fn count_between(cursor: u64, cold: u64) -> u32 {
    (cursor as u16).wrapping_sub(cold as u16) as u32
}
