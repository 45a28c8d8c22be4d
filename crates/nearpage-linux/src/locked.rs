//! Storage under a try-lock per CPU, for processes without restartable sequences.
//!
//! A thread that finds the lock of its CPU taken (the holder lost the CPU, or another thread drains it) does not wait: it
//! goes to the zone instead.

use nearpage::CpuId;
use nearpage::platform::{CpuLock, CurrentCpu, EachList, Exclusion, Locked, Pop, Push, TryLock};

use crate::ffi;
use crate::ring::RingList;
use crate::rseq::Area;
use crate::storage::{RingAccess, Rings};

/// The CPU that a thread runs on, or works as.
#[derive(Debug)]
pub enum GetCpu {
    /// From the thread's `struct rseq`, which the C library registered.
    Rseq(Area),
    /// As `sched_getcpu(3)` tells it.
    Kernel,
    /// As somebody else tells it. Any answer will do: the lock of that CPU keeps its lists to one thread.
    Told(fn() -> CpuId),
}

impl Default for GetCpu {
    fn default() -> Self {
        Area::of_glibc().map_or(Self::Kernel, Self::Rseq)
    }
}

impl CurrentCpu for GetCpu {
    #[inline]
    fn current_cpu(&self) -> CpuId {
        match self {
            Self::Rseq(area) => area.current_cpu(),
            Self::Kernel => ffi::sched_getcpu(),
            Self::Told(current) => current(),
        }
    }
}

/// A try-lock per CPU.
#[derive(Debug, Default)]
pub struct CpuLocks(TryLock<GetCpu>);

/// Rings under a try-lock per CPU.
pub type LockedStorage = Rings<CpuLocks>;

impl LockedStorage {
    /// Locks of the CPUs that threads work as.
    pub(crate) fn of(cpu: GetCpu) -> Self {
        Rings(CpuLocks(TryLock(cpu)))
    }
}

impl RingAccess for CpuLocks {
    type PerCpu = CpuLock;
    type OnCpu<'a> = Locked<'a>;
    const CHECKS_CPU: bool = false;

    #[inline(always)]
    fn current_cpu(&self) -> CpuId {
        self.0.current_cpu()
    }

    #[inline(always)]
    fn enter<'a>(&'a self, lock: &'a CpuLock) -> Option<Locked<'a>> {
        self.0.enter(lock)
    }

    #[inline(always)]
    fn pop(_on: &Locked<'_>, list: &RingList<'_>) -> Pop {
        list.pop()
    }

    #[inline(always)]
    fn push(_on: &Locked<'_>, list: &RingList<'_>, number: u32) -> Push {
        list.push(number)
    }

    fn pop_batch(_on: &Locked<'_>, list: &RingList<'_>, out: &mut [u32]) -> usize {
        list.pop_batch(out)
    }

    fn push_batch(_on: &Locked<'_>, list: &RingList<'_>, numbers: &[u32]) -> usize {
        list.push_batch(numbers)
    }

    fn append_run(_on: &Locked<'_>, list: &RingList<'_>, first: u32, step: u32, count: u32) -> u32 {
        list.append_run(first, step, count)
    }

    fn pop_cold(_on: &Locked<'_>, list: &RingList<'_>, out: &mut [u32]) -> usize {
        list.pop_cold(out)
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
