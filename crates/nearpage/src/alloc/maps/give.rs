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
use crate::sync::Ordering;
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
fn homebound_max(owned: &OwnedPageblocks) -> u64 {
    (owned.size.load(Ordering::Relaxed) / 2).clamp(LIST_PAGES, HOMEBOUND_MAX).into()
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
        let Some(hold) = owned.pageblocks.enter() else { return };
        if is_full {
            self.spill(pageset, owned, &hold, (on, list), most / 2);
        }
        self.after_free(on, pageset, owned, &hold);
    }

    /// Puts a single page that its CPU did not get lately on its way home; `false` if somebody else is at it.
    pub(in crate::alloc) fn free_homebound(
        &self,
        on: &OnCpu<'_, P>,
        pageset: &Pageset<'m, P>,
        owned: &Owned,
        number: u32,
    ) -> bool {
        let Some(hold) = owned.pageblocks.enter() else { return false };
        owned.push_homebound(pageset.frames(), &hold, number);
        self.after_free(on, pageset, owned, &hold);
        true
    }

    fn after_free(
        &self,
        on: &OnCpu<'_, P>,
        pageset: &Pageset<'m, P>,
        owned: &Owned,
        hold: &Hold<'_>,
    ) {
        let of = &owned.pageblocks;
        let size = u64::from(of.size.load(Ordering::Relaxed));
        let is_over = pageset.zone().is_over_limit();
        // What is on lists is bounded there.
        if owned.homebound_pages().0 > homebound_max(of) || owned.count().0 > size || is_over {
            self.bring_down(on, pageset, owned, hold, is_over);
        }
    }

    /// Sends home what is homebound, and gives pageblocks back if there is too much: all if more is out than a limit allows.
    #[cold]
    fn bring_down(
        &self,
        on: &OnCpu<'_, P>,
        pageset: &Pageset<'m, P>,
        owned: &Owned,
        hold: &Hold<'_>,
        is_over_limit: bool,
    ) {
        let is_above = |size: u32| owned.count().0 > u64::from(size);
        let target = if is_over_limit {
            Some(PageCount(0))
        } else if is_above(owned.pageblocks.size.load(Ordering::Relaxed)) {
            let swing = self.note_visit(pageset, owned);
            is_above(swing.size).then(|| swing.left())
        } else {
            None
        };
        let reach = if is_over_limit { Reach::All } else { Reach::Usual };
        self.give(on, pageset, owned, hold, target.unwrap_or(PageCount(u64::MAX)), reach);
    }

    /// Sends what is homebound home, and gives pageblocks back until the pageset keeps no more than `target`.
    fn give(
        &self,
        on: &OnCpu<'_, P>,
        pageset: &Pageset<'m, P>,
        owned: &Owned,
        hold: &Hold<'_>,
        target: PageCount,
        reach: Reach,
    ) {
        let too_many = pageset.count().0.saturating_sub(target.0);
        if owned.count().0 < too_many {
            (0..LISTS).for_each(|list| self.spill(pageset, owned, hold, (on, list), 0));
        }
        let few = homebound_max(&owned.pageblocks) as u32;
        loop {
            let mut trip = Parcels::new(*pageset.frames());
            let is_all = self.gather(pageset, owned, hold, &mut trip);
            let least = if reach == Reach::All || !is_all { 1 } else { few / 8 };
            let zone = pageset.zone();
            if self.send(zone, &mut trip, least, Sending::Passed) > few / 2 {
                self.send(zone, &mut trip, 1, Sending::Passed);
            }
            let is_any = self.visit_to_give(pageset, owned, hold, &mut trip, target, reach);
            self.wait(pageset, owned, hold, &mut trip);
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
        owned: &Owned,
        hold: &Hold<'_>,
        trip: &mut Parcels<'m>,
        target: PageCount,
        reach: Reach,
    ) -> bool {
        let kept = pageset.count().0 + self.pages_of_others(trip, pageset);
        let most = owned.pageblocks.free().0.saturating_sub(kept.saturating_sub(target.0));
        let mut passing = hold.take_above(pageset.frames(), PageCount(most));
        let mut is_any = false;
        while !passing.is_empty() || self.has_nobodys(trip, pageset) {
            let before = trip.pages();
            let mut guard = pageset.zone().lock_to_move();
            self.platform.touch(pageset.zone().published_line(), Access::Write);
            let owner = Some(pageset.owner().cpu).filter(|_| reach == Reach::Usual);
            let mut visit = Visit::new(&mut guard, owner);
            visit.bring_home(trip);
            visit.give(&mut passing);
            let passed = visit.end();
            let (taken, returned) = (passed.taken, passed.returned);
            drop(guard);
            passed.note(hold, trip, pageset.frames());
            pageset.events().refilled_pages.add(taken);
            pageset.events().drained_pages.add(returned);
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
        let Some(hold) = owned.pageblocks.enter() else { return };
        let target = PageCount(pageset.count().0.saturating_sub(pages.0));
        self.give(on, pageset, owned, &hold, target, Reach::All);
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
        let Some(hold) = owned.pageblocks.enter() else { return 0 };
        let target = PageCount(before.0 - unused.0);
        self.give(on, pageset, owned, &hold, target, Reach::Unused);
        let now = pageset.count();
        owned.pageblocks.note_least(now);
        before.0.saturating_sub(now.0)
    }
}
