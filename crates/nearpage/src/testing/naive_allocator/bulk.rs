//! Many single pages at once.

use std_alloc::vec;
use std_alloc::vec::Vec;

use super::NaiveAllocator;
use super::asked::Asked;
use super::free::PIECE;
use crate::alloc::{BulkFreeError, Reason, Request};
use crate::error::AllocError;
use crate::gfp::Gfp;
use crate::pcp::list_index;
use crate::units::{CpuId, Order, PageCount, Pfn};
use crate::watermark::AllocFlags;

const SINGLE: Order = Order(0);

impl NaiveAllocator {
    /// Allocates up to `count` single pages on a CPU.
    pub fn alloc_bulk(
        &mut self,
        cpu: CpuId,
        request: Request,
        count: usize,
    ) -> Result<Vec<Pfn>, AllocError> {
        let asked = self.asked(cpu, request)?;
        self.bulk_asked(&asked, count)
    }

    pub(super) fn bulk_asked(
        &mut self,
        asked: &Asked,
        count: usize,
    ) -> Result<Vec<Pfn>, AllocError> {
        if asked.order != SINGLE {
            return Err(AllocError::BulkOrder { order: asked.order });
        }
        if count == 0 {
            return Ok(vec![]);
        }
        let pages = self.bulk_from_zone(asked, count as u64);
        if pages.is_empty() { Ok(vec![self.alloc_asked(asked)?]) } else { Ok(pages) }
    }

    /// The zones of the first node on the zonelist.
    fn near_zones(&self, asked: &Asked) -> Vec<usize> {
        let node = |zone: usize| self.zones[zone].node;
        let zones = asked.zonelist.iter().copied();
        zones.take_while(|&zone| node(zone) == node(asked.zonelist[0])).collect()
    }

    /// The first zone that has all pages above its low mark gives them, each through the pageset. One
    /// page is no bulk.
    fn bulk_from_zone(&mut self, asked: &Asked, count: u64) -> Vec<Pfn> {
        let Some(list) = list_index(SINGLE, asked.migratetype) else { return vec![] };
        if count == 1 || self.cpu_on(asked.cpu).is_none() {
            return vec![];
        }
        if asked.zonelist.is_empty() {
            return vec![];
        }
        let has_all = |&zone: &usize| {
            let preferred = self.zones[asked.zonelist[0]].kind;
            let zone = &self.zones[zone];
            zone.free.0
                > zone.kept_back().0
                    + zone.marks().low.0
                    + count
                    + zone.reserve[preferred.index()].0
        };
        let Some(zone) = self.near_zones(asked).into_iter().find(has_all) else { return vec![] };
        let mut pages = vec![];
        while (pages.len() as u64) < count {
            let is_refill = self.pagesets(asked.cpu)[zone].lacks(list);
            let Some(pfn) = self.pop_or_refill(zone, asked, list, AllocFlags::default()) else {
                break;
            };
            if is_refill {
                self.wake_for_bulk(zone, asked);
            }
            self.hand_out(pfn, zone, asked);
            pages.push(pfn);
        }
        self.count_bulk(zone, asked, &pages);
        pages
    }

    fn count_bulk(&mut self, zone: usize, asked: &Asked, pages: &[Pfn]) {
        let is_limited = self.limit_reached(asked.zonelist[0], 1).is_some();
        let reason = if is_limited { Reason::Limit } else { Reason::Watermark };
        self.count_fallback(zone, asked, PageCount(pages.len() as u64), reason);
    }

    fn wake_for_bulk(&mut self, zone: usize, asked: &Asked) {
        if asked.gfp.contains(Gfp::KSWAPD_RECLAIM) {
            self.wake_above_soft(zone, AllocFlags::KSWAPD);
        }
    }

    /// Frees single pages on a CPU. Pages that go to the same list of the same zone travel together, up
    /// to 256 of them.
    pub fn free_bulk(&mut self, cpu: CpuId, pages: &[Pfn]) -> Result<(), BulkFreeError> {
        let mut batch: Vec<Pfn> = vec![];
        let mut target = None;
        let (mut refused, mut first) = (0, None);
        for &pfn in pages {
            let zone = match self.take_back(pfn, SINGLE) {
                Ok(zone) => zone,
                Err(error) => {
                    refused += 1;
                    first = first.or(Some(error));
                    continue;
                }
            };
            let list = list_index(SINGLE, self.pageblocks.of(pfn)).expect("no block is isolated");
            if target != Some((zone, list)) || batch.len() == PIECE {
                self.flush(cpu, target, &mut batch);
                target = Some((zone, list));
            }
            batch.push(pfn);
        }
        self.flush(cpu, target, &mut batch);
        match first {
            None => Ok(()),
            Some(first) => Err(BulkFreeError { freed: pages.len() - refused, refused, first }),
        }
    }

    fn flush(&mut self, cpu: CpuId, target: Option<(usize, usize)>, batch: &mut Vec<Pfn>) {
        let Some((zone, list)) = target.filter(|_| !batch.is_empty()) else { return };
        if self.cpu_on(cpu).is_some() {
            for &pfn in &*batch {
                self.put_into_pageset(cpu, zone, list, pfn);
            }
        } else {
            let (zone, pages) = (&mut self.zones[zone], batch.len() as u64);
            zone.free_batch(batch, SINGLE, &mut self.pageblocks);
            zone.note_return(pages);
            zone.events.direct_free_pages += pages;
        }
        batch.clear();
    }

    /// Pages in somebody's hands.
    pub fn held(&self) -> PageCount {
        let managed = self.zones.iter().map(|zone| zone.managed.0 - zone.free.0).sum::<u64>();
        PageCount(managed - self.cached().0)
    }

    /// Pages in pagesets.
    pub fn cached(&self) -> PageCount {
        let pagesets = self.cpus.values().flat_map(|cpu| &cpu.pagesets);
        PageCount(pagesets.map(|pageset| pageset.count.0).sum())
    }
}
