//! Pageblocks on their way out of the zone ([`Migratetype::Isolate`]).
//!
//! What is free in an isolated pageblock, and what comes back to it, stands on lists that nobody takes from and does
//! not count as free. So once all of a range is isolated and free, it stays so, and can be taken out as a whole.
//! A pageblock remembers its type, for the case that it stays.
//!
//! `mm/page_isolation.c: set_migratetype_isolate, unset_migratetype_isolate`, `mm/page_alloc.c:
//! __offline_isolated_pages`, 6.12.

use core::ops::Range;

use super::state::{Buddy, Insertion, frame_count};
use crate::frame::{Migratetype, ZoneFrames};
use crate::units::{MAX_ORDER, Order, PAGEBLOCK_ORDER, PageCount};

const PAGEBLOCK: u32 = frame_count(PAGEBLOCK_ORDER);

/// What is in isolated pageblocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Isolated {
    /// Free pages.
    pub free: PageCount,
    /// The first frame that is not free.
    pub first_held: Option<u32>,
}

impl Buddy {
    /// Isolates the pageblock of frame `number`, of which no part is another zone's; returns whether it was not isolated before.
    pub fn isolate(&mut self, frames: ZoneFrames<'_>, number: u32) -> bool {
        let first = number - number % PAGEBLOCK;
        match frames.pageblock(first) {
            Migratetype::Isolate => return false,
            Migratetype::HighAtomic => {
                self.reserved -= self.reserved.min(u64::from(PAGEBLOCK));
            }
            _ => {}
        }
        self.retype(frames, first, Migratetype::Isolate, || frames.isolate_pageblock(first));
        true
    }

    /// Gives an isolated pageblock the type back that it had; what is free in it is free again, and merges.
    pub fn end_isolation(&mut self, frames: ZoneFrames<'_>, number: u32) {
        let first = number - number % PAGEBLOCK;
        let before = frames.type_before_isolation(first);
        if before == Migratetype::HighAtomic {
            self.reserved += u64::from(PAGEBLOCK);
        }
        let head = frames.frame(first);
        if head.word().is_free(PAGEBLOCK_ORDER, frames.zone()) {
            self.lists.unlink(frames, head, PAGEBLOCK_ORDER, head.word().migratetype());
            self.set_type(frames, first, before);
            self.free(frames, first, PAGEBLOCK_ORDER, Insertion::Usual);
        } else {
            self.retype(frames, first, before, || frames.set_pageblock(first, before));
        }
    }

    /// What is in `range`, whose pageblocks are isolated.
    pub fn isolated(&self, frames: ZoneFrames<'_>, range: Range<u32>) -> Isolated {
        let mut isolated = Isolated::default();
        // The first block may begin before it, and the last one end behind it.
        let mut at = range.start - range.start % PAGEBLOCK;
        while at < range.end {
            let order = free_order(frames, at);
            let next = at + order.map_or(1, frame_count);
            let within = next.min(range.end).saturating_sub(at.max(range.start));
            match order {
                Some(_) => isolated.free.0 += u64::from(within),
                None if within > 0 => isolated.first_held = isolated.first_held.or(Some(at)),
                None => {}
            }
            at = next;
        }
        isolated
    }

    /// Takes `range` from its isolated pageblocks: all of it is free, and by its words heads of nothing afterwards. What is free
    /// beside it stays free and isolated.
    ///
    /// # Panics
    /// If some of it is not free.
    pub fn take_isolated(&mut self, frames: ZoneFrames<'_>, range: Range<u32>) {
        let mut at = range.start - range.start % PAGEBLOCK;
        while at < range.end {
            let order = free_order(frames, at);
            let (first, next) = (at, at + order.map_or(1, frame_count));
            at = next;
            if next <= range.start {
                continue;
            }
            let order = order.expect("all of the range is free");
            self.lists.unlink(frames, frames.frame(first), order, Migratetype::Isolate);
            for (from, to) in [(first, range.start), (range.end, next)] {
                if from < to {
                    self.free_run(frames, from, Order(0), to - from);
                }
            }
        }
    }

