//! A zone's lock, and what is published when it goes.

use core::ops::ControlFlow;

use super::events::ZoneEvents;
use super::{BOOSTED, COUNTED, GuardedOf, Ledgers, Zone, ZoneRules};
use crate::buddy::Buddy;
use crate::frame::Migratetype;
use crate::host::{Lock, Platform};
use crate::rule_set::{HasBuddy, Held, Published, RuleParts};
use crate::sync::{AtomicU8, Ordering};
use crate::units::{ORDERS, Order, PageCount, Pfn};
use crate::watermark::AllocFlags;

impl<'m, P: Platform> Zone<'m, P> {
    /// Takes the lock to change something, or to see whether something is to be changed. Each such hold is counted in
    /// [`work`](Self::work).
    pub(crate) fn lock(&self) -> ZoneGuard<'_, 'm, P> {
        self.take(Counting::Counted)
    }

    /// Takes the lock from outside of the rules, to look, or to arrange a state: counted nowhere.
    pub(crate) fn lock_from_outside(&self) -> ZoneGuard<'_, 'm, P> {
        self.take(Counting::Apart)
    }

    /// The one place where the lock is taken.
    fn take(&self, counting: Counting) -> ZoneGuard<'_, 'm, P> {
        let guarded = self.guarded.lock();
        if counting == Counting::Counted {
            self.published.work.begin();
        }
        let unused = if self.has(COUNTED) { P::Rules::unused(&guarded, &self.stock) } else { None };
        let (flags, claimed) = (AllocFlags::default(), PageCount(0));
        ZoneGuard { zone: self, guarded, counting, flags, free_before: unused, claimed }
    }

    /// Takes the lock to move pages between the buddy and somebody: counted among the acquisitions.
    pub(crate) fn lock_to_move(&self) -> ZoneGuard<'_, 'm, P> {
        let guard = self.lock();
        self.published.acquisitions.add(1);
        guard
    }

    /// The same, to take blocks for a request with `flags`.
    pub(crate) fn lock_to_take(&self, flags: AllocFlags) -> ZoneGuard<'_, 'm, P> {
        let mut guard = self.lock_to_move();
        guard.flags = flags;
        guard
    }

    /// From now on, pages that leave and come back are counted in the ledgers; those that are out are too.
    pub(crate) fn count_in_ledgers(&self) {
        let guard = self.lock();
        if !self.has(COUNTED) {
            let unused = P::Rules::unused(&guard.guarded, &self.stock).unwrap_or_default();
            let out = PageCount(self.managed().0 - unused.0);
            self.ledgers.node.add(out);
            self.ledgers.all.add(out);
            self.put(COUNTED, true);
        }
    }

    /// Free blocks of an order and a type. May take the zone's lock.
    ///
    /// # Panics
    /// If the order is above [`Order::MAX`].
    pub fn free_blocks(&self, order: Order, migratetype: Migratetype) -> u32 {
        self.free_area()[migratetype.index()][order.0 as usize]
    }

    /// Free blocks by type and order. May take the zone's lock.
    pub(crate) fn free_area(&self) -> [[u32; ORDERS]; Migratetype::COUNT] {
        P::Rules::free_area(self)
    }

    /// Calls `each` with the first frame of every free block of an order on the list of a type, in the order in which
    /// they would be handed out, until it breaks. Takes the zone's lock: `each` must not call the allocator.
    ///
    /// # Panics
    /// If the order is above [`Order::MAX`].
    pub fn for_each_free_block(
        &self,
        order: Order,
        migratetype: Migratetype,
        each: impl FnMut(Pfn) -> ControlFlow<()>,
    ) {
        P::Rules::each_free_block(self, order, migratetype, each);
    }

    /// Pages of pageblocks that are reserved for urgent requests of higher order, free or not. Takes the zone's lock.
    pub fn reserved_pages(&self) -> PageCount {
        P::Rules::reserved(self)
    }

    /// How often a block of another type was taken, or made the request's own, since the zone began: what Linux logs as
    /// `mm_page_alloc_extfrag` (`mm/page_alloc.c: __rmqueue_claim, __rmqueue_steal`, 6.12). Takes the zone's lock.
    pub fn type_fallbacks(&self) -> u64 {
        P::Rules::fallbacks(self)
    }

    fn publish(&self, guarded: &GuardedOf<P>) {
        let Some(published) = P::Rules::published(guarded, &self.stock) else {
            return self.publish_headroom();
        };
        let Published { free, kept_back, orders, reserved_orders } = published;
        self.published.free.store(free, kept_back);
        store_if_other(&self.published.orders, orders);
        store_if_other(&self.published.reserved_orders, reserved_orders);
        store_if_other(&self.headroom, self.headroom_now(free.0, orders));
    }

