//! Pageblocks reserved for urgent requests of higher order ([`Migratetype::HighAtomic`]).
//!
//! A request that cannot wait and wants more than one page fails first when memory is in pieces. So when one
//! was served, the pageblock that it was served from is set aside: its free blocks, and what comes back to
//! it, are for requests of that kind, up to a hundredth of the zone. When others are about to fail, pageblocks
//! go back, one at a time.
//!
//! `mm/page_alloc.c: reserve_highatomic_pageblock, unreserve_highatomic_pageblock`, 6.12 and 6.1.

use super::rules::FallbackModel;
use super::state::{Buddy, frame_count};
use crate::frame::{Migratetype, ZoneFrames};
use crate::units::{MAX_ORDER, Order, PAGEBLOCK_ORDER, PageCount};

const PAGEBLOCK: u64 = PAGEBLOCK_ORDER.pages().0;

impl Buddy {
    /// Pages of pageblocks that are reserved, free or not.
    pub fn reserved(&self) -> PageCount {
        PageCount(self.reserved)
    }

    /// Pages that a request without rights to reserves cannot have: in 6.12 those that are free in reserved
    /// pageblocks, in 6.1 all pages of these.
    pub fn kept_back(&self) -> PageCount {
        match self.rules.model {
            FallbackModel::Linux6_1 => PageCount(self.reserved),
            FallbackModel::Linux6_12 => self.free_in_reserve(),
        }
    }

    fn free_in_reserve(&self) -> PageCount {
        let orders = self.lists.orders(Migratetype::HighAtomic);
        let listed = (0..=MAX_ORDER.0).map(Order).filter(|order| orders >> order.0 & 1 == 1);
        let pages = |order| self.blocks(order, Migratetype::HighAtomic) as u64 * order.pages().0;
        PageCount(listed.map(pages).sum())
    }

    /// The highest order in which a reserved block is free.
    pub fn largest_reserved_order(&self) -> Option<Order> {
        let orders = self.lists.orders(Migratetype::HighAtomic);
        orders.checked_ilog2().map(|order| Order(order as u8))
    }

    /// Takes a reserved block, as [`alloc`](Self::alloc) takes others.
    pub fn alloc_reserved(&mut self, frames: ZoneFrames<'_>, order: Order) -> Option<u32> {
        let block = self.pop_smallest(frames, order, Migratetype::HighAtomic)?;
        self.put_rest_back(frames, &block, frame_count(order));
        Some(block.number)
    }

    /// Reserves the pageblocks of a block that was just taken, in a zone that manages `managed` pages, unless
    /// enough are reserved, or they are not of an ordinary type.
    pub fn reserve(
        &mut self,
        frames: ZoneFrames<'_>,
        number: u32,
        order: Order,
        managed: PageCount,
    ) {
        let most = self.reserve_max(managed);
        if self.reserved >= most.0 || !frames.pageblock(number).is_mergeable() {
            return;
        }
        if order < PAGEBLOCK_ORDER {
            if self.retype_pageblock(frames, number, Migratetype::HighAtomic).is_some() {
                self.reserved += PAGEBLOCK;
            }
            return;
        }
        for at in (0..frame_count(order)).step_by(PAGEBLOCK as usize) {
            self.set_type(frames, number + at, Migratetype::HighAtomic);
        }
        self.reserved += order.pages().0;
    }

    /// A hundredth of the zone; in 6.12 whole pageblocks, and nothing in zones of which that is less than
    /// one.
    fn reserve_max(&self, managed: PageCount) -> PageCount {
        let hundredth = managed.0 / 100;
        PageCount(match self.rules.model {
            FallbackModel::Linux6_1 => hundredth + PAGEBLOCK,
            FallbackModel::Linux6_12 if hundredth < PAGEBLOCK => 0,
            FallbackModel::Linux6_12 => hundredth.next_multiple_of(PAGEBLOCK),
        })
    }

    /// Gives one reserved pageblock that has a free block to `ours`; the last one only if `force` says so.
    /// Returns whether there was one.
    pub fn unreserve(&mut self, frames: ZoneFrames<'_>, ours: Migratetype, force: Force) -> bool {
        if self.reserved <= PAGEBLOCK && force == Force::KeepsLast {
            return false;
        }
        (0..=MAX_ORDER.0).map(Order).any(|order| self.unreserve_first(frames, order, ours))
    }

