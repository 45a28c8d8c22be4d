//! Drain: from pagesets to their zones.

use core::fmt;

use super::allocator::{Cpu, PageAllocator};
use crate::buddy::Insertion;
use crate::host::{Access, Platform};
use crate::pcp::pageset::{List, OnCpu, Pageset};
use crate::pcp::storage::EachList;
use crate::pcp::tuning::Tuning;
use crate::pcp::{CountedList, LISTS, Storage, list_order};
use crate::units::{CpuId, Order, PageCount, Pfn, ZoneIndex};
use crate::zone::{Zone, ZoneEvents, ZoneGuard};

/// Blocks that are taken from a list before they go to the buddy: 1 KiB of stack.
const CHUNK: usize = 256;

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
    /// After a push of a storage that keeps the tuning with each operation: drains if it says so.
    #[inline]
    pub(super) fn after_exact_free(
        &self,
        on: &<P::Storage as Storage>::OnCpu<'_>,
        pageset: &Pageset<'m, P>,
        order: Order,
        list: usize,
    ) {
        if let Some(quota) = pageset.quota() {
            return self.after_free_to_list(on, pageset, quota, list);
        }
        let before = pageset.tuning();
        let (mut tuning, count) = (before, pageset.count());
        let drain = self.drain_after_free(&mut tuning, pageset.zone(), order, count);
        pageset.set_tuning(tuning);
        if let Some(pages) = drain {
            if before.empties_for(&self.model.pcp, order, count) {
                pageset.events().high_order_drains.add(1);
            }
            self.drain_exact(on, pageset, list, pages);
        }
    }

    /// What a free drains: as the tuning decides, but while more is out than a hard limit allows, all that there is,
    /// as far as it goes in one hold.
    #[inline]
    fn drain_after_free(
        &self,
        tuning: &mut Tuning,
        zone: &Zone<'m, P>,
        order: Order,
        count: PageCount,
    ) -> Option<PageCount> {
        let rules = &self.model.pcp;
        let drain = tuning.after_free(rules, order, count, zone.view());
        if zone.is_over_limit() { Some(count.min(tuning.hold_max(rules))) } else { drain }
    }

    #[cold]
    #[inline(never)]
    fn drain_exact(
        &self,
        on: &<P::Storage as Storage>::OnCpu<'_>,
        pageset: &Pageset<'m, P>,
        list: usize,
        pages: PageCount,
    ) {
        self.drain_pageset(on, pageset, list, pages);
        pageset.zone().clear_below_high();
    }

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
        self.make_room(&on, pageset, order, list);
        if !pageset.push(&self.platform, &on, list, number).is_done() {
            self.free_to_zone(pageset.zone().index(), pageset.frames().pfn(number), order);
        }
    }

    /// Raises the limit of a full list, or drains it, as the tuning decides.
    pub(super) fn make_room(
        &self,
        on: &<P::Storage as Storage>::OnCpu<'_>,
        pageset: &Pageset<'m, P>,
        order: Order,
        list: usize,
    ) {
        if let Some(quota) = pageset.quota() {
            return self.after_free_to_list(on, pageset, quota, list);
        }
        let (mut tuning, totals) = pageset.tuning_for_decision(&self.model.pcp);
        let count = PageCount(totals.count.0 + order.pages().0);
        let drain = self.drain_after_free(&mut tuning, pageset.zone(), order, count);
        pageset.set_tuning(tuning);
        pageset.share_high(&tuning, list);
        let full = pageset.list(list).counts().count >= pageset.list(list).limit();
        // A list can be full below `high`: its ring is smaller, or other lists hold the rest.
        let pages = match drain {
            Some(pages) => pages,
            None if full => PageCount(tuning.batch.0.max(order.pages().0)),
            None => return,
        };
        self.drain_pageset(on, pageset, list, pages);
        pageset.zone().clear_below_high();
        pageset.share_high(&tuning, list);
    }

    /// Gives `pages` of a pageset back, coldest first, beginning with list `first_list` and going round.
    /// One hold of the zone's lock. Facts 7.5. Not for pagesets with quotas.
    pub(super) fn drain_pageset(
        &self,
        on: &<P::Storage as Storage>::OnCpu<'_>,
        pageset: &Pageset<'m, P>,
        first_list: usize,
        pages: PageCount,
    ) {
        if let Some(pieces) = pageset.pieces() {
            return self.drain_pieces(pageset, pieces, first_list, pages);
        }
        let mut guard = pageset.zone().lock_to_move();
        self.platform.touch(pageset.zone().published_line(), Access::Write);
        let mut moved = 0;
        for step in 0..LISTS {
            if moved >= pages.0 {
                break;
            }
            let index = (first_list + step) % LISTS;
            let left = pages.0 - moved;
            moved += self.drain_list(&mut guard, on, pageset, index, left);
        }
        guard.note_returned(moved);
        drop(guard);
        if moved > 0 {
            pageset.events().drains.add(1);
            pageset.events().drained_pages.add(moved);
        }
    }

    /// Gives back blocks of one list until `pages` are reached or it is empty; returns pages.
    fn drain_list(
        &self,
        guard: &mut ZoneGuard<'_, 'm, P>,
        on: &<P::Storage as Storage>::OnCpu<'_>,
        pageset: &Pageset<'m, P>,
        index: usize,
        pages: u64,
    ) -> u64 {
        let frames = *guard.zone().frames();
        let order = list_order(index);
        let mut blocks_left = pages.div_ceil(order.pages().0);
        let mut moved = 0;
        let mut chunk = [0; CHUNK];
        while blocks_left > 0 {
            let want = blocks_left.min(CHUNK as u64) as usize;
            let got = pageset.pop_cold(self.platform.storage(), on, index, &mut chunk[..want]);
            if got == 0 {
                break;
            }
            for &number in &chunk[..got] {
                self.platform.touch_page(frames.pfn(number), Access::Write);
            }
            guard.buddy().free_batch(frames, &chunk[..got], order);
            blocks_left -= got as u64;
            moved += (got as u64) << order.0;
        }
        moved
    }

    /// Frees a block straight to its zone.
    #[cold]
    #[inline(never)]
    pub(super) fn free_to_zone(&self, zone: ZoneIndex, pfn: Pfn, order: Order) {
        let zone = self.zones[zone.0 as usize];
        if zone.maps().is_some() {
            return self.free_past_lists(zone, &[zone.frames().number(pfn)], order);
        }
        ZoneEvents::add(&zone.events().direct_free_pages, order.pages().0);
        let mut guard = zone.lock_to_move();
        self.platform.touch(zone.published_line(), Access::Write);
        let number = zone.frames().number(pfn);
        guard.buddy().free(*zone.frames(), number, order, Insertion::Usual);
        guard.note_returned(order.pages().0);
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
            let _ = self.stop_and_drain(cpu, |pageset| is_wanted(pageset.zone()));
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
            true => self.stop_and_drain(cpu, wanted),
            false => Ok(PageCount(0)),
        }
    }

    fn stop_and_drain(
        &self,
        cpu: &'m Cpu<'m, P>,
        wanted: impl Fn(&Pageset<'m, P>) -> bool,
    ) -> Result<PageCount, DrainBusy> {
        if self.has_maps() {
            let has_any = |pageset: &Pageset<'m, P>| pageset.count().0 > 0 && wanted(pageset);
            return self
                .each_quota(cpu, has_any, |pageset, quota| self.drain_quota(cpu, pageset, quota));
        }
        let filled = |pageset: &&Pageset<'m, P>| pageset.count().0 > 0 && wanted(pageset);
        let drained = self.while_taken(cpu, &wanted, |on| {
            let mut drained = PageCount(0);
            for pageset in cpu.pagesets.iter().filter(filled) {
                let piece = PageCount(pageset.tuning().batch.0 << 5);
                while pageset.count().0 > 0 {
                    let before = pageset.count().0;
                    self.drain_pageset(on, pageset, 0, piece);
                    let gone = before.saturating_sub(pageset.count().0);
                    // A count that no list stands behind is the walker's to report, not a reason to go on for ever.
                    if gone == 0 {
                        break;
                    }
                    drained.0 += gone;
                }
            }
            drained
        })?;
        // Who had nothing to drain does not look at the zones either.
        Ok(drained)
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
    pub(super) fn while_taken<R>(
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
        let Some(cpu) = self.cpu(cpu) else { return Ok(PageCount(0)) };
        if self.has_maps() {
            return self.each_quota(
                cpu,
                |_| true,
                |pageset, quota| self.decay_quota(cpu, pageset, quota),
            );
        }
        let decays = |pageset: &Pageset<'m, P>| {
            let tuning = pageset.tuning();
            tuning.high > tuning.high_min || pageset.count() > tuning.high
        };
        if !cpu.pagesets.iter().any(&decays) {
            return Ok(PageCount(0));
        }
        self.while_taken(
            cpu,
            |_| true,
            |on| {
                let decaying = cpu.pagesets.iter().filter(|pageset| decays(pageset));
                PageCount(decaying.map(|pageset| self.decay_pageset(on, pageset)).sum())
            },
        )
    }

    fn decay_pageset(
        &self,
        on: &<P::Storage as Storage>::OnCpu<'_>,
        pageset: &Pageset<'m, P>,
    ) -> u64 {
        let (mut tuning, totals) = pageset.tuning_for_decision(&self.model.pcp);
        let mut left = tuning.decay(&self.model.pcp, totals.count).0;
        pageset.set_tuning(tuning);
        let batch = tuning.batch.0.max(1);
        let mut drained = 0;
        while left > 0 {
            let before = pageset.count().0;
            self.drain_pageset(on, pageset, 0, PageCount(left.min(batch)));
            let gone = before.saturating_sub(pageset.count().0);
            if gone == 0 {
                break;
            }
            drained += gone;
            left = left.saturating_sub(gone);
        }
        drained
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
        let mut drained = PageCount(0);
        let is_far =
            |of: &&Pageset<'m, P>| of.quota().is_none() && of.zone().node() != cpu.owner.node;
        for pageset in cpu.pagesets.iter().filter(is_far) {
            let mut tuning = pageset.tuning();
            if used(pageset.zone()) {
                tuning.keep_remote();
            }
            let pages = tuning.expire_remote(pageset.count());
            pageset.set_tuning(tuning);
            if pages.0 > 0 {
                let before = pageset.count().0;
                self.drain_pageset(&on, pageset, 0, pages);
                drained.0 += before - pageset.count().0;
            }
        }
        if let Some(taken) = taken {
            taken.end();
        }
        self.platform.storage().resume(on, &lists);
        Ok(drained)
    }
}
