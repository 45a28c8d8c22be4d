//! The free pages of a zone: a map a pageblock, a bit for each pageblock that is whole, and hints of where there are some.

use core::ops::{ControlFlow, Range};

use super::bitmap::Bitmap;
use super::map::{Map, Put};
use super::quota::{Place, Quota};
use crate::frame::{FrameState, FreeMap, Migratetype, Word, ZoneFrames, run_heads};
use crate::sync::{AtomicU64, Ordering};
use crate::units::{ORDERS, Order, PAGEBLOCK_ORDER};

const TYPES: usize = Migratetype::PCP_COUNT;
pub(crate) const PAGES: u32 = PAGEBLOCK_ORDER.pages().0 as u32;
const WORD: u32 = u64::BITS;
const WORDS: usize = (PAGES / WORD) as usize;
/// Blocks up to this order lie in a word.
const WORD_ORDER: Order = Order(6);
/// The order of two pageblocks.
const PAIR: Order = Order(PAGEBLOCK_ORDER.0 + 1);

/// Free pages with which a pageblock is worth going to.
const WORTH_A_PLACE: u32 = 16;
/// Pageblocks that a step of a sweep looks at, and steps of one search: a fill goes past what it filled before.
const STEP: u32 = 16;
const STEPS: u32 = 2;
/// Pageblocks that a search for a block looks at before it takes a whole one apart.
const LOOKS_FOR_A_BLOCK: u32 = 128;
/// Pageblocks without a free page that a search goes past before their hints are taken away.
const IN_VAIN: u32 = 256;

/// The pageblocks of a zone, by number: that of their frames, divided by the pages of one.
#[derive(Debug)]
pub struct ZoneMaps<'m> {
    whole: Bitmap<'m>,
    some: [Bitmap<'m>; TYPES],
    /// Pageblocks whose pages all came to be in the map while they could not be made whole: a hint.
    full: Bitmap<'m>,
    /// Pageblocks that have memory of the zone; those between them may be other zones'.
    ours: Bitmap<'m>,
    pageblocks: u32,
    /// Blocks that came from pageblocks of other types.
    fallbacks: AtomicU64,
    /// Pages of the pageblocks that are kept for urgent requests; changed under the zone's lock.
    reserved: AtomicU64,
    /// The hints of threads whose CPU has no quota.
    outside: Quota,
}

/// Bits of one kind: words and hints in memory.
pub(crate) type Bits<'m> = (&'m [AtomicU64], &'m [AtomicU64]);
/// How many kinds there are.
pub(crate) const KINDS: usize = 3 + TYPES;

/// Which hints a look takes away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Forgets {
    /// Those of pageblocks that have another type.
    Types,
    /// Those of pageblocks without a free page too.
    Empty,
}

/// What a search may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reach {
    /// Pageblocks of the type, and whole ones.
    Own,
    /// Those of other types too.
    All,
}

impl<'m> ZoneMaps<'m> {
    /// No free page of so many pageblocks.
    pub(crate) fn new(pageblocks: u32, bits: [Bits<'m>; KINDS]) -> Self {
        let [whole, ours, full, some @ ..] = bits.map(|(words, hints)| Bitmap::new(words, hints));
        let (fallbacks, reserved) = (AtomicU64::new(0), AtomicU64::new(0));
        let outside = Quota::new(0, 1, pageblocks);
        Self { whole, some, full, ours, pageblocks, fallbacks, reserved, outside }
    }

    /// Memory of a pageblock is the zone's.
    pub(crate) fn add_pageblock(&self, at: u32) {
        self.ours.set(at);
    }

    /// The pageblocks that have memory of the zone.
    pub(crate) fn ours(&self) -> impl Iterator<Item = u32> + '_ {
        core::iter::successors(self.ours.next(0), |&at| self.ours.next(at + 1))
    }

    /// The first of them from one on.
    pub(crate) fn next_ours(&self, from: u32) -> Option<u32> {
        self.ours.next(from)
    }

    /// The free pages of the word of a map that a frame is in, now.
    pub(crate) fn free_in_word(&self, frames: &ZoneFrames<'_>, number: u32) -> u64 {
        let at = number / PAGES;
        match frames.try_map(number) {
            Some(map) => look(frames, map, at, (number % PAGES / WORD) as usize),
            None => 0,
        }
    }

    /// For threads whose CPU has no quota.
    pub(crate) fn outside(&self) -> &Quota {
        &self.outside
    }

