//! What a CPU that owns pageblocks with maps takes and gives back: when a list is empty, after frees, once a second, and when
//! it is drained.

use std_alloc::vec::Vec;

use super::kept::At;
use super::zone::Blocks;
use super::{Mistake, NaiveAllocator};
use crate::frame::Migratetype;
use crate::model::PageblockOwners;
use crate::pcp::{HOMEBOUND, list_index, list_order, list_type, more_list_index};
use crate::units::{CpuId, Order, PageCount, Pfn};
use crate::watermark::AllocFlags;

use super::asked::Asked;
use super::room::{OF_A_MOVE, Room};

/// Two visits closer together than this, in units of 2^20 ns, are near.
const NEAR: u32 = 32;
/// Bounds of what is kept.
const SIZE_MIN: u64 = 2048;
const SIZE_MAX: u64 = 16_384;
/// Single pages that a list gets at once.
pub(super) const REFILL: u64 = 64;
/// Fewer pages that nobody used stay.
const UNUSED_MIN: u64 = 512;
/// The fewest pages are known in units of so many.
const LEAST_UNIT: u64 = 16;
/// Runs of blocks that a request takes from the zone at most.
const RUNS_MAX: u64 = 64;

/// What is given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reach {
    Usual,
    All,
}

fn blocks_of_a_refill(order: Order) -> u64 {
    (REFILL >> order.0).max(1)
}

impl NaiveAllocator {
    /// Whether CPUs own pageblocks with maps.
    pub(super) fn has_maps(&self) -> bool {
        self.model.owners == PageblockOwners::CpusWithMaps
    }

    /// The list for blocks of an order and type; all orders have one only if CPUs own pageblocks with maps.
    pub(super) fn list_for(&self, order: Order, of: Migratetype) -> Option<usize> {
        let more = || more_list_index(order, of).filter(|_| self.has_maps());
        list_index(order, of).or_else(more)
    }

    /// The list that takes a block back: the one that gives such, but for single pages that did not come with one of its last
    /// two refills.
    pub(super) fn list_of_freed(&self, at: At, order: Order, of: Migratetype, tag: u8) -> usize {
        let list = self.list_for(order, of).expect("there are lists for all orders");
        let kept = self.pagesets(at.cpu)[at.zone].kept.as_ref();
        let is_recent = kept.is_some_and(|kept| kept.is_recent(list_type(list), tag));
        if order > Order(0) || is_recent { list } else { HOMEBOUND }
    }

    /// The most blocks of a list.
    fn most_of_list(&mut self, at: At, list: usize) -> u64 {
        let (size, order) = (self.behind(at).size, list_order(list));
        if list == HOMEBOUND {
            return (size / 2).clamp(REFILL, 2048);
        }
        let least = u64::from(order <= Order(3));
        ((size / 8) >> order.0).clamp(least, 2 * blocks_of_a_refill(order))
    }

    /// The most that the CPU may ever keep behind its lists.
    fn most_kept(&mut self, at: At) -> u64 {
        let high_max = self.pageset(at).tuning.high_max.0;
        (high_max / 2).max(high_max.min(512)).min(SIZE_MAX)
    }

    /// The CPU goes to the zone: what it may keep follows from the time since it was there last.
    fn note_visit(&mut self, at: At) {
        let now = (self.now_ns >> 20) as u32;
        let most = self.most_kept(at);
        let near = if self.mistake == Mistake::VisitsSeemRare { NEAR / 2 } else { NEAR };
        let kept = self.behind(at);
        let since = now.wrapping_sub(kept.visited);
        if since < near {
            kept.size *= 2;
        } else {
            // Once for each doubling of the time from 32 on.
            let mut bound = u64::from(NEAR);
            while u64::from(since) >= bound {
                kept.size /= 2;
                bound *= 2;
            }
        }
        kept.size = kept.size.clamp(SIZE_MIN.min(most / 2), most);
        kept.visited = now;
    }

