extern crate std;

use std_alloc::vec::Vec;

use super::*;
use crate::buddy::state::frame_count;
use crate::buddy::{FallbackModel, FallbackRules, HeldMovable};
use crate::testing::random::Random;
use crate::testing::sections::Sections;
use crate::units::{MAX_ORDER, Pfn, ZoneIndex};

const RULES: FallbackRules =
    FallbackRules { model: FallbackModel::Linux6_12, held: HeldMovable::Never };
/// Two sections and a bit, from a start within a pageblock.
const FIRST: u64 = 1;
const FRAMES: u32 = 70_000;

fn request(order: u8, migratetype: Migratetype) -> BlockRequest {
    BlockRequest { order: Order(order), migratetype, fragmentation: Fragmentation::Allowed }
}

/// A buddy, who holds which pages, and which pageblocks CPUs own.
struct Held<'m> {
    buddy: Buddy,
    frames: ZoneFrames<'m>,
    is_held: Vec<bool>,
    blocks: Vec<(u32, Order)>,
    owned: Vec<u32>,
}

impl Held<'_> {
    fn hold(&mut self, first: u32, order: Order) {
        assert!(first.is_multiple_of(frame_count(order)), "aligned");
        for page in first..first + frame_count(order) {
            assert!(!self.is_held[page as usize], "page {page} was given twice");
            self.is_held[page as usize] = true;
        }
        self.blocks.push((first, order));
    }

    /// Whether some CPU has the pageblock: then its pages do not come back to the zone.
    fn is_owned(&self, number: u32) -> bool {
        self.owned.contains(&first_of(number))
    }

    fn give_back(&mut self, random: &mut Random, most: u64) {
        let mut numbers = Vec::new();
        for _ in 0..random.below(most) {
            if self.blocks.is_empty() {
                break;
            }
            let at = random.below(self.blocks.len() as u64) as usize;
            let (first, order) = self.blocks.swap_remove(at);
            let pages = first as usize..(first + frame_count(order)) as usize;
            self.is_held[pages].fill(false);
            if self.is_owned(first) {
                let block = self.frames.free_in_pageblock(first);
                block.add(first % PAGES..first % PAGES + frame_count(order));
            } else if order == Order(0) {
                numbers.push(first);
            } else {
                self.buddy.free(self.frames, first, order, Insertion::Usual);
            }
        }
        // Runs, upward or downward.
        match random.below(3) {
            0 => numbers.sort_unstable(),
            1 => numbers.sort_unstable_by(|one, other| other.cmp(one)),
            _ => {}
        }
        self.buddy.free_batch(self.frames, &numbers, Order(0));
    }

    /// Free pages of the zone, by pageblock that has a map, of a type: those that could serve an order.
    fn naive_fill(&self, of: Migratetype, order: Order) -> Option<u32> {
        let able = self.buddy.partial.each(self.frames, of).filter(|&first| {
            let map = self.frames.free_in_pageblock(first).map();
            map.first_block(order).is_some()
        });
        able.map(|first| (self.frames.free_in_pageblock(first).free() - 1) / 64).min()
    }

    fn take(&mut self, random: &mut Random) {
        let of = random.one_of(&Migratetype::ALL[..3]);
        let order = if random.one_in(3) { random.below(11) as u8 } else { 0 };
        let request = request(order, of);
        let fullest = self.naive_fill(of, request.order);
        if random.one_in(2) {
            let Some(number) = self.buddy.alloc(self.frames, request) else { return };
            if let Some(fill) = fullest.filter(|_| request.order < PAGEBLOCK_ORDER) {
                let left = self.frames.free_in_pageblock(number).free();
                let before = left + frame_count(request.order);
                assert_eq!((before - 1) / 64, fill, "from the fullest class");
            }
            return self.hold(number, request.order);
        }
        let mut got = Vec::new();
        let mut search = crate::buddy::Search::Own;
        let want = 1 + random.below(200) as u32;
        let taken =
            self.buddy.take(self.frames, request, &mut search, want, 64, |first, blocks| {
                got.extend((0..blocks).map(|block| first + (block << order)));
            });
        assert_eq!(taken as usize, got.len());
        got.into_iter().for_each(|number| self.hold(number, Order(order)));
    }

    fn hand_over(&mut self, random: &mut Random) {
        let of = random.one_of(&Migratetype::ALL[..3]);
        let order = if random.one_in(3) { random.below(10) as u8 } else { 0 };
        let free = self.buddy.free_pages().0;
        let wish = Wish {
            request: request(order, of),
            pages: PageCount(1 + random.below(3000)),
            room: PageCount(random.below(6000)),
            pageblocks: 1 + random.below(20) as u32,
        };
        let before = self.owned.len();
        let mut passing = Passing::new();
        let pages = self.buddy.hand_over(self.frames, wish, CpuId(3), &mut passing);
        while let Some(first) = passing.pop(&self.frames) {
            let block = self.frames.free_in_pageblock(first);
            if block.free() == 0 {
                block.add(0..PAGES);
            }
            self.owned.push(first);
        }
        let given = &self.owned[before..];
        assert!(pages <= wish.room && given.len() <= wish.pageblocks as usize);
        assert_eq!(free - self.buddy.free_pages().0, pages.0);
        let blocks = given.iter().map(|&first| self.frames.free_in_pageblock(first));
        assert_eq!(blocks.clone().map(|block| u64::from(block.free())).sum::<u64>(), pages.0);
        let serves = blocks.map(|block| block.map().first_block(Order(order)).is_some());
        assert!(given.is_empty() || { serves }.any(|serves| serves), "one serves the request");
        for &first in given {
            assert_eq!(self.frames.pageblock(first), of);
            assert_eq!(self.frames.free_in_pageblock(first).owner(), Some(CpuId(3)));
        }
    }

    fn take_back(&mut self, random: &mut Random) {
        if self.owned.is_empty() {
            return;
        }
        let first = self.owned.swap_remove(random.below(self.owned.len() as u64) as usize);
        if random.one_in(2) {
            // The CPU gives some pages to somebody first.
            while let Some(run) = self.frames.free_in_pageblock(first).take_run(7) {
                run.for_each(|page| self.hold(first + page, Order(0)));
                if random.one_in(3) {
                    break;
                }
            }
        }
        let block = self.frames.free_in_pageblock(first);
        match block.free() {
            // Then it is nobody's.
            0 => return block.set_owner(None),
            PAGES => _ = block.remove(0..PAGES),
            _ => {}
        }
        self.buddy.take_back(self.frames, first);
    }

    fn give_away(&mut self, random: &mut Random) {
        let of = random.one_of(&Migratetype::ALL[..3]);
        let listed: Vec<u32> = self.buddy.partial.each(self.frames, of).collect();
        if listed.is_empty() {
            return;
        }
        let first = random.one_of(&listed);
        let free = self.buddy.free_pages().0;
        let pages = self.buddy.give_away(self.frames, first, CpuId(1));
        assert_eq!(self.buddy.free_pages().0 + pages.0, free);
        self.owned.push(first);
    }

    /// Isolates a pageblock that nobody owns, and ends that again.
    fn isolate(&mut self, random: &mut Random) {
        let number = FIRST as u32 + random.below(u64::from(FRAMES - 1)) as u32;
        let first = first_of(number);
        if self.is_owned(number) || first == 0 || first + PAGES > FRAMES {
            return;
        }
        let free = self.buddy.free_pages();
        let of = self.frames.pageblock(first);
        self.buddy.isolate(self.frames, first);
        let range = first..first + PAGES;
        let isolated = self.buddy.isolated(self.frames, range.clone());
        let held = { range }.find(|&page| self.is_held[page as usize]);
        assert_eq!(isolated.first_held, held);
        assert_eq!(self.buddy.free_pages().0 + isolated.free.0, free.0);
        self.buddy.check(self.frames).unwrap();
        self.buddy.end_isolation(self.frames, first);
        assert_eq!((self.buddy.free_pages(), self.frames.pageblock(first)), (free, of));
    }

    fn check(&self) {
        let held = self.is_held.iter().filter(|held| **held).count() as u64;
        let of_cpus = self.owned.iter().map(|&first| self.frames.free_in_pageblock(first).free());
        let of_cpus = of_cpus.map(u64::from).sum::<u64>();
        assert_eq!(self.buddy.free_pages().0 + held + of_cpus, u64::from(FRAMES - FIRST as u32));
        self.buddy.check(self.frames).unwrap();
        let mut pages = 0;
        for migratetype in Migratetype::ALL {
            for order in (0..=MAX_ORDER.0).map(Order) {
                let mut blocks = 0;
                for number in self.buddy.list(self.frames, order, migratetype) {
                    let block = number as usize..(number + frame_count(order)) as usize;
                    assert!(self.is_held[block].iter().all(|held| !held));
                    blocks += 1;
                }
                assert_eq!(self.buddy.blocks_with_maps(self.frames, order, migratetype), blocks);
                pages += u64::from(blocks) * order.pages().0;
            }
        }
        assert_eq!(pages, self.buddy.free_pages().0);
    }
}

