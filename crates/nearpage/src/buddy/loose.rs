//! Loose pages: single free pages that are not merged yet.
//!
//! Merging a page touches its buddies' words and, through the list, frames anywhere in the zone; when pages
//! come back in random order that is most of the cost of a free, and much of it is undone by the next
//! refill. So single pages only set a bit in the map of their pageblock, 64 bytes, and
//!
//! * a pageblock whose 512 bits are set becomes a free block of its order at once,
//! * a refill of single pages takes loose pages first, run by run,
//! * whoever needs more than single pages has them merged first ([`Buddy::settle_for`]), pageblock by
//!   pageblock, until there is a block; before another migratetype is asked, all of them are.
//!
//! **Lanes.** Frames of pages that adjoin share lines, so CPUs that take pages of one pageblock take its lines from each
//! other, at every allocation and free. Therefore a pageblock is in the lane of the CPU that took pages of it last, and
//! a CPU looks in its own lane first; from another lane it takes the pageblock over. Who gives pages back does not
//! matter: a few pages in another CPU's cache would move the pageblock away from who has the others. Two threads that
//! allocate and free at random then keep to their own pageblocks.
//!
//! Invariants: the bit of a page is set if and only if it is loose; a pageblock is on the list of its
//! migratetype, in one lane, if and only if it has a bit set, and then does not change its type. Loose pages count as
//! free, as blocks of order 0.
//!
//! This is nearpage's own: it departs from Linux, whose buddy merges at once. [`Merging`] switches it off.

use super::free::run_length;
use super::loose_lists::{LANES, PAGEBLOCK_FRAMES, last_of, page_of};
use super::rules::Merging;
use super::state::{BlockRequest, Buddy, Insertion};
use super::take::first_order_from;
use crate::frame::{Filled, FrameState, LooseMap, Migratetype, PageblockByte, ZoneFrames};
use crate::units::{CpuId, Order, PAGEBLOCK_ORDER};

/// Adds the first of `numbers` to their maps, as far as each is far from the next one, lies in a pageblock of the kind
/// `of`, and is neither its first loose page nor the last that was missing; returns how many. A function of its own, so
/// that all it needs stays in registers: in random order a drain spends its time here.
#[inline(never)]
fn insert_scattered(frames: &ZoneFrames<'_>, numbers: &[u32], of: PageblockByte) -> usize {
    let is_usual = |at: usize| {
        let number = numbers[at];
        // One up or one down.
        let adjoins = |next: &u32| next.wrapping_sub(number).wrapping_add(1) & !2 == 0;
        if numbers.get(at + 1).is_some_and(adjoins) {
            return false;
        }
        // The word's line may be in another CPU's cache by now; that the page was in use, its free has tested.
        debug_assert!(frames.word(number).get().state() != FrameState::Free, "freed twice");
        let (byte, loose) = frames.pageblock_state(number);
        byte == of && loose.insert_among_others(number)
    };
    (0..numbers.len()).find(|&at| !is_usual(at)).unwrap_or(numbers.len())
}

/// Words of the map of a pageblock.
const WORDS: u64 = PAGEBLOCK_FRAMES as u64 / 64;

/// Words of a map that adjoining pages of one pageblock lie in.
pub(super) fn words_of(first: u32, pages: u32) -> u64 {
    u64::from((first + pages - 1) / 64 - first / 64) + 1
}

impl Buddy {
    /// From now on it is this CPU that takes: loose pages are those of its lane first.
    pub fn serve(&mut self, cpu: CpuId) {
        self.loose.lane = cpu.0 as usize % LANES;
    }

    /// Puts the pageblocks of `pages` pages, which are taken from a larger block, into the lane at hand.
    pub(super) fn move_to_lane(&mut self, frames: ZoneFrames<'_>, first: u32, pages: u32) {
        if self.merging != Merging::Deferred {
            return;
        }
        for pageblock in first / PAGEBLOCK_FRAMES..=(first + pages - 1) / PAGEBLOCK_FRAMES {
            let map = frames.loose(pageblock * PAGEBLOCK_FRAMES);
            if map.lane() != self.loose.lane && map.is_empty() {
                map.set_lane(self.loose.lane);
                self.loose.operations.add(1);
            }
        }
    }