    pub(super) fn headroom_now(&self, free: u64, orders: u8) -> u8 {
        let most_reserved = self.reserve.iter().map(|pages| pages.load(Ordering::Relaxed)).max();
        let floor = self.marks().high.0 + most_reserved.unwrap_or(0) + self.kept_back().0;
        // A request for order o passes if free - (2^o - 1) > floor.
        match free.checked_sub(floor) {
            None | Some(0) => 0,
            Some(above) => orders.min(above.ilog2() as u8 + 1),
        }
    }
}

/// Writes only what changes: readers of the line are many.
fn store_if_other(cell: &AtomicU8, value: u8) {
    if cell.load(Ordering::Relaxed) != value {
        cell.store(value, Ordering::Relaxed);
    }
}

/// Whether a hold is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Counting {
    Counted,
    Apart,
}

/// The zone's lock, held. Dropping it publishes what other threads read without it.
pub(crate) struct ZoneGuard<'a, 'm, P: Platform> {
    zone: &'a Zone<'m, P>,
    guarded: <P::Lock<GuardedOf<P>> as Lock<GuardedOf<P>>>::Guard<'a>,
    counting: Counting,
    /// Of the request that blocks are taken for.
    flags: AllocFlags,
    /// Free pages when the lock was taken, if the zone is counted.
    free_before: Option<PageCount>,
    /// Pages that are counted as out already.
    claimed: PageCount,
}

impl<'a, 'm, P: Platform> ZoneGuard<'a, 'm, P> {
    /// The zone.
    #[inline]
    pub fn zone(&self) -> &'a Zone<'m, P> {
        self.zone
    }

    /// Asks the limits for blocks; returns how many of them may be taken in this hold. A request that may exceed them
    /// gets one in any case.
    pub fn claim(&mut self, blocks: u32, order: Order) -> u32 {
        if self.free_before.is_none() {
            return blocks;
        }
        let claimed = self.claim_within(blocks, order);
        let least = blocks.min(self.flags.contains(AllocFlags::OVER_LIMIT).into());
        // Who asks for nothing is not sent away.
        if claimed.max(least) == 0 && blocks > 0 {
            ZoneEvents::add(&self.zone.events.limit_refused, 1);
        }
        claimed.max(least)
    }

    /// Counts pages that were given to the buddy in this hold: they did not come back, they are new.
    pub fn add_managed(&mut self, pages: PageCount) {
        self.zone.managed.fetch_add(pages.0, Ordering::Relaxed);
        let gone = self.zone.gone().0.saturating_sub(pages.0);
        self.zone.gone.store(gone, Ordering::Relaxed);
        if let Some(free) = &mut self.free_before {
            free.0 += pages.0;
        }
    }

    /// Counts pages that were taken out of the zone in this hold: nobody has them.
    pub fn sub_managed(&mut self, pages: PageCount) {
        self.zone.managed.fetch_sub(pages.0, Ordering::Relaxed);
        self.zone.gone.fetch_add(pages.0, Ordering::Relaxed);
        if let Some(free) = &mut self.free_before {
            free.0 -= pages.0;
        }
    }

    /// Brings the ledgers in line with what left and came back.
    fn settle(&self) {
        let Some(before) = self.free_before else { return };
        let unused = P::Rules::unused(&self.guarded, &self.zone.stock).unwrap_or_default();
        // Free pages as they would be if just what was claimed had left.
        let now = PageCount(unused.0 + self.claimed.0);
        for ledger in [self.zone.ledgers.node, self.zone.ledgers.all] {
            if now > before {
                ledger.sub(PageCount(now.0 - before.0));
            } else if now < before {
                ledger.add(PageCount(before.0 - now.0));
            }
        }
    }

    /// Counts as many of the blocks as out as the limits allow; those that are not taken are back at the end of this hold.
    fn claim_within(&mut self, blocks: u32, order: Order) -> u32 {
        let Ledgers { node, all } = self.zone.ledgers;
        let of_node = node.claim(blocks, order);
        let claimed = all.claim(of_node, order);
        node.sub(order.pages_in(of_node - claimed));
        self.claimed.0 += order.pages_in(claimed).0;
        claimed
    }

    /// Notes how many pages left the zone in this hold.
    #[inline]
    pub fn note_taken(&mut self, pages: u64) {
        self.zone.published.most_pages.raise_to(pages);
    }

    /// Notes how many pages came back in this hold.
    #[inline]
    pub fn note_returned(&mut self, pages: u64) {
        self.zone.published.most_pages.raise_to(pages);
        self.zone.published.most_returned.raise_to(pages);
    }
}

impl<P: Platform<Rules: HasBuddy>> ZoneGuard<'_, '_, P> {
    /// The free blocks.
    #[inline]
    pub fn buddy(&mut self) -> &mut Buddy {
        P::Rules::buddy(&mut self.guarded)
    }
}

impl<P: Platform> Drop for ZoneGuard<'_, '_, P> {
    fn drop(&mut self) {
        self.settle();
        let Held { claims, operations } = P::Rules::end_hold(&mut self.guarded);
        if claims > 0 && self.zone.raise_boost(claims) && self.flags.contains(AllocFlags::KSWAPD) {
            self.zone.put(BOOSTED, true);
        }
        if self.counting == Counting::Counted {
            self.zone.published.work.end(operations);
        }
        self.zone.publish(&self.guarded);
    }
}

