//! The free blocks of a zone: lists, counts, and who may look at them.

use super::lists::FreeLists;
use super::rules::FallbackRules;
use crate::frame::{Migratetype, ZoneFrames};
use crate::units::{Order, PageCount};

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
pub enum Insertion {
    /// The head, or the tail if the next merge is near; see the module text.
    Usual,
    /// Always the tail: the block is used last (`FPI_TO_TAIL`).
    Tail,
}

/// The free blocks of one zone. All methods want the frames of that zone.
pub struct Buddy {
    pub(super) rules: FallbackRules,
    pub(super) lists: FreeLists,
    /// Pages on all lists but those of isolated blocks, as Linux counts them
    /// (`mm/page_alloc.c: account_freepages`, 6.12). Blocks merge only with blocks that count alike.
    pub(super) free_pages: u64,
    /// The zone ends before this frame number.
    pub(super) end: u32,
    pub(super) claims_tried: u32,
    pub(super) fallbacks: u64,
    /// Pages of pageblocks that are reserved for urgent requests.
    pub(super) reserved: u64,
}

impl core::fmt::Debug for Buddy {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Buddy").field("free_pages", &self.free_pages).finish_non_exhaustive()
    }
}

impl Buddy {
    /// A zone without memory.
    pub const fn new(rules: FallbackRules) -> Buddy {
        let (free_pages, end, claims_tried, fallbacks, reserved) = (0, 0, 0, 0, 0);
        let lists = FreeLists::new();
        Buddy { rules, lists, free_pages, end, claims_tried, fallbacks, reserved }
    }

    /// Says that the zone's span ends before frame number `end`, managed or not (`spanned_pages`). It
    /// spans at least what was brought online. A pageblock that reaches beyond keeps its type.
    pub fn set_end(&mut self, end: u32) {
        self.end = self.end.max(end);
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
        self.lists.blocks(order, migratetype)
    }

    /// The highest order in which an unmovable, movable or reclaimable block is free.
    pub fn largest_available_order(&self) -> Option<Order> {
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
        let linked = self.lists.linked(frames, order, migratetype);
        linked.chain(self.lists.fresh(order, migratetype))
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

/// What is done, counted as [`super::operations`] says.
impl Buddy {
    /// Operations since the last call.
    #[inline]
    pub fn take_operations(&mut self) -> u64 {
        self.lists.operations.take()
    }

    /// Counts operations that somebody else does under the zone's lock.
    #[inline]
    pub(crate) fn charge(&mut self, operations: u64) {
        self.lists.operations.add(operations);
    }
}

/// The pages of a free block that `free_pages` counts.
#[inline]
pub(super) fn counted_pages(order: Order, migratetype: Migratetype) -> u64 {
    if migratetype == Migratetype::Isolate { 0 } else { order.pages().0 }
}

/// Frames in a block, in the width of frame numbers.
#[inline]
pub(super) const fn frame_count(order: Order) -> u32 {
    order.pages().0 as u32
}