    /// Gives single pages back without merging them; merges those whose pageblocks have no maps of their own: they are
    /// isolated, reserved, or shared by zones.
    pub(super) fn loosen_batch(&mut self, frames: ZoneFrames<'_>, numbers: &[u32]) {
        let mut rest = numbers;
        while let Some(&first) = rest.first() {
            // Most pages are of one kind and far from each other.
            let byte = frames.pageblock_byte(first);
            let scattered = match byte.loose_type() {
                Some(migratetype) => {
                    let scattered = insert_scattered(&frames, rest, byte);
                    self.loose.operations.add(scattered as u64);
                    self.book_loose(migratetype, scattered as u32);
                    scattered
                }
                None => 0,
            };
            rest = &rest[scattered..];
            if !rest.is_empty() {
                let run = run_length(rest, 1);
                self.loosen_run(frames, &rest[..run]);
                rest = &rest[run..];
            }
        }
    }

    /// Gives single pages back that adjoin, all upward or all downward: as if each came alone.
    fn loosen_run(&mut self, frames: ZoneFrames<'_>, numbers: &[u32]) {
        let mut rest = numbers;
        while let Some(&first) = rest.first() {
            let is_up = rest.get(1).is_none_or(|&next| next > first);
            let in_pageblock = first % PAGEBLOCK_FRAMES;
            let room = if is_up { PAGEBLOCK_FRAMES - in_pageblock } else { in_pageblock + 1 };
            let (part, others) = rest.split_at(rest.len().min(room as usize));
            let pages = part.len() as u32;
            let lowest = if is_up { first } else { first + 1 - pages };
            match frames.pageblock_byte(lowest).loose_type() {
                Some(_) if pages == PAGEBLOCK_FRAMES => {
                    assert!(frames.loose(lowest).is_empty(), "freed twice");
                    self.free(frames, lowest, PAGEBLOCK_ORDER, Insertion::Usual);
                }
                Some(migratetype) => {
                    let map = frames.loose(lowest);
                    let filled = map.insert_run(lowest, pages);
                    self.loose.operations.add(words_of(lowest, pages));
                    // It may fill a pageblock, which takes all of its pages off the books.
                    self.book_loose(migratetype, pages);
                    self.after_insert(frames, map, lowest, migratetype, filled);
                }
                None => self.free_numbers(frames, part, Order(0)),
            }
            rest = others;
        }
    }

    /// Books pages as loose ones of a type.
    #[inline(always)]
    fn book_loose(&mut self, migratetype: Migratetype, pages: u32) {
        self.free_pages += pages as u64;
        self.loose.pages[migratetype.index()] += pages;
    }

    /// Lists the pageblock of frame `number`, or merges it, as what is in its map now asks for.
    #[inline]
    fn after_insert(
        &mut self,
        frames: ZoneFrames<'_>,
        map: LooseMap<'_>,
        number: u32,
        migratetype: Migratetype,
        filled: Filled,
    ) {
        match filled {
            Filled::More => {}
            Filled::First => self.loose.list(frames, map, last_of(number), migratetype),
            Filled::All => self.merge_loose(frames, map, last_of(number), migratetype),
        }
    }

    /// Frees a pageblock, whose last frame is `last` and whose pages are all loose, as one block.
    #[inline(never)]
    fn merge_loose(
        &mut self,
        frames: ZoneFrames<'_>,
        map: LooseMap<'_>,
        last: u32,
        migratetype: Migratetype,
    ) {
        map.clear();
        self.loose.operations.add(WORDS);
        self.loose.unlist(frames, last, migratetype);
        self.forget_loose(migratetype, PAGEBLOCK_FRAMES);
        self.free(frames, page_of(last, 0), PAGEBLOCK_ORDER, Insertion::Usual);
    }

    /// Takes up to `pages` loose pages of a type: `sink(first, n)` gets adjoining ones, at most
    /// `max_runs` times. Returns pages and runs.
    pub(super) fn take_loose(
        &mut self,
        frames: ZoneFrames<'_>,
        migratetype: Migratetype,
        pages: u32,
        max_runs: u32,
        sink: &mut impl FnMut(u32, u32),
    ) -> (u32, u32) {
        let (mut taken, mut runs) = (0, 0);
        while taken < pages && runs < max_runs && self.loose.pages(migratetype) > taken {
            let Some((last, lane)) = self.loose.first(migratetype) else { break };
            let map = frames.loose(last);
            let Some((page, run)) = map.take_run(pages - taken) else { break };
            self.loose.operations.add(1);
            sink(page_of(last, page), run);
            taken += run;
            runs += 1;
            let is_gone = map.is_empty();
            if is_gone || lane != self.loose.lane {
                self.loose.unlist(frames, last, migratetype);
                map.set_lane(self.loose.lane);
            }
            if !is_gone && lane != self.loose.lane {
                self.loose.list(frames, map, last, migratetype);
            }
        }
        self.forget_loose(migratetype, taken);
        (taken, runs)
    }