#[cfg(test)]
mod tests {
    use core::ops::ControlFlow;
    use std_alloc::string::String;

    use crate::alloc::{Config, Lending, PageAllocator, Request};
    use crate::frame::Migratetype;
    use crate::gfp::Gfp;
    use crate::model::Model;
    use crate::testing::machine::TestMachine;
    use crate::testing::plain::PlainPlatform;
    use crate::units::{CpuId, Order, PageCount, PfnRange, ZoneIndex};
    use crate::zone::LockWork;

    fn run(model: Model, run: impl FnOnce(&PageAllocator<'_, PlainPlatform>)) {
        let config = Config { model, ..Config::default() };
        TestMachine::new().node(0, 65_536, &[0]).config(config).run(|allocator| run(allocator));
    }

    fn work(allocator: &PageAllocator<'_, PlainPlatform>) -> LockWork {
        allocator.zones()[0].work()
    }

    #[test]
    fn who_looks_or_arranges_is_not_counted() {
        run(Model::LINUX_6_18, |allocator| {
            let page = allocator.alloc(Request::new(Order(0), Gfp::KERNEL)).unwrap();
            let zone = allocator.zones()[0];
            let before = zone.work();
            let mut text = String::new();
            allocator.write_zoneinfo(&mut text).unwrap();
            allocator.write_buddyinfo(&mut text).unwrap();
            allocator.write_pagetypeinfo(&mut text).unwrap();
            allocator.check().unwrap();
            zone.free_blocks(Order(3), Migratetype::Movable);
            zone.for_each_free_block(Order(3), Migratetype::Movable, |_| ControlFlow::Break(()));
            _ = (zone.reserved_pages(), zone.type_fallbacks(), zone.holds());
            let taken = allocator.take_from_zone(ZoneIndex(0), Order(4), Migratetype::Movable);
            assert!(
                allocator.cache_block(CpuId(0), page, Order(0), Migratetype::Unmovable).unwrap()
            );
            allocator.free(taken.unwrap(), Order(4)).unwrap();
            // A block of order 4 goes straight to the zone, and merges up to the pageblock or further.
            let after = zone.work();
            assert_eq!(after.holds, before.holds + 1);
            assert!((2..20).contains(&(after.operations - before.operations)));
        });
    }

    #[test]
    fn each_hold_is_counted_also_those_that_move_nothing() {
        run(Model::LINUX_6_18, |allocator| {
            let zone = allocator.zones()[0];
            let holds_of = |act: &dyn Fn()| {
                let before = (zone.work().holds, zone.holds().acquisitions);
                act();
                (zone.work().holds - before.0, zone.holds().acquisitions - before.1)
            };
            let settings = allocator.settings();
            let (moved, other) = holds_of(&|| allocator.set_settings(settings).unwrap());
            assert!(moved > 0 && other == 0, "watermarks are set under the lock");
            let range = PfnRange::new(zone.span().start.0, zone.span().end.0);
            let lent = || drop(allocator.lend_free_pages(ZoneIndex(0), range, Lending::default()));
            let block = allocator.alloc(Request::new(Order(10), Gfp::KERNEL)).unwrap();
            allocator.free(block, Order(10)).unwrap();
            assert_eq!(holds_of(&lent), (2, 0));
            assert_eq!(holds_of(&|| allocator.lower_boost(ZoneIndex(0), PageCount(0))), (0, 0));
            assert_eq!(holds_of(&|| allocator.lower_boost(ZoneIndex(0), PageCount(1))), (1, 0));
            // A direct block is a hold that moves pages.
            let direct = || _ = allocator.alloc(Request::new(Order(5), Gfp::KERNEL)).unwrap();
            assert_eq!(holds_of(&direct), (1, 1));
        });
    }

    /// Blocks of order 3 come one by one out of a block of order 10 in use by nobody.
    #[test]
    fn a_refill_costs_what_it_does_block_by_block() {
        {
            run(Model::LINUX_6_18, |allocator| {
                let before = work(allocator);
                allocator.alloc(Request::new(Order(3), Gfp::HIGHUSER_MOVABLE)).unwrap();
                let pageset = &allocator.pagesets(CpuId(0)).unwrap()[0];
                let blocks = 1 + pageset.count().0 / 8;
                assert!(blocks > 1);
                let after = work(allocator);
                // Of 128 blocks some stay: as many lists as they make up blocks.
                let rest = u64::from((128 - blocks).count_ones());
                let expected = 1 + rest + 2 * (blocks - 1);
                assert_eq!(after.operations - before.operations, expected);
                assert_eq!(after.most_operations, before.most_operations.max(expected));
                allocator.forget_most_work();
                assert_eq!(work(allocator).most_operations, 0);
            });
        }
    }
}
