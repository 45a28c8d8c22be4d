//! A visit to the zone: what a CPU does in one hold of its lock, in no more than [`OPERATIONS`].

use super::chain::{Chain, Part};
use crate::buddy::Wish;
use crate::frame::{FreeMap, NO_FRAME, ZoneFrames, first_of};
use crate::host::Platform;
use crate::pcp::owned::Hold;
use crate::pcp::passing::Passing;
use crate::units::{CpuId, Order};
use crate::zone::ZoneGuard;

/// Operations in one hold of a zone's lock.
const OPERATIONS: u64 = 256;
/// The most that it takes to bring the blocks of one pageblock home: eight words of the map and its count, and a place on a
/// list, or on two of the buddy's where the pageblock becomes whole and merges.
const OF_A_PART: u64 = 16;
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
    /// Whose pageblocks may become as blocks of them come home, if anybody's.
    owner: Option<CpuId>,
    passed: Passed<'m>,
}

/// What became the CPU's in a visit, to be noted after it.
pub(super) struct Passed<'m> {
    frames: ZoneFrames<'m>,
    pageblocks: Passing,
    /// Blocks of pageblocks that nobody owned.
    blocks: Chain<'m>,
    last: u32,
    /// Pages that left the zone, and pages that came back to it.
    pub(super) taken: u64,
    pub(super) returned: u64,
}

impl<'v, 'a, 'm, P: Platform> Visit<'v, 'a, 'm, P> {
    pub(super) fn new(guard: &'v mut ZoneGuard<'a, 'm, P>, owner: Option<CpuId>) -> Self {
        let frames = *guard.zone().frames();
        let (pageblocks, blocks) = (Passing::new(), Chain::new(frames));
        let (taken, returned) = (0, 0);
        let passed = Passed { frames, pageblocks, blocks, last: NO_FRAME, taken, returned };
        Self { guard, owner, passed }
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
        let frames = self.passed.frames;
        while self.pageblocks_left() > 0
            && let Some(first) = pageblocks.pop(&frames)
        {
            self.passed.returned += self.guard.buddy().take_back(frames, first).0;
        }
    }

    /// Takes pageblocks for a CPU. Returns their free pages.
    pub(super) fn take(&mut self, wish: Wish, cpu: CpuId) -> u64 {
        let Passed { frames, pageblocks, .. } = &mut self.passed;
        let pages = self.guard.buddy().hand_over(*frames, wish, cpu, pageblocks).0;
        self.passed.taken += pages;
        pages
    }

    /// Notes pages that were taken out of the zone otherwise; returns them.
    pub(super) fn took(&mut self, pages: u64) -> u64 {
        self.passed.taken += pages;
        pages
    }

    /// Brings blocks home to pageblocks that nobody owns. What is left is another CPU's by now, or too much for one hold.
    pub(super) fn bring_home(&mut self, mut chain: Chain<'m>) -> Chain<'m> {
        let frames = self.passed.frames;
        let (mut left, mut last) = (Chain::new(frames), NO_FRAME);
        while let Some(part) = chain.take_first() {
            let is_shared = frames.is_pageblock_shared(part.first);
            let most = if is_shared { 4 * u64::from(part.pages) } else { OF_A_PART };
            let is_owned = !is_shared && frames.free_in_pageblock(part.first).owner().is_some();
            if is_owned || most.min(OPERATIONS) > self.operations_left() {
                left.append(last, part);
                last = part.last;
            } else if is_shared {
                self.bring_to_buddy(part);
            } else {
                self.bring_part(part);
            }
        }
        left
    }

    /// Brings the blocks of one pageblock home, which nobody owns.
    fn bring_part(&mut self, part: Part) {
        let Passed { frames, blocks, last, taken, returned, .. } = &mut self.passed;
        let first = first_of(part.first);
        let free = frames.free_in_pageblock(first).free();
        let is_worth_it = free == 0 || free <= NEARLY_FULL && part.blocks >= WORTH_A_PAGEBLOCK;
        if let Some(cpu) = self.owner
            && is_worth_it
            && frames.pageblock(first).is_mergeable()
        {
            *taken += self.guard.buddy().give_away(*frames, first, cpu).0;
            blocks.append(*last, part);
            *last = part.last;
            return;
        }
        let mut map = FreeMap::NONE;
        Chain::each(frames, part, |number, order| {
            let at = number - first;
            map.add(at..at + order.pages().0 as u32);
        });
        *returned += u64::from(part.pages);
        self.guard.buddy().free_in_map(*frames, first, map);
    }

    /// Frees the blocks of a pageblock that zones share, one by one.
    fn bring_to_buddy(&mut self, part: Part) {
        let frames = self.passed.frames;
        self.passed.returned += u64::from(part.pages);
        Chain::each(&frames, part, |number, order| {
            self.guard.buddy().free_run(frames, number, order, 1);
        });
    }

    /// What became the CPU's.
    pub(super) fn end(self) -> Passed<'m> {
        let Passed { taken, returned, .. } = self.passed;
        self.guard.note_taken(taken);
        self.guard.note_returned(returned);
        self.passed
    }
}

impl Passed<'_> {
    /// Notes what became the CPU's among its pageblocks.
    pub(super) fn note(mut self, hold: &Hold<'_>) {
        let frames = self.frames;
        hold.add(&frames, self.pageblocks);
        while let Some(part) = self.blocks.take_first() {
            hold.adopt(&frames, first_of(part.first));
            Chain::each(&frames, part, |number, order: Order| {
                hold.put(&frames, number, order.pages().0 as u32);
            });
        }
    }
}