    fn note_least(&mut self, at: At, pages: u64) {
        let kept = self.behind(at);
        kept.least = kept.least.min(pages / LEAST_UNIT);
    }

    /// Notes what is kept, if it is the least.
    pub(super) fn note_least_now(&mut self, at: At) {
        let pages = self.pages_kept(at);
        self.note_least(at, pages);
    }

    /// Whether pages came from other CPUs, or wait on the list of homebound ones.
    pub(super) fn has_homebound(&mut self, at: At) -> bool {
        let kept = self.behind(at);
        let was_sent = !kept.inbox.is_empty() || !kept.waiting.is_empty();
        was_sent || !self.pageset(at).lists[HOMEBOUND].is_empty()
    }

    /// Fills an empty list; returns whether there is something on it.
    pub(super) fn refill_from_maps(
        &mut self,
        at: At,
        asked: &Asked,
        list: usize,
        flags: AllocFlags,
    ) -> bool {
        self.note_least_now(at);
        let (order, migratetype) = (asked.order, asked.migratetype);
        if self.fill(at, order, migratetype, list) {
            return true;
        }
        if self.has_homebound(at) {
            self.gather(at);
            if self.fill(at, order, migratetype, list) {
                return true;
            }
        }
        self.visit_to_take(at, asked, list, flags) && self.fill(at, order, migratetype, list)
    }

    /// Moves blocks from the CPU's pageblocks to a list, if it is empty; returns whether there is something on it.
    fn fill(&mut self, at: At, order: Order, of: Migratetype, list: usize) -> bool {
        if !self.pageset(at).lists[list].is_empty() {
            return true;
        }
        let most = blocks_of_a_refill(order);
        let mut blocks = std_alloc::vec![];
        if order == Order(0) {
            self.behind(at).begin_tag(of);
            blocks = self.take_owned_pages(at, of, most);
        } else {
            while (blocks.len() as u64) < most
                && let Some(block) = self.take_owned_block(at, of, order)
            {
                blocks.push(block);
            }
        }
        self.append(at, list, &blocks);
        !blocks.is_empty()
    }

    fn append(&mut self, at: At, list: usize, blocks: &[Pfn]) {
        let pageset = self.pageset(at);
        pageset.count.0 += (blocks.len() as u64) << list_order(list).0;
        pageset.lists[list].extend(blocks);
    }

    /// Takes pageblocks from the zone, or blocks. Returns whether there were any.
    pub(super) fn visit_to_take(
        &mut self,
        at: At,
        asked: &Asked,
        list: usize,
        flags: AllocFlags,
    ) -> bool {
        let (order, migratetype) = (asked.order, asked.migratetype);
        self.note_visit(at);
        self.gather(at);
        let mut visit = self.visit_to_bring_and_take(at);
        let room = self.room_above_min(at.zone, asked.kind);
        let most = if order < Order(9) { u64::MAX } else { 4 };
        let blocks = ((self.behind(at).size / 2) >> order.0).clamp(1, most);
        let runs_max = self.runs_left(&visit).min(RUNS_MAX);
        let wanted = Blocks { order, migratetype, flags, blocks: 0, runs_max };
        // As many as pageblocks may bring, or the blocks of a refill.
        let allowed = self.allowed_in(&mut visit, wanted, blocks.max(blocks_of_a_refill(order)));
        let most = allowed.min(blocks) << order.0;
        let mut taken = 0;
        if order <= Order(9) {
            taken = self.take_pageblocks_for(&mut visit, wanted, [most, room.min(most)], at.cpu);
        }
        if taken == 0 && allowed > 0 {
            let blocks = match has_rights(flags) {
                true => 1,
                false => allowed.min(room >> order.0).min(blocks_of_a_refill(order)),
            };
            let wanted = Blocks { blocks, ..wanted };
            let blocks = self.zones[at.zone].take(wanted, &mut self.pageblocks);
            self.append(at, list, &blocks);
            taken = Self::took(&mut visit, (blocks.len() as u64) << order.0);
        }
        self.end_visit(&visit);
        self.note_visit_of(at, visit);
        self.pageset(at).refills.0 += u64::from(taken > 0);
        taken > 0
    }

