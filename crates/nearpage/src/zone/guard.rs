//! A zone's lock, and what is published when it goes.

use core::ops::ControlFlow;

use super::events::ZoneEvents;
use super::{BOOSTED, COUNTED, Ledgers, Zone};
use crate::buddy::Buddy;
use crate::frame::Migratetype;
use crate::host::{Lock, Platform};
use crate::sync::Ordering;
use crate::units::{Order, PageCount, Pfn};
use crate::watermark::AllocFlags;

impl<'m, P: Platform> Zone<'m, P> {
    /// Takes the lock to look or to change what is not a move of pages.
    pub(crate) fn lock(&self) -> ZoneGuard<'_, 'm, P> {
        let buddy = self.buddy.lock();
        let free_before = if self.has(COUNTED) { Some(buddy.unused_pages()) } else { None };
        let (flags, claimed) = (AllocFlags::default(), PageCount(0));
        ZoneGuard { zone: self, buddy, flags, free_before, claimed }
    }

    /// Takes the lock to move pages between the buddy and somebody: counted.
    pub(crate) fn lock_to_move(&self) -> ZoneGuard<'_, 'm, P> {
        let guard = self.lock();
        self.published.acquisitions.add(1);
        guard
    }

    /// Takes the lock to take blocks for a request with `flags`: counted.
    pub(crate) fn lock_to_take(&self, flags: AllocFlags) -> ZoneGuard<'_, 'm, P> {
        let mut guard = self.lock_to_move();
        guard.flags = flags;
        guard
    }

    /// From now on, pages that leave and come back are counted in the ledgers; those that are out are too.
    pub(crate) fn count_in_ledgers(&self) {
        let guard = self.lock();
        if guard.free_before.is_none() {
            let out = PageCount(self.managed().0 - guard.buddy.unused_pages().0);
            self.ledgers.node.add(out);
            self.ledgers.all.add(out);
            self.put(COUNTED, true);
        }
    }

    /// Free blocks of an order on the lists of a type. Takes the zone's lock.
    ///
    /// # Panics
    /// If the order is above [`Order::MAX`].
    pub fn free_blocks(&self, order: Order, migratetype: Migratetype) -> u32 {
        self.lock().buddy.blocks(order, migratetype)
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
        mut each: impl FnMut(Pfn) -> ControlFlow<()>,
    ) {
        let guard = self.lock();
        let mut blocks = guard.buddy.list(self.frames, order, migratetype);
        let _ = blocks.try_for_each(|number| each(self.frames.pfn(number)));
    }

    /// Pages of pageblocks that are reserved for urgent requests of higher order, free or not. Takes the zone's lock.
    pub fn reserved_pages(&self) -> PageCount {
        self.lock().buddy.reserved()
    }

    /// How often a block of another type was taken, or made the request's own, since the zone began: what Linux logs as
    /// `mm_page_alloc_extfrag` (`mm/page_alloc.c: __rmqueue_claim, __rmqueue_steal`, 6.12). Takes the zone's lock.
    pub fn type_fallbacks(&self) -> u64 {
        self.lock().buddy.fallbacks()
    }

    fn publish(&self, buddy: &Buddy) {
        let free = buddy.free_pages().0;
        let orders = buddy.largest_available_order().map_or(0, |order| order.0 + 1);
        self.published.free.store(free, Ordering::Relaxed);
        if self.published.orders.load(Ordering::Relaxed) != orders {
            self.published.orders.store(orders, Ordering::Relaxed);
        }
        self.publish_reserve(buddy);
        let headroom = self.headroom_now(free, orders);
        if self.headroom.load(Ordering::Relaxed) != headroom {
            self.headroom.store(headroom, Ordering::Relaxed);
        }
    }

    fn publish_reserve(&self, buddy: &Buddy) {
        let reserved_orders = buddy.largest_reserved_order().map_or(0, |order| order.0 + 1);
        if reserved_orders == 0 && buddy.reserved().0 == 0 && self.kept_back().0 == 0 {
            return;
        }
        self.published.reserved_orders.store(reserved_orders, Ordering::Relaxed);
        self.published.kept_back.store(buddy.kept_back().0, Ordering::Relaxed);
    }

    fn headroom_now(&self, free: u64, orders: u8) -> u8 {
        let most_reserved = self.reserve.iter().map(|pages| pages.load(Ordering::Relaxed)).max();
        let floor = self.marks().high.0 + most_reserved.unwrap_or(0) + self.kept_back().0;
        // A request for order o passes if free - (2^o - 1) > floor.
        match free.checked_sub(floor) {
            None | Some(0) => 0,
            Some(above) => orders.min(above.ilog2() as u8 + 1),
        }
    }
}

/// The zone's lock, held. Dropping it publishes what other threads read without it.
pub(crate) struct ZoneGuard<'a, 'm, P: Platform> {
    zone: &'a Zone<'m, P>,
    buddy: <P::Lock<Buddy> as Lock<Buddy>>::Guard<'a>,
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

    /// The free blocks.
    #[inline]
    pub fn buddy(&mut self) -> &mut Buddy {
        &mut self.buddy
    }

    /// Asks the limits for blocks; returns how many of them may be taken in this hold. A request that may exceed them
    /// gets one in any case.
    pub fn claim(&mut self, blocks: u32, order: Order) -> u32 {
        if self.free_before.is_none() {
            return blocks;
        }
        let Ledgers { node, all } = self.zone.ledgers;
        let of_node = node.claim(blocks, order);
        let claimed = all.claim(of_node, order);
        node.sub(order.pages_in(of_node - claimed));
        self.claimed.0 += order.pages_in(claimed).0;
        let least = blocks.min(self.flags.contains(AllocFlags::OVER_LIMIT).into());
        if claimed.max(least) == 0 {
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
        // Free pages as they would be if just what was claimed had left.
        let now = PageCount(self.buddy.unused_pages().0 + self.claimed.0);
        for ledger in [self.zone.ledgers.node, self.zone.ledgers.all] {
            if now > before {
                ledger.sub(PageCount(now.0 - before.0));
            } else if now < before {
                ledger.add(PageCount(before.0 - now.0));
            }
        }
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

impl<P: Platform> Drop for ZoneGuard<'_, '_, P> {
    fn drop(&mut self) {
        let claims = self.buddy.drain_claims_tried();
        if claims > 0 && self.zone.raise_boost(claims) && self.flags.contains(AllocFlags::KSWAPD) {
            self.zone.put(BOOSTED, true);
        }
        self.settle();
        self.zone.publish(&self.buddy);
    }
}