fn with_buddy(run: impl FnOnce(&mut Held<'_>)) {
    let sections = Sections::new(3, |_| false);
    let table = sections.table();
    let frames = table.frames(Pfn(FIRST), ZoneIndex(0));
    let mut buddy = Buddy::new(RULES, Merging::ByPageblock);
    buddy.online(frames, FIRST as u32..FRAMES);
    let is_held = std_alloc::vec![false; FRAMES as usize];
    run(&mut Held { buddy, frames, is_held, blocks: Vec::new(), owned: Vec::new() });
}

#[test]
fn nothing_is_lost_or_given_twice_and_the_fullest_gives_first() {
    for seed in 0..12 {
        let mut random = Random(seed);
        with_buddy(|held| {
            for step in 0..3000 {
                match random.below(12) {
                    0..5 => held.take(&mut random),
                    5..8 => held.give_back(&mut random, 200),
                    8 => held.hand_over(&mut random),
                    9 => held.take_back(&mut random),
                    10 => held.give_away(&mut random),
                    _ => held.isolate(&mut random),
                }
                if step % 100 == 0 {
                    held.check();
                }
            }
            while !held.owned.is_empty() {
                held.take_back(&mut random);
            }
            held.give_back(&mut random, u64::MAX >> 1);
            while !held.blocks.is_empty() {
                held.give_back(&mut random, 10_000);
            }
            held.check();
            let largest = |of| held.buddy.blocks(MAX_ORDER, of);
            let blocks: u32 = Migratetype::ALL.into_iter().map(largest).sum();
            assert_eq!(blocks, (FRAMES - 1024) / 1024, "seed {seed}: all is whole again");
        });
    }
}

#[test]
fn pages_of_a_shared_pageblock_stay_on_lists() {
    let sections = Sections::new(1, |_| false);
    let table = sections.table();
    let frames = table.frames(Pfn(0), ZoneIndex(0));
    let mut buddy = Buddy::new(RULES, Merging::ByPageblock);
    frames.share_pageblock(1000);
    // The zone ends within its second pageblock.
    buddy.online(frames, 0..1000);
    assert_eq!(buddy.free_pages(), PageCount(1000));
    let single = request(0, Migratetype::Unmovable);
    let mut seen = std_alloc::vec![false; 1000];
    while let Some(number) = buddy.alloc(frames, single) {
        assert!(!core::mem::replace(&mut seen[number as usize], true));
    }
    assert!(seen.iter().all(|seen| *seen), "pages of both pageblocks");
    (0..1000).rev().for_each(|number| buddy.free(frames, number, Order(0), Insertion::Usual));
    buddy.check(frames).unwrap();
    assert_eq!(buddy.free_pages(), PageCount(1000));
}

#[test]
fn the_last_page_makes_a_pageblock_whole() {
    with_buddy(|held| {
        let (buddy, frames) = (&mut held.buddy, held.frames);
        let of = Migratetype::Movable;
        let whole = |buddy: &Buddy| {
            let types = Migratetype::ALL.into_iter();
            types
                .map(|of| buddy.blocks(Order(9), of) + 2 * buddy.blocks(Order(10), of))
                .sum::<u32>()
        };
        // The pageblocks at both ends are in pieces: they give first.
        let mut ends = 0;
        let before = whole(buddy);
        let mut pages = Vec::new();
        while whole(buddy) == before {
            pages.push(buddy.alloc(frames, request(0, of)).unwrap());
            ends += 1;
        }
        assert!(ends > 300, "the ends, and one page of a whole pageblock");
        let last = pages.pop().unwrap();
        buddy.free(frames, last, Order(0), Insertion::Usual);
        assert_eq!(whole(buddy), before);
    });
}
