//! A visit to the zone: what a CPU does in one hold of its lock, in no more than [`OPERATIONS`].

use crate::buddy::Wish;
use crate::frame::{FreeMap, NO_FRAME, ZoneFrames};
use crate::host::{Access, Platform};
use crate::pcp::owned::Hold;
use crate::pcp::pageset::Pageset;
use crate::pcp::passing::Passing;
use crate::pcp::stage::{Fate, Parcel, Stage};
use crate::units::{CpuId, Order, PageCount, ZoneKind};
use crate::zone::ZoneGuard;

/// Operations in one hold of a zone's lock.
const OPERATIONS: u64 = 256;
/// The most that it takes to bring the blocks of one pageblock home: eight words of the map and its count, and a place on a
/// list, or on two of the buddy's where the pageblock becomes whole and merges.
const OF_A_PARCEL: u64 = 16;
/// The most that it takes to bring a page of a pageblock home that zones share: a place on a list of the buddy's, one for each
/// block that it merges with, and a type.
const OF_A_PAGE: u64 = 12;
/// The most that it takes to pass a pageblock: a place on a list, two where a larger block is split or merged; its type, its
/// owner, and its link.
const OF_A_PASS: u64 = 8;
/// The most that it takes to take adjoining pages from a map: two words of it and its count, two places on a list, and where it
/// is of another type, three more; a third of a whole pageblock that is taken by its map.
const OF_A_RUN: u64 = 12;
/// What is left for what a request takes after pages were brought home.
const FOR_A_TAKE: u64 = 4 * OF_A_RUN;
/// Pageblocks that become the CPU's as pages of them come home: as many as one hold can pass.
const CLAIMS: usize = (OPERATIONS / OF_A_PASS) as usize;
/// A pageblock of the zone with at most so many free pages ...
const NEARLY_FULL: u32 = 64;
/// ... becomes the CPU's that brings at least so many.
const WORTH_A_PAGEBLOCK: u32 = 4;

/// A hold of the zone's lock.
pub(super) struct Visit<'v, 'a, 'm, P: Platform> {
    pub(super) guard: &'v mut ZoneGuard<'a, 'm, P>,
    platform: &'v P,
    /// The CPU that pageblocks may pass to as blocks of them come home. `None`: they stay the zone's.
    owner: Option<CpuId>,
    frames: ZoneFrames<'m>,
    /// Operations that it may have.
    most: u64,
    /// Pageblocks that pages on the stage may still come home to.
    pub(super) parcels_left: u32,
    passed: Passed,
}

/// What became the CPU's in a visit, to be noted after it.
pub(super) struct Passed {
    pageblocks: Passing,
    /// Others came as pages of them came home. Those pages are on the stage still.
    claimed: [u32; CLAIMS],
    claims: usize,
    /// Pages that left the zone, and pages that came back to it.
    taken: u64,
    pub(super) returned: u64,
}

impl<'v, 'a, 'm, P: Platform> Visit<'v, 'a, 'm, P> {
    pub(super) fn new(
        guard: &'v mut ZoneGuard<'a, 'm, P>,
        platform: &'v P,
        owner: Option<CpuId>,
    ) -> Self {
        platform.touch(guard.zone().published_line(), Access::Write);
        let frames = *guard.zone().frames();
        let passed = Passed {
            pageblocks: Passing::new(),
            claimed: [NO_FRAME; CLAIMS],
            claims: 0,
            taken: 0,
            returned: 0,
        };
        let (most, parcels_left) = (OPERATIONS, u32::MAX);
        Self { guard, platform, owner, frames, most, parcels_left, passed }
    }

    /// The same, to take blocks for a request, after pages were brought home.
    pub(super) fn to_take(
        guard: &'v mut ZoneGuard<'a, 'm, P>,
        platform: &'v P,
        owner: CpuId,
        stage: &Stage<'_>,
    ) -> Self {
        let mut visit = Self::new(guard, platform, Some(owner));
        visit.most = OPERATIONS - FOR_A_TAKE;
        visit.bring_home(stage, 0);
        visit.most = OPERATIONS;
        visit
    }

    fn operations_left(&mut self) -> u64 {
        self.most.saturating_sub(self.guard.buddy().operations())
    }

