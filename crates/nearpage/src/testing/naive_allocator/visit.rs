//! A visit to a zone: what a CPU does in one hold of the zone's lock, in no more than so many operations.

use std_alloc::vec::Vec;

use super::kept::At;
use super::maps::{Pages, runs};
use super::stage::Fate;
use super::zone::Blocks;
use super::{Mistake, NaiveAllocator};
use crate::units::{CpuId, Order, Pfn, ZoneKind};
use crate::watermark::AllocFlags;

/// Operations in one hold.
const OPERATIONS: u64 = 256;
/// So many must be left to bring pages of a pageblock home, each page of one that zones share, to pass a pageblock, and to take
/// adjoining pages.
const OF_PAGES: u64 = 16;
const OF_A_PAGE: usize = 12;
const OF_A_PASS: u64 = 8;
const OF_A_RUN: u64 = 12;
/// So many are left to a request after pages were brought home.
const FOR_A_TAKE: u64 = 48;
/// Pageblocks that become the CPU's in one hold because pages of them come home.
const CLAIMS: usize = 32;
/// A pageblock with at most so many free pages becomes the CPU's that brings at least so many.
const NEARLY_FULL: u64 = 64;
const WORTH_IT: u64 = 4;

/// What happened in a visit.
pub(super) struct Visit {
    zone: usize,
    /// The CPU that pageblocks may pass to as pages of them come home.
    owner: Option<CpuId>,
    /// Operations that it may have.
    most: u64,
    /// Pageblocks that pages may still come home to.
    pub parcels_left: u64,
    /// Free pages when it began, and pages that limits were asked for since.
    free_before: u64,
    asked: u64,
    /// Pageblocks that became the CPU's.
    passed: Vec<Pfn>,
    /// Of them those that came as pages of them came home, with these.
    claimed: Vec<(Pfn, Pages)>,
    taken: u64,
    pub returned: u64,
}

/// Rows of the stage; in the second, this hold was long enough.
type Stopped = Option<usize>;

impl NaiveAllocator {
    /// Takes the lock.
    pub(super) fn visit(&mut self, zone: usize, owner: Option<CpuId>) -> Visit {
        self.zones[zone].operations = 0;
        let free_before = self.zones[zone].free.0;
        let (passed, claimed, asked, taken, returned) = (Vec::new(), Vec::new(), 0, 0, 0);
        let (most, parcels_left) = (OPERATIONS, u64::MAX);
        Visit {
            zone,
            owner,
            most,
            parcels_left,
            free_before,
            asked,
            passed,
            claimed,
            taken,
            returned,
        }
    }

    /// The same, to take blocks for a request, after pages were brought home.
    pub(super) fn visit_to_bring_and_take(&mut self, at: At) -> Visit {
        let mut visit = self.visit(at.zone, Some(at.cpu));
        visit.most = OPERATIONS - FOR_A_TAKE;
        self.bring_home(&mut visit, at, 0);
        visit.most = OPERATIONS;
        visit
    }

    fn operations_left(&self, visit: &Visit) -> u64 {
        visit.most.saturating_sub(self.zones[visit.zone].operations)
    }

    /// Runs that may still be taken.
    pub(super) fn runs_left(&self, visit: &Visit) -> u64 {
        self.operations_left(visit) / OF_A_RUN
    }

    pub(super) fn pageblocks_left(&self, visit: &Visit) -> u64 {
        self.operations_left(visit) / OF_A_PASS
    }

    /// Gives pageblocks to the zone, the last one first, as many as may pass.
    pub(super) fn give_pageblocks(&mut self, visit: &mut Visit, passing: &mut Vec<Pfn>) {
        while self.pageblocks_left(visit) > 0
            && let Some(first) = passing.pop()
        {
            visit.returned += self.zones[visit.zone].take_back(first, &mut self.pageblocks);
        }
    }

    /// Takes pageblocks for a CPU: those of the type that are free in part, the fullest first, and only if there is none,
    /// whole ones. Returns their pages.
    pub(super) fn take_pageblocks_for(
        &mut self,
        visit: &mut Visit,
        wanted: Blocks,
        [pages, room]: [u64; 2],
        cpu: CpuId,
    ) -> u64 {
        let most = self.pageblocks_left(visit);
        let (zone, pageblocks) = (&mut self.zones[visit.zone], &mut self.pageblocks);
        let (mut got, mut order) = (0, wanted.order);
        while order < Order(9) && got < pages && (visit.passed.len() as u64) < most {
            let Some(first) = zone.fullest(wanted.migratetype, order) else { break };
            if got + zone.maps.free_in(first) > room {
                break;
            }
            got += zone.give_away(first, cpu);
            visit.passed.push(first);
            order = Order(0);
        }
        if visit.passed.is_empty() {
            while got < pages
                && (visit.passed.len() as u64) < most
                && got + 512 <= room
                && let Some(first) = zone.give_whole(wanted.migratetype, cpu, pageblocks)
            {
                visit.passed.push(first);
                got += 512;
            }
        }
        visit.taken += got;
        got
    }

    /// Pages were taken otherwise.
    pub(super) fn took(visit: &mut Visit, pages: u64) -> u64 {
        visit.taken += pages;
        pages
    }

    /// Brings what is on the stage home to pageblocks that nobody owns, from a row on.
    pub(super) fn bring_home(&mut self, visit: &mut Visit, at: At, from: usize) -> Stopped {
        let mut stage = core::mem::take(&mut self.behind(at).stage);
        let stopped = stage.each_pageblock(from, |first, pages| {
            if visit.parcels_left == 0 {
                return Fate::Stop;
            }
            let fate = self.bring(visit, first, pages);
            visit.parcels_left -= u64::from(fate == Fate::Gone);
            fate
        });
        self.behind(at).stage = stage;
        stopped
    }

