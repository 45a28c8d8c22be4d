//! Pageset storage by restartable sequences.
//!
//! A list is a ring of frame numbers with two ends:
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
//! Each operation commits with **one** store, to `cursor` or to `cold`. A pop adds 0xffff to the cursor
//! (one position down, one pop more), a push adds 1; so the cursor counts both exactly, and nothing else
//! need be counted on the fast path: with the hot end at position `h` (64 bits, from `cold` and the count)
//! `cursor = 65536 * pops + h` and `h = pushes - pops`.
//!
//! **Owner.** A sequence compares the CPU that it runs on with the `owner` of the list. A drain from
//! outside stores [`STOPPED`] there, calls `membarrier(PRIVATE_EXPEDITED_RSEQ)`, which aborts what
//! runs on that CPU, and then has the list to itself: one comparison serves both. A thread on that CPU
//! that meets a stopped list goes to the zone.
//!
//! **Who may use it.** glibc 2.35 and later registers `struct rseq` of every thread and tells where in
//! `__rseq_offset` and `__rseq_size`; we use its registration and never make our own.

#[cfg(target_arch = "aarch64")]
#[path = "aarch64.rs"]
mod sequences;
#[cfg(target_arch = "x86_64")]
#[path = "x86_64.rs"]
mod sequences;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[path = "fallback.rs"]
mod sequences;

mod area;
mod limit;
mod objects;

pub use area::{Area, Unavailable};
pub use limit::BareLists;

use core::marker::PhantomData;

use nearpage::frame::ZoneFrames;
use nearpage::pcp::storage::{EachList, ListCounts, Pop, Push, Storage};
use nearpage::sync::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};
use nearpage::units::{CpuId, Order};

/// Answer of a batch: not on the owner's CPU, or stopped.
const MOVED: u32 = u32::MAX;
/// Owner of a list that is being drained from outside: no CPU has this id, and the kernel does not put it
/// in place of one either (-1: no area is registered, -2: registering failed).
const STOPPED: u32 = 1 << 31;
/// Largest ring: positions are compared in 16 bits, so a count must stay well below 65536.
const RING_ENTRIES_MAX: u32 = 32768;

/// A ring of frame numbers; see the module text. 40 bytes, two lists share no more than a line. What
/// sequences need of `ring` is its first entry; `entries` stands for the rest.
#[derive(Debug)]
#[repr(C)]
pub struct RingList<'m> {
    cursor: AtomicU64,
    cold: AtomicU64,
    ring: *const AtomicU32,
    entries: PhantomData<&'m [AtomicU32]>,
    // The next three are read with one load.
    owner: AtomicU32,
    limit: AtomicU16,
    mask: u16,
    /// The CPU to which `owner` returns after a drain.
    cpu: u32,
}

// SAFETY: `ring` is a shared slice of atomics that outlives the list, and all other fields are atomics or
// constant.
unsafe impl Send for RingList<'_> {}
// SAFETY: as for Send.
unsafe impl Sync for RingList<'_> {}

impl RingList<'_> {
    fn ends(&self) -> (u64, u64) {
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

    /// The entry at `position`.
    #[inline]
    fn entry(&self, position: u64) -> u32 {
        let slot = (position as u16 & self.mask) as usize;
        // SAFETY: the ring has `mask + 1` entries (`RingStorage::list`).
        unsafe { (*self.ring.add(slot)).load(Ordering::Relaxed) }
    }
}

/// Takes blocks from the cold end of a list of a stopped CPU, which nobody else writes.
fn pop_cold_stopped(list: &RingList<'_>, out: &mut [u32]) -> usize {
    let (cursor, cold) = list.ends();
    let blocks = out.len().min(count_between(cursor, cold) as usize);
    for (slot, position) in out[..blocks].iter_mut().zip(0..) {
        *slot = list.entry(cold.wrapping_add(position));
    }
    list.cold.store(cold.wrapping_add(blocks as u64), Ordering::Relaxed);
    blocks
}

/// Blocks between the two ends.
#[inline]
fn count_between(cursor: u64, cold: u64) -> u32 {
    (cursor as u16).wrapping_sub(cold as u16) as u32
}

/// The storage: the distance of each thread's `struct rseq` from its thread pointer.
#[derive(Debug)]
pub struct RingStorage {
    area: Area,
}

/// Proof of being on a CPU, as far as there is one: each sequence checks again.
#[derive(Debug)]
pub struct Here<'a> {
    /// See [`Area::offset`].
    area: isize,
    stopped: Option<&'a CpuState>,
}

/// Whether the lists of a CPU are being drained from outside.
#[derive(Debug, Default)]
pub struct CpuState {
    stopped: AtomicBool,
}

impl RingStorage {
    /// The storage, if this process can use restartable sequences and drain from outside.
    pub fn new() -> Result<Self, Unavailable> {
        Ok(Self { area: Area::of_glibc()? })
    }

    /// A storage like this one.
    pub(crate) fn twin(&self) -> Self {
        Self { area: self.area }
    }

    /// The storage with an area of the caller's.
    #[doc(hidden)]
    pub fn with_area(area: Area) -> Self {
        Self { area }
    }
}

impl Storage for RingStorage {
    type List<'m> = RingList<'m>;
    type PerCpu = CpuState;
    type OnCpu<'a> = Here<'a>;
    const EXACT: bool = false;