    pub(crate) fn fallbacks(&self) -> u64 {
        self.fallbacks.load(Ordering::Relaxed)
    }

    pub(crate) fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Relaxed)
    }

    pub(crate) fn set_reserved(&self, pages: u64) {
        self.reserved.store(pages, Ordering::Relaxed);
    }

    /// Whether all pages of a pageblock are free, and in no map.
    pub(crate) fn is_whole(&self, at: u32) -> bool {
        self.whole.get(at)
    }

    /// The free pages of a pageblock, now.
    pub(crate) fn free_in(&self, frames: &ZoneFrames<'_>, at: u32) -> FreeMap {
        match self.whole.get(at) {
            true => FreeMap::of(0..PAGES),
            false => match frames.try_map(at * PAGES) {
                Some(map) => {
                    FreeMap::from_words(core::array::from_fn(|word| look(frames, map, at, word)))
                }
                None => FreeMap::NONE,
            },
        }
    }

    /// The line of a pageblock's map.
    #[inline]
    pub(crate) fn map_line(frames: &ZoneFrames<'_>, number: u32) -> *const () {
        frames.map(number).0.as_ptr().cast()
    }

    /// The line of what says that a block is free.
    pub(crate) fn block_line(
        &self,
        frames: &ZoneFrames<'_>,
        number: u32,
        order: Order,
    ) -> *const () {
        match order < PAGEBLOCK_ORDER {
            true => Self::map_line(frames, number),
            false => self.whole.line(number / PAGES),
        }
    }
}

/// For reports: each pageblock as of its own moment.
impl ZoneMaps<'_> {
    /// Free blocks by type and order. Isolated pages have words that say so, and are in no map.
    pub(crate) fn free_area(&self, frames: &ZoneFrames<'_>) -> [[u32; ORDERS]; Migratetype::COUNT] {
        let mut area = [[0; ORDERS]; Migratetype::COUNT];
        for at in self.ours() {
            let of = frames.pageblock(at * PAGES);
            if self.is_pair(at & !1) {
                area[of.index()][PAIR.0 as usize] += 1 - at % 2;
                continue;
            }
            let map = self.all_free_in(frames, at, of);
            if map != FreeMap::NONE {
                let area = &mut area[of.index()];
                area.iter_mut().zip(map.blocks()).for_each(|(all, blocks)| *all += blocks);
            }
        }
        area
    }

    /// Calls `each` with the free blocks of an order and a type, until it breaks.
    pub(crate) fn each_free_block(
        &self,
        frames: &ZoneFrames<'_>,
        order: Order,
        of: Migratetype,
        each: &mut dyn FnMut(u32) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        for at in self.ours().filter(|at| frames.pageblock(at * PAGES) == of) {
            match self.is_pair(at & !1) {
                true if order == PAIR && at % 2 == 0 => each(at * PAGES)?,
                false if order < PAIR => {
                    let map = self.all_free_in(frames, at, of);
                    map.heads(order).try_for_each(|head| each(at * PAGES + head))?;
                }
                _ => {}
            }
        }
        ControlFlow::Continue(())
    }

    /// Whether a block of at least this order of pageblocks of a type is free.
    pub(crate) fn has_block(&self, frames: &ZoneFrames<'_>, order: Order, of: Migratetype) -> bool {
        if self.whole.next(0).is_some_and(|at| order < PAIR || self.any_pair(at)) {
            return of.is_mergeable();
        }
        if order >= PAGEBLOCK_ORDER {
            return false;
        }
        let mut all = self.ours().filter(|at| frames.pageblock(at * PAGES) == of);
        all.any(|at| has_block_in(frames, at, order))
    }

    fn any_pair(&self, from: u32) -> bool {
        (from & !1..self.pageblocks).step_by(2).any(|at| self.is_pair(at))
    }

    fn is_pair(&self, at: u32) -> bool {
        at.is_multiple_of(2)
            && at + 1 < self.pageblocks
            && self.whole.get(at)
            && self.whole.get(at + 1)
    }

    /// The free pages of a pageblock of a type, isolated ones too.
    fn all_free_in(&self, frames: &ZoneFrames<'_>, at: u32, of: Migratetype) -> FreeMap {
        match of {
            Migratetype::Isolate => isolated_in(frames, at),
            _ => self.free_in(frames, at),
        }
    }
}

