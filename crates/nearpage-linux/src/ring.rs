//! A ring of numbers with two ends and a hot place: how both storages of this host keep a list of frames or a stack of
//! objects.
//!
//! ```text
//!            cold                     hot
//!   ring  …  | coldest … … … … … … … … |  …   hottest      slot of position p: ring[p & mask]
//!   drains take here, refills append    pops and pushes are here
//!
//!   cursor (64 bits)   bits 0-15 position of the ring's hot end, bits 16-31 number of pops (its low bits),
//!                      bits 32-63 the hot place: 1 + the hottest entry, or 0
//!   cold   (64 bits)   position of the cold end; only its low 16 bits meet the cursor
//! ```
//!
//! **Hot place.** What is pushed goes to the cursor itself, and the entry that was there to the ring; a pop takes it
//! from there, and only if there is none from the ring. So a pop after a push writes one word and reads no slot: a pair
//! takes four fifths of the time that it takes with the ring alone. Whatever else is done with a list finds
//! all entries in the ring: it has [`settle`](RingList::settle)d first.
//!
//! **Counts.** The cursor counts pops modulo 65536, `pops_seen` says at which number it began to: whoever pops notes
//! there what the cursor counted, each time that half of a round is over and in every batch. Pushes follow:
//! the hot end, hot place included, is at position `h = pushes - pops` (64 bits, from `cold` and the count).
//!
//! The operations here are for who has the list to himself: the holder of its CPU's lock, and who stopped its CPU.
//! [Restartable sequences](crate::rseq) have their own.

use core::marker::PhantomData;

use nearpage::platform::{CountedList, ListCounts, Pop, Push};
use nearpage::{CpuId, Order};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Largest ring: positions are compared in 16 bits, so a count must stay well below 65536.
const ENTRIES_MAX: u32 = 32768;
/// One pop in the low half of a cursor.
pub(crate) const ONE_POP: u32 = 1 << 16;
/// Where half of a round of pops is over, these bits of the cursor are 0.
pub(crate) const HALF_ROUND: u32 = 0x7fff << 16;
/// The most that a batch pops: less than half a round.
pub(crate) const BATCH_MOST: usize = 0x4000;

/// A ring of numbers; see the module text. 48 bytes. What sequences need of `ring` is its first entry; `entries` stands
/// for the rest.
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
    /// Pops up to a time that is less than a round of the cursor's count ago.
    pub(crate) pops_seen: AtomicU64,
    /// The CPU to which `owner` returns after a drain.
    pub(crate) cpu: u32,
}

// SAFETY: `ring` is a shared slice of atomics that outlives the list, and all other fields are atomics or
// constant.
unsafe impl Send for RingList<'_> {}
// SAFETY: as for Send.
unsafe impl Sync for RingList<'_> {}

/// What a cursor says.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    position: u16,
    pops: u16,
    /// 1 + the entry in the hot place, or 0.
    hot: u32,
}

impl Cursor {
    #[inline(always)]
    fn of(word: u64) -> Self {
        Self { position: word as u16, pops: (word >> 16) as u16, hot: (word >> 32) as u32 }
    }

    #[inline(always)]
    fn word(self) -> u64 {
        self.position as u64 | (self.pops as u64) << 16 | (self.hot as u64) << 32
    }

    /// Entries on the list whose cold end is at `cold`.
    #[inline(always)]
    fn count(self, cold: u64) -> u32 {
        self.in_ring(cold) + (self.hot != 0) as u32
    }

