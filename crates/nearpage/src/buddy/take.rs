//! Taking blocks.
//!
//! Invariant: what is left of a block after its first part was taken stands on lists that were empty,
//! one block on each, so that the next request of the same kind finds it first. Therefore many
//! requests can be served in one step without a difference.

use super::state::{BlockRequest, Buddy, frame_count};
use crate::frame::{ListEnd, Migratetype, ZoneFrames};
use crate::units::{MAX_ORDER, Order, PAGEBLOCK_ORDER};

/// A block that was just taken from its list.
pub(super) struct TakenBlock {
    pub number: u32,
    pub order: Order,
    /// The list that what is left of it goes back to.
    pub migratetype: Migratetype,
}

/// Where blocks are looked for. Kept from block to block, and from [`Buddy::take`] to `take` as long as
/// the lock is held: once a block was stolen, the lists of the own type are known to be empty
/// (`mm/page_alloc.c: enum rmqueue_mode`, 6.12).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Search {
    /// On the lists of the own type, then on those of others.
    #[default]
    Own,
    /// On the lists of other types only.
    Stealing,
}

impl Buddy {
    /// Takes one block and returns its first frame. That frame's word says neither `Free` nor
    /// `Allocated`; the words of the others are as they were.
    ///
    /// # Panics
    /// If the order is above [`MAX_ORDER`] or the type is [`Migratetype::Isolate`].
    pub fn alloc(&mut self, frames: ZoneFrames<'_>, request: BlockRequest) -> Option<u32> {
        let block = self.find(frames, request, &mut Search::Own)?;
        self.put_rest_back(frames, &block, frame_count(request.order));
        Some(block.number)
    }

    /// Takes up to `blocks` blocks, the same as [`alloc`](Self::alloc) called so often would, but a
    /// free block that is wanted whole is handed out whole: `sink(first, n)` gets `n` blocks that
    /// adjoin, the first at frame `first`. Stops early after `max_runs` calls of `sink`, or when
    /// nothing is left; a caller who then goes on under the same lock hold passes the same `search`
    /// again. Returns how many blocks it took.
    ///
    /// # Panics
    /// As [`alloc`](Self::alloc).
    pub fn take(
        &mut self,
        frames: ZoneFrames<'_>,
        request: BlockRequest,
        search: &mut Search,
        blocks: u32,
        max_runs: u32,
        mut sink: impl FnMut(u32, u32),
    ) -> u32 {
        let (mut taken, mut runs) = (0, 0);
        while taken < blocks && runs < max_runs {
            let Some(block) = self.find(frames, request, search) else { break };
            // All lists of this type below the block's order are empty, or a smaller block would have
            // been found. So the next allocations would use this block up, from its start.
            let run = (blocks - taken).min(1 << (block.order.0 - request.order.0));
            self.put_rest_back(frames, &block, run << request.order.0);
            self.charge(2 * u64::from(run - 1));
            sink(block.number, run);
            taken += run;
            runs += 1;
        }
        taken
    }

    /// Takes up to `pageblocks` whole pageblocks from the lists of `migratetype`, and from no other:
    /// `sink(first, pages)` gets pageblocks that adjoin, at most `max_runs` times. Returns pageblocks.
    pub fn take_pageblocks(
        &mut self,
        frames: ZoneFrames<'_>,
        migratetype: Migratetype,
        pageblocks: u32,
        max_runs: u32,
        mut sink: impl FnMut(u32, u32),
    ) -> u32 {
        let (mut taken, mut runs) = (0, 0);
        while taken < pageblocks
            && runs < max_runs
            && let Some(block) = self.pop_smallest(frames, PAGEBLOCK_ORDER, migratetype)
        {
            let run = (pageblocks - taken).min(1 << (block.order.0 - PAGEBLOCK_ORDER.0));
            self.put_rest_back(frames, &block, run << PAGEBLOCK_ORDER.0);
            self.charge(2 * u64::from(run - 1));
            sink(block.number, run << PAGEBLOCK_ORDER.0);
            taken += run;
            runs += 1;
        }
        taken
    }

    #[inline]
    fn find(
        &mut self,
        frames: ZoneFrames<'_>,
        request: BlockRequest,
        search: &mut Search,
    ) -> Option<TakenBlock> {
        assert!(request.order <= MAX_ORDER && request.migratetype != Migratetype::Isolate);
        if *search == Search::Own {
            let own = self.pop_smallest(frames, request.order, request.migratetype);
            if own.is_some() {
                return own;
            }
            if self.fall_back(frames, request) {
                return self.pop_smallest(frames, request.order, request.migratetype);
            }
        }
        let stolen = self.steal(frames, request)?;
        *search = Search::Stealing;
        Some(stolen)
    }

    #[inline]
    pub(super) fn pop_smallest(
        &mut self,
        frames: ZoneFrames<'_>,
        order: Order,
        migratetype: Migratetype,
    ) -> Option<TakenBlock> {
        let order = first_order_from(self.lists.orders(migratetype), order)?;
        let number = self.lists.pop(frames, order, migratetype)?;
        Some(TakenBlock { number, order, migratetype })
    }

    /// Books the first `used` frames of a block as taken and lists what is left of it.
    #[inline]
    pub(super) fn put_rest_back(&mut self, frames: ZoneFrames<'_>, block: &TakenBlock, used: u32) {
        self.free_pages -= used as u64;
        let mut at = used;
        while at < frame_count(block.order) {
            let order = Order(at.trailing_zeros() as u8);
            let number = block.number + at;
            self.lists.push(
                frames,
                number,
                frames.frame(number),
                order,
                block.migratetype,
                ListEnd::Head,
            );
            at += frame_count(order);
        }
    }
}

/// The lowest order from `order` up whose bit is set in `orders`.
#[inline]
pub(super) fn first_order_from(orders: u16, order: Order) -> Option<Order> {
    let above = orders >> order.0;
    (above != 0).then(|| Order(order.0 + above.trailing_zeros() as u8))
}
