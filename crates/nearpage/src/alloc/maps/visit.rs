//! A visit to the zone: what a CPU does in one hold of its lock, in no more than [`OPERATIONS`].

use super::parcels::{Parcel, Parcels, Place};
use crate::buddy::Wish;
use crate::frame::ZoneFrames;
use crate::host::Platform;
use crate::pcp::owned::Hold;
use crate::pcp::pageset::Pageset;
use crate::pcp::passing::Passing;
use crate::units::CpuId;
use crate::zone::ZoneGuard;

/// Operations in one hold of a zone's lock.
const OPERATIONS: u64 = 256;
/// The most that it takes to bring the blocks of one pageblock home: eight words of the map and its count, and a place on a
/// list, or on two of the buddy's where the pageblock becomes whole and merges.
const OF_A_PARCEL: u64 = 16;
/// The most that it takes to pass a pageblock: a place on a list, two where a larger block is split or merged; its type, its
/// owner, and its link.
const OF_A_PASS: u64 = 8;
/// A pageblock of the zone with at most so many free pages ...
const NEARLY_FULL: u32 = 64;
/// ... becomes the CPU's that brings at least so many blocks.
const WORTH_A_PAGEBLOCK: u32 = 4;

/// A hold of the zone's lock.
pub(super) struct Visit<'v, 'a, 'm, P: Platform> {
    pub(super) guard: &'v mut ZoneGuard<'a, 'm, P>,
    /// The CPU that pageblocks may pass to as blocks of them come home. `None`: they stay the zone's.
    owner: Option<CpuId>,
    frames: ZoneFrames<'m>,
    passed: Passed,
}

/// What became the CPU's in a visit, to be noted after it.
pub(super) struct Passed {
    pageblocks: Passing,
    /// Pages that left the zone, and pages that came back to it.
    taken: u64,
    pub(super) returned: u64,
}

impl<'v, 'a, 'm, P: Platform> Visit<'v, 'a, 'm, P> {
    pub(super) fn new(guard: &'v mut ZoneGuard<'a, 'm, P>, owner: Option<CpuId>) -> Self {
        let frames = *guard.zone().frames();
        let passed = Passed { pageblocks: Passing::new(), taken: 0, returned: 0 };
        Self { guard, owner, frames, passed }
    }

    fn operations_left(&mut self) -> u64 {
        OPERATIONS.saturating_sub(self.guard.buddy().operations())
    }

    /// Pageblocks that may still pass.
    pub(super) fn pageblocks_left(&mut self) -> u32 {
        (self.operations_left() / OF_A_PASS) as u32
    }

    /// Gives pageblocks to the zone, as many as may pass.
    pub(super) fn give(&mut self, pageblocks: &mut Passing) {
        let frames = self.frames;
        while self.pageblocks_left() > 0
            && let Some(first) = pageblocks.pop(&frames)
        {
            self.passed.returned += self.guard.buddy().take_back(frames, first).0;
        }
    }

    /// Takes pageblocks for a CPU. Returns their free pages.
    pub(super) fn take(&mut self, wish: Wish, cpu: CpuId) -> u64 {
        let pageblocks = &mut self.passed.pageblocks;
        let pages = self.guard.buddy().hand_over(self.frames, wish, cpu, pageblocks).0;
        self.passed.taken += pages;
        pages
    }

    /// Notes pages that were taken out of the zone otherwise; returns them.
    pub(super) fn took(&mut self, pages: u64) -> u64 {
        self.passed.taken += pages;
        pages
    }

    /// Brings parcels home to pageblocks that nobody owns. What is still here then is another CPU's, or too much for one hold.
    pub(super) fn bring_home(&mut self, trip: &mut Parcels<'m>) {
        let frames = self.frames;
        for parcel in trip.here_mut() {
            let is_shared = frames.is_pageblock_shared(parcel.first);
            let most = if is_shared { 4 * u64::from(parcel.pages) } else { OF_A_PARCEL };
            let is_owned = !is_shared && frames.free_in_pageblock(parcel.first).owner().is_some();
            if is_owned || most.min(OPERATIONS) > self.operations_left() {
                continue;
            }
            parcel.place = match is_shared {
                true => self.bring_to_buddy(parcel),
                false => self.bring_parcel(parcel),
            };
        }
    }

    /// Brings the blocks of one pageblock home, which nobody owns.
    fn bring_parcel(&mut self, parcel: &Parcel) -> Place {
        let (frames, first) = (self.frames, parcel.first);
        let free = frames.free_in_pageblock(first).free();
        let is_worth_it = free == 0 || free <= NEARLY_FULL && parcel.blocks >= WORTH_A_PAGEBLOCK;
        if let Some(cpu) = self.owner
            && is_worth_it
            && frames.pageblock(first).is_mergeable()
        {
            self.passed.taken += self.guard.buddy().give_away(frames, first, cpu).0;
            return Place::Claimed;
        }
        self.passed.returned += u64::from(parcel.pages);
        self.guard.buddy().free_in_map(frames, first, parcel.map(&frames));
        Place::Gone
    }

    /// Frees the blocks of a pageblock that zones share, one by one.
    fn bring_to_buddy(&mut self, parcel: &Parcel) -> Place {
        let frames = self.frames;
        self.passed.returned += u64::from(parcel.pages);
        parcel.each(&frames, |number, order| {
            self.guard.buddy().free_run(frames, number, order, 1);
        });
        Place::Gone
    }

    /// What became the CPU's.
    pub(super) fn end(self) -> Passed {
        let Passed { taken, returned, .. } = self.passed;
        self.guard.note_taken(taken);
        self.guard.note_returned(returned);
        self.passed
    }
}

impl Passed {
    /// Notes what became the CPU's among its pageblocks, and counts what was moved.
    pub(super) fn note<P: Platform>(
        self,
        pageset: &Pageset<'_, P>,
        hold: &Hold<'_>,
        trip: &mut Parcels<'_>,
    ) {
        let (frames, events) = (pageset.frames(), pageset.events());
        events.refilled_pages.add(self.taken);
        events.drained_pages.add(self.returned);
        hold.add(frames, self.pageblocks);
        for parcel in trip.all().iter_mut().filter(|parcel| parcel.place == Place::Claimed) {
            hold.adopt(frames, parcel.first);
            hold.put_map(frames, parcel.first, parcel.map(frames));
            parcel.place = Place::Gone;
        }
    }
}