    /// Takes `range` out of the zone: its pageblocks are isolated, and all of it is free. Afterwards they are as if
    /// nobody had ever touched them.
    ///
    /// # Panics
    /// If some of it is not free.
    pub fn take_out(&mut self, frames: ZoneFrames<'_>, range: Range<u32>) {
        let mut at = range.start;
        while at < range.end {
            let order = free_order(frames, at).expect("all of the range is free");
            self.lists.unlink(frames, frames.frame(at), order, Migratetype::Isolate);
            at += frame_count(order);
        }
        let first = range.start - range.start % PAGEBLOCK;
        for pageblock in (first..range.end).step_by(PAGEBLOCK as usize) {
            self.set_type(frames, pageblock, Migratetype::Movable);
        }
    }

    /// Pages that are with nobody: free ones, and those that would be if they were not isolated.
    pub fn unused_pages(&self) -> PageCount {
        let orders = self.lists.orders(Migratetype::Isolate);
        let listed = (0..=MAX_ORDER.0).map(Order).filter(|order| orders >> order.0 & 1 == 1);
        let pages = |order| self.blocks(order, Migratetype::Isolate) as u64 * order.pages().0;
        PageCount(self.free_pages + if orders == 0 { 0 } else { listed.map(pages).sum() })
    }
}