    /// Brings pages of one pageblock home, or makes that the CPU's.
    fn bring(&mut self, visit: &mut Visit, first: Pfn, mut pages: Pages) -> Fate {
        let zone = &self.zones[visit.zone];
        if zone.owners.of(first).is_some() {
            return Fate::Kept;
        }
        let free = zone.maps.free_in(first);
        let may_own = visit.owner.is_some()
            && !self.pageblocks.is_shared(first)
            && self.pageblocks.of(first).is_mergeable();
        let is_nearly_full = free <= NEARLY_FULL && pages.len() as u64 >= WORTH_IT;
        let is_worth_it = may_own && (free == 0 || is_nearly_full);
        if is_worth_it && (self.pageblocks_left(visit) == 0 || visit.claimed.len() == CLAIMS) {
            return Fate::Stop;
        }
        let may_take = is_worth_it && (free == 0 || self.may_spare(visit, free));
        match visit.owner.filter(|_| may_take) {
            None if self.bring_pages(visit, &mut pages) => Fate::Gone,
            None if self.pageblocks.is_shared(first) => Fate::StopWith(pages),
            None => Fate::Stop,
            Some(cpu) => {
                visit.taken += self.zones[visit.zone].give_away(first, cpu);
                visit.asked += free;
                visit.claimed.push((first, pages));
                Fate::Gone
            }
        }
    }

    /// Brings pages of one pageblock home to the zone, if nobody owns it and this hold is short enough; returns whether. Where
    /// zones share it, the first pages go, and the others stay.
    pub(super) fn bring_pages(&mut self, visit: &mut Visit, pages: &mut Pages) -> bool {
        let Some(&pfn) = pages.first() else { return true };
        let is_shared = self.pageblocks.is_shared(pfn);
        let is_owned = self.zones[visit.zone].owners.of(pfn).is_some();
        let left = self.operations_left(visit);
        if is_owned || !is_shared && OF_PAGES > left {
            return false;
        }
        let most = if is_shared { left as usize / OF_A_PAGE } else { usize::MAX };
        let rest: Pages = pages.iter().skip(most).copied().collect();
        pages.retain(|pfn| !rest.contains(pfn));
        visit.returned += pages.len() as u64;
        let (zone, pageblocks) = (&mut self.zones[visit.zone], &mut self.pageblocks);
        if is_shared {
            // Adjoining pages come back as the largest blocks that they make up.
            for (mut at, end) in runs(pages) {
                while at < end {
                    let fits =
                        |order: &Order| Pfn(at).is_aligned(*order) && at + order.pages().0 <= end;
                    let order = (0..9).rev().map(Order).find(fits).expect("one page fits");
                    zone.free(Pfn(at), order, pageblocks);
                    at += order.pages().0;
                }
            }
        } else {
            zone.free_in_map(pages, pageblocks);
        }
        *pages = rest;
        pages.is_empty()
    }

    /// Lets the lock go, and counts.
    pub(super) fn end_visit(&mut self, visit: &Visit) {
        let holds = &mut self.zones[visit.zone].holds;
        holds.acquisitions += 1;
        holds.most_pages.0 = holds.most_pages.0.max(visit.taken).max(visit.returned);
        holds.most_returned.0 = holds.most_returned.0.max(visit.returned);
    }

    /// What became the CPU's is listed there, the pageblock that came last first.
    pub(super) fn note_visit_of(&mut self, at: At, visit: Visit) {
        let pageset = self.pageset(at);
        pageset.refills.1 += visit.taken;
        pageset.drains.1 += visit.returned;
        for &first in visit.passed.iter().rev() {
            self.adopt_all(at, first);
        }
        for (first, pages) in &visit.claimed {
            self.adopt(at, *first);
            self.put(at, pages);
        }
    }

    /// How many of some blocks the limits allow in this hold.
    pub(super) fn allowed_in(&mut self, visit: &mut Visit, wanted: Blocks, blocks: u64) -> u64 {
        let order = wanted.order;
        let room = self.room_since(visit.zone, visit.free_before).saturating_sub(visit.asked);
        let fit = blocks.min(room >> order.0);
        let may_exceed = wanted.flags.contains(AllocFlags::OVER_LIMIT);
        let fit = if may_exceed { fit.max(1) } else { fit };
        self.zones[visit.zone].events.limit_refused += u64::from(fit == 0);
        visit.asked += fit << order.0;
        fit
    }

    /// Whether pages may leave a zone beside those that are asked for: they are above what is kept whole, and no limit
    /// refuses them.
    fn may_spare(&self, visit: &Visit, pages: u64) -> bool {
        let room = self.room_since(visit.zone, visit.free_before).saturating_sub(visit.asked);
        pages <= room && pages <= self.room_above_min(visit.zone, self.zones[visit.zone].kind)
    }

    /// Pages above what a request for up to a kind of zone leaves whole.
    pub(super) fn room_above_min(&self, zone: usize, kind: ZoneKind) -> u64 {
        let zone = &self.zones[zone];
        let min = if self.mistake == Mistake::BelowMin { 0 } else { zone.marks().min.0 };
        let kept = min + zone.reserve[kind.index()].0 + zone.kept_back().0;
        zone.free.0.saturating_sub(kept)
    }
}