    /// After a free to a list: what is too much there, and in all, goes on.
    pub(super) fn after_free_to_list(&mut self, at: At, list: usize, is_over_limit: bool) {
        let most = self.most_of_list(at, list);
        let is_full = self.pageset(at).lists[list].len() as u64 >= most;
        if !is_full && !is_over_limit {
            return;
        }
        if is_full && list != HOMEBOUND {
            self.spill(at, list, most as usize / 2, &mut Room::any());
        }
        let is_too_much = |naive: &Self| naive.pages_behind(at) > naive.size_of(at);
        if is_over_limit {
            return self.give(at, 0, Reach::All);
        }
        if !(is_too_much(self) || is_full && list == HOMEBOUND) {
            return;
        }
        let mut target = u64::MAX;
        if is_too_much(self) {
            self.note_visit(at);
            if is_too_much(self) {
                target = self.size_of(at) / 4;
            }
        }
        self.give(at, target, Reach::Usual);
    }

    fn size_of(&self, at: At) -> u64 {
        self.pagesets(at.cpu)[at.zone].kept.as_ref().map_or(0, |kept| kept.size)
    }

    /// Sends what is homebound home, and gives pageblocks back until no more than `target` pages are kept.
    fn give(&mut self, at: At, target: u64, reach: Reach) {
        let mut room = Room::any();
        if self.lacks_behind(at, target) {
            for list in self.lists_to_spill(at) {
                self.spill(at, list, 0, &mut room);
            }
        }
        let few = self.most_of_list(at, HOMEBOUND);
        let owner = Some(at.cpu).filter(|_| reach == Reach::Usual);
        loop {
            let gathered = self.gather(at);
            let least = if reach == Reach::All || !gathered.is_all { 1 } else { few / 8 };
            if gathered.of_others > 0 && self.send(at, least, &mut room) > few / 4 {
                self.send(at, 1, &mut room);
            }
            let passing = self.take_too_many(at, gathered.of_nobody, target, &mut room);
            let given = self.visit_to_give(at, gathered.of_nobody, passing, owner);
            if gathered.is_all || given.is_none() {
                return;
            }
        }
    }

    fn lacks_behind(&mut self, at: At, target: u64) -> bool {
        self.pages_behind(at) < self.pages_kept(at).saturating_sub(target)
    }

    fn lists_to_spill(&mut self, at: At) -> Vec<usize> {
        let lists = self.pageset(at).lists.iter().enumerate();
        let filled = lists.filter(|&(list, blocks)| list != HOMEBOUND && !blocks.is_empty());
        filled.map(|(list, _)| list).collect()
    }

    /// Pageblocks that are too many once so many pages have gone home.
    fn take_too_many(&mut self, at: At, homecoming: u64, target: u64, room: &mut Room) -> Vec<Pfn> {
        let kept = self.pages_kept(at).saturating_sub(homecoming);
        let most = self.free_owned(at).saturating_sub(kept.saturating_sub(target));
        self.take_above(at, most, || room.take(OF_A_MOVE))
    }

    /// Brings pages home to so many of nobody's pageblocks, and gives pageblocks back. Returns the pages that went to the zone;
    /// `None` if nothing went anywhere.
    fn visit_to_give(
        &mut self,
        at: At,
        mut homecoming: u64,
        mut passing: Vec<Pfn>,
        owner: Option<CpuId>,
    ) -> Option<u64> {
        let mut row = Some(0).filter(|_| homecoming > 0);
        let mut given = None;
        while row.is_some() || !passing.is_empty() {
            let before = self.behind(at).stage.pages();
            let mut visit = self.visit(at.zone, owner);
            visit.parcels_left = homecoming;
            row = row.and_then(|row| self.bring_home(&mut visit, at, row));
            homecoming = visit.parcels_left;
            row = row.filter(|_| homecoming > 0);
            self.give_pageblocks(&mut visit, &mut passing);
            self.end_visit(&visit);
            let returned = visit.returned;
            self.note_visit_of(at, visit);
            if returned == 0 && before == self.behind(at).stage.pages() {
                return given;
            }
            given = Some(given.unwrap_or(0) + returned);
            self.pageset(at).drains.0 += 1;
        }
        given
    }

