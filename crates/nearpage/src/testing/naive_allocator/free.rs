//! Frees, drains, decay.

use std_alloc::vec;
use std_alloc::vec::Vec;

use super::zone::{Begins, NaiveZone, Pageblocks};
use super::{NaiveAllocator, NaiveCpu, NaivePageset};
use crate::error::FreeError;
use crate::frame::FrameState;
use crate::pcp::{LISTS, list_index, list_order};
use crate::units::{CpuId, MAX_ORDER, Order, PageCount, Pfn};

/// Blocks that the allocator gives back at a time: runs of adjoining ones do not reach beyond.
pub(super) const PIECE: usize = 256;

impl NaiveAllocator {
    /// Frees a block on a CPU. In [`FreeError::NotAllocated`] the state is `Free` if a free block begins
    /// at the frame, and else `Blank`: what a word says otherwise depends on what it said before.
    pub fn free(&mut self, cpu: CpuId, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        let zone = self.take_back(pfn, order)?;
        self.put_back(cpu, zone, pfn, order);
        Ok(())
    }

    /// Takes a block from its holder; returns the number of its zone.
    pub(super) fn take_back(&mut self, pfn: Pfn, order: Order) -> Result<usize, FreeError> {
        if let Some(error) = self.why_not_free(pfn, order) {
            self.calls.misuses += 1;
            return Err(error);
        }
        let number = self.zone_of(pfn).expect("a held block is in a zone");
        self.zones[number].set_begins(pfn, Begins::Nothing);
        Ok(number)
    }

    /// Why a block cannot be freed, if it cannot.
    pub fn why_not_free(&self, pfn: Pfn, order: Order) -> Option<FreeError> {
        let is_known = |range: &crate::units::PfnRange| {
            let last = Pfn(range.end.0 - 1);
            (range.start.section()..=last.section()).contains(&pfn.section())
        };
        if !self.memory.iter().any(|(range, _)| is_known(range)) {
            return Some(FreeError::Foreign { pfn });
        }
        if order > MAX_ORDER {
            return Some(FreeError::OrderTooLarge { pfn, order });
        }
        if !pfn.is_aligned(order) {
            return Some(FreeError::Misaligned { pfn, order });
        }
        let state = match self.begins(pfn) {
            Begins::Held(allocated, _) if allocated == order => return None,
            Begins::Held(allocated, _) => {
                return Some(FreeError::WrongOrder { pfn, order, allocated });
            }
            Begins::Free(..) => FrameState::Free,
            Begins::Nothing => FrameState::Blank,
        };
        if self.is_online(pfn) {
            Some(FreeError::NotAllocated { pfn, order, state })
        } else {
            Some(FreeError::Foreign { pfn })
        }
    }

    /// Puts a block into the CPU's pageset, or into the zone if there is none for it.
    fn put_back(&mut self, cpu: CpuId, zone: usize, pfn: Pfn, order: Order) {
        match list_index(order, self.pageblocks.of(pfn)) {
            Some(list) if self.cpu_on(cpu).is_some() => {
                self.put_into_pageset(cpu, zone, list, pfn);
            }
            _ => self.put_into_zone(zone, pfn, order),
        }
    }

    pub(super) fn put_into_pageset(&mut self, cpu: CpuId, zone: usize, list: usize, pfn: Pfn) {
        // A page on its way into a pageset is out of its zone as it was before.
        let is_over_limit = self.is_over_limit(zone);
        let (by, target) = (cpu, self.free_target(cpu, zone, pfn));
        let Some(cpu) = self.cpus.get_mut(&target) else { return };
        let (pageset, zone) = (&mut cpu.pagesets[zone], &mut self.zones[zone]);
        let order = list_order(list);
        zone.owners.sent_home += u64::from(target != by);
        pageset.put(list, pfn, &zone.owners);
        pageset.count.0 += order.pages().0;
        let NaivePageset { tuning, count, .. } = pageset;
        let usual = tuning.after_free(&self.model.pcp, order, *count, zone.view);
        let most = tuning.hold_max(&self.model.pcp);
        if let Some(pages) = if is_over_limit { Some(most.min(*count)) } else { usual } {
            pageset.drain(zone, &mut self.pageblocks, list, pages.0);
            zone.clear_below_high();
        }
    }