    /// Merges loose pages for a request that found no block: those of its own type, pageblock by pageblock,
    /// until there is one, and then those of the other types, which will be asked next. Returns whether any
    /// were merged.
    pub(super) fn settle_for(&mut self, frames: ZoneFrames<'_>, request: BlockRequest) -> bool {
        if !self.loose.any() {
            return false;
        }
        let own = request.migratetype;
        while self.settle_first(frames, own) {
            if first_order_from(self.lists.orders(own), request.order).is_some() {
                return true;
            }
        }
        self.settle(frames, u32::MAX);
        true
    }

    /// Whether there are loose pages.
    pub fn has_loose(&self) -> bool {
        self.loose.any()
    }

    /// Merges loose pages of up to `pageblocks` pageblocks. Returns whether any are left.
    pub fn settle(&mut self, frames: ZoneFrames<'_>, pageblocks: u32) -> bool {
        let types = &Migratetype::ALL[..Migratetype::PCP_COUNT];
        for _ in 0..pageblocks {
            if !types.iter().any(|&of| self.settle_first(frames, of)) {
                return false;
            }
        }
        self.loose.any()
    }

    /// Merges the loose pages of the pageblock of a type that was listed last. Returns whether one was listed: a count that
    /// no list stands behind, after a panic in the middle of a change, is the walker's to report, not a reason to go on
    /// for ever.
    fn settle_first(&mut self, frames: ZoneFrames<'_>, migratetype: Migratetype) -> bool {
        let Some((last, _)) = self.loose.first(migratetype) else { return false };
        let map = frames.loose(last);
        while let Some((page, run)) = map.take_run(PAGEBLOCK_FRAMES) {
            self.loose.operations.add(1);
            self.forget_loose(migratetype, run);
            self.free_run(frames, page_of(last, page), Order(0), run);
        }
        self.loose.unlist(frames, last, migratetype);
        true
    }

    /// Merges the loose pages of the pageblock that starts at `first`.
    pub(super) fn settle_pageblock(&mut self, frames: ZoneFrames<'_>, first: u32) {
        if self.merging != Merging::Deferred {
            return;
        }
        let (home, at) = frames.section(first);
        let (map, migratetype) = (frames.loose(first), home.pageblock(at));
        if home.is_pageblock_shared(at) || map.is_empty() {
            return;
        }
        self.loose.unlist(frames, last_of(first), migratetype);
        while let Some((page, run)) = map.take_run(PAGEBLOCK_FRAMES) {
            self.loose.operations.add(1);
            self.forget_loose(migratetype, run);
            self.free_run(frames, first + page, Order(0), run);
        }
    }

    /// Books pages as not loose, and not free, any more.
    #[inline]
    fn forget_loose(&mut self, migratetype: Migratetype, pages: u32) {
        self.loose.pages[migratetype.index()] -= pages;
        self.free_pages -= pages as u64;
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std_alloc::vec::Vec;

    use super::*;
    use crate::buddy::Search;
    use crate::buddy::held::{FIRST, FRAMES, Held, request, with_buddy};
    use crate::testing::random::Random;
    use crate::units::MAX_ORDER;

    impl Held<'_> {
        fn check(&self) {
            assert_eq!(self.buddy.free_pages().0 + self.held(), FRAMES as u64);
            self.buddy.check(self.frames).unwrap();
            for migratetype in Migratetype::ALL {
                for number in self.buddy.loose.iter(self.frames, migratetype) {
                    assert!(!self.is_held[number as usize]);
                }
            }
        }
    }

    fn blocks(buddy: &Buddy) -> Vec<u32> {
        let orders = (0..=MAX_ORDER.0).map(Order);
        orders
            .map(|order| Migratetype::ALL.map(|of| buddy.blocks(order, of)).iter().sum())
            .collect()
    }

    /// Tells how to run a seed again, if its test fails.
    struct Replay(u64);

    impl Drop for Replay {
        fn drop(&mut self) {
            if std::thread::panicking() {
                std::println!(
                    "replay: NEARPAGE_SEED={} cargo test -p nearpage buddy::loose",
                    self.0
                );
            }
        }
    }

