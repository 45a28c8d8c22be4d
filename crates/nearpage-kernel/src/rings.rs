//! Lists of a CPU as rings of numbers: pages of pagesets, and stacks of objects.
//!
//! ```text
//!            cold                    hot
//!   ring  …  | coldest … … … hottest |  …        slot of position p: ring[p % length]
//!   drains take here,         pops and pushes
//!   refills append            are here
//! ```
//!
//! Positions are 64 bits wide and only ever differ by what is on the list, so none comes round. The hot end moves up with
//! each push and down with each pop, and the pops are counted: pushes follow, since refills and drains move the cold end.
//!
//! Who pops or pushes has the list to himself ([`Exclusion`]). Whoever reads counts from elsewhere may see two
//! moments: what is shown is bounded by what fits.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use nearpage::platform::{
    CountedList, EachList, Exclusion, ListCounts, Pop, Push, Storage, ZoneFrames,
};
use nearpage::{CpuId, Order};
use nearpage_slab::ObjectStorage;

/// The longest ring.
const ENTRIES_MAX: u32 = 32_768;
/// The shortest, for lists of which next to nothing may be kept.
const ENTRIES_MIN: u32 = 8;

/// A list of one CPU.
#[derive(Debug)]
pub struct RingList<'m> {
    hot: AtomicU64,
    cold: AtomicU64,
    pops: AtomicU64,
    entries: &'m [AtomicU32],
    limit: AtomicU32,
}

impl<'m> RingList<'m> {
    fn new(entries: &'m [AtomicU32]) -> Self {
        assert!(entries.len().is_power_of_two(), "a ring's length is a power of two");
        let limit = AtomicU32::new(entries.len() as u32);
        let zero = || AtomicU64::new(0);
        Self { hot: zero(), cold: zero(), pops: zero(), entries, limit }
    }

    #[inline(always)]
    fn ends(&self) -> (u64, u64) {
        (self.hot.load(Ordering::Relaxed), self.cold.load(Ordering::Relaxed))
    }

    #[inline(always)]
    fn slot(&self, position: u64) -> &AtomicU32 {
        let mask = self.entries.len().wrapping_sub(1);
        &self.entries[position as usize & mask]
    }

    /// The slots of `count` positions from `start` on, in two parts: the ring comes round between them.
    #[inline(always)]
    fn parts(&self, start: u64, count: usize) -> [&[AtomicU32]; 2] {
        let (before, from) = self.entries.split_at(start as usize & (self.entries.len() - 1));
        let first = count.min(from.len());
        [&from[..first], &before[..count - first]]
    }

    #[inline(always)]
    fn note_pops(&self, pops: u64) {
        let before = self.pops.load(Ordering::Relaxed);
        self.pops.store(before.wrapping_add(pops), Ordering::Relaxed);
    }

    #[inline(always)]
    fn pop(&self) -> Pop {
        let (hot, cold) = self.ends();
        if hot == cold {
            return Pop::EMPTY;
        }
        let hot = hot.wrapping_sub(1);
        self.hot.store(hot, Ordering::Relaxed);
        self.note_pops(1);
        Pop(self.slot(hot).load(Ordering::Relaxed))
    }

    #[inline(always)]
    fn push(&self, number: u32) -> Push {
        let (hot, cold) = self.ends();
        if hot.wrapping_sub(cold) >= u64::from(self.limit.load(Ordering::Relaxed)) {
            return Push::FULL;
        }
        self.slot(hot).store(number, Ordering::Relaxed);
        self.hot.store(hot.wrapping_add(1), Ordering::Relaxed);
        Push::DONE
    }

    fn pop_batch(&self, out: &mut [u32]) -> usize {
        let (hot, cold) = self.ends();
        let popped = out.len().min(hot.wrapping_sub(cold) as usize);
        for (entry, below) in out[..popped].iter_mut().zip(1..) {
            *entry = self.slot(hot.wrapping_sub(below)).load(Ordering::Relaxed);
        }
        self.hot.store(hot.wrapping_sub(popped as u64), Ordering::Relaxed);
        self.note_pops(popped as u64);
        popped
    }

