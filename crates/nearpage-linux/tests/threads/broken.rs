//! Storages with a bug each, which a stress must find.

use nearpage::platform::{CurrentCpu, EachList, Exclusion, Pop, Push, Storage, ZoneFrames};
use nearpage::{CpuId, Order};
use nearpage_linux::internals::{GetCpu, RingStorage};
use std::sync::atomic::AtomicU32;

/// Linked lists that anybody enters at any time.
#[derive(Default)]
pub struct Unlocked(GetCpu);

impl CurrentCpu for Unlocked {
    fn current_cpu(&self) -> CpuId {
        self.0.current_cpu()
    }
}

impl Exclusion for Unlocked {
    type PerCpu = ();
    type OnCpu<'a> = ();

    fn enter<'a>(&'a self, (): &'a ()) -> Option<()> {
        Some(())
    }
}

/// What is wrong with [`BrokenRings`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// A drain from outside does not stop the CPU.
    DrainsWithoutStopping,
    /// A page pushed by a thread that is on another CPU by then is on no list.
    ForgetsPushes,
    /// A batch says that all of it is on the list.
    ForgetsBatches,
}

/// Rings with a bug.
pub struct BrokenRings {
    pub rings: RingStorage,
    pub bug: Bug,
}

type List<'m> = <RingStorage as Storage>::List<'m>;
type PerCpu = <RingStorage as Storage>::PerCpu;
type OnCpu<'a> = <RingStorage as Storage>::OnCpu<'a>;

impl Storage for BrokenRings {
    type List<'m> = List<'m>;
    type PerCpu = PerCpu;
    type OnCpu<'a> = OnCpu<'a>;
    const EXACT: bool = RingStorage::EXACT;
    const CHECKS_CPU: bool = RingStorage::CHECKS_CPU;

    fn ring_entries(order: Order, high_max: u32) -> u32 {
        RingStorage::ring_entries(order, high_max)
    }

    fn per_cpu(cpu: CpuId) -> PerCpu {
        RingStorage::per_cpu(cpu)
    }

    fn list<'m>(cpu: CpuId, ring: &'m [AtomicU32]) -> List<'m> {
        RingStorage::list(cpu, ring)
    }

    fn current_cpu(&self) -> CpuId {
        self.rings.current_cpu()
    }

    fn enter<'a>(&'a self, cpu: CpuId, per_cpu: &'a PerCpu) -> Option<OnCpu<'a>> {
        self.rings.enter(cpu, per_cpu)
    }

    fn pop(&self, on: &OnCpu<'_>, list: &List<'_>, frames: &ZoneFrames<'_>) -> Pop {
        self.rings.pop(on, list, frames)
    }

    fn push(&self, on: &OnCpu<'_>, list: &List<'_>, frames: &ZoneFrames<'_>, number: u32) -> Push {
        match self.rings.push(on, list, frames, number) {
            Push::MOVED if self.bug == Bug::ForgetsPushes => Push::DONE,
            answer => answer,
        }
    }

    fn pop_batch(
        &self,
        on: &OnCpu<'_>,
        list: &List<'_>,
        frames: &ZoneFrames<'_>,
        out: &mut [u32],
    ) -> usize {
        self.rings.pop_batch(on, list, frames, out)
    }

    fn push_batch(
        &self,
        on: &OnCpu<'_>,
        list: &List<'_>,
        frames: &ZoneFrames<'_>,
        numbers: &[u32],
    ) -> usize {
        let pushed = self.rings.push_batch(on, list, frames, numbers);
        if self.bug == Bug::ForgetsBatches { numbers.len() } else { pushed }
    }

    fn append_run(
        &self,
        on: &OnCpu<'_>,
        list: &List<'_>,
        frames: &ZoneFrames<'_>,
        first: u32,
        order: Order,
        blocks: u32,
    ) -> u32 {
        self.rings.append_run(on, list, frames, first, order, blocks)
    }

    fn pop_cold(
        &self,
        on: &OnCpu<'_>,
        list: &List<'_>,
        frames: &ZoneFrames<'_>,
        out: &mut [u32],
    ) -> usize {
        self.rings.pop_cold(on, list, frames, out)
    }

    fn for_each(list: &List<'_>, frames: &ZoneFrames<'_>, each: &mut dyn FnMut(u32)) {
        RingStorage::for_each(list, frames, each);
    }

    fn stop<'a>(
        &'a self,
        cpu: CpuId,
        per_cpu: &'a PerCpu,
        lists: &EachList<'_, List<'_>>,
    ) -> Option<OnCpu<'a>> {
        match self.bug {
            Bug::DrainsWithoutStopping => self.rings.stop(cpu, per_cpu, &|_| {}),
            _ => self.rings.stop(cpu, per_cpu, lists),
        }
    }

    fn resume(&self, on: OnCpu<'_>, lists: &EachList<'_, List<'_>>) {
        self.rings.resume(on, lists);
    }
}