    fn unreserve_first(&mut self, frames: ZoneFrames<'_>, order: Order, ours: Migratetype) -> bool {
        let Some(number) = self.lists.first(order, Migratetype::HighAtomic) else { return false };
        self.reserved -= order.pages().0.max(PAGEBLOCK).min(self.reserved);
        if order < PAGEBLOCK_ORDER {
            return self.retype_pageblock(frames, number, ours).is_some_and(|moved| moved.0 > 0);
        }
        self.claim_pageblocks(frames, order, Migratetype::HighAtomic, ours);
        true
    }
}

impl Buddy {
    /// Gives the pageblock of frame `number` another type, with what is free in it; returns whether it did. Not if it is
    /// isolated or is to be, if zones share it, or if it reaches out of the zone and a page in it is free.
    pub fn set_pageblock_type(
        &mut self,
        frames: ZoneFrames<'_>,
        number: u32,
        migratetype: Migratetype,
    ) -> bool {
        let before = frames.pageblock(number);
        let isolates = [before, migratetype].contains(&Migratetype::Isolate);
        if isolates || frames.is_pageblock_shared(number) {
            return false;
        }
        let retyped = self.retype_pageblock(frames, number, migratetype).is_some();
        if !retyped {
            if self.has_free_in_pageblock(frames, number) {
                return false;
            }
            self.set_type(frames, number, migratetype);
        }
        if before == Migratetype::HighAtomic {
            self.reserved -= self.reserved.min(PAGEBLOCK);
        }
        if migratetype == Migratetype::HighAtomic {
            self.reserved += PAGEBLOCK;
        }
        true
    }
}

/// How hard [`Buddy::unreserve`] tries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Force {
    /// A zone keeps its last reserved pageblock.
    KeepsLast,
    /// All may go: otherwise a request fails.
    TakesLast,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buddy::{BlockRequest, FallbackRules, Fragmentation, HeldMovable};
    use crate::testing::sections::Sections;
    use crate::units::{Pfn, ZoneIndex};

    const PAGES: u32 = 65_536;

    fn with_buddy(model: FallbackModel, run: impl FnOnce(Buddy, ZoneFrames<'_>)) {
        let sections = Sections::new(2, |_| false);
        let table = sections.table();
        let frames = table.frames(Pfn(0), ZoneIndex(0));
        let rules = FallbackRules { model, held: HeldMovable::Never };
        let mut buddy = Buddy::new(rules);
        buddy.online(frames, 0..PAGES);
        run(buddy, frames);
    }

    fn request(order: u8) -> BlockRequest {
        let (migratetype, fragmentation) = (Migratetype::Unmovable, Fragmentation::Allowed);
        BlockRequest { order: Order(order), migratetype, fragmentation }
    }

    #[test]
    fn a_hundredth_of_the_zone_is_reserved() {
        let reserved = |model, managed| {
            let mut pages = 0;
            with_buddy(model, |mut buddy, frames| {
                while let Some(number) = buddy.alloc(frames, request(8)) {
                    buddy.reserve(frames, number, Order(8), PageCount(managed));
                }
                pages = buddy.reserved().0;
            });
            pages
        };
        let (old, new) = (FallbackModel::Linux6_1, FallbackModel::Linux6_12);
        assert_eq!([51_199, 51_200, 51_300].map(|managed| reserved(new, managed)), [0, 512, 1024]);
        assert_eq!([100, 51_200, 65_536].map(|managed| reserved(old, managed)), [1024, 1024, 1536]);
    }

    #[test]
    fn a_reserved_pageblock_serves_nobody_else_until_it_goes_back() {
        with_buddy(FallbackModel::Linux6_12, |mut buddy, frames| {
            let number = buddy.alloc(frames, request(3)).unwrap();
            buddy.reserve(frames, number, Order(3), PageCount(PAGES.into()));
            assert_eq!((buddy.reserved(), buddy.kept_back()), (PageCount(512), PageCount(504)));
            assert_eq!(buddy.largest_reserved_order(), Some(Order(8)));
            assert_eq!(buddy.alloc_reserved(frames, Order(3)), Some(number + 8));
            assert_eq!(buddy.kept_back(), PageCount(496));
            while buddy.alloc(frames, request(0)).is_some() {}
            assert_eq!(buddy.free_pages(), PageCount(496));
            assert!(!buddy.unreserve(frames, Migratetype::Unmovable, Force::KeepsLast));
            assert!(buddy.unreserve(frames, Migratetype::Unmovable, Force::TakesLast));
            assert_eq!((buddy.reserved(), buddy.kept_back()), (PageCount(0), PageCount(0)));
            assert!(buddy.alloc(frames, request(8)).is_some());
            buddy.check(frames).unwrap();
        });
    }
}