    /// Runs of blocks that may still be taken.
    pub(super) fn runs_left(&mut self) -> u32 {
        (self.operations_left() / OF_A_RUN) as u32
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
            touch_pageblock(self.platform, &frames, first, Access::Write);
            self.passed.returned += self.guard.buddy().take_back(frames, first).0;
        }
    }

    /// Takes pageblocks for a CPU. Returns their free pages.
    pub(super) fn take(&mut self, wish: Wish, cpu: CpuId) -> u64 {
        let pageblocks = &mut self.passed.pageblocks;
        let pages = self.guard.buddy().hand_over(self.frames, wish, cpu, pageblocks).0;
        self.passed.taken += pages;
        let passed = self.passed.pageblocks.each(&self.frames);
        passed.for_each(|first| touch_pageblock(self.platform, &self.frames, first, Access::Write));
        pages
    }

    /// Notes pages that were taken out of the zone otherwise; returns them.
    pub(super) fn took(&mut self, pages: u64) -> u64 {
        self.passed.taken += pages;
        pages
    }

    /// Brings what is on the stage home to pageblocks that nobody owns, from slot `from` on. Returns the slot in which this hold
    /// was long enough. What is still there then before it is another CPU's.
    pub(super) fn bring_home(&mut self, stage: &Stage<'_>, from: usize) -> Option<usize> {
        stage.each_parcel(from, |first, parcel| {
            if self.parcels_left == 0 {
                return Fate::Stop;
            }
            self.bring_parcel(first, parcel)
        })
    }

    /// Brings pages of one pageblock home, or makes that the CPU's: then they stay until [`Passed::note`]. Pages of another CPU's
    /// stay, too. To stop: this hold was long enough.
    fn bring_parcel(&mut self, first: u32, parcel: &mut Parcel<'_, '_>) -> Fate {
        let frames = self.frames;
        touch_pageblock(self.platform, &frames, first, Access::Read);
        let is_shared = frames.is_pageblock_shared(first);
        let block = frames.free_in_pageblock(first);
        if !is_shared && block.owner().is_some() {
            return Fate::Kept;
        }
        let free = block.free();
        let is_nearly_full = free <= NEARLY_FULL && parcel.pages() >= WORTH_A_PAGEBLOCK;
        let cpu = self.owner.filter(|_| {
            !is_shared && frames.pageblock(first).is_mergeable() && (free == 0 || is_nearly_full)
        });
        if cpu.is_some() && (self.pageblocks_left() == 0 || self.passed.claims == CLAIMS) {
            return Fate::Stop;
        }
        let Some(cpu) = cpu.filter(|_| free == 0 || self.may_spare(free)) else {
            let mut map = parcel.map();
            let is_home = self.bring_pages(first, &mut map, parcel.pages());
            if !is_home {
                if is_shared {
                    parcel.leave(&map);
                }
                return Fate::Stop;
            }
            self.parcels_left -= 1;
            return Fate::Gone;
        };
        touch_pageblock(self.platform, &frames, first, Access::Write);
        self.passed.taken += self.guard.buddy().give_away(frames, first, cpu).0;
        self.passed.claimed[self.passed.claims] = first;
        self.passed.claims += 1;
        self.parcels_left -= 1;
        Fate::Kept
    }

    /// Whether so many free pages may become the CPU's beside those that it asked for: they are above what is kept whole, and
    /// no limit refuses them.
    fn may_spare(&mut self, pages: u32) -> bool {
        let kind = self.guard.zone().kind();
        room_above_min(self.guard, kind).0 >= u64::from(pages) && self.guard.claim_all(pages)
    }

    /// Brings pages of one pageblock home, so many, if nobody owns it, and it is not too much for this hold; returns whether.
    /// Where zones share the pageblock, it brings those that are not too much: the others stay in `map`.
    pub(super) fn bring_pages(&mut self, first: u32, map: &mut FreeMap, pages: u32) -> bool {
        let frames = self.frames;
        if frames.is_pageblock_shared(first) {
            return self.bring_shared(first, map);
        }
        let is_owned = frames.free_in_pageblock(first).owner().is_some();
        if is_owned || OF_A_PARCEL > self.operations_left() {
            return false;
        }
        touch_pageblock(self.platform, &frames, first, Access::Write);
        self.passed.returned += u64::from(pages);
        self.guard.buddy().free_in_map(frames, first, map, pages);
        true
    }

    /// Brings pages of a pageblock home that zones share, as many as are not too much; returns whether those are all.
    fn bring_shared(&mut self, first: u32, map: &mut FreeMap) -> bool {
        let brought = map.take_first((self.operations_left() / OF_A_PAGE) as u32);
        touch_pageblock(self.platform, &self.frames, first, Access::Write);
        for run in brought.runs() {
            let pages = run.end - run.start;
            self.guard.buddy().free_run(self.frames, first + run.start, Order(0), pages);
        }
        self.passed.returned += u64::from(brought.count());
        map.count() == 0
    }

    /// What became the CPU's.
    pub(super) fn end(self) -> Passed {
        let Passed { taken, returned, .. } = self.passed;
        debug_assert!(self.guard.buddy().operations() <= OPERATIONS, "a visit is too long");
        self.guard.note_taken(taken);
        self.guard.note_returned(returned);
        self.passed
    }
}

/// Pages of a zone above what a request for memory up to `kind` leaves whole.
pub(super) fn room_above_min<P: Platform>(
    guard: &mut ZoneGuard<'_, '_, P>,
    kind: ZoneKind,
) -> PageCount {
    let zone = guard.zone();
    let floor = zone.marks().min.0 + zone.reserve(kind).0 + guard.buddy().kept_back().0;
    PageCount(guard.buddy().free_pages().0.saturating_sub(floor))
}

/// A pageblock is looked at, or it and its map are written.
#[inline]
pub(super) fn touch_pageblock<P: Platform>(
    platform: &P,
    frames: &ZoneFrames<'_>,
    number: u32,
    access: Access,
) {
    let [map, rest] = frames.free_in_pageblock(number).lines();
    platform.touch(rest, access);
    if access == Access::Write {
        platform.touch(map, access);
    }
}

impl Passed {
    /// Notes what became the CPU's among its pageblocks, and counts what was moved.
    pub(super) fn note<P: Platform>(self, pageset: &Pageset<'_, P>, hold: &Hold<'_>) {
        let (frames, events) = (pageset.frames(), pageset.events());
        events.refilled_pages.add(self.taken);
        events.drained_pages.add(self.returned);
        hold.add(frames, self.pageblocks);
        for &first in &self.claimed[..self.claims] {
            hold.adopt(frames, first);
            let (map, pages) = hold.stage().take_parcel(first);
            hold.put_map(frames, first, &map, pages);
        }
    }
}
