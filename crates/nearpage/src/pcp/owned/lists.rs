//! The lists of a CPU's pageblocks: by type, and by how much is free.

use super::{CLASSES, Hold, PAGES, TYPES};
use crate::frame::{FreeMap, Migratetype, NO_FRAME, Pageblock, ZoneFrames, first_of};
use crate::pcp::passing::Passing;
use crate::sync::{AtomicU32, Ordering};
use crate::units::{Order, PAGEBLOCK_ORDER, PageCount};

/// Pageblocks with fewer free pages than this are in the first class.
const FULL_BELOW: u32 = PAGES / 4;
/// How many pageblocks of a class are searched for a block of more than one page.
const SEARCHED: usize = 8;

#[inline]
fn class_of(free: u32) -> Option<usize> {
    match free {
        0 => None,
        PAGES => Some(2),
        free if free < FULL_BELOW => Some(0),
        _ => Some(1),
    }
}

/// The type of the lists that a pageblock is on.
#[inline]
fn list_of(of: Migratetype) -> usize {
    if of.is_mergeable() { of.index() } else { Migratetype::Movable.index() }
}

impl Hold<'_> {
    fn head(&self, of: usize, class: usize) -> &AtomicU32 {
        &self.0.pageblocks.heads[of][class]
    }

    /// The pageblock of a type and class that was listed last.
    fn listed(&self, of: usize, class: usize) -> Option<u32> {
        Some(self.head(of, class).load(Ordering::Relaxed)).filter(|&head| head != NO_FRAME)
    }

    #[inline]
    fn add_free(&self, pages: u32) {
        let free = &self.0.pageblocks.free;
        free.store(free.load(Ordering::Relaxed).wrapping_add(pages), Ordering::Relaxed);
    }

    #[inline]
    fn list(&self, frames: &ZoneFrames<'_>, first: u32) {
        let block = frames.free_in_pageblock(first);
        let Some(class) = class_of(block.free()) else { return };
        let of = list_of(frames.pageblock(first));
        let head = self.head(of, class);
        frames.link_pageblock(first, head.load(Ordering::Relaxed));
        head.store(first, Ordering::Relaxed);
        block.set_listed(Some(of));
    }

    #[inline]
    fn unlist(&self, frames: &ZoneFrames<'_>, first: u32, class: usize) {
        let block = frames.free_in_pageblock(first);
        if let Some(next) = frames.unlink_pageblock(first) {
            // The pageblock may have another type by now: it is isolated.
            let of = block.listed().expect("it is on a list");
            self.head(of, class).store(next, Ordering::Relaxed);
        }
        block.set_listed(None);
    }

    /// Changes what is free in a pageblock of the CPU. If nothing is any more, it is nobody's afterwards.
    #[inline]
    fn change<R>(
        &self,
        frames: &ZoneFrames<'_>,
        first: u32,
        change: impl FnOnce(Pageblock<'_>) -> R,
    ) -> R {
        let block = frames.free_in_pageblock(first);
        let (free, listed) = (block.free(), block.listed().is_some());
        let answer = change(block);
        self.add_free(block.free().wrapping_sub(free));
        let (before, after) = (class_of(free).filter(|_| listed), class_of(block.free()));
        if before != after {
            if let Some(class) = before {
                self.unlist(frames, first, class);
            }
            match after {
                Some(_) => self.list(frames, first),
                None => block.set_owner(None),
            }
        }
        answer
    }

    /// Lists pageblocks that have become the CPU's.
    pub(crate) fn add(&self, frames: &ZoneFrames<'_>, mut passed: Passing) {
        while let Some(first) = passed.pop(frames) {
            let block = frames.free_in_pageblock(first);
            if block.free() == 0 {
                block.add(0..PAGES);
            }
            self.adopt(frames, first);
        }
    }

    /// Lists a pageblock that has become the CPU's, if some of it is free.
    pub(crate) fn adopt(&self, frames: &ZoneFrames<'_>, first: u32) {
        self.add_free(frames.free_in_pageblock(first).free());
        self.list(frames, first);
    }

    /// Takes the emptiest pageblocks off the lists, those that are whole first, until no more than `most` pages are left here,
    /// there is none, or `may_take` says no. They are about to be the zone's.
    pub(crate) fn take_above(
        &self,
        frames: &ZoneFrames<'_>,
        most: PageCount,
        mut may_take: impl FnMut() -> bool,
    ) -> Passing {
        let mut passing = Passing::new();
        while self.0.pageblocks.free() > most
            && let Some(first) = self.emptiest()
            && may_take()
        {
            let block = frames.free_in_pageblock(first);
            self.add_free(block.free().wrapping_neg());
            if let Some(class) = class_of(block.free()) {
                self.unlist(frames, first, class);
            }
            if block.is_whole() {
                block.remove(0..PAGES);
            }
            passing.push(frames, first);
        }
        passing
    }

    /// Makes adjoining pages of a pageblock of the CPU free.
    ///
    /// # Panics
    /// If one of them is free already.
    #[inline]
    pub(super) fn put(&self, frames: &ZoneFrames<'_>, number: u32, pages: u32) {
        let first = first_of(number);
        let at = number - first;
        self.change(frames, first, |block| {
            block.add(at..at + pages);
        });
    }

    /// Makes pages of a pageblock of the CPU free, so many.
    ///
    /// # Panics
    /// If one of them is free already.
    #[inline]
    pub(crate) fn put_map(&self, frames: &ZoneFrames<'_>, first: u32, map: &FreeMap, pages: u32) {
        self.change(frames, first, |block| block.add_map(map, pages));
    }

    /// The emptiest pageblock: of those that are whole, if there is one.
    fn emptiest(&self) -> Option<u32> {
        let places = (0..CLASSES).rev().flat_map(|class| (0..TYPES).map(move |of| (class, of)));
        { places }.find_map(|(class, of)| self.listed(of, class))
    }

    /// Takes single pages of a type, of the fullest pageblock: up to `most`, as at most `max_runs` runs for `sink(first, pages)`.
    /// Returns the pages.
    pub(crate) fn take_pages(
        &self,
        frames: &ZoneFrames<'_>,
        of: Migratetype,
        (most, max_runs): (u32, u32),
        sink: &mut dyn FnMut(u32, u32),
    ) -> u32 {
        let (mut taken, mut runs) = (0, 0);
        while taken < most && runs < max_runs {
            let Some(first) = self.fullest(frames, of) else { break };
            self.change(frames, first, |block| {
                while taken < most
                    && runs < max_runs
                    && let Some(run) = block.take_run(most - taken)
                {
                    let pages = run.end - run.start;
                    sink(first + run.start, pages);
                    (taken, runs) = (taken + pages, runs + 1);
                }
            });
        }
        taken
    }

    fn fullest(&self, frames: &ZoneFrames<'_>, of: Migratetype) -> Option<u32> {
        let found = (0..CLASSES).find_map(|class| self.usable(frames, of, class).next());
        found.or_else(|| self.whole_of_another_type(frames, of))
    }

    /// Makes a pageblock of another type, of which all is free, one of this type.
    fn whole_of_another_type(&self, frames: &ZoneFrames<'_>, of: Migratetype) -> Option<u32> {
        let others = Migratetype::ALL[..TYPES].iter().filter(|&&other| other != of);
        let whole = |&other| Some((self.usable(frames, other, CLASSES - 1).next()?, other));
        let (first, other) = { others }.find_map(whole)?;
        if !frames.change_pageblock(first, other, of) {
            return None;
        }
        self.unlist(frames, first, CLASSES - 1);
        self.list(frames, first);
        Some(first)
    }

    /// Takes a block of a type; none above the order of a pageblock.
    pub(crate) fn take_block(
        &self,
        frames: &ZoneFrames<'_>,
        of: Migratetype,
        order: Order,
    ) -> Option<u32> {
        let mut taken = None;
        self.take_blocks(frames, (of, order), 1, &mut |number| taken = Some(number));
        taken
    }

    /// Takes up to `most` blocks of a type, for `sink`; none above the order of a pageblock.
    pub(crate) fn take_blocks(
        &self,
        frames: &ZoneFrames<'_>,
        (of, order): (Migratetype, Order),
        most: u32,
        sink: &mut dyn FnMut(u32),
    ) {
        let mut left = if order > PAGEBLOCK_ORDER { 0 } else { most };
        while left > 0 {
            let found = self.fullest_with(frames, of, order);
            let Some(first) = found.or_else(|| self.whole_of_another_type(frames, of)) else {
                return;
            };
            // While it has one, a search would find it again.
            self.change(frames, first, |block| {
                while left > 0
                    && let Some(run) = block.take_block(order)
                {
                    sink(first + run.start);
                    left -= 1;
                }
            });
        }
    }

    fn fullest_with(&self, frames: &ZoneFrames<'_>, of: Migratetype, order: Order) -> Option<u32> {
        let pages = order.pages().0 as u32;
        let has = |first: &u32| {
            let block = frames.free_in_pageblock(*first);
            block.free() >= pages && block.map().first_block(order).is_some()
        };
        let least = class_of(pages)?;
        (least..CLASSES).find_map(|class| self.usable(frames, of, class).find(has))
    }

    /// Pageblocks of a type and class that were listed last. Of one that is about to go nothing is taken: who isolated it drains
    /// this CPU soon.
    fn usable<'f>(
        &self,
        frames: &'f ZoneFrames<'_>,
        of: Migratetype,
        class: usize,
    ) -> impl Iterator<Item = u32> + use<'f> {
        let head = self.head(of.index(), class).load(Ordering::Relaxed);
        let is_usable = |&first: &u32| frames.pageblock(first) != Migratetype::Isolate;
        frames.pageblocks_from(head).take(SEARCHED).filter(is_usable)
    }
}
