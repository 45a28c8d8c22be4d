//! The buddy of one zone: free blocks of 2^0 to 2^10 pages, split and merged.
//!
//! **Blocks.** A block of order `o` is 2^o pages whose first PFN is a multiple of 2^o. Its buddy is the
//! block whose PFN differs in bit `o` alone; the two together are the parent. Frames are named by
//! their number, the distance from the zone's start; alignment is always that of the PFN, so that a
//! zone may start anywhere.
//!
//! **Lists.** Free blocks stand on one list per order and [`Migratetype`] (`lists`). The order of a list
//! is that of Linux, block for block: it decides which page comes next, so that whoever compares a
//! run with a recorded kernel compares the lists too. Untouched memory is free and listed without
//! being written (`fresh`).
//!
//! **Taking** (`take`) uses the head of the smallest list that suffices. The lowest part of the block
//! is handed out, the rest goes back as the largest blocks that it makes up, each to the *head* of its
//! list. If the lists of the type have nothing, other types give (`fallback`). Some pageblocks are kept for
//! urgent requests (`reserve`). Pageblocks that are to go offline give nothing (`isolate`).
//!
//! **Freeing** (`free`) merges with the buddy as long as it is free and of the same order. The block
//! goes to the head of its list, or to the tail if the parent's buddy is free as well: then the parent
//! is likely to merge soon, and a block at the tail is handed out last.
//! `mm/page_alloc.c: __free_one_page, expand, __rmqueue_smallest, rmqueue_bulk`, 6.12.
//!
//! Facts and recordings agree: every list after every operation of the recorded experiments on 6.1.192
//! and 6.12.95 comes out the same here, block for block.
//!
//! Whoever calls holds the lock of the zone. Nothing here allocates memory, waits, or knows a host.
//! Not here: watermarks, counters by event, pagesets (they stand above), and compaction.

mod check;
mod fallback;
mod free;
mod fresh;
mod isolate;
mod lists;
mod loose;
mod reserve;
mod take;
#[cfg(test)]
mod tests;
mod trim;

pub use check::BuddyError;
pub use fallback::{FallbackModel, FallbackRules, HeldMovable};
pub use isolate::Isolated;
pub use loose::Merging;
pub use reserve::Force;
pub use take::Search;

use core::ops::Range;

use crate::frame::{Migratetype, ZoneFrames};
use crate::units::{MAX_ORDER, Order, PageCount};
use free::largest_block;
use fresh::FreshRange;
use lists::FreeLists;
use loose::Loose;

/// What is asked of the buddy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockRequest {
    /// Order of each block.
    pub order: Order,
    /// Whose lists are looked at first.
    pub migratetype: Migratetype,
    /// What other types may give.
    pub fragmentation: Fragmentation,
}

/// Whether a request may mix its pages into a pageblock of another type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fragmentation {
    /// Any block of another type will do.
    Allowed,
    /// Only whole pageblocks of another type are taken, which mixes nothing (`ALLOC_NOFRAGMENT`).
    Avoided,
}

/// Where on its list a freed block goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// The head, or the tail if the next merge is near; see the module text.
    Usual,
    /// Always the tail: the block is used last (`FPI_TO_TAIL`).
    Tail,
}

/// The free blocks of one zone. All methods want the frames of that zone.
pub struct Buddy {
    rules: FallbackRules,
    merging: Merging,
    lists: FreeLists,
    loose: Loose,
    /// Pages on all lists but those of isolated blocks, as Linux counts them
    /// (`mm/page_alloc.c: account_freepages`, 6.12). Blocks merge only with blocks that count alike.
    free_pages: u64,
    /// The zone ends before this frame number.
    end: u32,
    claims_tried: u32,
    fallbacks: u64,
    /// Pages of pageblocks that are reserved for urgent requests.
    reserved: u64,
}

impl Buddy {
    /// A zone without memory.
    pub const fn new(rules: FallbackRules, merging: Merging) -> Buddy {
        let (lists, loose) = (FreeLists::new(), Loose::new());
        let (free_pages, end, claims_tried, fallbacks, reserved) = (0, 0, 0, 0, 0);
        Buddy { rules, merging, lists, loose, free_pages, end, claims_tried, fallbacks, reserved }
    }

