//! Memory that comes, goes, or is wanted in one piece, under nearpage's own rules.
//!
//! To isolate a pageblock is to capture its free pages: they are taken off the zone's counter, their bits are taken, and
//! their words say so. A page that somebody frees there later goes into the map as ever, and the next look captures it. CPUs must
//! first give back what they may take by quota and what is on their lists: a thread that waits for a range to empty drains them
//! before each look.

use core::ops::Range;

use super::zone_maps::{PAGES, ZoneMaps, isolated_in};
use crate::buddy::Isolated;
use crate::frame::{FreeMap, Migratetype, Word, ZoneFrames};
use crate::host::Platform;
use crate::units::Order;
use crate::zone::Zone;

const WORD: u32 = u64::BITS;

impl<P: Platform> Zone<'_, P> {
    /// Memory came: all of these frames are free. The caller has the lock.
    pub(crate) fn add_frames(&self, maps: &ZoneMaps<'_>, range: Range<u32>) {
        let frames = self.frames();
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min(at - at % PAGES + PAGES);
            maps.add_pageblock(at / PAGES);
            if frames.is_pageblock_shared(at) {
                // The words tell whose the pages are.
                let word = frames.cached(Order(0));
                (at..end).for_each(|number| frames.word(number).set(word));
            }
            match end - at == PAGES && !frames.is_pageblock_shared(at) {
                true => maps.put_whole(at / PAGES, maps.outside()),
                false => maps.put_run(frames, at, end - at, maps.outside()),
            }
            at = end;
        }
        self.release_pages(u64::from(range.end - range.start));
    }

    /// Nobody gets a page of a pageblock any more; returns whether it was not isolated before, for somebody else.
    pub(crate) fn isolate_pageblock(&self, maps: &ZoneMaps<'_>, number: u32) -> bool {
        let _guard = self.lock();
        let at = number / PAGES;
        if self.frames().pageblock(number) == Migratetype::Isolate {
            return false;
        }
        self.leave_reserve(maps, at);
        self.frames().isolate_pageblock(at * PAGES);
        self.capture(maps, at);
        true
    }

    /// Takes the free pages of an isolated pageblock, as far as no CPU has a quota for them.
    fn capture(&self, maps: &ZoneMaps<'_>, at: u32) {
        let frames = self.frames();
        if maps.is_whole(at) && self.capture_pages(PAGES.into()) {
            match maps.close_whole(at) {
                true => mark(frames, at * PAGES..(at + 1) * PAGES),
                false => self.release_pages(PAGES.into()),
            }
        }
        let map = frames.map(at * PAGES);
        for word in 0..(PAGES / WORD) as usize {
            let free = map.look(word);
            let pages = u64::from(free.count_ones());
            if free == 0 || !self.capture_pages(pages) {
                continue;
            }
            let taken = map.take(word, free);
            let first = at * PAGES + word as u32 * WORD;
            let bits = (0..WORD).filter(|bit| taken >> bit & 1 == 1);
            bits.for_each(|bit| mark(frames, first + bit..first + bit + 1));
            self.release_pages(pages - u64::from(taken.count_ones()));
        }
    }

    /// A pageblock is as it was before it was isolated.
    pub(crate) fn end_isolation(&self, maps: &ZoneMaps<'_>, number: u32) {
        let _guard = self.lock();
        let (frames, at) = (self.frames(), number / PAGES);
        let captured = isolated_in(frames, at);
        unmark(frames, at, &captured, frames.cached(Order(0)));
        frames.set_pageblock(at * PAGES, frames.type_before_isolation(at * PAGES));
        for run in captured.runs() {
            let pages = run.end - run.start;
            maps.put_run(frames, at * PAGES + run.start, pages, maps.outside());
        }
        maps.note_some(frames, at, maps.outside());
        self.release_pages(captured.count().into());
    }

    /// What of isolated pageblocks is in nobody's hands, after another look at it.
    pub(crate) fn isolated(&self, maps: &ZoneMaps<'_>, range: Range<u32>) -> Isolated {
        let _guard = self.lock();
        let mut isolated = Isolated::default();
        let mut number = range.start;
        while number < range.end {
            let at = number / PAGES;
            let end = range.end.min((at + 1) * PAGES);
            self.capture(maps, at);
            let (captured, first) = (isolated_in(self.frames(), at), at * PAGES);
            let free = captured.pages_between(number - first..end - first);
            isolated.free.0 += u64::from(free);
            if free < end - number {
                let held = captured.first_held(number - first).map(|held| first + held);
                isolated.first_held = isolated.first_held.or(held);
            }
            number = end;
        }
        isolated
    }

    /// Takes isolated frames that are in nobody's hands out of the zone, as if nobody had ever touched them. The caller has
    /// the lock.
    ///
    /// # Panics
    /// If some of them are in somebody's hands.
    pub(crate) fn take_out(&self, range: Range<u32>) {
        let frames = self.frames();
        let mut number = range.start;
        while number < range.end {
            let (at, end) = (number / PAGES, range.end.min((number / PAGES + 1) * PAGES));
            let captured = isolated_in(frames, at);
            let free = captured.pages_between(number - at * PAGES..end - at * PAGES);
            assert!(free == end - number, "all of the range is free");
            unmark(frames, at, &captured, Word::BLANK);
            frames.set_pageblock(at * PAGES, Migratetype::Movable);
            number = end;
        }
    }

    /// Takes a whole pageblock between two frames of which pages were touched since it was last taken like this.
    pub(crate) fn lend_pageblock(&self, maps: &ZoneMaps<'_>, range: Range<u32>) -> Option<u32> {
        let frames = self.frames();
        let (first, end) = (range.start.div_ceil(PAGES), range.end / PAGES);
        for at in maps.whole_between(first..end) {
            let pages = at * PAGES..(at + 1) * PAGES;
            let was_touched = pages.clone().any(|page| frames.word(page).get() != Word::BLANK);
            if !was_touched || !self.capture_pages(PAGES.into()) {
                continue;
            }
            if maps.close_whole(at) {
                pages.for_each(|page| frames.word(page).set(Word::BLANK));
                return Some(at * PAGES);
            }
            self.release_pages(PAGES.into());
        }
        None
    }

    /// Ends what [`lend_pageblock`](Self::lend_pageblock) began.
    pub(crate) fn lent_pageblock_is_back(&self, maps: &ZoneMaps<'_>, number: u32) {
        maps.put_whole(number / PAGES, maps.outside());
        self.release_pages(PAGES.into());
    }
}

fn mark(frames: &ZoneFrames<'_>, pages: Range<u32>) {
    let isolated = Word::free(Order(0), Migratetype::Isolate, frames.zone());
    pages.for_each(|page| frames.word(page).set(isolated));
}

fn unmark(frames: &ZoneFrames<'_>, at: u32, captured: &FreeMap, word: Word) {
    let pages = captured.runs().flatten();
    pages.for_each(|page| frames.word(at * PAGES + page).set(word));
}
