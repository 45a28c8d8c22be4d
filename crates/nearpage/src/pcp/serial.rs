//! Pageset storage for hosts without restartable sequences: lists linked through the frames.
//!
//! This is Linux's own structure: no memory beside the frames, no limit, and each operation moves list
//! and tuning state together, so that a model can be compared with a kernel step by step. What makes the
//! lists of a CPU exclusive is the [`Exclusion`]: a try-lock per CPU ([`TryLock`]), or nothing where one
//! thread runs all CPUs ([`Single`]).

use super::storage::{CountedList, EachList, ListCounts, Pop, Push, Storage};
use crate::frame::{ListEnd, NO_FRAME, ZoneFrames};
use crate::sync::{AtomicBool, AtomicU32, Ordering, OwnedCounter};
use crate::units::{CpuId, Order};

/// Tells the CPU that a thread runs on.
pub trait CurrentCpu {
    /// The CPU that this thread runs on, as a hint.
    fn current_cpu(&self) -> CpuId;
}

/// What makes the lists of a CPU exclusive to one thread at a time.
pub trait Exclusion: CurrentCpu {
    /// State of one CPU.
    type PerCpu: Sync + Default;
    /// Proof of exclusion.
    type OnCpu<'a>
    where
        Self: 'a;
    /// Takes hold of a CPU's lists, or `None` if somebody else has them. Never waits.
    fn enter<'a>(&'a self, per_cpu: &'a Self::PerCpu) -> Option<Self::OnCpu<'a>>;
}

/// Exclusion by a try-lock per CPU. A thread that finds it taken (its holder was preempted, or drains
/// this CPU from elsewhere) does not wait: it goes to the zone instead.
#[derive(Debug, Default)]
pub struct TryLock<C>(pub C);

/// The lock of one CPU's lists, alone on its line.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct CpuLock(AtomicBool);

/// Proof of holding a [`CpuLock`]; dropping it unlocks.
#[derive(Debug)]
pub struct Locked<'a>(&'a CpuLock);

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release pairs with the Acquire in `enter`: the next holder sees our list.
        self.0.0.store(false, Ordering::Release);
    }
}

impl<C: CurrentCpu> CurrentCpu for TryLock<C> {
    #[inline]
    fn current_cpu(&self) -> CpuId {
        self.0.current_cpu()
    }
}

impl<C: CurrentCpu> Exclusion for TryLock<C> {
    type PerCpu = CpuLock;
    type OnCpu<'a>
        = Locked<'a>
    where
        C: 'a;

    #[inline]
    fn enter<'a>(&'a self, per_cpu: &'a CpuLock) -> Option<Locked<'a>> {
        // Acquire pairs with the Release in `Locked::drop`.
        let was_free = !per_cpu.0.swap(true, Ordering::Acquire);
        // Only the holder may have a `Locked`: dropping one unlocks.
        was_free.then(|| Locked(per_cpu))
    }
}

/// No exclusion: one thread runs all CPUs, and no operation is interrupted.
#[derive(Debug, Default)]
pub struct Single<C>(pub C);

impl<C: CurrentCpu> CurrentCpu for Single<C> {
    #[inline]
    fn current_cpu(&self) -> CpuId {
        self.0.current_cpu()
    }
}

impl<C: CurrentCpu> Exclusion for Single<C> {
    type PerCpu = ();
    type OnCpu<'a>
        = ()
    where
        C: 'a;

    #[inline]
    fn enter<'a>(&'a self, (): &'a ()) -> Option<()> {
        Some(())
    }
}

/// A list linked through the frames' `next` (towards the cold end) and `prev`.
#[derive(Debug)]
#[repr(align(32))]
pub struct LinkedList {
    /// The hottest and the coldest frame, by [`ListEnd`].
    ends: [AtomicU32; 2],
    count: AtomicU32,
    pops: OwnedCounter,
    pushes: OwnedCounter,
}

impl LinkedList {
    fn new() -> Self {
        Self {
            ends: [AtomicU32::new(NO_FRAME), AtomicU32::new(NO_FRAME)],
            count: AtomicU32::new(0),
            pops: OwnedCounter::new(),
            pushes: OwnedCounter::new(),
        }
    }

    #[inline]
    fn change_count(&self, by: i32) {
        let count = self.count.load(Ordering::Relaxed).wrapping_add_signed(by);
        self.count.store(count, Ordering::Relaxed);
    }

    /// Links a frame at one end.
    #[inline(always)]
    fn push(&self, frames: &ZoneFrames<'_>, number: u32, end: ListEnd) {
        let neighbour = self.ends[end as usize].load(Ordering::Relaxed);
        let frame = frames.frame(number);
        frame.set_link(end, neighbour);
        frame.set_link(end.opposite(), NO_FRAME);
        if neighbour == NO_FRAME {
            self.ends[end.opposite() as usize].store(number, Ordering::Relaxed);
        } else {
            frames.frame(neighbour).set_link(end.opposite(), number);
        }
        self.ends[end as usize].store(number, Ordering::Relaxed);
        self.change_count(1);
    }

    /// Takes the frame at one end.
    #[inline(always)]
    fn pop(&self, frames: &ZoneFrames<'_>, end: ListEnd) -> Option<u32> {
        let number = self.ends[end as usize].load(Ordering::Relaxed);
        if number == NO_FRAME {
            return None;
        }
        let next = frames.frame(number).link(end);
        self.ends[end as usize].store(next, Ordering::Relaxed);
        if next == NO_FRAME {
            self.ends[end.opposite() as usize].store(NO_FRAME, Ordering::Relaxed);
        } else {
            frames.frame(next).set_link(end.opposite(), NO_FRAME);
        }
        self.change_count(-1);
        Some(number)
    }
}