    fn push_batch(&self, numbers: &[u32]) -> usize {
        let (hot, cold) = self.ends();
        let room = u64::from(self.limit()).saturating_sub(hot.wrapping_sub(cold));
        let pushed = numbers.len().min(room as usize);
        for (number, above) in numbers[..pushed].iter().zip(0..) {
            self.slot(hot.wrapping_add(above)).store(*number, Ordering::Relaxed);
        }
        self.hot.store(hot.wrapping_add(pushed as u64), Ordering::Relaxed);
        pushed
    }

    /// Appends `first`, `first + step`, … at the cold end, `first` hottest, as far as there is room.
    fn append_run(&self, first: u32, step: u32, blocks: u32) -> u32 {
        let (hot, cold) = self.ends();
        let room = u64::from(self.capacity()).saturating_sub(hot.wrapping_sub(cold));
        let appended = blocks.min(room as u32);
        let end = cold.wrapping_sub(appended.into());
        let mut number = first + appended * step;
        for part in self.parts(end, appended as usize) {
            for slot in part {
                number -= step;
                slot.store(number, Ordering::Relaxed);
            }
        }
        self.cold.store(end, Ordering::Relaxed);
        appended
    }

    fn pop_cold(&self, out: &mut [u32]) -> usize {
        let (hot, cold) = self.ends();
        let taken = out.len().min(hot.wrapping_sub(cold) as usize);
        let mut out = out.iter_mut();
        for part in self.parts(cold, taken) {
            for (slot, entry) in part.iter().zip(out.by_ref()) {
                *entry = slot.load(Ordering::Relaxed);
            }
        }
        self.cold.store(cold.wrapping_add(taken as u64), Ordering::Relaxed);
        taken
    }

    fn for_each(&self, each: &mut dyn FnMut(u32)) {
        let (hot, _) = self.ends();
        for below in 1..=u64::from(self.count()) {
            each(self.slot(hot.wrapping_sub(below)).load(Ordering::Relaxed));
        }
    }
}

impl CountedList for RingList<'_> {
    fn counts(&self) -> ListCounts {
        let (hot, pops) = (self.hot.load(Ordering::Relaxed), self.pops.load(Ordering::Relaxed));
        ListCounts { count: self.count(), pops, pushes: hot.wrapping_add(pops) }
    }

    #[inline]
    fn count(&self) -> u32 {
        let (hot, cold) = self.ends();
        hot.wrapping_sub(cold).min(self.entries.len() as u64) as u32
    }

    #[inline(always)]
    fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    fn set_limit(&self, blocks: u32) -> u32 {
        let limit = blocks.min(self.capacity());
        self.limit.store(limit, Ordering::Relaxed);
        limit
    }

    fn capacity(&self) -> u32 {
        self.entries.len() as u32
    }
}

/// Lists as rings, exclusive by `X`. An operation writes an end and a slot; how much a list may hold is told it beforehand
/// ([`Storage::EXACT`] is `false`), so a pair takes a fraction of the instructions of lists that are linked through the
/// frames ([`SerialStorage`](nearpage::platform::SerialStorage)).
#[derive(Debug, Default)]
pub struct Rings<X>(pub X);

impl<X: Exclusion> Storage for Rings<X> {
    type List<'m> = RingList<'m>;
    type PerCpu = X::PerCpu;
    type OnCpu<'a>
        = X::OnCpu<'a>
    where
        X: 'a;
    const EXACT: bool = false;

    fn ring_entries(order: Order, high_max: u32) -> u32 {
        let blocks = (high_max >> order.0).clamp(ENTRIES_MIN, ENTRIES_MAX);
        1 << blocks.ilog2()
    }

    fn per_cpu(_cpu: CpuId) -> X::PerCpu {
        X::PerCpu::default()
    }

