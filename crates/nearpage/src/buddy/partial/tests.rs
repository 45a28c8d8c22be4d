extern crate std;

use std_alloc::vec::Vec;

use super::*;
use crate::buddy::held::{FIRST, FRAMES, Held, RULES, request, with_buddy};
use crate::buddy::state::frame_count;
use crate::testing::random::Random;
use crate::testing::sections::Sections;
use crate::units::{MAX_ORDER, Pfn, ZoneIndex};

/// A buddy, who holds which pages, and which pageblocks CPUs own.
struct Owners<'m> {
    zone: Held<'m>,
    owned: Vec<u32>,
}

impl Owners<'_> {
    /// Whether some CPU has the pageblock: then its pages do not come back to the zone.
    fn is_owned(&self, number: u32) -> bool {
        self.owned.contains(&first_of(number))
    }

    fn give_back(&mut self, random: &mut Random, most: u64) {
        let (frames, owned) = (self.zone.frames, &self.owned);
        self.zone.give_back(random, most, |first, order| {
            let is_owned = owned.contains(&first_of(first));
            if is_owned {
                let at = first % PAGES;
                frames.free_in_pageblock(first).add(at..at + frame_count(order));
            }
            is_owned
        });
    }

    /// Free pages of the zone, by pageblock that has a map, of a type: those that could serve an order.
    fn naive_fill(&self, of: Migratetype, order: Order) -> Option<u32> {
        let able = self.zone.buddy.partial.each(self.zone.frames, of).filter(|&first| {
            let map = self.zone.frames.free_in_pageblock(first).map();
            map.first_block(order).is_some()
        });
        able.map(|first| (self.zone.frames.free_in_pageblock(first).free() - 1) / 64).min()
    }

    fn take(&mut self, random: &mut Random) {
        let of = random.one_of(&Migratetype::ALL[..3]);
        let order = if random.one_in(3) { random.below(11) as u8 } else { 0 };
        let request = request(order, of);
        let fullest = self.naive_fill(of, request.order);
        if random.one_in(2) {
            let Some(number) = self.zone.buddy.alloc(self.zone.frames, request) else { return };
            if let Some(fill) = fullest.filter(|_| request.order < PAGEBLOCK_ORDER) {
                let left = self.zone.frames.free_in_pageblock(number).free();
                let before = left + frame_count(request.order);
                assert_eq!((before - 1) / 64, fill, "from the fullest class");
            }
            return self.zone.hold(number, request.order);
        }
        let mut got = Vec::new();
        let mut search = crate::buddy::Search::Own;
        let want = 1 + random.below(200) as u32;
        let taken = self.zone.buddy.take(
            self.zone.frames,
            request,
            &mut search,
            want,
            64,
            |first, blocks| {
                got.extend((0..blocks).map(|block| first + (block << order)));
            },
        );
        assert_eq!(taken as usize, got.len());
        got.into_iter().for_each(|number| self.zone.hold(number, Order(order)));
    }

    fn hand_over(&mut self, random: &mut Random) {
        let of = random.one_of(&Migratetype::ALL[..3]);
        let order = if random.one_in(3) { random.below(10) as u8 } else { 0 };
        let free = self.zone.buddy.free_pages().0;
        let wish = Wish {
            request: request(order, of),
            pages: PageCount(1 + random.below(3000)),
            room: PageCount(random.below(6000)),
            pageblocks: 1 + random.below(20) as u32,
        };
        let before = self.owned.len();
        let mut passing = Passing::new();
        let pages = self.zone.buddy.hand_over(self.zone.frames, wish, CpuId(3), &mut passing);
        while let Some(first) = passing.pop(&self.zone.frames) {
            let block = self.zone.frames.free_in_pageblock(first);
            if block.free() == 0 {
                block.add(0..PAGES);
            }
            self.owned.push(first);
        }
        let given = &self.owned[before..];
        assert!(pages <= wish.room && given.len() <= wish.pageblocks as usize);
        assert_eq!(free - self.zone.buddy.free_pages().0, pages.0);
        let blocks = given.iter().map(|&first| self.zone.frames.free_in_pageblock(first));
        assert_eq!(blocks.clone().map(|block| u64::from(block.free())).sum::<u64>(), pages.0);
        let serves = blocks.map(|block| block.map().first_block(Order(order)).is_some());
        assert!(given.is_empty() || { serves }.any(|serves| serves), "one serves the request");
        for &first in given {
            assert_eq!(self.zone.frames.pageblock(first), of);
            assert_eq!(self.zone.frames.free_in_pageblock(first).owner(), Some(CpuId(3)));
        }
    }

    fn take_back(&mut self, random: &mut Random) {
        if self.owned.is_empty() {
            return;
        }
        let first = self.owned.swap_remove(random.below(self.owned.len() as u64) as usize);
        if random.one_in(2) {
            // The CPU gives some pages to somebody first.
            while let Some(run) = self.zone.frames.free_in_pageblock(first).take_run(7) {
                run.for_each(|page| self.zone.hold(first + page, Order(0)));
                if random.one_in(3) {
                    break;
                }
            }
        }
        let block = self.zone.frames.free_in_pageblock(first);
        match block.free() {
            // Then it is nobody's.
            0 => return block.set_owner(None),
            PAGES => _ = block.remove(0..PAGES),
            _ => {}
        }
        self.zone.buddy.take_back(self.zone.frames, first);
    }

    fn give_away(&mut self, random: &mut Random) {
        let of = random.one_of(&Migratetype::ALL[..3]);
        let listed: Vec<u32> = self.zone.buddy.partial.each(self.zone.frames, of).collect();
        if listed.is_empty() {
            return;
        }
        let first = random.one_of(&listed);
        let free = self.zone.buddy.free_pages().0;
        let pages = self.zone.buddy.give_away(self.zone.frames, first, CpuId(1));
        assert_eq!(self.zone.buddy.free_pages().0 + pages.0, free);
        self.owned.push(first);
    }

    /// Isolates a pageblock that nobody owns, and ends that again.
    fn isolate(&mut self, random: &mut Random) {
        let number = FIRST as u32 + random.below(u64::from(FRAMES - 1)) as u32;
        let first = first_of(number);
        if self.is_owned(number) || first == 0 || first + PAGES > FRAMES {
            return;
        }
        let free = self.zone.buddy.free_pages();
        let of = self.zone.frames.pageblock(first);
        self.zone.buddy.isolate(self.zone.frames, first);
        let range = first..first + PAGES;
        let isolated = self.zone.buddy.isolated(self.zone.frames, range.clone());
        let held = { range }.find(|&page| self.zone.is_held[page as usize]);
        assert_eq!(isolated.first_held, held);
        assert_eq!(self.zone.buddy.free_pages().0 + isolated.free.0, free.0);
        self.zone.buddy.check(self.zone.frames).unwrap();
        self.zone.buddy.end_isolation(self.zone.frames, first);
        assert_eq!((self.zone.buddy.free_pages(), self.zone.frames.pageblock(first)), (free, of));
    }

    fn check(&self) {
        let held = self.zone.held();
        let of_cpus =
            self.owned.iter().map(|&first| self.zone.frames.free_in_pageblock(first).free());
        let of_cpus = of_cpus.map(u64::from).sum::<u64>();
        assert_eq!(
            self.zone.buddy.free_pages().0 + held + of_cpus,
            u64::from(FRAMES - FIRST as u32)
        );
        self.zone.buddy.check(self.zone.frames).unwrap();
        let mut pages = 0;
        for migratetype in Migratetype::ALL {
            for order in (0..=MAX_ORDER.0).map(Order) {
                let mut blocks = 0;
                for number in self.zone.buddy.list(self.zone.frames, order, migratetype) {
                    let block = number as usize..(number + frame_count(order)) as usize;
                    assert!(self.zone.is_held[block].iter().all(|held| !held));
                    blocks += 1;
                }
                assert_eq!(
                    self.zone.buddy.blocks_with_maps(self.zone.frames, order, migratetype),
                    blocks
                );
                pages += u64::from(blocks) * order.pages().0;
            }
        }
        assert_eq!(pages, self.zone.buddy.free_pages().0);
    }
}

