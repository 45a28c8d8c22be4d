//! Refills, drains and frees where CPUs own pageblocks with maps.
//!
//! ```text
//!            allocations                        frees
//!                ^                                | got from the list since its last refill?
//!                |                          yes   v   no
//!             list of an order and type  <--------+--------> homebound pages
//!                ^  | more than it may hold                     | enough for a trip
//!         runs   |  v                                           v
//!             pageblocks that the CPU owns  <---- its own ------+---- another CPU's ----> inbox of that CPU
//!                ^  | more than `size`                          |
//!                |  v                                           v  nobody's
//!             the zone, under its lock:  pageblocks with all that is free in them
//! ```
//!
//! **One visit does all.** Who has the zone's lock gives what is homebound to the zone, gives pageblocks back and takes
//! others, in at most 256 operations ([`visit`]).
//!
//! **Frees go home.** A page of a pageblock that another CPU owns goes to that CPU's inbox, in chains. A pageblock of which
//! nothing is free is nobody's, and becomes the CPU's that first frees pages of it.
//!
//! **What is kept whole.** Ordinary requests leave `min`, the zone's reserve and what is kept back for urgent requests: a
//! visit for them takes no more than is above. A request that may go below gets its block and no page more.

mod bulk;
mod give;
mod home;
mod outside;
mod room;
#[cfg(test)]
mod tests;
mod visit;

use super::allocator::PageAllocator;
use super::refill::{FromPageset, Runs};
use super::wanted::Trip;
use crate::buddy::{Search, Wish};
use crate::frame::Migratetype;
use crate::host::{Access, Platform};
use crate::pcp::CountedList;
use crate::pcp::owned::{Hold, Owned};
use crate::pcp::pageset::{OnCpu, Pageset};
use crate::pcp::swing::{Swing, blocks_of_a_refill};
use crate::units::{Order, PAGEBLOCK_ORDER, PageCount};
use crate::watermark::AllocFlags;
use crate::zone::ZoneGuard;
use give::{has_homebound, note_least};
use visit::{Visit, room_above_min, touch_pageblock};

/// Runs of pages that a list gets together: most often it is one, and to clear a place for more takes longer than to go again.
const RUNS: usize = 8;
/// The most blocks of more than a page that a list gets together.
const BLOCKS: usize = blocks_of_a_refill(Order(1)) as usize;