    /// Whatever is taken and given back: no page is given twice, none is lost, and when all is back and
    /// merged, the same blocks are free as at the start. `NEARPAGE_SEED` runs one seed alone.
    #[test]
    fn nothing_is_lost_or_given_twice() {
        let one = std::env::var("NEARPAGE_SEED").ok().map(|seed| seed.parse().expect("a number"));
        for seed in one.map_or(0..8, |seed: u64| seed..seed + 1) {
            let _replay = Replay(seed);
            let mut random = Random(seed);
            with_buddy(Merging::Deferred, 0, |mut held| {
                let at_start = blocks(&held.buddy);
                for round in 0..3000 {
                    let of = random.one_of(&Migratetype::ALL[..Migratetype::PCP_COUNT]);
                    match random.below(4) {
                        0 => {
                            let order = random.below(11) as u8;
                            if let Some(first) = held.buddy.alloc(held.frames, request(order, of)) {
                                held.hold(first, Order(order));
                            }
                        }
                        1 => {
                            let mut runs = Vec::new();
                            let wanted = random.below(300) as u32;
                            let taken = held.buddy.take(
                                held.frames,
                                request(0, of),
                                &mut Search::Own,
                                wanted,
                                16,
                                |first, pages| runs.push((first, pages)),
                            );
                            assert_eq!(runs.iter().map(|run| run.1).sum::<u32>(), taken);
                            for page in runs.iter().flat_map(|&(first, pages)| first..first + pages)
                            {
                                held.hold(page, Order(0));
                            }
                        }
                        2 => held.give_back(&mut random, 300, |_, _| false),
                        _ => _ = held.buddy.settle(held.frames, random.below(3) as u32),
                    }
                    if round % 100 == 0 {
                        held.check();
                    }
                }
                while !held.blocks.is_empty() {
                    held.give_back(&mut random, 1000, |_, _| false);
                }
                held.buddy.settle(held.frames, u32::MAX);
                held.check();
                assert!(!held.buddy.loose.any());
                assert_eq!(blocks(&held.buddy), at_start);
            });
        }
    }

