//! What a CPU gives back: after frees, once a second, and when it is drained.

use super::home::Sending;
use super::parcels::Parcels;
use super::visit::Visit;
use crate::alloc::allocator::PageAllocator;
use crate::host::{Access, Platform};
use crate::pcp::owned::{Hold, LIST_PAGES, Owned, OwnedPageblocks, list_limit};
use crate::pcp::pageset::{OnCpu, Pageset};
use crate::pcp::swing::Swing;
use crate::pcp::{CountedList, LISTS, list_order};
use crate::units::PageCount;

/// The most homebound pages.
const HOMEBOUND_MAX: u32 = 2048;
/// Fewer unused pages are not worth a hold of a lock.
const UNUSED_MIN: u64 = 512;

/// What is given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reach {
    /// What is too much. Blocks of pageblocks that nobody owns may stay, with their pageblocks; a few for another CPU wait.
    Usual,
    /// What nobody used for a second: a few blocks for another CPU wait.
    Unused,
    /// All.
    All,
}

/// The most homebound pages now: half of what the CPU may keep.
fn homebound_max(owned: &OwnedPageblocks) -> u32 {
    (owned.swing().size / 2).clamp(LIST_PAGES, HOMEBOUND_MAX)
}

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// After a free to a list: what is too much there, and in all, goes on.
    pub(in crate::alloc) fn after_free_to_list(
        &self,
        on: &OnCpu<'_, P>,
        pageset: &Pageset<'m, P>,
        owned: &Owned,
        list: usize,
    ) {
        let most = list_limit(list_order(list));
        let is_full = pageset.list(list).count() >= most;
        if !is_full && !pageset.zone().is_over_limit() {
            return;
        }
        let Some(hold) = owned.enter() else { return };
        if is_full {
            self.spill(pageset, &hold, (on, list), most / 2);
        }
        self.after_free(on, pageset, &hold);
    }

    /// Puts a single page that its CPU did not get lately on its way home; `false` if somebody else is at it.
    pub(in crate::alloc) fn free_homebound(
        &self,
        on: &OnCpu<'_, P>,
        pageset: &Pageset<'m, P>,
        owned: &Owned,
        number: u32,
    ) -> bool {
        let Some(hold) = owned.enter() else { return false };
        hold.push_homebound(pageset.frames(), number);
        self.after_free(on, pageset, &hold);
        true
    }

    fn after_free(&self, on: &OnCpu<'_, P>, pageset: &Pageset<'m, P>, hold: &Hold<'_>) {
        let (owned, is_over) = (hold.owned(), pageset.zone().is_over_limit());
        let is_homebound_full = owned.homebound_pages().0 > homebound_max(&owned.pageblocks).into();
        // What is on lists is bounded there.
        if is_homebound_full || owned.count() > owned.pageblocks.size() || is_over {
            self.bring_down(on, pageset, hold, is_over);
        }
    }

    /// Sends home what is homebound, and gives pageblocks back if there is too much: all if more is out than a limit allows.
    #[cold]
    fn bring_down(
        &self,
        on: &OnCpu<'_, P>,
        pageset: &Pageset<'m, P>,
        hold: &Hold<'_>,
        is_over_limit: bool,
    ) {
        if is_over_limit {
            return self.give(on, pageset, hold, PageCount(0), Reach::All);
        }
        let owned = hold.owned();
        let mut target = PageCount(u64::MAX);
        if owned.count() > owned.pageblocks.size() {
            let swing = self.note_visit(pageset, hold);
            if owned.count() > owned.pageblocks.size() {
                target = swing.left();
            }
        }
        self.give(on, pageset, hold, target, Reach::Usual);
    }

    /// Sends what is homebound home, and gives pageblocks back until the pageset keeps no more than `target`.
    fn give(
        &self,
        on: &OnCpu<'_, P>,
        pageset: &Pageset<'m, P>,
        hold: &Hold<'_>,
        target: PageCount,
        reach: Reach,
    ) {
        let too_many = pageset.count().0.saturating_sub(target.0);
        if hold.owned().count().0 < too_many {
            (0..LISTS).for_each(|list| self.spill(pageset, hold, (on, list), 0));
        }
        let few = homebound_max(&hold.owned().pageblocks);
        loop {
            let mut trip = Parcels::new(*pageset.frames());
            let is_all = self.gather(pageset, hold, &mut trip);
            let least = if reach == Reach::All || !is_all { 1 } else { few / 8 };
            let zone = pageset.zone();
            if self.send(zone, &mut trip, least, Sending::Passed) > few / 2 {
                self.send(zone, &mut trip, 1, Sending::Passed);
            }
            let is_any = self.visit_to_give(pageset, hold, &mut trip, target, reach);
            self.wait(pageset, hold, &mut trip);
            if is_all || !is_any {
                return;
            }
        }
    }

    /// Brings nobody's parcels home, and gives pageblocks back until the pageset keeps no more than `target`, in as many holds
    /// of the zone's lock as it takes. Returns whether anything went.
    fn visit_to_give(
        &self,
        pageset: &Pageset<'m, P>,
        hold: &Hold<'_>,
        trip: &mut Parcels<'m>,
        target: PageCount,
        reach: Reach,
    ) -> bool {
        let of_others = trip.pages() - trip.pages_of_nobody();
        let kept = pageset.count().0 + u64::from(of_others);
        let free = hold.owned().pageblocks.free().0;
        let most = free.saturating_sub(kept.saturating_sub(target.0));
        let mut passing = hold.take_above(pageset.frames(), PageCount(most));
        let mut is_any = false;
        while !passing.is_empty() || trip.pages_of_nobody() > 0 {
            let before = trip.pages();
            let mut guard = pageset.zone().lock_to_move();
            self.platform.touch(pageset.zone().published_line(), Access::Write);
            let owner = Some(pageset.owner().cpu).filter(|_| reach == Reach::Usual);
            let mut visit = Visit::new(&mut guard, owner);
            visit.bring_home(trip);
            visit.give(&mut passing);
            let passed = visit.end();
            let returned = passed.returned;
            drop(guard);
            passed.note(pageset, hold, trip);
            if returned == 0 && before == trip.pages() {
                return is_any;
            }
            is_any = true;
            pageset.events().drains.add(1);
        }
        is_any
    }

    /// Gives back at least `pages` of what the pageset keeps, or all.
    pub(in crate::alloc) fn drain_to_maps(
        &self,
        on: &OnCpu<'_, P>,
        pageset: &Pageset<'m, P>,
        owned: &Owned,
        pages: PageCount,
    ) {
        let Some(hold) = owned.enter() else { return };
        let target = PageCount(pageset.count().0.saturating_sub(pages.0));
        self.give(on, pageset, &hold, target, Reach::All);
    }

    /// The once-a-second work: half of what nobody used since goes back. Returns the pages.
    pub(in crate::alloc) fn decay_maps(
        &self,
        on: &OnCpu<'_, P>,
        pageset: &Pageset<'m, P>,
        owned: &Owned,
    ) -> u64 {
        let before = pageset.count();
        let unused = Swing::unused(owned.pageblocks.take_least(before));
        if unused.0 < UNUSED_MIN {
            return 0;
        }
        let Some(hold) = owned.enter() else { return 0 };
        let target = PageCount(before.0 - unused.0);
        self.give(on, pageset, &hold, target, Reach::Unused);
        let now = pageset.count();
        owned.pageblocks.note_least(now);
        before.0.saturating_sub(now.0)
    }
}
