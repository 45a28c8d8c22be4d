//! What a CPU gives back.

use super::room::{OF_A_MOVE, Room};
use super::visit::Visit;
use crate::alloc::allocator::PageAllocator;
use crate::host::Platform;
use crate::pcp::owned::{Hold, Owned};
use crate::pcp::pageset::{OnCpu, Pageset};
use crate::pcp::passing::Passing;
use crate::pcp::{CountedList, HOMEBOUND};
use crate::units::{CpuId, PageCount};

/// What is given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reach {
    /// What is too much. Blocks of pageblocks that nobody owns may stay, with their pageblocks; a few for another CPU wait.
    Usual,
    /// All.
    All,
}

/// What a hold from outside gave back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Step {
    /// Pages that went to the zone: those sent to other CPUs are kept there.
    pub(super) returned: PageCount,
    /// Whether there is another.
    pub(super) is_more: bool,
}

/// Pages behind the lists, and on their way there.
fn behind<P: Platform>(pageset: &Pageset<'_, P>, owned: &Owned<'_>) -> PageCount {
    PageCount(owned.count().0 + u64::from(pageset.list(HOMEBOUND).count()))
}

/// Whether pages came from other CPUs, or wait on the list of homebound ones.
pub(super) fn has_homebound<P: Platform>(pageset: &Pageset<'_, P>, owned: &Owned<'_>) -> bool {
    owned.has_received() || pageset.list(HOMEBOUND).count() > 0
}

/// Notes how many pages there are, if they are the fewest.
pub(super) fn note_least<P: Platform>(pageset: &Pageset<'_, P>, owned: &Owned<'_>) {
    // To count what is on all lists takes longer than the rest of a refill: what stands behind them tells most often that they
    // are not.
    if owned.pageblocks.may_be_least(behind(pageset, owned)) {
        owned.pageblocks.note_least(pageset.count());
    }
}

/// Whether blocks on lists have to go so that the pageset keeps no more than `target`.
pub(super) fn lacks_behind<P: Platform>(
    pageset: &Pageset<'_, P>,
    owned: &Owned<'_>,
    target: PageCount,
) -> bool {
    behind(pageset, owned).0 < pageset.count().0.saturating_sub(target.0)
}

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// After a free to a list: what is too much there, and in all, goes on.
    pub(in crate::alloc) fn after_free_to_list(
        &self,
        on: &OnCpu<'_, P>,
        pageset: &Pageset<'m, P>,
        owned: &Owned<'_>,
        list: usize,
    ) {
        let most = pageset.limit_of(list, owned.pageblocks.swing());
        let most = most.min(pageset.list(list).capacity());
        let (is_full, is_over) =
            (pageset.list(list).count() >= most, pageset.zone().is_over_limit());
        if !is_full && !is_over {
            return;
        }
        let Some(hold) = owned.enter() else { return };
        if is_full && list != HOMEBOUND {
            self.spill(pageset, &hold, (on, list), most / 2, &mut Room::any());
        }
        // What is on the other lists is bounded there.
        let is_way_full = is_full && list == HOMEBOUND;
        if is_way_full || is_over || behind(pageset, owned) > owned.pageblocks.size() {
            self.bring_down(on, pageset, &hold, is_over);
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
        if behind(pageset, owned) > owned.pageblocks.size() {
            let swing = self.note_visit(pageset, hold);
            if behind(pageset, owned) > owned.pageblocks.size() {
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
        let mut room = Room::any();
        if lacks_behind(pageset, hold.owned(), target) {
            let lists = (0..pageset.list_count()).filter(|&list| list != HOMEBOUND);
            lists.for_each(|list| self.spill(pageset, hold, (on, list), 0, &mut room));
        }
        let few = hold.owned().pageblocks.swing().homebound();
        let owner = Some(pageset.owner().cpu).filter(|_| reach == Reach::Usual);
        loop {
            let gathered = self.gather(on, pageset, hold);
            let least = if reach == Reach::All || !gathered.is_all { 1 } else { few / 8 };
            let is_any = gathered.staged.of_others > 0;
            if is_any && self.send(pageset, hold, least, &mut room) > few / 4 {
                self.send(pageset, hold, 1, &mut room);
            }
            let homecoming = gathered.staged.of_nobody;
            let passing = self.take_too_many(pageset, hold, homecoming, target, &mut room);
            let given = self.visit_to_give(pageset, hold, homecoming, passing, owner);
            if gathered.is_all || given.is_none() {
                return;
            }
        }
    }

    /// A step of that from outside, as far as there is room for it; `few` pages for other CPUs wait.
    pub(super) fn give_from_outside(
        &self,
        on: &OnCpu<'_, P>,
        pageset: &Pageset<'m, P>,
        hold: &Hold<'_>,
        (target, few): (PageCount, u32),
        room: &mut Room,
    ) -> Step {
        let gathered = self.gather_some(on, pageset, hold, room);
        if !room.is_short() && (gathered.staged.of_others > few || !gathered.is_all) {
            self.send(pageset, hold, 1, room);
        }
        if room.is_short() {
            return Step { returned: PageCount(0), is_more: true };
        }
        let homecoming = room.take_steps(gathered.staged.of_nobody);
        let passing = self.take_too_many(pageset, hold, gathered.staged.of_nobody, target, room);
        let given = self.visit_to_give(pageset, hold, homecoming, passing, None);
        note_least(pageset, hold.owned());
        // Where sending took all the room, nothing went to the zone yet.
        let is_more = room.is_short() || given.is_some() && !gathered.is_all;
        Step { returned: given.unwrap_or_default(), is_more }
    }

    /// Takes pageblocks off the lists until the pageset keeps no more than `target`, once `homecoming` pages have gone.
    fn take_too_many(
        &self,
        pageset: &Pageset<'m, P>,
        hold: &Hold<'_>,
        homecoming: u32,
        target: PageCount,
        room: &mut Room,
    ) -> Passing {
        let kept = pageset.count().0.saturating_sub(homecoming.into());
        let free = hold.owned().pageblocks.free().0;
        let most = free.saturating_sub(kept.saturating_sub(target.0));
        hold.take_above(pageset.frames(), PageCount(most), || room.take(OF_A_MOVE))
    }

    /// Brings pages on the stage home to up to `homecoming` pageblocks that nobody owns, and gives pageblocks back, in as many
    /// holds of the zone's lock as it takes. Some of the former may pass to `owner`. Returns the pages that went to the zone;
    /// `None` if nothing went anywhere.
    fn visit_to_give(
        &self,
        pageset: &Pageset<'m, P>,
        hold: &Hold<'_>,
        mut homecoming: u32,
        mut passing: Passing,
        owner: Option<CpuId>,
    ) -> Option<PageCount> {
        let mut slot = Some(0).filter(|_| homecoming > 0);
        let mut given = None;
        while slot.is_some() || !passing.is_empty() {
            let before = hold.stage().pages();
            let mut guard = pageset.zone().lock_to_move();
            let mut visit = Visit::new(&mut guard, &self.platform, owner);
            visit.parcels_left = homecoming;
            slot = slot.and_then(|slot| visit.bring_home(hold.stage(), slot));
            homecoming = visit.parcels_left;
            slot = slot.filter(|_| homecoming > 0);
            visit.give(&mut passing);
            let passed = visit.end();
            let returned = passed.returned;
            drop(guard);
            passed.note(pageset, hold);
            if returned == 0 && before == hold.stage().pages() {
                return given;
            }
            given = Some(PageCount(given.unwrap_or_default().0 + returned));
            pageset.events().drains.add(1);
        }
        given
    }
}