    /// Who gives the first page of a pageblock back does not get the others.
    #[test]
    fn a_pageblock_stays_with_the_cpu_that_took_its_pages() {
        with_buddy(Merging::Deferred, 0, |mut held| {
            let take = |held: &mut Held<'_>, cpu, pages| {
                let mut taken = Vec::new();
                held.buddy.serve(CpuId(cpu));
                let sink = |first, pages| taken.extend(first..first + pages);
                let wanted = request(0, Migratetype::Movable);
                held.buddy.take(held.frames, wanted, &mut Search::Own, pages, 64, sink);
                taken
            };
            // The zone begins and ends within a pageblock: those smaller blocks go first.
            take(&mut held, 0, 512 - FIRST as u32 + (FIRST as u32 + FRAMES) % 512);
            let taken = [0, 1].map(|cpu| take(&mut held, cpu, 512));
            let pageblock = |page: u32| page / 512;
            let is_whole =
                |pages: &[u32]| pages.iter().all(|&page| pageblock(page) == pageblock(pages[0]));
            assert!(taken.iter().all(|pages| is_whole(pages)));
            // A page of each stays away, and one comes back with those of the other CPU.
            let [mut first, mut second] = taken.clone().map(|pages| pages[1..].to_vec());
            core::mem::swap(&mut first[100], &mut second[0]);
            held.buddy.free_batch(held.frames, &second, Order(0));
            held.buddy.free_batch(held.frames, &first, Order(0));
            for cpu in [0, 1] {
                let again = take(&mut held, cpu as u32, 511);
                assert!(
                    again.iter().all(|&page| pageblock(page) == pageblock(taken[cpu][0])),
                    "{cpu}"
                );
            }
        });
    }

    /// Words of the maps and blocks of the lists, as the steps touch them.
    #[test]
    fn loose_pages_cost_the_words_that_are_written_for_them() {
        with_buddy(Merging::Deferred, 0, |mut held| {
            let block = request(PAGEBLOCK_ORDER.0, Migratetype::Movable);
            let first = held.buddy.alloc(held.frames, block).unwrap();
            let mut cost = |pages: &[u32]| {
                held.buddy.take_operations();
                let numbers: Vec<u32> = pages.iter().map(|page| first + page).collect();
                held.buddy.free_batch(held.frames, &numbers, Order(0));
                held.buddy.take_operations()
            };
            assert_eq!(cost(&[100]), 1 + 1, "a word, and the pageblock is listed");
            assert_eq!(cost(&[7, 5, 300]), 3, "each a word");
            assert_eq!(cost(&(120..200).collect::<Vec<u32>>()), 3, "a run over three words");
            let mut took = |pages| {
                held.buddy.take_operations();
                let wanted = request(0, Migratetype::Movable);
                held.buddy.take(held.frames, wanted, &mut Search::Own, pages, 64, |_, _| {});
                held.buddy.take_operations()
            };
            assert_eq!(took(2), 2, "two runs");
            assert_eq!(took(20), 3, "one page, eight of the next word, eleven of the one after");
        });
    }

    /// A run that fills a pageblock merges also the pages that came before it in the same batch.
    #[test]
    fn a_run_after_single_pages_fills_their_pageblock() {
        with_buddy(Merging::Deferred, 0, |mut held| {
            let block = request(PAGEBLOCK_ORDER.0, Migratetype::Movable);
            let first = held.buddy.alloc(held.frames, block).unwrap();
            let pages = (7..PAGEBLOCK_FRAMES).chain([5, 3, 6, 4, 2]).chain([0, 1]);
            let numbers: Vec<u32> = pages.map(|page| first + page).collect();
            held.buddy.free_batch(held.frames, &numbers, Order(0));
            assert!(!held.buddy.has_loose());
            held.check();
        });
    }

    /// A block is found although all its pages came back loose.
    #[test]
    fn larger_requests_merge_what_they_need() {
        with_buddy(Merging::Deferred, 0, |mut held| {
            let all = BlockRequest { order: Order(0), ..request(0, Migratetype::Movable) };
            let mut pages = Vec::new();
            held.buddy.take(held.frames, all, &mut Search::Own, FRAMES, u32::MAX, |first, run| {
                pages.extend(first..first + run);
            });
            assert_eq!(pages.len() as u32, FRAMES);
            // Every second page of the first half; then the others, but one in each pageblock.
            let freed = |page: &u32| !(page + FIRST as u32).is_multiple_of(512);
            let (even, odd): (Vec<u32>, Vec<u32>) = pages.iter().partition(|page| **page % 2 == 0);
            held.buddy.free_batch(held.frames, &even, Order(0));
            let odd: Vec<u32> = odd.into_iter().filter(freed).collect();
            held.buddy.free_batch(held.frames, &odd, Order(0));
            assert!(held.buddy.loose.pages(Migratetype::Movable) > FRAMES / 2);
            assert_eq!(held.buddy.largest_available_order(), Some(MAX_ORDER));
            let found = held.buddy.alloc(held.frames, request(8, Migratetype::Movable));
            assert!(found.is_some());
            assert_eq!(held.buddy.alloc(held.frames, request(9, Migratetype::Movable)), None);
            held.buddy.check(held.frames).unwrap();
        });
    }

    #[test]
    #[should_panic(expected = "freed twice")]
    fn a_loose_page_is_not_freed_again() {
        with_buddy(Merging::Deferred, 0, |mut held| {
            let page = held.buddy.alloc(held.frames, request(0, Migratetype::Movable)).unwrap();
            held.buddy.free_batch(held.frames, &[page], Order(0));
            held.buddy.free_batch(held.frames, &[page], Order(0));
        });
    }

    /// Also if all pages around it are loose.
    #[test]
    #[should_panic(expected = "freed twice")]
    fn a_page_among_loose_ones_is_not_freed_again() {
        with_buddy(Merging::Deferred, 0, |mut held| {
            let block = request(PAGEBLOCK_ORDER.0, Migratetype::Movable);
            let first = held.buddy.alloc(held.frames, block).unwrap();
            let numbers: Vec<u32> = (first..first + 128).collect();
            held.buddy.free_batch(held.frames, &numbers, Order(0));
            held.buddy.free_batch(held.frames, &[first + 70, first + 200], Order(0));
        });
    }

    /// As after a panic under the zone's lock.
    #[test]
    fn a_count_without_pages_ends_and_is_found() {
        with_buddy(Merging::Deferred, 0, |mut held| {
            held.buddy.loose.pages[Migratetype::Movable.index()] += 1;
            assert!(!held.buddy.settle(held.frames, u32::MAX));
            assert!(held.buddy.settle_for(held.frames, request(3, Migratetype::Movable)));
            held.buddy.check(held.frames).unwrap_err();
        });
    }
}