/// The order of the isolated free block that begins at a frame, if one does.
fn free_order(frames: ZoneFrames<'_>, number: u32) -> Option<Order> {
    let word = frames.frame(number).word();
    let is_isolated = word.migratetype() == Migratetype::Isolate;
    (is_isolated && word.is_free(word.order(), frames.zone())).then(|| word.order())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buddy::{BlockRequest, FallbackModel, FallbackRules, Fragmentation, HeldMovable};
    use crate::testing::sections::Sections;
    use crate::units::{Pfn, ZoneIndex};

    const PAGES: u32 = 8192;

    fn with_buddy(run: impl Fn(Buddy, ZoneFrames<'_>)) {
        for model in [FallbackModel::Linux6_12, FallbackModel::Linux6_1] {
            {
                let sections = Sections::new(1, |_| false);
                let table = sections.table();
                let frames = table.frames(Pfn(0), ZoneIndex(0));
                let rules = FallbackRules { model, held: HeldMovable::Never };
                let mut buddy = Buddy::new(rules);
                buddy.online(frames, 0..PAGES);
                run(buddy, frames);
            }
        }
    }

    fn request(order: u8, migratetype: Migratetype) -> BlockRequest {
        BlockRequest { order: Order(order), migratetype, fragmentation: Fragmentation::Allowed }
    }

    #[test]
    fn what_is_isolated_is_given_to_nobody_and_goes_as_a_whole() {
        with_buddy(|mut buddy, frames| {
            let held = buddy.alloc(frames, request(3, Migratetype::Unmovable)).unwrap();
            let scattered: std_alloc::vec::Vec<u32> = (0..20)
                .filter_map(|_| buddy.alloc(frames, request(0, Migratetype::Movable)))
                .collect();
            buddy.free_batch(frames, &[scattered[3], scattered[9]], Order(0));
            let first = 0..2048;
            let free_before = buddy.free_pages().0;
            for at in first.clone().step_by(512) {
                buddy.isolate(frames, at);
            }
            let isolated = buddy.isolated(frames, first.clone());
            assert_eq!(buddy.free_pages().0 + isolated.free.0, free_before);
            assert_eq!(buddy.unused_pages().0, free_before);
            let first_held = scattered
                .iter()
                .copied()
                .chain([held])
                .filter(|at| !buddy_free(&buddy, frames, *at))
                .min();
            assert_eq!(isolated.first_held, first_held.filter(|at| first.contains(at)));
            while let Some(number) = buddy.alloc(frames, request(0, Migratetype::Movable)) {
                assert!(!first.contains(&number));
            }
            buddy.check(frames).unwrap();
            let rest = scattered.iter().enumerate().filter(|(at, _)| ![3, 9].contains(at));
            rest.for_each(|(_, &page)| buddy.free(frames, page, Order(0), Insertion::Usual));
            buddy.free(frames, held, Order(3), Insertion::Usual);
            let all = Isolated { free: PageCount(2048), first_held: None };
            assert_eq!(buddy.isolated(frames, first.clone()), all);
            buddy.take_out(frames, first.clone());
            buddy.check(frames).unwrap();
            assert_eq!(buddy.unused_pages(), buddy.free_pages());
            let free = buddy.free_pages().0;
            buddy.online(frames, first.clone());
            assert_eq!(buddy.free_pages().0, free + 2048);
            buddy.check(frames).unwrap();
        });
    }

    fn buddy_free(buddy: &Buddy, frames: ZoneFrames<'_>, number: u32) -> bool {
        Migratetype::ALL.into_iter().any(|of| {
            (0..=10).map(Order).any(|order| {
                let covers = |head: u32| head <= number && number < head + frame_count(order);
                buddy.list(frames, order, of).any(covers)
            })
        })
    }

    #[test]
    fn an_end_of_isolation_leaves_types_and_blocks_as_they_were() {
        with_buddy(|mut buddy, frames| {
            let held = buddy.alloc(frames, request(8, Migratetype::Unmovable)).unwrap();
            let blocks = |buddy: &Buddy| {
                Migratetype::ALL
                    .map(|of| [0, 3, 8, 9, 10].map(|order| buddy.blocks(Order(order), of)))
            };
            let types =
                || (0..16).map(|at| frames.pageblock(at * 512)).collect::<std_alloc::vec::Vec<_>>();
            let before = (blocks(&buddy), types(), buddy.free_pages());
            for at in (0..PAGES).step_by(512) {
                buddy.isolate(frames, at);
            }
            assert_eq!(buddy.free_pages(), PageCount(0));
            assert_eq!(buddy.isolated(frames, 0..PAGES).first_held, Some(held));
            for at in (0..PAGES).step_by(512) {
                buddy.end_isolation(frames, at);
            }
            assert_eq!((blocks(&buddy), types(), buddy.free_pages()), before);
            buddy.check(frames).unwrap();
        });
    }

    #[test]
    fn any_part_of_what_is_isolated_is_taken_and_the_rest_stays() {
        with_buddy(|mut buddy, frames| {
            (0..PAGES).step_by(512).for_each(|at| assert!(buddy.isolate(frames, at)));
            assert!(!buddy.isolate(frames, 7), "it is isolated");
            let mut taken = std_alloc::vec![];
            for (from, to) in [(3, 5), (0, 3), (500, 1600), (1700, 1701), (4096, PAGES)] {
                let all = Isolated { free: PageCount((to - from).into()), first_held: None };
                assert_eq!(buddy.isolated(frames, from..to), all);
                buddy.take_isolated(frames, from..to);
                let none = Isolated { free: PageCount(0), first_held: Some(from) };
                assert_eq!(buddy.isolated(frames, from..to), none);
                let word = frames.allocated(Order(0), Migratetype::Unmovable);
                (from..to).for_each(|page| frames.word(page).set(word));
                taken.push((from, to));
                let out: u32 = taken.iter().map(|(from, to)| to - from).sum();
                assert_eq!(buddy.unused_pages(), PageCount((PAGES - out).into()));
                buddy.check(frames).unwrap();
            }
            (0..PAGES).step_by(512).for_each(|at| buddy.end_isolation(frames, at));
            taken.iter().for_each(|(from, to)| buddy.free_run(frames, *from, Order(0), to - from));
            buddy.check(frames).unwrap();
            assert_eq!(buddy.free_pages(), PageCount(PAGES.into()));
        });
    }

    #[test]
    fn isolated_pageblocks_stay_apart_and_merge_afterwards() {
        with_buddy(|mut buddy, frames| {
            let pair = [Migratetype::Movable, Migratetype::Movable]
                .map(|of| buddy.alloc(frames, request(9, of)).unwrap());
            assert_eq!(pair[0] ^ pair[1], 512);
            let types = || pair.map(|at| frames.pageblock(at));
            let before = types();
            assert!(pair.iter().all(|&at| buddy.isolate(frames, at)));
            pair.iter().for_each(|&at| buddy.free(frames, at, Order(9), Insertion::Usual));
            let isolated = |buddy: &Buddy| {
                [9, 10].map(|order| buddy.blocks(Order(order), Migratetype::Isolate))
            };
            assert_eq!(isolated(&buddy), [2, 0]);
            pair.iter().for_each(|&at| buddy.end_isolation(frames, at));
            assert_eq!((types(), isolated(&buddy)), (before, [0, 0]));
            assert_eq!(buddy.blocks(Order(10), Migratetype::Movable), 8);
            assert_eq!(buddy.free_pages(), PageCount(PAGES.into()));
            buddy.check(frames).unwrap();
        });
    }
}