    fn ring_entries(order: Order, high_max: u32) -> u32 {
        let blocks = (high_max >> order.0).clamp(8, RING_ENTRIES_MAX);
        1 << blocks.ilog2()
    }

    fn per_cpu(_cpu: CpuId) -> CpuState {
        CpuState::default()
    }

    fn list<'m>(cpu: CpuId, ring: &'m [AtomicU32]) -> RingList<'m> {
        assert!(ring.len().is_power_of_two() && ring.len() <= RING_ENTRIES_MAX as usize);
        RingList {
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

    #[inline(always)]
    fn current_cpu(&self) -> CpuId {
        self.area.current_cpu()
    }

    #[inline(always)]
    fn enter<'a>(&'a self, _cpu: CpuId, _state: &'a CpuState) -> Option<Here<'a>> {
        Some(Here { area: self.area.offset(), stopped: None })
    }

    #[inline(always)]
    fn pop(&self, on: &Here<'_>, list: &RingList<'_>, _frames: &ZoneFrames<'_>) -> Pop {
        debug_assert!(on.stopped.is_none(), "a stopped CPU's lists are only drained");
        Pop(sequences::pop(on.area, list))
    }

    #[inline(always)]
    fn push(
        &self,
        on: &Here<'_>,
        list: &RingList<'_>,
        _frames: &ZoneFrames<'_>,
        number: u32,
    ) -> Push {
        debug_assert!(on.stopped.is_none(), "a stopped CPU's lists are only drained");
        Push(sequences::push(on.area, list, number))
    }

    #[inline]
    fn pop_batch(
        &self,
        on: &Here<'_>,
        list: &RingList<'_>,
        _frames: &ZoneFrames<'_>,
        out: &mut [u32],
    ) -> usize {
        match sequences::pop_batch(on.area, list, out) {
            MOVED => 0,
            popped => popped as usize,
        }
    }

    #[inline]
    fn push_batch(
        &self,
        on: &Here<'_>,
        list: &RingList<'_>,
        _frames: &ZoneFrames<'_>,
        numbers: &[u32],
    ) -> usize {
        match sequences::push_batch(on.area, list, numbers) {
            MOVED => 0,
            pushed => pushed as usize,
        }
    }

    fn append_run(
        &self,
        on: &Here<'_>,
        list: &RingList<'_>,
        _frames: &ZoneFrames<'_>,
        first: u32,
        order: Order,
        blocks: u32,
    ) -> u32 {
        match sequences::append_run(on.area, list, first, 1 << order.0, blocks) {
            MOVED => 0,
            appended => appended,
        }
    }

    fn pop_cold(
        &self,
        on: &Here<'_>,
        list: &RingList<'_>,
        _frames: &ZoneFrames<'_>,
        out: &mut [u32],
    ) -> usize {
        if on.stopped.is_some() {
            return pop_cold_stopped(list, out);
        }
        match sequences::pop_cold(on.area, list, out) {
            MOVED => 0,
            taken => taken as usize,
        }
    }

    fn counts(list: &RingList<'_>) -> ListCounts {
        let (cursor, cold) = list.ends_together();
        let count = count_between(cursor, cold);
        let hot = cold.wrapping_add(count as u64);
        let pops = cursor.wrapping_sub(hot) >> 16;
        ListCounts { count, pops, pushes: hot.wrapping_add(pops) }
    }

    #[inline]
    fn count(list: &RingList<'_>) -> u32 {
        let (cursor, cold) = list.ends();
        count_between(cursor, cold).min(Self::capacity(list))
    }

    fn limit(list: &RingList<'_>) -> u32 {
        list.limit.load(Ordering::Relaxed) as u32
    }

    fn set_limit(list: &RingList<'_>, blocks: u32) -> u32 {
        let limit = blocks.min(Self::capacity(list));
        list.limit.store(limit as u16, Ordering::Relaxed);
        limit
    }

    fn capacity(list: &RingList<'_>) -> u32 {
        list.mask as u32 + 1
    }

    fn for_each(list: &RingList<'_>, _frames: &ZoneFrames<'_>, each: &mut dyn FnMut(u32)) {
        let (cursor, cold) = list.ends();
        for position in 1..=count_between(cursor, cold) as u64 {
            each(list.entry(cursor.wrapping_sub(position)));
        }
    }

    fn stop<'a>(
        &'a self,
        cpu: CpuId,
        state: &'a CpuState,
        lists: &EachList<'_, RingList<'_>>,
    ) -> Option<Here<'a>> {
        // Acquire pairs with the Release in `resume`: the next one to stop this CPU sees our drains.
        if state.stopped.swap(true, Ordering::Acquire) {
            return None;
        }
        lists(&mut |list| list.owner.store(STOPPED, Ordering::Relaxed));
        let here = Here { area: self.area.offset(), stopped: Some(state) };
        if self.area.abort_sequences_on(cpu) {
            return Some(here);
        }
        self.resume(here, lists);
        None
    }

    fn resume(&self, on: Here<'_>, lists: &EachList<'_, RingList<'_>>) {
        let state = on.stopped.expect("resume ends what stop began");
        // Release pairs with nothing a sequence does by itself: on its CPU the thread that reads the owner
        // was not running a sequence on this list meanwhile, and stores of one location are seen in order;
        // it orders the drained ends before the owner for CPUs with weak ordering.
        lists(&mut |list| list.owner.store(list.cpu, Ordering::Release));
        state.stopped.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