    fn put_into_zone(&mut self, zone: usize, pfn: Pfn, order: Order) {
        let zone = &mut self.zones[zone];
        zone.free(pfn, order, &mut self.pageblocks);
        zone.note_return(order.pages().0);
        zone.events.direct_free_pages += order.pages().0;
    }

    /// Empties the pagesets of a CPU; returns the pages that went back.
    pub fn drain_cpu(&mut self, cpu: CpuId) -> PageCount {
        self.drain_where(|id, _| id == cpu)
    }

    /// Empties all pagesets of a zone.
    pub fn drain_zone(&mut self, zone: usize) -> PageCount {
        self.drain_where(|_, number| number == zone)
    }

    /// Empties all pagesets.
    pub fn drain_all(&mut self) -> PageCount {
        self.drain_where(|_, _| true)
    }

    pub(super) fn drain_where(&mut self, is_wanted: impl Fn(CpuId, usize) -> bool) -> PageCount {
        let mut drained = PageCount(0);
        for (&id, cpu) in &mut self.cpus {
            let mut wanted: Vec<(&mut NaivePageset, &mut NaiveZone)> = cpu
                .pagesets
                .iter_mut()
                .zip(&mut self.zones)
                .enumerate()
                .filter(|(number, _)| is_wanted(id, *number))
                .map(|(_, pair)| pair)
                .collect();
            let cached: u64 = wanted.iter().map(|(pageset, _)| pageset.count.0).sum();
            drained.0 += cached;
            for (pageset, zone) in &mut wanted {
                while pageset.count.0 > 0 {
                    let piece = pageset.tuning.batch.0 << 5;
                    pageset.drain(zone, &mut self.pageblocks, 0, piece);
                }
            }
        }
        drained
    }

    /// The periodic turn of a CPU's pagesets; returns the pages that went back.
    pub fn decay_cpu(&mut self, cpu: CpuId) -> PageCount {
        let Some(NaiveCpu { pagesets, .. }) = self.cpus.get_mut(&cpu) else { return PageCount(0) };
        let mut drained = PageCount(0);
        for (pageset, zone) in pagesets.iter_mut().zip(&mut self.zones) {
            let NaivePageset { tuning, count, .. } = pageset;
            // A pageset at rest has no turn.
            if tuning.high <= tuning.high_min && *count <= tuning.high {
                continue;
            }
            let mut left = tuning.decay(&self.model.pcp, *count).0;
            while left > 0 && pageset.count.0 > 0 {
                let piece = left.min(pageset.tuning.batch.0);
                let gone = pageset.drain(zone, &mut self.pageblocks, 0, piece);
                drained.0 += gone;
                left = left.saturating_sub(gone);
            }
        }
        drained
    }
}

impl NaivePageset {
    /// Gives pages back, the coldest of each list, from `first_list` on and round; whole lists until it is
    /// enough. Returns how many.
    fn drain(
        &mut self,
        zone: &mut NaiveZone,
        pageblocks: &mut Pageblocks,
        first_list: usize,
        pages: u64,
    ) -> u64 {
        let mut drained = self.drain_pieces(zone, pageblocks, first_list, pages);
        for list in (first_list..LISTS).chain(0..first_list) {
            let order = list_order(list);
            let mut gone = vec![];
            while drained < pages
                && let Some(pfn) = self.lists[list].pop_back()
            {
                gone.push(pfn);
                drained += order.pages().0;
            }
            for piece in gone.chunks(PIECE) {
                zone.free_batch(piece, order, pageblocks);
            }
        }
        self.count.0 -= drained;
        zone.note_return(drained);
        if drained > 0 {
            self.drains.0 += 1;
            self.drains.1 += drained;
        }
        drained
    }
}