    #[inline(always)]
    fn in_ring(self, cold: u64) -> u32 {
        self.position.wrapping_sub(cold as u16) as u32
    }
}

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
            pops_seen: AtomicU64::new(0),
            cpu: cpu.0,
        }
    }

    #[inline(always)]
    fn ends(&self) -> (Cursor, u64) {
        (self.cursor(), self.cold.load(Ordering::Relaxed))
    }

    #[inline(always)]
    fn cursor(&self) -> Cursor {
        Cursor::of(self.cursor.load(Ordering::Relaxed))
    }

    #[inline(always)]
    fn set_cursor(&self, cursor: Cursor) {
        self.cursor.store(cursor.word(), Ordering::Relaxed);
    }

    /// The ends and all pops as they were at one moment, for readers on other CPUs: a drain between the loads could
    /// leave the cold end above the hot one, and counts off by 65535.
    fn ends_together(&self) -> (Cursor, u64, u64) {
        loop {
            // Acquire keeps the loads in this order; what is read twice moves in slow events only.
            let cold = self.cold.load(Ordering::Acquire);
            let seen = self.pops_seen.load(Ordering::Acquire);
            let cursor = Cursor::of(self.cursor.load(Ordering::Acquire));
            if self.cold.load(Ordering::Relaxed) == cold
                && self.pops_seen.load(Ordering::Relaxed) == seen
            {
                return (cursor, cold, seen + cursor.pops.wrapping_sub(seen as u16) as u64);
            }
        }
    }

    /// The slot of `position`.
    #[inline(always)]
    fn slot(&self, position: u16) -> &AtomicU32 {
        // SAFETY: the ring has `mask + 1` entries (`new`) and lives for `'m`.
        unsafe { &*self.ring.add((position & self.mask) as usize) }
    }

    /// The entry at `position`.
    #[inline(always)]
    fn entry(&self, position: u16) -> u32 {
        self.slot(position).load(Ordering::Relaxed)
    }

    /// Notes what the cursor counted of pops.
    fn note_pops(&self) {
        let seen = self.pops_seen.load(Ordering::Relaxed);
        let since = self.cursor().pops.wrapping_sub(seen as u16);
        self.pops_seen.store(seen + since as u64, Ordering::Relaxed);
    }

    /// Moves the entry in the hot place, if there is one, to the ring.
    fn settle(&self) {
        self.set_cursor(self.settled(self.cursor()));
    }

    /// The cursor once the entry in the hot place, if there is one, stands in the ring, where this puts it. There is
    /// room for it: a list never holds more than fits.
    #[inline(always)]
    fn settled(&self, cursor: Cursor) -> Cursor {
        if cursor.hot == 0 {
            return cursor;
        }
        self.slot(cursor.position).store(cursor.hot - 1, Ordering::Relaxed);
        Cursor { position: cursor.position.wrapping_add(1), hot: 0, ..cursor }
    }

    /// Takes the hottest entry.
    #[inline(always)]
    pub(crate) fn pop(&self) -> Pop {
        let (mut cursor, cold) = self.ends();
        let popped = if cursor.hot != 0 {
            cursor.hot - 1
        } else if cursor.in_ring(cold) > 0 {
            cursor.position = cursor.position.wrapping_sub(1);
            self.entry(cursor.position)
        } else {
            return Pop::EMPTY;
        };
        cursor.hot = 0;
        cursor.pops = cursor.pops.wrapping_add(1);
        if (cursor.pops as u32) << 16 & HALF_ROUND == 0 {
            self.note_pops();
        }
        self.set_cursor(cursor);
        Pop(popped)
    }

    /// Puts an entry at the hot end.
    #[inline(always)]
    pub(crate) fn push(&self, number: u32) -> Push {
        let (cursor, cold) = self.ends();
        if cursor.count(cold) >= self.limit() {
            return Push::FULL;
        }
        self.set_cursor(Cursor { hot: number + 1, ..self.settled(cursor) });
        Push::DONE
    }

    /// Takes up to `out.len()` entries from the hot end, at most [`BATCH_MOST`], hottest first; returns how many.
    pub(crate) fn pop_batch(&self, out: &mut [u32]) -> usize {
        self.settle();
        self.note_pops();
        let (cursor, cold) = self.ends();
        let popped = out.len().min(BATCH_MOST).min(cursor.in_ring(cold) as usize);
        for (entry, below) in out[..popped].iter_mut().zip(1..) {
            *entry = self.entry(cursor.position.wrapping_sub(below));
        }
        let position = cursor.position.wrapping_sub(popped as u16);
        let pops = cursor.pops.wrapping_add(popped as u16);
        self.set_cursor(Cursor { position, pops, hot: 0 });
        popped
    }

    /// Puts entries at the hot end, the last one hottest, as far as the limit allows; returns how many.
    pub(crate) fn push_batch(&self, numbers: &[u32]) -> usize {
        self.settle();
        let (cursor, cold) = self.ends();
        let room = self.limit().saturating_sub(cursor.in_ring(cold));
        let pushed = numbers.len().min(room as usize);
        for (number, above) in numbers[..pushed].iter().zip(0..) {
            self.slot(cursor.position.wrapping_add(above)).store(*number, Ordering::Relaxed);
        }
        let position = cursor.position.wrapping_add(pushed as u16);
        self.set_cursor(Cursor { position, ..cursor });
        pushed
    }

    /// Appends `first`, `first + step`, … at the cold end, `first` hottest, as far as there is room; returns how many.
    pub(crate) fn append_run(&self, first: u32, step: u32, blocks: u32) -> u32 {
        self.settle();
        let (cursor, cold) = self.ends();
        let appended = blocks.min(self.capacity() - cursor.in_ring(cold));
        for block in 0..appended {
            let slot = self.slot((cold as u16).wrapping_sub(1 + block as u16));
            slot.store(first + block * step, Ordering::Relaxed);
        }
        self.cold.store(cold.wrapping_sub(appended as u64), Ordering::Relaxed);
        appended
    }

    /// Takes up to `out.len()` entries from the cold end, coldest first; returns how many.
    pub(crate) fn pop_cold(&self, out: &mut [u32]) -> usize {
        self.settle();
        let (cursor, cold) = self.ends();
        let taken = out.len().min(cursor.in_ring(cold) as usize);
        for (entry, above) in out[..taken].iter_mut().zip(0..) {
            *entry = self.entry((cold as u16).wrapping_add(above));
        }
        self.cold.store(cold.wrapping_add(taken as u64), Ordering::Relaxed);
        taken
    }

    /// Calls `each` for every entry, hottest first. Only while nobody uses the list.
    pub(crate) fn for_each(&self, each: &mut dyn FnMut(u32)) {
        let (cursor, cold) = self.ends();
        if cursor.hot != 0 {
            each(cursor.hot - 1);
        }
        for below in 1..=cursor.in_ring(cold) as u16 {
            each(self.entry(cursor.position.wrapping_sub(below)));
        }
    }
}

impl CountedList for RingList<'_> {
    fn counts(&self) -> ListCounts {
        let (cursor, cold, pops) = self.ends_together();
        let count = cursor.count(cold);
        let pushes = cold.wrapping_add(count as u64).wrapping_add(pops);
        ListCounts { count, pops, pushes }
    }

    #[inline]
    fn count(&self) -> u32 {
        let (cursor, cold) = self.ends();
        cursor.count(cold).min(self.capacity())
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
