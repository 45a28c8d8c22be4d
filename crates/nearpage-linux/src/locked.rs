//! Storage under a try-lock per CPU, for processes without restartable sequences.
//!
//! The lists are the same [rings](crate::ring). A thread that finds the lock of its CPU taken (the holder lost the CPU,
//! or somebody drains it from elsewhere) does not wait: it goes to the zone instead.

use nearpage::frame::ZoneFrames;
use nearpage::pcp::serial::{CpuLock, CurrentCpu, Exclusion, Locked, TryLock};
use nearpage::pcp::storage::{EachList, Pop, Push, Storage};
use nearpage::slab::ObjectStorage;
use nearpage::sync::AtomicU32;
use nearpage::units::{CpuId, Order};

use crate::ring::RingList;
use crate::rseq::Area;

/// The CPU that a thread runs on: from its `struct rseq` if the C library registered one, else as
/// `sched_getcpu(3)` tells it.
#[derive(Debug)]
pub struct GetCpu {
    area: Option<Area>,
}

impl Default for GetCpu {
    fn default() -> Self {
        Self { area: Area::of_glibc().ok() }
    }
}

impl CurrentCpu for GetCpu {
    #[inline]
    fn current_cpu(&self) -> CpuId {
        if let Some(area) = self.area {
            return area.current_cpu();
        }
        // SAFETY: sched_getcpu reads; it has no preconditions.
        let cpu = unsafe { libc::sched_getcpu() };
        // It fails on kernels that have no such call; no CPU has the id that -1 becomes.
        CpuId(cpu as u32)
    }
}

/// Rings under a try-lock per CPU.
#[derive(Debug, Default)]
pub struct LockedStorage(TryLock<GetCpu>);

impl Storage for LockedStorage {
    type List<'m> = RingList<'m>;
    type PerCpu = CpuLock;
    type OnCpu<'a> = Locked<'a>;
    // The tuning could move with each operation under the lock, but that made a pair half as slow again.
    const EXACT: bool = false;

    fn ring_entries(order: Order, high_max: u32) -> u32 {
        RingList::entries_for(order, high_max)
    }

    fn per_cpu(_cpu: CpuId) -> CpuLock {
        CpuLock::default()
    }

    fn list<'m>(cpu: CpuId, ring: &'m [AtomicU32]) -> RingList<'m> {
        RingList::new(cpu, ring)
    }

    #[inline(always)]
    fn current_cpu(&self) -> CpuId {
        self.0.current_cpu()
    }

    #[inline(always)]
    fn enter<'a>(&'a self, _cpu: CpuId, lock: &'a CpuLock) -> Option<Locked<'a>> {
        self.0.enter(lock)
    }

    #[inline(always)]
    fn pop(&self, _on: &Locked<'_>, list: &RingList<'_>, _frames: &ZoneFrames<'_>) -> Pop {
        list.pop()
    }

    #[inline(always)]
    fn push(
        &self,
        _on: &Locked<'_>,
        list: &RingList<'_>,
        _frames: &ZoneFrames<'_>,
        number: u32,
    ) -> Push {
        list.push(number)
    }

    fn pop_batch(
        &self,
        _on: &Locked<'_>,
        list: &RingList<'_>,
        _frames: &ZoneFrames<'_>,
        out: &mut [u32],
    ) -> usize {
        list.pop_batch(out)
    }

    fn push_batch(
        &self,
        _on: &Locked<'_>,
        list: &RingList<'_>,
        _frames: &ZoneFrames<'_>,
        numbers: &[u32],
    ) -> usize {
        list.push_batch(numbers)
    }

    fn append_run(
        &self,
        _on: &Locked<'_>,
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
        _on: &Locked<'_>,
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
        lock: &'a CpuLock,
        _lists: &EachList<'_, RingList<'_>>,
    ) -> Option<Locked<'a>> {
        self.0.enter(lock)
    }

    fn resume(&self, _on: Locked<'_>, _lists: &EachList<'_, RingList<'_>>) {}
}

impl ObjectStorage for LockedStorage {
    type Stack<'m> = RingList<'m>;

    fn stack<'m>(cpu: CpuId, entries: &'m [AtomicU32]) -> RingList<'m> {
        RingList::new(cpu, entries)
    }

    #[inline(always)]
    fn pop_object(&self, _on: &Locked<'_>, stack: &RingList<'_>) -> Pop {
        stack.pop()
    }

    #[inline(always)]
    fn push_object(&self, _on: &Locked<'_>, stack: &RingList<'_>, entry: u32) -> Push {
        stack.push(entry)
    }

    fn pop_objects(&self, _on: &Locked<'_>, stack: &RingList<'_>, out: &mut [u32]) -> usize {
        stack.pop_batch(out)
    }

    fn push_objects(&self, _on: &Locked<'_>, stack: &RingList<'_>, entries: &[u32]) -> usize {
        stack.push_batch(entries)
    }

    fn pop_oldest(&self, _on: &Locked<'_>, stack: &RingList<'_>, out: &mut [u32]) -> usize {
        stack.pop_cold(out)
    }

    fn each_entry(stack: &RingList<'_>, each: &mut dyn FnMut(u32)) {
        stack.for_each(each);
    }

    fn stop_stacks<'a>(
        &'a self,
        _cpu: CpuId,
        lock: &'a CpuLock,
        _stacks: &EachList<'_, RingList<'_>>,
    ) -> Option<Locked<'a>> {
        self.0.enter(lock)
    }

    fn resume_stacks(&self, _on: Locked<'_>, _stacks: &EachList<'_, RingList<'_>>) {}
}
