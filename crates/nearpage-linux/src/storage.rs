//! Pageset storage of this host: [rings](crate::ring) of frame numbers, and the same rings as stacks of objects.
//!
//! A list is used by one thread at a time, on the CPU that owns the list. Two types see to that: restartable sequences
//! ([`Sequences`](crate::rseq::Sequences)) and a lock per CPU ([`CpuLocks`](crate::locked::CpuLocks)). [`Rings`] is the
//! storage of either.

use nearpage::platform::{EachList, Pop, Push, Storage, ZoneFrames};
use nearpage::{CpuId, Order};
use nearpage_slab::ObjectStorage;
use std::sync::atomic::AtomicU32;

use crate::ring::RingList;

/// How the rings of a CPU are kept to one thread at a time. The operations are those of [`Storage`] with the same names.
pub trait RingAccess: Send + Sync + Sized + 'static {
    /// State of one CPU.
    type PerCpu: Sync + Default + 'static;
    /// Proof that this thread may use the rings of a CPU.
    type OnCpu<'a>
    where
        Self: 'a;
    /// See [`Storage::CHECKS_CPU`].
    const CHECKS_CPU: bool;

    /// The CPU that this thread runs on, as a hint.
    fn current_cpu(&self) -> CpuId;

    /// Takes hold of the rings of this thread's CPU; `None` if another thread has them.
    fn enter<'a>(&'a self, per_cpu: &'a Self::PerCpu) -> Option<Self::OnCpu<'a>>;

    /// Takes the hottest entry.
    fn pop(on: &Self::OnCpu<'_>, list: &RingList<'_>) -> Pop;

    /// Puts an entry at the hot end.
    fn push(on: &Self::OnCpu<'_>, list: &RingList<'_>, number: u32) -> Push;

    /// Takes up to `out.len()` entries from the hot end, hottest first; returns how many.
    fn pop_batch(on: &Self::OnCpu<'_>, list: &RingList<'_>, out: &mut [u32]) -> usize;

    /// Puts entries at the hot end, the last one hottest, as far as the limit allows; returns how many.
    fn push_batch(on: &Self::OnCpu<'_>, list: &RingList<'_>, numbers: &[u32]) -> usize;

    /// Appends `first`, `first + step`, … at the cold end, `first` hottest, as far as there is room; returns how many.
    fn append_run(
        on: &Self::OnCpu<'_>,
        list: &RingList<'_>,
        first: u32,
        step: u32,
        count: u32,
    ) -> u32;

    /// Takes up to `out.len()` entries from the cold end, coldest first; returns how many.
    fn pop_cold(on: &Self::OnCpu<'_>, list: &RingList<'_>, out: &mut [u32]) -> usize;

    /// Takes hold of the rings of any CPU until [`resume`](Self::resume). `lists` calls its argument with each of them.
    fn stop<'a>(
        &'a self,
        cpu: CpuId,
        per_cpu: &'a Self::PerCpu,
        lists: &EachList<'_, RingList<'_>>,
    ) -> Option<Self::OnCpu<'a>>;

    /// Ends what [`stop`](Self::stop) began.
    fn resume(&self, on: Self::OnCpu<'_>, lists: &EachList<'_, RingList<'_>>);
}

/// The storage: lists of pages and stacks of objects as rings.
#[derive(Debug, Default)]
pub struct Rings<A>(pub(crate) A);

impl<A: RingAccess> Storage for Rings<A> {
    type List<'m> = RingList<'m>;
    type PerCpu = A::PerCpu;
    type OnCpu<'a>
        = A::OnCpu<'a>
    where
        A: 'a;
    // The tuning could move with each operation under a lock, but that made a pair half as slow again.
    const EXACT: bool = false;
    const CHECKS_CPU: bool = A::CHECKS_CPU;

    fn ring_entries(order: Order, high_max: u32) -> u32 {
        RingList::entries_for(order, high_max)
    }

    fn per_cpu(_cpu: CpuId) -> A::PerCpu {
        A::PerCpu::default()
    }

