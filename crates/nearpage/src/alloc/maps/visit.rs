//! A visit to the zone: what a CPU does in one hold of its lock, in no more than [`OPERATIONS`].

use crate::buddy::Wish;
use crate::frame::{FreeMap, ZoneFrames};
use crate::host::Platform;
use crate::pcp::owned::Hold;
use crate::pcp::pageset::Pageset;
use crate::pcp::parcels::{PARCELS, Parcels};
use crate::pcp::passing::Passing;
use crate::units::{CpuId, Order};
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
/// ... becomes the CPU's that brings at least so many.
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
    /// The places of parcels whose pageblocks are among what became the CPU's, as bits.
    claimed: u128,
    /// Pages that left the zone, and pages that came back to it.
    taken: u64,
    pub(super) returned: u64,
}

impl<'v, 'a, 'm, P: Platform> Visit<'v, 'a, 'm, P> {
    pub(super) fn new(guard: &'v mut ZoneGuard<'a, 'm, P>, owner: Option<CpuId>) -> Self {
        let frames = *guard.zone().frames();
        let passed = Passed { pageblocks: Passing::new(), claimed: 0, taken: 0, returned: 0 };
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

    /// Brings parcels home to pageblocks that nobody owns. What is still there then is another CPU's, or too much for one hold.
    pub(super) fn bring_home(&mut self, parcels: &Parcels) {
        for at in parcels.places() {
            let first = parcels.first(at);
            let is_worth_it = || {
                let free = self.frames.free_in_pageblock(first).free();
                free == 0 || free <= NEARLY_FULL && parcels.pages(at) >= WORTH_A_PAGEBLOCK
            };
            let Some(cpu) = self.owner else {
                if self.bring_pages(first, parcels.map(at)) {
                    parcels.take(at);
                }
                continue;
            };
            let may_own = !self.frames.is_pageblock_shared(first)
                && self.frames.free_in_pageblock(first).owner().is_none()
                && self.frames.pageblock(first).is_mergeable();
            if may_own && is_worth_it() {
                if self.pageblocks_left() > 0 {
                    self.passed.taken += self.guard.buddy().give_away(self.frames, first, cpu).0;
                    self.passed.claimed |= 1 << at;
                }
            } else if self.bring_pages(first, parcels.map(at)) {
                parcels.take(at);
            }
        }
    }

    /// Brings pages of one pageblock home, if nobody owns it, and it is not too much for this hold; returns whether.
    pub(super) fn bring_pages(&mut self, first: u32, pages: FreeMap) -> bool {
        let (frames, is_shared) = (self.frames, self.frames.is_pageblock_shared(first));
        let count = u64::from(pages.count());
        let operations = if is_shared { 4 * count } else { OF_A_PARCEL };
        let is_owned = !is_shared && frames.free_in_pageblock(first).owner().is_some();
        if is_owned || operations.min(OPERATIONS) > self.operations_left() {
            return false;
        }
        self.passed.returned += count;
        match is_shared {
            true => pages.runs().for_each(|run| {
                let pages = run.end - run.start;
                self.guard.buddy().free_run(frames, first + run.start, Order(0), pages);
            }),
            false => self.guard.buddy().free_in_map(frames, first, pages),
        }
        true
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
    pub(super) fn note<P: Platform>(self, pageset: &Pageset<'_, P>, hold: &Hold<'_>) {
        let (frames, events) = (pageset.frames(), pageset.events());
        events.refilled_pages.add(self.taken);
        events.drained_pages.add(self.returned);
        hold.add(frames, self.pageblocks);
        let parcels = hold.parcels();
        let claimed = (0..PARCELS).filter(|at| self.claimed >> at & 1 == 1);
        claimed.for_each(|at| hold.adopt(frames, parcels.first(at)));
        // Also those whose pageblocks came otherwise.
        for at in parcels.places() {
            let first = parcels.first(at);
            if frames.free_in_pageblock(first).owner() == Some(pageset.owner().cpu) {
                hold.put_map(frames, first, parcels.take(at));
            }
        }
    }
}

const _: () = assert!(PARCELS <= u128::BITS as usize, "a bit for each place");
