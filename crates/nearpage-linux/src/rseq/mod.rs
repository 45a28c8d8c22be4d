//! Pageset storage by restartable sequences.
//!
//! A list is a [ring](crate::ring). Each operation commits with **one** store, to its cursor or to its cold end. A batch
//! that finds an entry in the hot place does nothing: the entry goes to the ring first, with a sequence of its own.
//!
//! **Owner.** A sequence compares the CPU that it runs on with the `owner` of the list. A drain from
//! outside stores [`STOPPED`] there, calls `membarrier(PRIVATE_EXPEDITED_RSEQ)`, which aborts what
//! runs on that CPU, and then has the list to itself: one comparison serves both. A thread on that CPU
//! that meets a stopped list goes to the zone.
//!
//! **Who may use it.** glibc 2.35 and later registers `struct rseq` of every thread and tells where in
//! `__rseq_offset` and `__rseq_size`; we use its registration and never make our own.

#[macro_use]
mod list_asm;

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

pub use area::{Area, RseqUnavailable};
pub use limit::BareLists;

use nearpage::CpuId;
use nearpage::platform::{EachList, Pop, Push};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::ring::RingList;
use crate::storage::{RingAccess, Rings};

/// Answer of a batch: not on the owner's CPU, or stopped.
const MOVED: u32 = u32::MAX;
/// Answer of a batch: it begins with the ring, and the hottest entry is in the hot place.
const IN_HOT_PLACE: u32 = u32::MAX - 1;
/// Owner of a list that is being drained from outside: no CPU has this id, and the kernel does not put it
/// in place of one either (-1: no area is registered, -2: registering failed).
const STOPPED: u32 = 1 << 31;

/// Restartable sequences: the distance of each thread's `struct rseq` from its thread pointer.
#[derive(Debug)]
pub struct Sequences {
    area: Area,
}

/// Rings by restartable sequences.
pub type RingStorage = Rings<Sequences>;

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
    pub fn new() -> Result<Self, RseqUnavailable> {
        Area::of_glibc().map(Self::with_area)
    }

    /// The storage with an area of the caller's.
    #[doc(hidden)]
    pub fn with_area(area: Area) -> Self {
        Rings(Sequences { area })
    }

    /// A storage like this one.
    pub(crate) fn twin(&self) -> Self {
        Self::with_area(self.0.area)
    }
}

/// What a batch on a list answers once all entries are in the ring; 0 if this thread has moved.
#[inline(always)]
fn batch(on: &Here<'_>, list: &RingList<'_>, mut sequence: impl FnMut() -> u32) -> u32 {
    loop {
        match sequence() {
            IN_HOT_PLACE => sequences::settle(on.area, list),
            MOVED => return 0,
            entries => return entries,
        }
    }
}

impl RingAccess for Sequences {
    type PerCpu = CpuState;
    type OnCpu<'a> = Here<'a>;
    const CHECKS_CPU: bool = true;

    #[inline(always)]
    fn current_cpu(&self) -> CpuId {
        self.area.current_cpu()
    }

    #[inline(always)]
    fn enter<'a>(&'a self, _state: &'a CpuState) -> Option<Here<'a>> {
        Some(Here { area: self.area.offset(), stopped: None })
    }

    #[inline(always)]
    fn pop(on: &Here<'_>, list: &RingList<'_>) -> Pop {
        debug_assert!(on.stopped.is_none(), "a stopped CPU's lists are only drained");
        Pop(sequences::pop(on.area, list))
    }

    #[inline(always)]
    fn push(on: &Here<'_>, list: &RingList<'_>, number: u32) -> Push {
        debug_assert!(on.stopped.is_none(), "a stopped CPU's lists are only drained");
        Push(sequences::push(on.area, list, number))
    }

    #[inline]
    fn pop_batch(on: &Here<'_>, list: &RingList<'_>, out: &mut [u32]) -> usize {
        batch(on, list, || sequences::pop_batch(on.area, list, out)) as usize
    }

    #[inline]
    fn push_batch(on: &Here<'_>, list: &RingList<'_>, numbers: &[u32]) -> usize {
        batch(on, list, || sequences::push_batch(on.area, list, numbers)) as usize
    }

    fn append_run(on: &Here<'_>, list: &RingList<'_>, first: u32, step: u32, count: u32) -> u32 {
        batch(on, list, || sequences::append_run(on.area, list, first, step, count))
    }

    fn pop_cold(on: &Here<'_>, list: &RingList<'_>, out: &mut [u32]) -> usize {
        if on.stopped.is_some() {
            // Nobody else writes the lists of a stopped CPU.
            return list.pop_cold(out);
        }
        batch(on, list, || sequences::pop_cold(on.area, list, out)) as usize
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
