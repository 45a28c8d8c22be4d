//! Memory that comes, goes, or is wanted in one piece, under nearpage's own rules.
//!
//! To isolate a pageblock is to capture its free pages: they are taken off the zone's counter, their bits are taken, and
//! their words say so. A page that somebody frees there later goes into the map as ever, and the next look captures it. CPUs must
//! first give back what they may take by quota and what is on their lists: a thread that waits for a range to empty drains them
//! before each look.

use core::ops::Range;

use super::zone_maps::{PAGES, isolated_in};
use crate::buddy::Isolated;
use crate::frame::{FrameState, FreeMap, Migratetype, Word, ZoneFrames};
use crate::host::Platform;
use crate::rule_set::HasMaps;
use crate::units::{Order, PAGEBLOCK_ORDER};
use crate::zone::{Lending, Lent, Zone};

const WORD: u32 = u64::BITS;

impl<P: Platform<Rules: HasMaps>> Zone<'_, P> {
    /// Memory came: all of these frames are free.
    pub(crate) fn add_to_maps(&self, range: Range<u32>) {
        let maps = self.maps();
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

    pub(crate) fn isolate_in_maps(&self, mut pageblocks: impl Iterator<Item = u32>) -> Option<u32> {
        pageblocks.find(|&number| !self.isolate_pageblock(number))
    }

    pub(crate) fn end_isolation_in_maps(&self, pageblocks: impl Iterator<Item = u32>) {
        pageblocks.for_each(|number| self.end_isolation_of(number));
    }

    /// Nobody gets a page of a pageblock any more; returns whether it was not isolated before, for somebody else.
    fn isolate_pageblock(&self, number: u32) -> bool {
        let _guard = self.lock();
        let at = number / PAGES;
        if self.frames().pageblock(number) == Migratetype::Isolate {
            return false;
        }
        self.leave_reserve(at);
        self.frames().isolate_pageblock(at * PAGES);
        self.capture(at);
        true
    }

    /// Takes the free pages of an isolated pageblock, as far as no CPU has a quota for them.
    fn capture(&self, at: u32) {
        let maps = self.maps();
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
    fn end_isolation_of(&self, number: u32) {
        let maps = self.maps();
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
    pub(crate) fn isolated_in_maps(&self, range: Range<u32>) -> Isolated {
        let _guard = self.lock();
        let mut isolated = Isolated::default();
        let mut number = range.start;
        while number < range.end {
            let at = number / PAGES;
            let end = range.end.min((at + 1) * PAGES);
            self.capture(at);
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

    /// Takes the first free pages between two frames that are to be lent: a whole pageblock, or adjoining pages of one word of a
    /// map. Nothing is behind them when they come back: their words are blank from now on.
    pub(crate) fn lend_of_maps(&self, range: Range<u32>, lending: Lending) -> Option<Lent> {
        let maps = self.maps();
        let mut number = range.start;
        while let Some(at) = maps.next_ours(number / PAGES).filter(|at| at * PAGES < range.end) {
            number = number.max(at * PAGES);
            let end = (at + 1) * PAGES;
            // Pageblocks that are isolated or reserved are their holders', and where zones share one the words say whose pages
            // are: they cannot be blank.
            let frames = self.frames();
            if frames.pageblock(number).is_mergeable() && !frames.is_pageblock_shared(number) {
                let lent = match maps.is_whole(at) {
                    true if number == at * PAGES && end <= range.end => {
                        self.lend_whole(at, lending)
                    }
                    true => None,
                    false => self.lend_of_map(number..end.min(range.end), lending),
                };
                if lent.is_some() {
                    return lent;
                }
            }
            number = end;
        }
        None
    }

    fn lend_whole(&self, at: u32, lending: Lending) -> Option<Lent> {
        let maps = self.maps();
        let (frames, pages) = (self.frames(), at * PAGES..(at + 1) * PAGES);
        let touched = match touched(frames, pages.clone(), lending) {
            // The words of a block that was freed as one are those of nobody but its head.
            1.. if is_head(frames, at) => PAGES,
            touched => touched,
        };
        if touched == 0 || !self.capture_pages(PAGES.into()) {
            return None;
        }
        if !maps.close_whole(at) {
            self.release_pages(PAGES.into());
            return None;
        }
        pages.clone().for_each(|page| frames.word(page).set(Word::BLANK));
        Some(Lent { pages, touched })
    }

    /// Takes adjoining pages of a pageblock that is not whole.
    fn lend_of_map(&self, range: Range<u32>, lending: Lending) -> Option<Lent> {
        let maps = self.maps();
        let (frames, unit) = (self.frames(), lending.unit.pages().0 as u32);
        let mut first = range.start.next_multiple_of(unit);
        while first + unit <= range.end && unit <= WORD {
            let word_end = range.end.min(first - first % WORD + WORD);
            let free = maps.free_in_word(frames, first);
            let touched_in = |first: u32| match free >> (first % WORD) & run(unit) == run(unit) {
                true => touched(frames, first..first + unit, lending),
                false => 0,
            };
            let mut lent = Lent { pages: first..first, touched: 0 };
            while first + unit <= word_end {
                let more = touched_in(first);
                if more == 0 && lent.touched > 0 {
                    break;
                }
                first += unit;
                lent.touched += more;
                lent.pages = if more > 0 { lent.pages.start..first } else { first..first };
            }
            if lent.touched > 0 && self.take_run(&lent.pages) {
                lent.pages.clone().for_each(|page| frames.word(page).set(Word::BLANK));
                return Some(lent);
            }
            if first + unit > word_end {
                first = word_end.next_multiple_of(unit);
            }
        }
        None
    }

    /// Takes pages of a word of a map, if all are there and no CPU has a quota for them.
    fn take_run(&self, pages: &Range<u32>) -> bool {
        let maps = self.maps();
        let count = pages.end - pages.start;
        if !self.capture_pages(count.into()) {
            return false;
        }
        let (first, bits) = (pages.start - pages.start % WORD, run(count) << (pages.start % WORD));
        let taken = self.frames().map(first).take((first % PAGES / WORD) as usize, bits);
        if taken != bits {
            if taken != 0 {
                maps.put(self.frames(), first, taken, maps.outside());
            }
            self.release_pages(count.into());
        }
        taken == bits
    }

    /// Ends what [`lend_of_maps`](Self::lend_of_maps) began.
    pub(crate) fn lent_to_maps(&self, pages: Range<u32>) {
        let maps = self.maps();
        let count = pages.end - pages.start;
        match count == PAGES {
            true => maps.put_whole(pages.start / PAGES, maps.outside()),
            false => maps.put_run(self.frames(), pages.start, count, maps.outside()),
        }
        self.release_pages(count.into());
    }
}

/// The lowest bits.
const fn run(pages: u32) -> u64 {
    u64::MAX >> (WORD - pages)
}

/// Whether a whole pageblock was last freed as one.
fn is_head(frames: &ZoneFrames<'_>, at: u32) -> bool {
    frames.word(at * PAGES).get().order() >= PAGEBLOCK_ORDER
}

/// Of free pages, how many somebody had in hand since they were last lent; 0 if one of them is too young.
fn touched(frames: &ZoneFrames<'_>, pages: Range<u32>, lending: Lending) -> u32 {
    let (mut touched, mut is_young) = (0, false);
    for page in pages {
        let (cell, word) = (frames.word(page), frames.word(page).get());
        if word == Word::BLANK {
            continue;
        }
        touched += 1;
        if let Some(turn) = lending.turn
            && !word.was_seen_before(turn)
        {
            is_young = true;
            // Who got the page meanwhile has overwritten its word, or will.
            if word.state() == FrameState::Cached && word.mark().is_none() {
                cell.replace(word, word.seen(turn));
            }
        }
    }
    if is_young { 0 } else { touched }
}

fn mark(frames: &ZoneFrames<'_>, pages: Range<u32>) {
    let isolated = Word::free(Order(0), Migratetype::Isolate, frames.zone());
    pages.for_each(|page| frames.word(page).set(isolated));
}

fn unmark(frames: &ZoneFrames<'_>, at: u32, captured: &FreeMap, word: Word) {
    let pages = captured.runs().flatten();
    pages.for_each(|page| frames.word(at * PAGES + page).set(word));
}