/// The pages of a pageblock that are isolated and in nobody's hands.
pub(crate) fn isolated_in(frames: &ZoneFrames<'_>, at: u32) -> FreeMap {
    let mut map = FreeMap::NONE;
    let isolated = Word::free(Order(0), Migratetype::Isolate, frames.zone());
    let is_isolated = |&page: &u32| frames.word(at * PAGES + page).get() == isolated;
    (0..PAGES).filter(is_isolated).for_each(|page| map.add(page..page + 1));
    map
}

/// Bringing pages.
impl ZoneMaps<'_> {
    /// Makes pages of one word of a map free: those of `pages`, from the frame whose number is a multiple of 64.
    #[inline]
    pub(crate) fn put(&self, frames: &ZoneFrames<'_>, first: u32, pages: u64, by: &Quota) {
        let (at, word) = (first / PAGES, (first / WORD) as usize % WORDS);
        match frames.map(first).put(word, pages) {
            Put::More => {}
            Put::First => self.note_some(frames, at, by),
            // Who takes from it goes on there: it becomes whole when he leaves, or when nobody has another whole one.
            Put::Full if by.has_place(at) => {
                self.note_some(frames, at, by);
                if frames.map(first).count() == PAGES {
                    self.note_full(at, by);
                }
            }
            Put::Full => _ = self.make_whole(frames, at, by),
        }
    }

    /// Makes a block free.
    pub(crate) fn put_block(&self, frames: &ZoneFrames<'_>, number: u32, order: Order, by: &Quota) {
        self.put_blocks(frames, &[number], order, by);
    }

    /// Makes the first of some blocks free: as many of those that follow one another as one write does. Returns how many.
    #[inline]
    pub(crate) fn put_blocks(
        &self,
        frames: &ZoneFrames<'_>,
        numbers: &[u32],
        order: Order,
        by: &Quota,
    ) -> usize {
        let [first, ..] = *numbers else { return 0 };
        if order == Order(0) {
            let (word, pages, count) = of_one_word(numbers.iter().copied(), 1);
            self.put(frames, word, pages, by);
            return count;
        }
        let is_whole =
            |&number: &u32| order >= PAGEBLOCK_ORDER && !frames.is_pageblock_shared(number);
        if !is_whole(&first) {
            note_touched(frames, first, order);
            self.put_run(frames, first, order.pages().0 as u32, by);
            return 1;
        }
        let each = order.pages().0 as u32 / PAGES;
        let whole = numbers.iter().copied().take_while(is_whole).map(|number| number / PAGES);
        let (word, bits, count) = of_one_word(whole, each);
        // A trim looks at the words of each pageblock. A block that nobody had in hand says nothing new.
        for &number in numbers[..count].iter().filter(|&&number| is_touched(frames, number)) {
            for at in number / PAGES..number / PAGES + each {
                frames.word(at * PAGES).set(frames.cached(PAGEBLOCK_ORDER));
            }
        }
        self.put_wholes(word, bits, by);
        count
    }

    /// Makes adjoining pages free.
    pub(crate) fn put_run(&self, frames: &ZoneFrames<'_>, number: u32, pages: u32, by: &Quota) {
        let (mut first, end) = (number, number + pages);
        while first < end {
            let next = end.min((first | (WORD - 1)) + 1);
            let bits = u64::MAX >> (WORD - (next - first)) << (first % WORD);
            self.put(frames, first - first % WORD, bits, by);
            first = next;
        }
    }

    /// Makes a pageblock free of which nothing is.
    pub(crate) fn put_whole(&self, at: u32, by: &Quota) {
        self.put_wholes(at - at % WORD, 1 << (at % WORD), by);
    }

    /// Makes pageblocks free whose bits are in the word that begins with `first`.
    fn put_wholes(&self, first: u32, bits: u64, by: &Quota) {
        let were_clear = self.whole.set_all(first, bits);
        by.shared_writes.add(1);
        assert!(were_clear == bits, "freed twice");
    }

    pub(crate) fn note_some(&self, frames: &ZoneFrames<'_>, at: u32, by: &Quota) {
        let of = frames.pageblock(at * PAGES);
        if let Some(some) = self.some.get(of.index())
            && !some.get(at)
        {
            by.shared_writes.add(1);
            some.set(at);
        }
    }

    /// All pages of a pageblock are in its map, and it is not whole: whoever needs one looks there.
    fn note_full(&self, at: u32, by: &Quota) {
        if !self.full.get(at) {
            by.shared_writes.add(1);
            self.full.set(at);
        }
    }

    /// If all pages of a pageblock are in its map, it is whole from now on; returns whether.
    #[cold]
    #[inline(never)]
    pub(crate) fn make_whole(&self, frames: &ZoneFrames<'_>, at: u32, by: &Quota) -> bool {
        let of = frames.pageblock(at * PAGES);
        if !of.is_mergeable() || frames.is_pageblock_shared(at * PAGES) {
            self.note_some(frames, at, by);
            self.note_full(at, by);
            return false;
        }
        let is_whole = frames.map(at * PAGES).take_all();
        if is_whole {
            // The hint that it has some stays, for the next time: who looks for some passes over whole ones.
            self.whole.set(at);
            by.shared_writes.add(1);
        } else {
            // Who looked while the pages were away for a moment may have taken the hint away.
            self.note_some(frames, at, by);
        }
        is_whole
    }
}