/// Rights with which a request may leave less than is kept whole. Not to wait is none by itself.
const RIGHTS: AllocFlags =
    AllocFlags::RESERVES.difference(AllocFlags::NON_BLOCK).union(AllocFlags::NO_WATERMARKS);

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// Fills an empty list from the CPU's pageblocks, or those from the zone, and takes one block from it.
    pub(super) fn refill_from_maps(
        &self,
        on: &OnCpu<'_, P>,
        pageset: &Pageset<'m, P>,
        owned: &Owned<'_>,
        trip: Trip,
        list: usize,
    ) -> FromPageset {
        let Some(hold) = owned.enter() else { return FromPageset::Busy };
        note_least(pageset, owned);
        let is_filled = self.fill(on, pageset, &hold, (trip.order, trip.migratetype), list) > 0
            || has_homebound(pageset, owned) && {
                self.gather(on, pageset, &hold);
                self.fill(on, pageset, &hold, (trip.order, trip.migratetype), list) > 0
            }
            || self.visit_to_take(on, pageset, &hold, trip, list) && {
                self.fill(on, pageset, &hold, (trip.order, trip.migratetype), list) > 0
            };
        drop(hold);
        if !is_filled {
            return FromPageset::Nothing;
        }
        let popped = pageset.pop(&self.platform, on, list);
        let Some(number) = popped.frame() else { return FromPageset::Nothing };
        self.platform.touch_page(pageset.frames().pfn(number), Access::Write);
        FromPageset::Block(number)
    }

    /// Moves blocks from the CPU's pageblocks to a list, if it is empty. Returns how many it has then.
    fn fill(
        &self,
        on: &OnCpu<'_, P>,
        pageset: &Pageset<'m, P>,
        hold: &Hold<'_>,
        (order, migratetype): (Order, Migratetype),
        list: usize,
    ) -> u32 {
        let (storage, frames) = (self.platform.storage(), pageset.frames());
        let most = blocks_of_a_refill(order);
        let listed = pageset.list(list).count();
        if listed > 0 {
            return listed;
        }
        if order == Order(0) {
            pageset.begin_tag(list);
            return self.fill_with_pages(on, pageset, hold, migratetype, (list, most));
        }
        let (mut blocks, mut taken) = ([0; BLOCKS], 0);
        hold.take_blocks(frames, (migratetype, order), most, &mut |number| {
            touch_pageblock(&self.platform, frames, number, Access::Write);
            blocks[taken] = number;
            taken += 1;
        });
        // Once they are on the list, others may have them: what is the CPU's is settled before.
        let mut filled = 0;
        for &number in &blocks[..taken] {
            match pageset.append_run(storage, on, list, number, 1) {
                0 => self.put_back(pageset, hold, number, order),
                listed => filled += listed,
            }
        }
        filled
    }

    /// Moves up to `most` single pages to an empty list. Returns how many.
    fn fill_with_pages(
        &self,
        on: &OnCpu<'_, P>,
        pageset: &Pageset<'m, P>,
        hold: &Hold<'_>,
        migratetype: Migratetype,
        (list, most): (usize, u32),
    ) -> u32 {
        let (storage, frames) = (self.platform.storage(), pageset.frames());
        let mut filled = 0;
        while filled < most {
            let mut runs = Runs::<RUNS>::new();
            let limits = (most - filled, RUNS as u32);
            hold.take_pages(frames, migratetype, limits, &mut |first, pages| {
                touch_pageblock(&self.platform, frames, first, Access::Write);
                runs.push(first, pages);
            });
            let before = filled;
            // Once they are on the list, others may have them: what is the CPU's is settled before.
            for &(first, pages) in runs.as_slice() {
                let listed = pageset.append_run(storage, on, list, first, pages);
                let rest = first + listed..first + pages;
                rest.for_each(|number| self.put_back(pageset, hold, number, Order(0)));
                filled += listed;
            }
            if filled == before {
                break;
            }
        }
        filled
    }

    /// One hold of the zone's lock to take pageblocks, or as many blocks as there is room for. Returns whether it took any.
    fn visit_to_take(
        &self,
        on: &OnCpu<'_, P>,
        pageset: &Pageset<'m, P>,
        hold: &Hold<'_>,
        trip: Trip,
        list: usize,
    ) -> bool {
        let (zone, order) = (pageset.zone(), trip.order);
        let swing = self.note_visit(pageset, hold);
        self.gather(on, pageset, hold);
        let mut guard = zone.lock_to_take(trip.flags);
        let owner = pageset.owner().cpu;
        let mut visit = Visit::to_take(&mut guard, &self.platform, owner, hold.stage());
        let room = self.room(visit.guard, trip);
        let blocks = swing.refill(order);
        let allowed = visit.guard.claim(blocks.max(blocks_of_a_refill(order)), order);
        let pages = order.pages_in(allowed.min(blocks));
        let wish = Wish {
            request: trip.block(),
            pages,
            room: PageCount(room.0.min(pages.0)),
            pageblocks: visit.pageblocks_left(),
        };
        let mut taken = match order <= PAGEBLOCK_ORDER {
            true => visit.take(wish, owner),
            false => 0,
        };
        if taken == 0 && allowed > 0 {
            let fitting = (room.0 >> order.0).min(blocks_of_a_refill(order).into()) as u32;
            let most = if trip.flags.intersects(RIGHTS) { 1 } else { fitting.min(allowed) };
            taken = self.take_blocks(on, pageset, &mut visit, trip, list, most);
        }
        let passed = visit.end();
        drop(guard);
        passed.note(pageset, hold);
        if taken > 0 {
            pageset.events().refills.add(1);
        }
        taken > 0
    }

    /// Takes up to `most` blocks from the zone to a list: where pageblocks may not go as they are. Returns the pages.
    fn take_blocks(
        &self,
        on: &OnCpu<'_, P>,
        pageset: &Pageset<'m, P>,
        visit: &mut Visit<'_, '_, 'm, P>,
        trip: Trip,
        list: usize,
        most: u32,
    ) -> u64 {
        let (storage, frames, order) = (self.platform.storage(), *pageset.frames(), trip.order);
        let (mut blocks, mut search) = (0, Search::Own);
        let mut runs = <Runs>::new();
        let most_runs = visit.runs_left().min(Runs::MOST as u32);
        let buddy = visit.guard.buddy();
        buddy.take(frames, trip.block(), &mut search, most, most_runs, |first, count| {
            runs.push(first, count);
        });
        for &(first, run) in runs.as_slice() {
            let listed = pageset.append_run(storage, on, list, first, run);
            blocks += listed;
            if listed < run {
                let rest = first + (listed << order.0);
                visit.guard.buddy().free_run(frames, rest, order, run - listed);
            }
        }
        visit.took(order.pages_in(blocks).0)
    }

    /// How many of `pages` a request may take in this hold: ordinary ones leave whole what is kept for urgent ones, under rules
    /// that look at that. Linux's do not.
    pub(super) fn allowed(
        &self,
        guard: &mut ZoneGuard<'_, 'm, P>,
        trip: Trip,
        pages: PageCount,
    ) -> PageCount {
        let looks = self.has_maps();
        match looks && !trip.flags.intersects(RIGHTS) {
            true => pages.min(self.room(guard, trip)),
            false => pages,
        }
    }

    /// Pages above what a request leaves whole.
    fn room(&self, guard: &mut ZoneGuard<'_, 'm, P>, trip: Trip) -> PageCount {
        room_above_min(guard, trip.kind)
    }

    /// Notes a visit; returns how much may be kept from now on.
    fn note_visit(&self, pageset: &Pageset<'m, P>, hold: &Hold<'_>) -> Swing {
        let of = &hold.owned().pageblocks;
        let before = of.swing();
        let swing = before.visit(self.platform.now_ns(), pageset.tuning().high_max);
        of.set_swing(swing);
        if swing.size != before.size || pageset.is_closed() {
            pageset.set_limits(swing);
        }
        swing
    }
}