    fn list<'m>(cpu: CpuId, ring: &'m [AtomicU32]) -> RingList<'m> {
        RingList::new(cpu, ring)
    }

    #[inline(always)]
    fn current_cpu(&self) -> CpuId {
        self.0.current_cpu()
    }

    #[inline(always)]
    fn enter<'a>(&'a self, _cpu: CpuId, per_cpu: &'a A::PerCpu) -> Option<A::OnCpu<'a>> {
        self.0.enter(per_cpu)
    }

    #[inline(always)]
    fn pop(&self, on: &A::OnCpu<'_>, list: &RingList<'_>, _frames: &ZoneFrames<'_>) -> Pop {
        A::pop(on, list)
    }

    #[inline(always)]
    fn push(
        &self,
        on: &A::OnCpu<'_>,
        list: &RingList<'_>,
        _frames: &ZoneFrames<'_>,
        number: u32,
    ) -> Push {
        A::push(on, list, number)
    }

    #[inline]
    fn pop_batch(
        &self,
        on: &A::OnCpu<'_>,
        list: &RingList<'_>,
        _frames: &ZoneFrames<'_>,
        out: &mut [u32],
    ) -> usize {
        A::pop_batch(on, list, out)
    }

    #[inline]
    fn push_batch(
        &self,
        on: &A::OnCpu<'_>,
        list: &RingList<'_>,
        _frames: &ZoneFrames<'_>,
        numbers: &[u32],
    ) -> usize {
        A::push_batch(on, list, numbers)
    }

    fn append_run(
        &self,
        on: &A::OnCpu<'_>,
        list: &RingList<'_>,
        _frames: &ZoneFrames<'_>,
        first: u32,
        order: Order,
        blocks: u32,
    ) -> u32 {
        A::append_run(on, list, first, 1 << order.0, blocks)
    }

    fn pop_cold(
        &self,
        on: &A::OnCpu<'_>,
        list: &RingList<'_>,
        _frames: &ZoneFrames<'_>,
        out: &mut [u32],
    ) -> usize {
        A::pop_cold(on, list, out)
    }

    fn for_each(list: &RingList<'_>, _frames: &ZoneFrames<'_>, each: &mut dyn FnMut(u32)) {
        list.for_each(each);
    }

    fn stop<'a>(
        &'a self,
        cpu: CpuId,
        per_cpu: &'a A::PerCpu,
        lists: &EachList<'_, RingList<'_>>,
    ) -> Option<A::OnCpu<'a>> {
        self.0.stop(cpu, per_cpu, lists)
    }

    fn resume(&self, on: A::OnCpu<'_>, lists: &EachList<'_, RingList<'_>>) {
        self.0.resume(on, lists);
    }
}

impl<A: RingAccess> ObjectStorage for Rings<A> {
    type Stack<'m> = RingList<'m>;

    fn stack<'m>(cpu: CpuId, entries: &'m [AtomicU32]) -> RingList<'m> {
        RingList::new(cpu, entries)
    }

    #[inline(always)]
    fn pop_object(&self, on: &A::OnCpu<'_>, stack: &RingList<'_>) -> Pop {
        A::pop(on, stack)
    }

    #[inline(always)]
    fn push_object(&self, on: &A::OnCpu<'_>, stack: &RingList<'_>, entry: u32) -> Push {
        A::push(on, stack, entry)
    }

    fn pop_objects(&self, on: &A::OnCpu<'_>, stack: &RingList<'_>, out: &mut [u32]) -> usize {
        A::pop_batch(on, stack, out)
    }

    fn push_objects(&self, on: &A::OnCpu<'_>, stack: &RingList<'_>, entries: &[u32]) -> usize {
        A::push_batch(on, stack, entries)
    }

    fn pop_oldest(&self, on: &A::OnCpu<'_>, stack: &RingList<'_>, out: &mut [u32]) -> usize {
        A::pop_cold(on, stack, out)
    }

    fn each_entry(stack: &RingList<'_>, each: &mut dyn FnMut(u32)) {
        stack.for_each(each);
    }

    fn stop_stacks<'a>(
        &'a self,
        cpu: CpuId,
        per_cpu: &'a A::PerCpu,
        stacks: &EachList<'_, RingList<'_>>,
    ) -> Option<A::OnCpu<'a>> {
        self.0.stop(cpu, per_cpu, stacks)
    }

    fn resume_stacks(&self, on: A::OnCpu<'_>, stacks: &EachList<'_, RingList<'_>>) {
        self.0.resume(on, stacks);
    }
}