/// The end where single pages are popped and pushed.
const HOT: ListEnd = ListEnd::Head;
/// The end where refills append and drains take.
const COLD: ListEnd = ListEnd::Tail;

impl CountedList for LinkedList {
    fn counts(&self) -> ListCounts {
        ListCounts {
            count: self.count.load(Ordering::Relaxed),
            pops: self.pops.get(),
            pushes: self.pushes.get(),
        }
    }

    #[inline]
    fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    fn limit(&self) -> u32 {
        u32::MAX
    }

    fn set_limit(&self, _blocks: u32) -> u32 {
        u32::MAX
    }

    fn capacity(&self) -> u32 {
        u32::MAX
    }
}

/// Storage by linked lists under an [`Exclusion`].
#[derive(Debug, Default)]
pub struct SerialStorage<X>(pub X);

impl<X: Exclusion> Storage for SerialStorage<X> {
    type List<'m> = LinkedList;
    type PerCpu = X::PerCpu;
    type OnCpu<'a>
        = X::OnCpu<'a>
    where
        X: 'a;
    const EXACT: bool = true;

    fn ring_entries(_order: Order, _high_max: u32) -> u32 {
        0
    }

    fn per_cpu(_cpu: CpuId) -> X::PerCpu {
        X::PerCpu::default()
    }

    fn list(_cpu: CpuId, _ring: &[AtomicU32]) -> LinkedList {
        LinkedList::new()
    }

    #[inline]
    fn current_cpu(&self) -> CpuId {
        self.0.current_cpu()
    }

    #[inline]
    fn enter<'a>(&'a self, _cpu: CpuId, per_cpu: &'a X::PerCpu) -> Option<X::OnCpu<'a>> {
        self.0.enter(per_cpu)
    }

    #[inline]
    fn pop(&self, _on: &X::OnCpu<'_>, list: &LinkedList, frames: &ZoneFrames<'_>) -> Pop {
        match list.pop(frames, HOT) {
            Some(number) => {
                list.pops.add(1);
                Pop(number)
            }
            None => Pop::EMPTY,
        }
    }

    #[inline]
    fn push(
        &self,
        _on: &X::OnCpu<'_>,
        list: &LinkedList,
        frames: &ZoneFrames<'_>,
        number: u32,
    ) -> Push {
        list.push(frames, number, HOT);
        list.pushes.add(1);
        Push::DONE
    }

    fn pop_batch(
        &self,
        _on: &X::OnCpu<'_>,
        list: &LinkedList,
        frames: &ZoneFrames<'_>,
        out: &mut [u32],
    ) -> usize {
        let taken = fill(out, || list.pop(frames, HOT));
        list.pops.add(taken as u64);
        taken
    }

    fn push_batch(
        &self,
        _on: &X::OnCpu<'_>,
        list: &LinkedList,
        frames: &ZoneFrames<'_>,
        numbers: &[u32],
    ) -> usize {
        for &number in numbers {
            list.push(frames, number, HOT);
        }
        list.pushes.add(numbers.len() as u64);
        numbers.len()
    }

    fn append_run(
        &self,
        _on: &X::OnCpu<'_>,
        list: &LinkedList,
        frames: &ZoneFrames<'_>,
        first: u32,
        order: Order,
        blocks: u32,
    ) -> u32 {
        for block in 0..blocks {
            list.push(frames, first + (block << order.0), COLD);
        }
        blocks
    }

    fn pop_cold(
        &self,
        _on: &X::OnCpu<'_>,
        list: &LinkedList,
        frames: &ZoneFrames<'_>,
        out: &mut [u32],
    ) -> usize {
        fill(out, || list.pop(frames, COLD))
    }

    fn for_each(list: &LinkedList, frames: &ZoneFrames<'_>, each: &mut dyn FnMut(u32)) {
        let mut number = list.ends[HOT as usize].load(Ordering::Relaxed);
        while number != NO_FRAME {
            each(number);
            number = frames.frame(number).next();
        }
    }

    fn stop<'a>(
        &'a self,
        _cpu: CpuId,
        per_cpu: &'a X::PerCpu,
        _lists: &EachList<'_, LinkedList>,
    ) -> Option<X::OnCpu<'a>> {
        self.0.enter(per_cpu)
    }

    fn resume(&self, _on: X::OnCpu<'_>, _lists: &EachList<'_, LinkedList>) {}
}

/// Fills `out` from `next` until either ends; returns how many.
fn fill(out: &mut [u32], mut next: impl FnMut() -> Option<u32>) -> usize {
    for (at, slot) in out.iter_mut().enumerate() {
        match next() {
            Some(number) => *slot = number,
            None => return at,
        }
    }
    out.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::single::ChosenCpu;

    #[test]
    fn a_lock_stays_with_its_holder() {
        let exclusion = TryLock(ChosenCpu::default());
        let cpu = CpuLock::default();
        let held = exclusion.enter(&cpu);
        assert!(held.is_some());
        // An attempt that fails leaves the lock as it is, for the next one too.
        assert!(exclusion.enter(&cpu).is_none());
        assert!(exclusion.enter(&cpu).is_none());
        drop(held);
        assert!(exclusion.enter(&cpu).is_some());
    }
}