/// Taking pages, for which somebody has a quota.
impl ZoneMaps<'_> {
    /// Takes single pages, up to `most`, and tells `each` those of a word and the frame of its first bit; returns how many.
    pub(crate) fn take_pages(
        &self,
        frames: &ZoneFrames<'_>,
        (of, reach): (Migratetype, Reach),
        by: &Quota,
        most: u32,
        each: &mut dyn FnMut(u32, u64),
    ) -> u32 {
        let (mut got, mut by_type) = (0, TypeSearch::new(of));
        while got < most {
            let place = &by.places[of.index()];
            if let Some(at) = place.at().filter(|&at| frames.pageblock(at * PAGES) == by_type.of) {
                got += take_from_map(frames, at, most - got, each);
                if got == most {
                    break;
                }
            }
            self.leave(frames, place, by);
            place.set(self.find_place(frames, &mut by_type, reach, by));
            if place.at().is_none() {
                break;
            }
        }
        if by_type.of != of {
            self.leave(frames, &by.places[of.index()], by);
            self.note_fallback(by);
        }
        got
    }

    /// Takes a block.
    pub(crate) fn take_block(
        &self,
        frames: &ZoneFrames<'_>,
        order: Order,
        (of, reach): (Migratetype, Reach),
        by: &Quota,
    ) -> Option<u32> {
        if order >= PAGEBLOCK_ORDER {
            return self.take_pageblock(frames, order, of, by);
        }
        if order == Order(0) {
            let mut page = None;
            self.take_pages(frames, (of, reach), by, 1, &mut |first, pages| {
                page = Some(first + pages.trailing_zeros());
            });
            return page;
        }
        let place = &by.places[of.index()];
        if let Some(at) = place.at().filter(|&at| frames.pageblock(at * PAGES) == of)
            && let Some(block) = self.take_block_from(frames, at, order, by)
        {
            return Some(block);
        }
        let own = self.sweep_for_block(frames, order, of, by, LOOKS_FOR_A_BLOCK);
        own.or_else(|| {
            // First, since it may be the one that is opened.
            self.leave(frames, place, by);
            let at = self.open_whole(frames, of, by)?;
            place.set(Some(at));
            self.take_block_from(frames, at, order, by)
        })
        .or_else(|| self.sweep_for_block(frames, order, of, by, u32::MAX))
        .or_else(|| {
            let donors = donors(of).iter().filter(|_| reach == Reach::All);
            let mut found = donors
                .filter_map(|&donor| self.sweep_for_block(frames, order, donor, by, u32::MAX));
            let block = found.next()?;
            self.note_fallback(by);
            Some(block)
        })
        .or_else(|| {
            // Whatever hints and places of other CPUs hide.
            let donors = donors(of).iter().filter(|_| reach == Reach::All);
            let mut types = core::iter::once(&of).chain(donors);
            types.find_map(|&of| {
                let mut all = self.ours().filter(|at| frames.pageblock(at * PAGES) == of);
                all.find_map(|at| self.take_block_from(frames, at, order, by))
            })
        })
    }

    fn note_fallback(&self, by: &Quota) {
        self.fallbacks.fetch_add(1, Ordering::Relaxed);
        by.fell_back.store(true, Ordering::Relaxed);
    }

    /// Takes a whole pageblock, or two that are a block.
    fn take_pageblock(
        &self,
        frames: &ZoneFrames<'_>,
        order: Order,
        of: Migratetype,
        by: &Quota,
    ) -> Option<u32> {
        let take = || match order {
            PAIR => self.take_pair(frames, of, by),
            _ => self.take_whole(frames, of, by),
        };
        // A place that a CPU filled and took nothing from is whole, though not yet by its bit.
        let at = take().or_else(|| if self.settle(frames, by) { take() } else { None })?;
        Some(at * PAGES)
    }

    /// Makes pageblocks whole that are full; returns whether one was.
    #[cold]
    fn settle(&self, frames: &ZoneFrames<'_>, by: &Quota) -> bool {
        let (mut any, mut from) = (false, 0);
        while let Some(at) = self.full.next(from) {
            // First, so that who fills it meanwhile sets it again, or is seen here.
            self.full.clear(at);
            by.shared_writes.add(1);
            any |= frames.map(at * PAGES).count() == PAGES && self.make_whole(frames, at, by);
            from = at + 1;
        }
        any
    }

    /// Takes a whole pageblock for pages of a type, from where this CPU took the last one on.
    pub(crate) fn take_whole(
        &self,
        frames: &ZoneFrames<'_>,
        of: Migratetype,
        by: &Quota,
    ) -> Option<u32> {
        let mut taken = None;
        self.take_wholes(frames, of, by, 1, &mut |at| taken = Some(at));
        taken
    }

    /// Takes whole pageblocks likewise, up to `most`: those of a word with one write. Tells `each`, and returns how many.
    pub(crate) fn take_wholes(
        &self,
        frames: &ZoneFrames<'_>,
        of: Migratetype,
        by: &Quota,
        most: u32,
        each: &mut dyn FnMut(u32),
    ) -> u32 {
        let (mut got, mut wholes) = (0, self.wholes_from(by.whole_from()));
        while got < most
            && let Some(at) = wholes.next()
        {
            let some = lowest(self.whole.rest(at), most - got);
            by.shared_writes.add(1);
            for at in frames_of(at - at % WORD, self.whole.clear_all(at, some)) {
                if self.becomes(frames, at, of, by) {
                    each(at);
                    got += 1;
                    by.set_whole_from(at + 1);
                }
            }
        }
        got
    }

    /// Takes a pageblock if it is whole, whatever its type; returns whether.
    pub(crate) fn close_whole(&self, at: u32) -> bool {
        self.whole.clear(at)
    }

    /// The pageblocks between two that are whole.
    pub(crate) fn whole_between(&self, range: Range<u32>) -> impl Iterator<Item = u32> + '_ {
        let (mut from, end) = (range.start, range.end);
        core::iter::from_fn(move || {
            let at = self.whole.next(from).filter(|&at| at < end)?;
            from = at + 1;
            Some(at)
        })
    }

    /// Those from one on, and then those before it.
    fn wholes_from(&self, start: u32) -> impl Iterator<Item = u32> + '_ {
        self.whole_between(start..self.pageblocks).chain(self.whole_between(0..start))
    }

    /// The pages of a pageblock lie in its map, if they lay with the whole ones.
    pub(crate) fn open(&self, frames: &ZoneFrames<'_>, at: u32) {
        if self.whole.clear(at) {
            note_touched(frames, at * PAGES, PAGEBLOCK_ORDER);
            frames.map(at * PAGES).fill();
        }
    }

    fn take_pair(&self, frames: &ZoneFrames<'_>, of: Migratetype, by: &Quota) -> Option<u32> {
        // The zone's first frame number is that of a section's first frame, so pairs are even.
        debug_assert!(frames.pfn(0).is_aligned(PAIR), "numbers are aligned as frames are");
        let take = |at| {
            if !self.whole.clear_pair(at) {
                return false;
            }
            by.shared_writes.add(1);
            let [first, second] = [at & !1, at | 1].map(|at| self.becomes(frames, at, of, by));
            if first != second {
                self.put_whole(if first { at & !1 } else { at | 1 }, by);
            }
            first && second
        };
        self.wholes_from(by.whole_from()).find(|&at| take(at)).map(|at| at & !1)
    }

    /// Gives a pageblock that was whole and is the caller's a type, or back if it is isolated or reserved; returns whether it
    /// is the caller's still.
    fn becomes(&self, frames: &ZoneFrames<'_>, at: u32, of: Migratetype, by: &Quota) -> bool {
        let before = frames.pageblock(at * PAGES);
        let is_right = before == of
            || before.is_mergeable() && frames.change_pageblock(at * PAGES, before, of);
        if !is_right {
            self.put_whole(at, by);
        }
        is_right
    }

    /// A CPU takes pages elsewhere from now on: what is left in its place is for all.
    pub(crate) fn leave(&self, frames: &ZoneFrames<'_>, place: &Place, by: &Quota) {
        let Some(at) = place.at() else { return };
        place.set(None);
        // Whoever brings pages into a word that has some looks for no hint; into an empty one, it sets it.
        let free = frames.map(at * PAGES).count();
        if free == PAGES {
            self.make_whole(frames, at, by);
        } else if free > 0 {
            self.note_some(frames, at, by);
        }
    }

    /// Takes a whole pageblock and makes its pages free one by one, for who takes them from there: nobody else is told of them.
    fn open_whole(&self, frames: &ZoneFrames<'_>, of: Migratetype, by: &Quota) -> Option<u32> {
        let at = self.take_whole(frames, of, by)?;
        note_touched(frames, at * PAGES, PAGEBLOCK_ORDER);
        frames.map(at * PAGES).fill();
        Some(at)
    }

    pub(crate) fn take_block_from(
        &self,
        frames: &ZoneFrames<'_>,
        at: u32,
        order: Order,
        by: &Quota,
    ) -> Option<u32> {
        let map = frames.map(at * PAGES);
        if order > WORD_ORDER {
            let span = 1 << (order.0 - WORD_ORDER.0);
            let mut starts = (0..WORDS).step_by(span);
            let is_free = |first: usize| {
                (first..first + span).all(|word| look(frames, map, at, word) == u64::MAX)
            };
            let first = starts.find(|&first| is_free(first) && map.take_words(first..first + span));
            if first.is_none() {
                // What was put back for a moment may have been the last that was missing.
                self.make_whole(frames, at, by);
            }
            return first.map(|first| at * PAGES + first as u32 * WORD);
        }
        let run = u64::MAX >> (WORD - order.pages().0 as u32);
        for word in 0..WORDS {
            loop {
                let heads = run_heads(look(frames, map, at, word), order);
                if heads == 0 {
                    break;
                }
                let (first, block) =
                    (at * PAGES + word as u32 * WORD, run << heads.trailing_zeros());
                let taken = map.take(word, block);
                if taken == block {
                    return Some(first + heads.trailing_zeros());
                }
                if taken != 0 {
                    self.put(frames, first, taken, by);
                }
            }
        }
        None
    }
}