    /// What is on the lists goes behind them, in holds of so much each.
    fn spill_from_outside(&mut self, at: At) {
        let mut lists = self.lists_to_spill(at);
        lists.reverse();
        while !lists.is_empty() {
            let mut room = Room::of_a_foreign_hold();
            while let Some(&list) = lists.last()
                && !room.is_short
            {
                self.spill(at, list, 0, &mut room);
                lists.pop_if(|&mut list| self.pageset(at).lists[list].is_empty());
            }
        }
    }

    /// Holds from outside, until no more than `target` pages are kept; a few pages for other CPUs wait. Returns the pages that went
    /// to the zone.
    fn give_in_steps(&mut self, at: At, target: u64, few: u64) -> u64 {
        let mut returned = 0;
        loop {
            let (pages, is_more) = self.give_from_outside(at, target, few);
            returned += pages;
            if !is_more {
                return returned;
            }
        }
    }

    /// One of these holds. Returns the pages that went to the zone, and whether there is another.
    fn give_from_outside(&mut self, at: At, target: u64, few: u64) -> (u64, bool) {
        let mut room = Room::of_a_foreign_hold();
        let gathered = self.gather_some(at, &mut room);
        if !room.is_short && (gathered.of_others > few || !gathered.is_all) {
            self.send(at, 1, &mut room);
        }
        if room.is_short {
            return (0, true);
        }
        let homecoming = room.take_steps(gathered.of_nobody);
        let passing = self.take_too_many(at, gathered.of_nobody, target, &mut room);
        let given = self.visit_to_give(at, homecoming, passing, None);
        self.note_least_now(at);
        (given.unwrap_or(0), room.is_short || given.is_some() && !gathered.is_all)
    }

    /// Empties what a CPU keeps of a zone; returns the pages that went there.
    pub(super) fn drain_kept(&mut self, at: At) -> u64 {
        self.spill_from_outside(at);
        self.give_in_steps(at, 0, 0)
    }

    /// Once a second, half of what nobody used since goes back; returns the pages that went to the zone.
    pub(super) fn decay_kept(&mut self, at: At) -> u64 {
        let before = self.pages_kept(at);
        let least = (self.behind(at).least * LEAST_UNIT).min(before);
        // The most that is told apart.
        self.behind(at).least = u16::MAX.into();
        self.note_least(at, before);
        let (unused, few) = (least / 2, self.most_of_list(at, HOMEBOUND) / 8);
        // Settings may have made that less.
        let most = self.most_kept(at);
        let is_too_large = self.behind(at).size > most;
        if unused < UNUSED_MIN && !is_too_large {
            return 0;
        }
        let mut target = before - unused;
        if is_too_large {
            self.behind(at).size = most;
            target = target.min(most);
        }
        if self.lacks_behind(at, target) {
            self.spill_from_outside(at);
        }
        self.give_in_steps(at, target, few)
    }

    /// How many of some pages a request may take straight from a zone.
    pub(super) fn above_min(
        &self,
        zone: usize,
        asked: &Asked,
        pages: PageCount,
        flags: AllocFlags,
    ) -> PageCount {
        let looks = self.has_maps() && !has_rights(flags);
        if looks { pages.min(PageCount(self.room_above_min(zone, asked.kind))) } else { pages }
    }
}

/// Whether a request may take what is kept whole from others.
fn has_rights(flags: AllocFlags) -> bool {
    const RIGHTS: [AllocFlags; 4] = [
        AllocFlags::MIN_RESERVE,
        AllocFlags::HIGHATOMIC,
        AllocFlags::OOM,
        AllocFlags::NO_WATERMARKS,
    ];
    RIGHTS.iter().any(|&right| flags.contains(right))
}
