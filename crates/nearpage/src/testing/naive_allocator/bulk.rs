//! Many single pages at once.

use std_alloc::vec;
use std_alloc::vec::Vec;

use super::NaiveAllocator;
use super::asked::Asked;
use super::free::PIECE;
use super::give::REFILL;
use super::kept::At;
use super::pieces::take_up_to;
use crate::alloc::{BulkFreeError, Reason, Request};
use crate::error::AllocError;
use crate::frame::Migratetype;
use crate::gfp::Gfp;
use crate::pcp::list_index;
use crate::units::{CpuId, Order, PageCount, Pfn};
use crate::watermark::AllocFlags;

/// Free blocks that one bulk allocation takes straight from a zone.
const RUNS_MAX: u64 = 64;
/// The same by rules with maps.
const RUNS_OF_MAPS: u64 = 8;
/// Pageblocks that one bulk free gives back at a time.
const PAGEBLOCKS_BACK: usize = 32;
const PAGEBLOCK: u64 = 512;
const SINGLE: Order = Order(0);

/// A zone, and the list of its pagesets that keeps the pageblocks.
type Target = (usize, Option<usize>);

fn pageblock_list(migratetype: Migratetype) -> Option<usize> {
    (migratetype == Migratetype::Movable).then_some(13)
}

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
        let pages = if self.model.departures.bulk_from_zone {
            self.bulk_of_room(asked, count as u64)
        } else {
            self.bulk_of_linux(asked, count as u64)
        };
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
    fn bulk_of_linux(&mut self, asked: &Asked, count: u64) -> Vec<Pfn> {
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

    /// The first zone that has pages above its low mark gives as many as it has there: those that the
    /// pageset holds, and the others directly.
    fn bulk_of_room(&mut self, asked: &Asked, count: u64) -> Vec<Pfn> {
        let flags = AllocFlags::WMARK_LOW;
        for zone in self.near_zones(asked) {
            let preferred = self.zones[asked.zonelist[0]].kind;
            let naive = &self.zones[zone];
            let kept = naive.kept_back().0
                + naive.marks().of(flags).0
                + naive.reserve[preferred.index()].0;
            let room = naive.free.0.saturating_sub(kept);
            let pages = self.bulk_from(zone, asked, count.min(room), room);
            if !pages.is_empty() {
                self.count_bulk(zone, asked, &pages);
                return pages;
            }
        }
        vec![]
    }

    fn bulk_from(&mut self, zone: usize, asked: &Asked, share: u64, room: u64) -> Vec<Pfn> {
        let mut pages = self.whole_pageblocks(zone, asked, share / PAGEBLOCK);
        let share_left = share - pages.len() as u64;
        let (mut refilled, mut of_maps, mut from_list) = (None, None, 0);
        if share_left > 0
            && let Some(list) = list_index(SINGLE, asked.migratetype)
            && let Some(cpu) = self.cpus.get_mut(&asked.cpu).filter(|cpu| cpu.is_on)
        {
            let pageset = &mut cpu.pagesets[zone];
            let here = take_up_to(pageset, list, share_left);
            let lacking = share_left - here.len() as u64;
            from_list = here.len();
            pages.extend(here);
            let size = pageset.kept().map(|kept| kept.size);
            if lacking >= REFILL && size.is_some_and(|size| size + lacking <= room) {
                of_maps = Some((list, lacking));
            } else if lacking > 0
                && pageset.tuning.refills_for(&self.model.pcp, lacking, PageCount(room))
            {
                refilled = Some((list, lacking));
            } else if lacking > 0 && pageset.kept().is_none() {
                let view = self.zones[zone].view;
                pageset.tuning.raise_high(&self.model.pcp, lacking, view);
            }
        }
        let (whole, listed) = pages.split_at(pages.len() - from_list);
        whole.iter().for_each(|&pfn| self.hand_out_untagged(pfn, zone, asked));
        listed.iter().for_each(|&pfn| self.hand_out(pfn, zone, asked));
        if let Some((list, lacking)) = refilled {
            pages.extend(self.bulk_of_refill(zone, asked, list, lacking));
            return pages;
        }
        if let Some((list, lacking)) = of_maps {
            pages.extend(self.bulk_of_maps(zone, asked, list, lacking));
        }
        let runs_max = if self.has_maps() { RUNS_OF_MAPS } else { RUNS_MAX };
        while (pages.len() as u64) < share {
            let left = share - pages.len() as u64;
            let direct = self.take_direct(zone, asked, left, runs_max, AllocFlags::default());
            if !direct.is_empty() {
                self.wake_for_bulk(zone, asked);
            }
            for &pfn in &direct {
                self.hand_out_untagged(pfn, zone, asked);
            }
            let is_last = direct.is_empty() || !self.has_maps();
            pages.extend(direct);
            if is_last {
                break;
            }
        }
        pages
    }

    /// Up to `most` pages of the pageblocks that the CPU owns, after one visit to the zone if they are too few.
    fn bulk_of_maps(&mut self, zone: usize, asked: &Asked, list: usize, most: u64) -> Vec<Pfn> {
        let (at, of) = (At { cpu: asked.cpu, zone }, asked.migratetype);
        self.note_least_now(at);
        let mut pages = self.take_owned_pages(at, of, most);
        if (pages.len() as u64) < most && self.has_homebound(at) {
            self.gather(at);
            pages.extend(self.take_owned_pages(at, of, most - pages.len() as u64));
        }
        if (pages.len() as u64) < most {
            let visited = self.visit_to_take(at, asked, list, AllocFlags::default());
            pages.extend(self.take_owned_pages(at, of, most - pages.len() as u64));
            if visited {
                let left = most - pages.len() as u64;
                pages.extend(take_up_to(self.pageset(at), list, left));
                self.wake_for_bulk(zone, asked);
            }
        }
        pages.iter().for_each(|&pfn| self.hand_out(pfn, zone, asked));
        pages
    }

    /// Up to `most` pages of one refill of an empty list.
    fn bulk_of_refill(&mut self, zone: usize, asked: &Asked, list: usize, most: u64) -> Vec<Pfn> {
        let mut pages = vec![];
        while (pages.len() as u64) < most {
            if !pages.is_empty() && self.pagesets(asked.cpu)[zone].lacks(list) {
                break;
            }
            let Some(pfn) = self.pop_or_refill(zone, asked, list, AllocFlags::default()) else {
                break;
            };
            if pages.is_empty() {
                self.wake_for_bulk(zone, asked);
            }
            self.hand_out(pfn, zone, asked);
            pages.push(pfn);
        }
        pages
    }

    /// Pages of whole pageblocks of the request's own type.
    fn whole_pageblocks(&mut self, zone: usize, asked: &Asked, pageblocks: u64) -> Vec<Pfn> {
        if pageblocks == 0 {
            return vec![];
        }
        let mut blocks = vec![];
        if let Some(list) = pageblock_list(asked.migratetype)
            && let Some(cpu) = self.cpus.get_mut(&asked.cpu).filter(|cpu| cpu.is_on)
        {
            let pageset = &mut cpu.pagesets[zone];
            blocks.extend(take_up_to(pageset, list, pageblocks));
            let here = blocks.len() as u64;
            if here < pageblocks && pageset.kept().is_none() {
                let (view, lacking) = (self.zones[zone].view, (pageblocks - here) * PAGEBLOCK);
                pageset.tuning.raise_high(&self.model.pcp, lacking, view);
            }
        }
        if pageblock_list(asked.migratetype).is_some()
            && self.has_maps()
            && self.cpu_on(asked.cpu).is_some()
        {
            let at = At { cpu: asked.cpu, zone };
            if (blocks.len() as u64) < pageblocks {
                self.note_least_now(at);
            }
            while (blocks.len() as u64) < pageblocks
                && let Some(block) = self.take_owned_block(at, asked.migratetype, Order(9))
            {
                blocks.push(block);
            }
        }
        let left = pageblocks - blocks.len() as u64;
        if left > 0 {
            let flags = AllocFlags::default();
            let room = self.above_min(zone, asked, PageCount(left * PAGEBLOCK), flags);
            let left = self.may_leave(zone, room.0 / PAGEBLOCK, Order(9), flags);
            if left > 0 {
                self.zones[zone].serve(asked.cpu);
            }
            let direct = self.zones[zone].take_pageblocks(asked.migratetype, left, RUNS_MAX);
            self.count_direct(zone, asked, direct.len() as u64 * PAGEBLOCK);
            if !direct.is_empty() {
                self.wake_for_bulk(zone, asked);
            }
            blocks.extend(direct);
        }
        blocks.iter().flat_map(|first| first.0..first.0 + PAGEBLOCK).map(Pfn).collect()
    }

    /// The zone of the pageblock that `pages` begin with, page by page in order, if they do and all of it is
    /// in the hands of one zone's callers.
    fn begins_with_pageblock(&self, pages: &[Pfn]) -> Option<usize> {
        let pages = pages.get(..PAGEBLOCK as usize)?;
        let zone = self.zone_of(pages[0])?;
        let is_whole = pages[0].is_aligned(Order(9))
            && pages.iter().zip(pages[0].0..).all(|(page, expected)| page.0 == expected)
            && pages.iter().all(|&page| self.why_not_free(page, SINGLE).is_none())
            && pages.iter().all(|&page| self.zone_of(page) == Some(zone));
        (is_whole && self.model.departures.bulk_from_zone).then_some(zone)
    }

    fn free_pageblocks(&mut self, cpu: CpuId, (zone, list): Target, blocks: &mut Vec<Pfn>) {
        if let Some(list) = list.filter(|_| self.cpu_on(cpu).is_some()) {
            for pfn in blocks.drain(..) {
                self.put_into_pageset(cpu, zone, list, pfn);
            }
        }
        if blocks.is_empty() {
            return;
        }
        let pages = blocks.len() as u64 * PAGEBLOCK;
        for pfn in blocks.drain(..) {
            self.zones[zone].free(pfn, Order(9), &mut self.pageblocks);
        }
        self.zones[zone].note_return(pages);
        self.zones[zone].events.direct_free_pages += pages;
    }

    /// Frees single pages on a CPU. Pages that go to the same list of the same zone travel together, up
    /// to 256 of them; whole pageblocks go to their zone, up to 32 of them together.
    pub fn free_bulk(&mut self, cpu: CpuId, pages: &[Pfn]) -> Result<(), BulkFreeError> {
        let mut batch: Vec<Pfn> = vec![];
        let mut target = None;
        let (mut refused, mut first) = (0, None);
        let (mut whole, mut whole_target, mut skip) = (vec![], (0, None), 0);
        for (at, &pfn) in pages.iter().enumerate() {
            if skip > 0 {
                skip -= 1;
                continue;
            }
            if let Some(zone) = self.begins_with_pageblock(&pages[at..]) {
                let target = (zone, pageblock_list(self.pageblocks.of(pfn)));
                if target != whole_target || whole.len() == PAGEBLOCKS_BACK {
                    self.free_pageblocks(cpu, whole_target, &mut whole);
                }
                for page in &pages[at..at + PAGEBLOCK as usize] {
                    self.take_back(*page, SINGLE).expect("it was looked at");
                }
                whole_target = target;
                whole.push(pfn);
                skip = PAGEBLOCK - 1;
                continue;
            }
            let freed = match self.take_back(pfn, SINGLE) {
                Ok(freed) => freed,
                Err(error) => {
                    refused += 1;
                    first = first.or(Some(error));
                    continue;
                }
            };
            let zone = freed.zone;
            let list = self.list_of(cpu, freed, pfn, SINGLE).expect("no block is isolated");
            if target != Some((zone, list)) || batch.len() == PIECE {
                self.flush(cpu, target, &mut batch);
                target = Some((zone, list));
            }
            batch.push(pfn);
        }
        self.flush(cpu, target, &mut batch);
        self.free_pageblocks(cpu, whole_target, &mut whole);
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
        } else if self.has_maps() {
            self.free_home(zone, batch, SINGLE);
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
        let listed: u64 = pagesets.map(|pageset| pageset.count.0).sum();
        let all =
            self.cpus.keys().flat_map(|&cpu| (0..self.zones.len()).map(move |zone| (cpu, zone)));
        let behind = |(cpu, zone): (CpuId, usize)| {
            self.kept_pages(cpu, zone).0 - self.pagesets(cpu)[zone].count.0
        };
        PageCount(listed + all.map(behind).sum::<u64>())
    }
}