/// Looking for pages.
impl ZoneMaps<'_> {
    /// A pageblock with free pages: one of the type that has few of them, so that others become whole.
    #[cold]
    #[inline(never)]
    fn find_place(
        &self,
        frames: &ZoneFrames<'_>,
        search: &mut TypeSearch,
        reach: Reach,
        by: &Quota,
    ) -> Option<u32> {
        let wanted = search.wanted;
        if search.of == wanted {
            let own = self.sweep(frames, wanted, by, STEPS);
            if let Some(at) = own.or_else(|| self.open_whole(frames, wanted, by)) {
                return Some(at);
            }
            if let Some(at) = self.any_of(frames, wanted, by) {
                return Some(at);
            }
        }
        if reach == Reach::Own {
            return None;
        }
        while let Some((donor, hinted)) = search.next_donor() {
            let found = match hinted {
                true => self.any_of(frames, donor, by),
                false => self.any_at_all(frames, donor),
            };
            if found.is_some() {
                search.of = donor;
                return found;
            }
        }
        None
    }

    /// Looks at some more pageblocks of a type; the one with the fewest free pages of those that are in mind.
    fn sweep(
        &self,
        frames: &ZoneFrames<'_>,
        of: Migratetype,
        by: &Quota,
        steps: u32,
    ) -> Option<u32> {
        let (place, mut wraps) = (&by.places[of.index()], 0);
        for _ in 0..steps {
            for _ in 0..STEP {
                let Some(at) = self.next_of(of, place.hand()) else {
                    place.set_hand(0);
                    wraps += 1;
                    if wraps > 1 {
                        break;
                    }
                    continue;
                };
                place.set_hand(at + 1);
                let free = self.look_at(frames, at, of, by, Forgets::Types);
                if free >= WORTH_A_PLACE {
                    place.note(at, free);
                }
            }
            if let Some(at) = place.take_seen() {
                return Some(at);
            }
            if wraps > 1 {
                break;
            }
        }
        None
    }

    /// Any pageblock of a type with a free page.
    fn any_of(&self, frames: &ZoneFrames<'_>, of: Migratetype, by: &Quota) -> Option<u32> {
        self.each_from_hand(of, by, u32::MAX, |at, forgets| {
            (self.look_at(frames, at, of, by, forgets) > 0).then_some(at)
        })
    }

    /// The pageblocks that may have pages of a type, up to `most`, from where this CPU's sweep is: until `found` returns
    /// something. Only a search that went past many of them in vain has them forgotten: who frees a page sets the hint again.
    fn each_from_hand<T>(
        &self,
        of: Migratetype,
        by: &Quota,
        most: u32,
        found: impl Fn(u32, Forgets) -> Option<T>,
    ) -> Option<T> {
        let place = &by.places[of.index()];
        let (start, mut looks) = (place.hand(), 0);
        for (mut from, end) in [(start, self.pageblocks), (0, start)] {
            while let Some(at) = self.next_of(of, from).filter(|&at| at < end) {
                if looks == most {
                    return None;
                }
                looks += 1;
                let forgets = if looks > IN_VAIN { Forgets::Empty } else { Forgets::Types };
                let some = found(at, forgets);
                if some.is_some() {
                    place.set_hand(at);
                    return some;
                }
                from = at + 1;
            }
        }
        None
    }

    /// Any pageblock of a type with a free page, places of other CPUs too.
    #[cold]
    fn any_at_all(&self, frames: &ZoneFrames<'_>, of: Migratetype) -> Option<u32> {
        let mut all = self.ours().filter(|at| frames.pageblock(at * PAGES) == of);
        all.find(|&at| count_in(frames, at) > 0)
    }

    /// The next pageblock that may have pages of a type.
    fn next_of(&self, of: Migratetype, from: u32) -> Option<u32> {
        self.some[of.index()].next_without(from, &self.whole).filter(|&at| at < self.pageblocks)
    }

    /// How many pages of a type are free in a pageblock. Hints that were wrong are mended, those that are to be forgotten.
    fn look_at(
        &self,
        frames: &ZoneFrames<'_>,
        at: u32,
        of: Migratetype,
        by: &Quota,
        forgets: Forgets,
    ) -> u32 {
        let (map, now) = (frames.map(at * PAGES), frames.pageblock(at * PAGES));
        let free = count_in(frames, at);
        if now == of && (free > 0 || forgets == Forgets::Types) {
            return free;
        }
        self.some[of.index()].clear(at);
        by.shared_writes.add(1);
        // Whoever brings pages meanwhile sees the hint still, or is seen here.
        if map.count() > 0 {
            self.note_some(frames, at, by);
        }
        if now == of { count_in(frames, at) } else { 0 }
    }

    /// Takes a block out of one of the next pageblocks of a type, `most` of them.
    fn sweep_for_block(
        &self,
        frames: &ZoneFrames<'_>,
        order: Order,
        of: Migratetype,
        by: &Quota,
        most: u32,
    ) -> Option<u32> {
        self.each_from_hand(of, by, most, |at, forgets| {
            let is_enough = self.look_at(frames, at, of, by, forgets) >= order.pages().0 as u32;
            if is_enough { self.take_block_from(frames, at, order, by) } else { None }
        })
    }
}