    /// Says that the zone's span ends before frame number `end`, managed or not (`spanned_pages`). It
    /// spans at least what was brought online. A pageblock that reaches beyond keeps its type.
    pub fn set_end(&mut self, end: u32) {
        self.end = self.end.max(end);
    }

    /// Hands the frames of `range` over, as at boot: cut greedily into the largest aligned blocks,
    /// each to the tail of its list (`mm/memblock.c: __free_pages_memory`, 6.12). Blocks of the
    /// highest order are counted and listed but not touched.
    ///
    /// No frame of the range is the head of anything, and its pageblocks are movable: untouched
    /// memory is so.
    pub fn online(&mut self, frames: ZoneFrames<'_>, range: Range<u32>) {
        self.set_end(range.end);
        let mut at = range.start;
        while at < range.end {
            let order = largest_block(frames.pfn(at), range.end - at, MAX_ORDER);
            let mut pages = frame_count(order);
            if order == MAX_ORDER {
                let fresh = FreshRange::new(at, (range.end - at) / pages);
                pages = fresh.pages();
                self.free_pages += pages as u64;
                self.lists.push_fresh(frames, fresh);
            } else {
                self.free(frames, at, order, Placement::Tail);
            }
            at += pages;
        }
    }

    /// Pages on all lists but those of [`Migratetype::Isolate`] (`NR_FREE_PAGES`).
    #[inline]
    pub fn free_pages(&self) -> PageCount {
        PageCount(self.free_pages)
    }

    /// Blocks on one list.
    ///
    /// # Panics
    /// If the order is above [`MAX_ORDER`].
    pub fn blocks(&self, order: Order, migratetype: Migratetype) -> u32 {
        let loose = if order == Order(0) { self.loose.pages(migratetype) } else { 0 };
        self.lists.blocks(order, migratetype) + loose
    }

    /// The highest order in which an unmovable, movable or reclaimable block is free.
    pub fn largest_available_order(&self) -> Option<Order> {
        if self.loose.any() {
            // What they make up when they are merged, only merging tells.
            return Some(MAX_ORDER);
        }
        let types = &Migratetype::ALL[..Migratetype::PCP_COUNT];
        let orders = types.iter().fold(0, |all, &of| all | self.lists.orders(of));
        orders.checked_ilog2().map(|order| Order(order as u8))
    }

    /// First frames of the blocks on one list, in order.
    ///
    /// # Panics
    /// If the order is above [`MAX_ORDER`].
    pub fn list(
        &self,
        frames: ZoneFrames<'_>,
        order: Order,
        migratetype: Migratetype,
    ) -> impl Iterator<Item = u32> {
        let listed = self
            .lists
            .linked(frames, order, migratetype)
            .chain(self.lists.fresh(order, migratetype));
        let loose = (order == Order(0)).then(|| self.loose.iter(frames, migratetype));
        listed.chain(loose.into_iter().flatten())
    }

    /// How often a piece of a pageblock was asked of another type since the last call: tried, not
    /// necessarily given. Linux boosts the zone's watermark at each such attempt
    /// (`mm/page_alloc.c: boost_watermark`, 6.12), so call this after each allocation.
    #[inline]
    pub fn drain_claims_tried(&mut self) -> u32 {
        core::mem::take(&mut self.claims_tried)
    }

    /// How often a block of another type was taken, or made the request's own, since the zone began: what Linux logs as
    /// `mm_page_alloc_extfrag` (`mm/page_alloc.c: __rmqueue_claim, __rmqueue_steal`, 6.12).
    #[inline]
    pub fn fallbacks(&self) -> u64 {
        self.fallbacks
    }
}

/// The pages of a free block that `free_pages` counts.
#[inline]
fn counted_pages(order: Order, migratetype: Migratetype) -> u64 {
    if migratetype == Migratetype::Isolate { 0 } else { order.pages().0 }
}

/// Frames in a block, in the width of frame numbers.
#[inline]
const fn frame_count(order: Order) -> u32 {
    order.pages().0 as u32
}
