//! Pageblocks that are kept for urgent requests of higher orders (`HIGHATOMIC`), under nearpage's own rules.
//!
//! Only who has the zone's lock touches their maps: their pages have words of their own type, so that whoever frees one comes
//! here. A pageblock is taken into the reserve while it is whole.

use super::zone_maps::{PAGES, Reach, ZoneMaps, note_touched};
use crate::buddy::Force;
use crate::frame::Migratetype;
use crate::host::Platform;
use crate::rule_set::HasMaps;
use crate::units::{Order, PAGEBLOCK_ORDER};
use crate::watermark::AllocFlags;
use crate::zone::{Zone, ZoneEvents};

const RESERVE: Migratetype = Migratetype::HighAtomic;

impl<P: Platform<Rules: HasMaps>> Zone<'_, P> {
    /// An urgent request was served past the reserve: it grows by a pageblock, up to a hundredth of the zone, if one is whole.
    pub(crate) fn reserve_pageblock(&self) {
        let maps = self.maps();
        let _guard = self.lock();
        let pageblock = u64::from(PAGES);
        let hundredth = self.managed().0 / 100;
        let most = if hundredth < pageblock { 0 } else { hundredth.next_multiple_of(pageblock) };
        if maps.reserved() >= most || !self.keep_back(pageblock) {
            return;
        }
        match maps.take_whole(self.frames(), RESERVE, maps.outside()) {
            Some(at) => {
                note_touched(self.frames(), at * PAGES, PAGEBLOCK_ORDER);
                self.frames().map(at * PAGES).fill();
                maps.set_reserved(maps.reserved() + pageblock);
            }
            None => self.keep_back_no_more(pageblock),
        }
    }

    /// A block out of the reserve, for a request that may.
    pub(crate) fn take_reserved(&self, flags: AllocFlags, order: Order) -> Option<u32> {
        let maps = self.maps();
        if self.kept_back() < order.pages() {
            return None;
        }
        let _guard = self.lock();
        if !self.claim_kept_back(flags, order.pages().0) {
            return None;
        }
        let block = maps.take_reserved(self.frames(), order);
        if block.is_none() {
            self.give_kept_back(order.pages().0);
        }
        block
    }

    /// Frees a block whose word says that it came out of the reserve.
    pub(crate) fn free_reserved(&self, platform: &P, number: u32, order: Order) {
        let maps = self.maps();
        ZoneEvents::add(&self.events().direct_free_pages, order.pages().0);
        let guard = self.lock();
        let is_reserved = self.frames().pageblock(number) == RESERVE;
        if is_reserved {
            note_touched(self.frames(), number, order);
            maps.put_run(self.frames(), number, order.pages().0 as u32, maps.outside());
            self.give_kept_back(order.pages().0);
            return;
        }
        drop(guard);
        maps.put_block(self.frames(), number, order, maps.outside());
        self.give_pages(platform, order.pages().0);
    }

    /// Gives one reserved pageblock that has a free page to type `ours`; the last one only if `force` says so. Returns whether
    /// there was one.
    pub(crate) fn unreserve_pageblock(&self, ours: Migratetype, force: Force) -> bool {
        let maps = self.maps();
        let _guard = self.lock();
        let pageblock = u64::from(PAGES);
        if maps.reserved() == 0 || maps.reserved() <= pageblock && force == Force::KeepsLast {
            return false;
        }
        let is_it = |at: &u32| self.frames().map(at * PAGES).count() > 0;
        let Some(at) = maps.reserved_pageblocks(self.frames()).find(is_it) else { return false };
        self.end_reserve(at, ours);
        true
    }

    /// A pageblock is not reserved any more; the caller has the lock.
    fn end_reserve(&self, at: u32, of: Migratetype) {
        let maps = self.maps();
        self.frames().set_pageblock(at * PAGES, of);
        self.keep_back_no_more(self.frames().map(at * PAGES).count().into());
        maps.set_reserved(maps.reserved() - u64::from(PAGES));
        maps.make_whole(self.frames(), at, maps.outside());
    }

    /// Gives a pageblock another type, to arrange a state; returns whether that can be. The pages that are held keep theirs: so
    /// only a whole one becomes part of the reserve.
    pub(crate) fn set_pageblock_type(&self, number: u32, of: Migratetype) -> bool {
        let maps = self.maps();
        let _guard = self.lock_from_outside();
        let (frames, at) = (self.frames(), number / PAGES);
        let before = frames.pageblock(number);
        if [before, of].contains(&Migratetype::Isolate) || frames.is_pageblock_shared(number) {
            return false;
        }
        if before == of {
            return true;
        }
        if of == RESERVE {
            // A page of it that somebody holds has an ordinary word, and would not come back to the reserve.
            if !maps.is_whole(at) || !self.keep_back(PAGES.into()) {
                return false;
            }
            maps.open(frames, at);
            maps.set_reserved(maps.reserved() + u64::from(PAGES));
        }
        if before == RESERVE {
            self.end_reserve(at, of);
        }
        frames.set_pageblock(number, of);
        maps.note_some(frames, at, maps.outside());
        true
    }

    /// Takes a block out of the zone, whatever its marks, to arrange a state.
    pub(crate) fn take_apart_from_maps(
        &self,
        platform: &P,
        order: Order,
        of: Migratetype,
    ) -> Option<u32> {
        let maps = self.maps();
        let flags = AllocFlags::OVER_LIMIT.union(AllocFlags::NO_WATERMARKS);
        let (pages, limits) = (order.pages().0, (flags, self.kind()));
        if of == RESERVE {
            return self.take_reserved(AllocFlags::OVER_LIMIT, order);
        }
        if self.claim_pages(platform, limits, pages, pages) == 0 {
            return None;
        }
        let block = maps.take_block(self.frames(), order, (of, Reach::All), maps.outside());
        if block.is_none() {
            self.give_pages(platform, pages);
        }
        block
    }

    /// A pageblock that is about to be isolated leaves the reserve; the caller has the lock.
    pub(crate) fn leave_reserve(&self, at: u32) {
        if self.frames().pageblock(at * PAGES) == RESERVE {
            self.end_reserve(at, Migratetype::Movable);
        }
    }
}