/// A search for pages of a type, and then of others.
struct TypeSearch {
    wanted: Migratetype,
    /// Of which type they are taken now.
    of: Migratetype,
    /// Where to look next: all donors by hints, and then the type itself and all donors without.
    step: usize,
}

impl TypeSearch {
    fn new(of: Migratetype) -> Self {
        Self { wanted: of, of, step: 0 }
    }

    /// The next type to look at, and whether by hints.
    fn next_donor(&mut self) -> Option<(Migratetype, bool)> {
        let donors = donors(self.wanted);
        let (step, hinted) = (self.step, self.step < donors.len());
        self.step += 1;
        match step.checked_sub(donors.len()) {
            None => Some((donors[step], hinted)),
            Some(0) => Some((self.wanted, false)),
            Some(more) => Some((*donors.get(more - 1)?, false)),
        }
    }
}

/// The types whose pageblocks a type takes pages from, if there are none of its own.
const fn donors(of: Migratetype) -> &'static [Migratetype] {
    match of {
        Migratetype::Unmovable => &[Migratetype::Reclaimable, Migratetype::Movable],
        Migratetype::Movable => &[Migratetype::Reclaimable, Migratetype::Unmovable],
        Migratetype::Reclaimable => &[Migratetype::Unmovable, Migratetype::Movable],
        Migratetype::HighAtomic | Migratetype::Isolate => &[],
    }
}