    fn list<'m>(_cpu: CpuId, ring: &'m [AtomicU32]) -> RingList<'m> {
        RingList::new(ring)
    }

    #[inline(always)]
    fn current_cpu(&self) -> CpuId {
        self.0.current_cpu()
    }

    #[inline(always)]
    fn enter<'a>(&'a self, _cpu: CpuId, per_cpu: &'a X::PerCpu) -> Option<X::OnCpu<'a>> {
        self.0.enter(per_cpu)
    }

    #[inline(always)]
    fn pop(&self, _on: &X::OnCpu<'_>, list: &RingList<'_>, _frames: &ZoneFrames<'_>) -> Pop {
        list.pop()
    }

    #[inline(always)]
    fn push(
        &self,
        _on: &X::OnCpu<'_>,
        list: &RingList<'_>,
        _frames: &ZoneFrames<'_>,
        number: u32,
    ) -> Push {
        list.push(number)
    }

    fn pop_batch(
        &self,
        _on: &X::OnCpu<'_>,
        list: &RingList<'_>,
        _frames: &ZoneFrames<'_>,
        out: &mut [u32],
    ) -> usize {
        list.pop_batch(out)
    }

    fn push_batch(
        &self,
        _on: &X::OnCpu<'_>,
        list: &RingList<'_>,
        _frames: &ZoneFrames<'_>,
        numbers: &[u32],
    ) -> usize {
        list.push_batch(numbers)
    }

    fn append_run(
        &self,
        _on: &X::OnCpu<'_>,
        list: &RingList<'_>,
        _frames: &ZoneFrames<'_>,
        first: u32,
        order: Order,
        blocks: u32,
    ) -> u32 {
        list.append_run(first, 1 << order.0, blocks)
    }

    fn pop_cold(
        &self,
        _on: &X::OnCpu<'_>,
        list: &RingList<'_>,
        _frames: &ZoneFrames<'_>,
        out: &mut [u32],
    ) -> usize {
        list.pop_cold(out)
    }

    fn for_each(list: &RingList<'_>, _frames: &ZoneFrames<'_>, each: &mut dyn FnMut(u32)) {
        list.for_each(each);
    }

    fn stop<'a>(
        &'a self,
        _cpu: CpuId,
        per_cpu: &'a X::PerCpu,
        _lists: &EachList<'_, RingList<'_>>,
    ) -> Option<X::OnCpu<'a>> {
        self.0.enter(per_cpu)
    }

    fn resume(&self, _on: X::OnCpu<'_>, _lists: &EachList<'_, RingList<'_>>) {}
}

impl<X: Exclusion> ObjectStorage for Rings<X> {
    type Stack<'m> = RingList<'m>;

    fn stack<'m>(_cpu: CpuId, entries: &'m [AtomicU32]) -> RingList<'m> {
        RingList::new(entries)
    }

    #[inline(always)]
    fn pop_object(&self, _on: &X::OnCpu<'_>, stack: &RingList<'_>) -> Pop {
        stack.pop()
    }

    #[inline(always)]
    fn push_object(&self, _on: &X::OnCpu<'_>, stack: &RingList<'_>, entry: u32) -> Push {
        stack.push(entry)
    }

    fn pop_objects(&self, _on: &X::OnCpu<'_>, stack: &RingList<'_>, out: &mut [u32]) -> usize {
        stack.pop_batch(out)
    }

    fn push_objects(&self, _on: &X::OnCpu<'_>, stack: &RingList<'_>, entries: &[u32]) -> usize {
        stack.push_batch(entries)
    }

    fn pop_oldest(&self, _on: &X::OnCpu<'_>, stack: &RingList<'_>, out: &mut [u32]) -> usize {
        stack.pop_cold(out)
    }

    fn each_entry(stack: &RingList<'_>, each: &mut dyn FnMut(u32)) {
        stack.for_each(each);
    }

    fn stop_stacks<'a>(
        &'a self,
        _cpu: CpuId,
        per_cpu: &'a X::PerCpu,
        _stacks: &EachList<'_, RingList<'_>>,
    ) -> Option<X::OnCpu<'a>> {
        self.0.enter(per_cpu)
    }

    fn resume_stacks(&self, _on: X::OnCpu<'_>, _stacks: &EachList<'_, RingList<'_>>) {}
}