fn with_owners(run: impl FnOnce(&mut Owners<'_>)) {
    with_buddy(Merging::ByPageblock, FIRST as u32, |zone| {
        run(&mut Owners { zone, owned: Vec::new() })
    });
}

#[test]
fn nothing_is_lost_or_given_twice_and_the_fullest_gives_first() {
    for seed in 0..12 {
        let mut random = Random(seed);
        with_owners(|held| {
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
            while !held.zone.blocks.is_empty() {
                held.give_back(&mut random, 10_000);
            }
            held.check();
            let largest = |of| held.zone.buddy.blocks(MAX_ORDER, of);
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
    with_owners(|held| {
        let (buddy, frames) = (&mut held.zone.buddy, held.zone.frames);
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

/// Where all but a shared pageblock is in use.
#[test]
fn who_may_have_no_block_gets_none_from_a_shared_pageblock() {
    let sections = Sections::new(1, |_| false);
    let table = sections.table();
    let frames = table.frames(Pfn(0), ZoneIndex(0));
    frames.share_pageblock(512);
    let mut buddy = Buddy::new(RULES, Merging::ByPageblock);
    buddy.online(frames, 512..1000);
    let mut take = |blocks| {
        let mut search = crate::buddy::Search::Own;
        buddy.take(frames, request(0, Migratetype::Movable), &mut search, blocks, 8, |_, _| {})
    };
    assert_eq!([take(0), take(1)], [0, 1]);
}