/// Takes up to `most` pages from a map, and tells `each` of each word; returns how many.
fn take_from_map(
    frames: &ZoneFrames<'_>,
    at: u32,
    most: u32,
    each: &mut dyn FnMut(u32, u64),
) -> u32 {
    let (map, mut got) = (frames.map(at * PAGES), 0);
    for word in 0..WORDS {
        let wanted = lowest(look(frames, map, at, word), most - got);
        if wanted == 0 {
            continue;
        }
        let taken = map.take(word, wanted);
        if taken != 0 {
            each(at * PAGES + word as u32 * WORD, taken);
        }
        got += taken.count_ones();
        if got == most {
            break;
        }
    }
    got
}

/// Of numbers that stand for `each` bits in a row, those at the beginning whose bits are in one word: the word's first bit, the
/// bits, and how many numbers.
#[inline]
fn of_one_word(numbers: impl Iterator<Item = u32>, each: u32) -> (u32, u64, usize) {
    let (mut word, mut bits, mut count) = (0, 0, 0);
    for number in numbers {
        let of = number - number % WORD;
        if count > 0 && of != word {
            break;
        }
        word = of;
        bits |= u64::MAX >> (WORD - each) << (number % WORD);
        count += 1;
    }
    (word, bits, count)
}

/// The frames of the pages of a word whose first bit is frame `first`.
pub(crate) fn frames_of(first: u32, pages: u64) -> impl Iterator<Item = u32> {
    let some = |pages: u64| Some(pages).filter(|&pages| pages != 0);
    let rest = move |&pages: &u64| some(pages & (pages - 1));
    core::iter::successors(some(pages), rest).map(move |pages| first + pages.trailing_zeros())
}