impl ZoneMaps<'_> {
    /// The pageblocks that are reserved.
    fn reserved_pageblocks<'a>(
        &'a self,
        frames: &'a crate::frame::ZoneFrames<'_>,
    ) -> impl Iterator<Item = u32> + 'a {
        self.ours().filter(|at| frames.pageblock(at * PAGES) == RESERVE)
    }

    /// A block out of a reserved pageblock, the one with the fewest pages that has it; the caller has the zone's lock.
    fn take_reserved(&self, frames: &crate::frame::ZoneFrames<'_>, order: Order) -> Option<u32> {
        let has_it = |at: &u32| frames.map(at * PAGES).count() >= order.pages().0 as u32;
        if order > PAGEBLOCK_ORDER {
            return None;
        }
        self.reserved_pageblocks(frames)
            .filter(has_it)
            .find_map(|at| self.take_block_from(frames, at, order, self.outside()))
    }
}

#[cfg(test)]
mod tests {
    use crate::alloc::{Config, Request};
    use crate::frame::Migratetype;
    use crate::gfp::Gfp;
    use crate::testing::machine::TestMachine;
    use crate::units::{Order, PageCount, ZoneIndex};

    /// What is kept back is free, nobody else gets it, and all of it comes back.
    #[test]
    fn the_reserve_is_for_urgent_requests() {
        TestMachine::new().node(0, 65_536, &[0]).config(Config::default()).run(|allocator| {
            let zone = allocator.zones()[0];
            let start = zone.span().start;
            assert!(allocator.retype_pageblock(ZoneIndex(0), start, Migratetype::HighAtomic));
            assert_eq!((zone.kept_back(), zone.reserved_pages()), (PageCount(512), PageCount(512)));
            let page = || allocator.alloc(Request::new(Order(0), Gfp::NOWAIT)).ok();
            let pages: std_alloc::vec::Vec<_> = core::iter::from_fn(page).collect();
            assert!(pages.iter().all(|page| page.0 >= start.0 + 512), "nobody got it");
            let urgent = Request::new(Order(2), Gfp::ATOMIC);
            let block = allocator.alloc(urgent).unwrap();
            assert!(block.0 < start.0 + 512, "an urgent request did");
            assert_eq!(zone.kept_back(), PageCount(508));
            allocator.check().unwrap();
            allocator.free(block, Order(2)).unwrap();
            assert_eq!(zone.kept_back(), PageCount(512));
            assert!(allocator.retype_pageblock(ZoneIndex(0), start, Migratetype::Movable));
            assert_eq!((zone.kept_back(), zone.reserved_pages()), (PageCount(0), PageCount(0)));
            pages.into_iter().for_each(|page| allocator.free(page, Order(0)).unwrap());
            allocator.drain_all().unwrap();
            assert_eq!(allocator.check().unwrap().free, zone.managed());
        });
    }
}
