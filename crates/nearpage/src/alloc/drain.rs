//! Drain: from pagesets to their zones.

use core::fmt;

use super::RuleSet;
use super::allocator::{Cpu, PageAllocator};
use crate::host::Platform;
use crate::pcp::Storage;
use crate::pcp::pageset::{List, OnCpu, Pageset};
use crate::pcp::storage::EachList;
use crate::units::{CpuId, Order, PageCount, Pfn, ZoneIndex};
use crate::zone::Zone;

/// The pagesets of a CPU could not be drained: another thread is draining them or holds them, or the host
/// may not stop that CPU any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DrainBusy {
    /// The CPU.
    pub cpu: CpuId,
}

impl fmt::Display for DrainBusy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the pagesets of CPU {} cannot be drained now: another thread drains them, or the kernel refuses \
             to stop what runs there",
            self.cpu
        )
    }
}

impl core::error::Error for DrainBusy {}

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// A freed block that found its list at its limit: makes room, or the block goes to the zone.
    #[cold]
    #[inline(never)]
    pub(super) fn free_to_full_list(
        &self,
        on: <P::Storage as Storage>::OnCpu<'_>,
        pageset: &Pageset<'m, P>,
        number: u32,
        order: Order,
        list: usize,
    ) {
        P::Rules::make_room(self, &on, pageset, order, list);
        if !pageset.push(&self.platform, &on, list, number).is_done() {
            self.free_to_zone(pageset.zone().index(), pageset.frames().pfn(number), order);
        }
    }

    /// Frees a block straight to its zone.
    #[cold]
    #[inline(never)]
    pub(crate) fn free_to_zone(&self, zone: ZoneIndex, pfn: Pfn, order: Order) {
        let zone = self.zones[zone.0 as usize];
        P::Rules::free_block(self, zone, zone.frames().number(pfn), order);
    }

    /// Gives back all pages that a CPU caches; returns how many went to the zones. Meanwhile threads on that CPU go to
    /// the zones. Pages of pageblocks that another CPU owns go there, and stay cached.
    ///
    /// # Errors
    /// [`DrainBusy`] if another drain of that CPU is under way. A CPU that the topology does not have
    /// caches nothing.
    pub fn drain_cpu(&self, cpu: CpuId) -> Result<PageCount, DrainBusy> {
        match self.cpu(cpu) {
            Some(cpu) => self.drain_stopped(cpu, |_| true),
            None => Ok(PageCount(0)),
        }
    }

    /// Gives back all pages of a zone that any CPU caches; returns how many went there.
    ///
    /// # Errors
    /// [`DrainBusy`] of the first CPU that could not be drained; the others were.
    pub fn drain_zone(&self, zone: &Zone<'m, P>) -> Result<PageCount, DrainBusy> {
        self.drain_each_cpu(|pageset| core::ptr::eq(pageset.zone(), zone))
    }

    /// Gives back all pages that any CPU caches; returns how many went to the zones.
    ///
    /// # Errors
    /// As [`drain_zone`](Self::drain_zone).
    pub fn drain_all(&self) -> Result<PageCount, DrainBusy> {
        self.drain_each_cpu(|_| true)
    }

    /// Gives back all pages of some zones that any CPU caches.
    pub(super) fn drain_where(
        &self,
        is_wanted: impl Fn(&Zone<'m, P>) -> bool,
    ) -> Result<PageCount, DrainBusy> {
        self.drain_each_cpu(|pageset| is_wanted(pageset.zone()))
    }

    /// The same, of each CPU that can be stopped now; also those that cache nothing are stopped, so that what their
    /// threads had begun has ended.
    pub(super) fn stop_and_drain_where(&self, is_wanted: impl Fn(&Zone<'m, P>) -> bool) {
        for cpu in self.known_cpus() {
            let _ = P::Rules::drain_cpu(self, cpu, |pageset: &Pageset<'m, P>| {
                is_wanted(pageset.zone())
            });
        }
    }

    fn drain_each_cpu(
        &self,
        wanted: impl Fn(&Pageset<'m, P>) -> bool,
    ) -> Result<PageCount, DrainBusy> {
        let mut drained = PageCount(0);
        let mut busy = None;
        for cpu in self.known_cpus() {
            match self.drain_stopped(cpu, &wanted) {
                Ok(pages) => drained.0 += pages.0,
                Err(error) => busy = busy.or(Some(error)),
            }
        }
        busy.map_or(Ok(drained), Err)
    }

    /// Takes hold of a CPU's pagesets from outside and empties those wanted, in holds of the zone's lock of at most
    /// `batch << 5` pages (facts 7.7).
    fn drain_stopped(
        &self,
        cpu: &'m Cpu<'m, P>,
        wanted: impl Fn(&Pageset<'m, P>) -> bool,
    ) -> Result<PageCount, DrainBusy> {
        match cpu.pagesets.iter().any(|pageset| pageset.count().0 > 0 && wanted(pageset)) {
            true => P::Rules::drain_cpu(self, cpu, wanted),
            false => Ok(PageCount(0)),
        }
    }

    /// Waits a while for whoever is at the CPU's lists: an operation, or a drain like ours.
    fn stop<'a>(
        &'a self,
        cpu: &'a Cpu<'m, P>,
        lists: &EachList<'_, List<'m, P>>,
    ) -> Result<<P::Storage as Storage>::OnCpu<'a>, DrainBusy> {
        let stop = || self.platform.storage().stop(cpu.owner.cpu, &cpu.owner.exclusion, lists);
        self.wait_for(stop).ok_or(DrainBusy { cpu: cpu.owner.cpu })
    }

    /// Waits a while for something that another thread has.
    pub(super) fn wait_for<T>(&self, mut take: impl FnMut() -> Option<T>) -> Option<T> {
        // A holder that lost its CPU comes back within some time slices; a clock that stands still, as that
        // of a test, is no reason to wait forever.
        const WAIT_NS: u64 = 200_000_000;
        const TRIES_MAX: u32 = 10_000_000;
        let start = self.platform.now_ns();
        for _ in 0..TRIES_MAX {
            if let Some(taken) = take() {
                return Some(taken);
            }
            if self.platform.now_ns().saturating_sub(start) > WAIT_NS {
                break;
            }
            self.platform.relax();
        }
        None
    }

    /// Does something with some of a CPU's pagesets from outside, while no thread there can use them.
    pub(super) fn while_stopped<R>(
        &self,
        cpu: &Cpu<'m, P>,
        wanted: impl Fn(&Pageset<'m, P>) -> bool,
        act: impl FnOnce(&OnCpu<'_, P>) -> R,
    ) -> Result<R, DrainBusy> {
        let lists = |each: &mut dyn FnMut(&List<'m, P>)| {
            let wanted = cpu.pagesets.iter().filter(|pageset| wanted(pageset));
            wanted.flat_map(Pageset::lists).for_each(each);
        };
        let on = self.stop(cpu, &lists)?;
        let answer = act(&on);
        self.platform.storage().resume(on, &lists);
        Ok(answer)
    }

    /// The same, counted as a hold of those pagesets if another CPU does it.
    pub(crate) fn while_taken<R>(
        &self,
        cpu: &'m Cpu<'m, P>,
        wanted: impl Fn(&Pageset<'m, P>) -> bool,
        act: impl FnOnce(&OnCpu<'_, P>) -> R,
    ) -> Result<R, DrainBusy> {
        self.while_stopped(cpu, wanted, |on| {
            let taken = self.note_taken(cpu);
            let answer = act(on);
            if let Some(taken) = taken {
                taken.end();
            }
            answer
        })
    }

    /// Lets the pagesets of a CPU decay by one step: to be called once a second (facts 7.6). Returns the
    /// pages that went back.
    ///
    /// # Errors
    /// [`DrainBusy`] if another drain of that CPU is under way.
    pub fn decay_cpu(&self, cpu: CpuId) -> Result<PageCount, DrainBusy> {
        self.cpu(cpu).map_or(Ok(PageCount(0)), |cpu| P::Rules::decay_cpu(self, cpu))
    }
}

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// The part of the once-a-second turn that is about zones of other nodes: a pageset that the CPU has not used
    /// for three turns gives back a batch, and so every three turns from then on. `used` says whether the CPU used its pageset for a zone since the
    /// last turn. Returns the pages that went back. Facts 7.6.
    ///
    /// # Errors
    /// [`DrainBusy`] if another drain of that CPU is under way.
    pub fn expire_remote(
        &self,
        cpu: CpuId,
        used: impl Fn(&Zone<'m, P>) -> bool,
    ) -> Result<PageCount, DrainBusy> {
        let Some(cpu) = self.cpu(cpu) else { return Ok(PageCount(0)) };
        let lists = |each: &mut dyn FnMut(&List<'m, P>)| {
            cpu.pagesets.iter().flat_map(Pageset::lists).for_each(each);
        };
        let on = self.stop(cpu, &lists)?;
        let taken = self.note_taken(cpu);
        let drained = P::Rules::expire_remote(self, &on, cpu, used);
        if let Some(taken) = taken {
            taken.end();
        }
        self.platform.storage().resume(on, &lists);
        Ok(drained)
    }
}