/// Whether a block of an order below that of a pageblock is free in a map.
fn has_block_in(frames: &ZoneFrames<'_>, at: u32, order: Order) -> bool {
    let map = frames.map(at * PAGES);
    let word = |word| look(frames, map, at, word);
    if order <= WORD_ORDER {
        return (0..WORDS).any(|at| run_heads(word(at), order) != 0);
    }
    let span = 1 << (order.0 - WORD_ORDER.0);
    let mut starts = (0..WORDS).step_by(span);
    starts.any(|first| (first..first + span).all(|at| word(at) == u64::MAX))
}

/// Whether a page was handed out since memory behind it last came or went.
fn is_touched(frames: &ZoneFrames<'_>, number: u32) -> bool {
    frames.word(number).get() != Word::BLANK
}

/// A block that is the caller's may lie in a map from now on, page by page: if its word says that somebody had it, so do then
/// those of all its pages, since nothing else tells a trim what is behind them.
pub(crate) fn note_touched(frames: &ZoneFrames<'_>, number: u32, order: Order) {
    let head = frames.word(number).get();
    if head.state() == FrameState::Cached && head.order() >= order {
        let word = frames.cached(Order(0));
        (number..number + order.pages().0 as u32).for_each(|page| frames.word(page).set(word));
    }
}

/// How many pages of this zone are free in a map.
fn count_in(frames: &ZoneFrames<'_>, at: u32) -> u32 {
    let map = frames.map(at * PAGES);
    if !frames.is_pageblock_shared(at * PAGES) {
        return map.count();
    }
    (0..WORDS).map(|word| look(frames, map, at, word).count_ones()).sum()
}

/// The lowest bits, `most` of them.
fn lowest(bits: u64, most: u32) -> u64 {
    let mut some = bits;
    while some.count_ones() > most {
        some &= !(1 << (u64::BITS - 1 - some.leading_zeros()));
    }
    some
}

/// The free pages of a word that are of this zone.
#[inline]
fn look(frames: &ZoneFrames<'_>, map: Map<'_>, at: u32, word: usize) -> u64 {
    let free = map.look(word);
    if free == 0 || !frames.is_pageblock_shared(at * PAGES) {
        return free;
    }
    let first = at * PAGES + word as u32 * WORD;
    let is_ours = |page: &u32| frames.word(first + page).get().zone() == frames.zone();
    (0..WORD)
        .filter(|page| free >> page & 1 == 1)
        .filter(is_ours)
        .fold(0, |all, page| all | 1 << page)
}

#[cfg(test)]
mod tests {
    use std_alloc::vec::Vec;

    use super::*;

    #[test]
    fn frames_of_a_word() {
        let all = |pages| frames_of(64, pages).collect::<Vec<_>>();
        assert_eq!(all(0), [], "others were faster");
        assert_eq!(all(1 | 1 << 5 | 1 << 63), [64, 69, 127]);
    }
}
