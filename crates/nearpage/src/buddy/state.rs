//! The free blocks of a zone: lists, counts, and who may look at them.

use super::lists::FreeLists;
use super::loose_lists::Loose;
use super::partial_lists::PartialLists;
use super::rules::{FallbackRules, Merging};
use crate::frame::{Migratetype, ZoneFrames};
use crate::units::{MAX_ORDER, Order, PageCount};

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
    pub(super) merging: Merging,
    pub(super) lists: FreeLists,
    pub(super) loose: Loose,
    pub(super) partial: PartialLists,
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

impl Buddy {
    /// A zone without memory.
    pub const fn new(rules: FallbackRules, merging: Merging) -> Buddy {
        let (lists, loose, partial) = (FreeLists::new(), Loose::new(), PartialLists::new());
        let (free_pages, end, claims_tried, fallbacks, reserved) = (0, 0, 0, 0, 0);
        Buddy {
            rules,
            merging,
            lists,
            loose,
            partial,
            free_pages,
            end,
            claims_tried,
            fallbacks,
            reserved,
        }
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

    /// Blocks on one list, with those in the maps of pageblocks. Of the latter it looks at each.
    ///
    /// # Panics
    /// If the order is above [`MAX_ORDER`].
    pub fn blocks_with_maps(
        &self,
        frames: ZoneFrames<'_>,
        order: Order,
        migratetype: Migratetype,
    ) -> u32 {
        let pageblocks = self.partial.each(frames, migratetype);
        let in_map = |first| frames.free_in_pageblock(first).map().blocks(order);
        self.blocks(order, migratetype) + pageblocks.map(in_map).sum::<u32>()
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
        let of_type = |of| self.lists.orders(of) | self.partial.orders(of);
        let orders = types.iter().fold(0, |all, &of| all | of_type(of));
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
        let maps = self.partial.each(frames, migratetype);
        let in_maps = maps.flat_map(move |first| {
            let heads = frames.free_in_pageblock(first).map().heads(order);
            heads.map(move |head| first + head)
        });
        listed.chain(loose.into_iter().flatten()).chain(in_maps)
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
        let Buddy { lists, loose, partial, .. } = self;
        lists.operations.take() + loose.operations.take() + partial.operations.take()
    }

    /// Operations since the last call of [`take_operations`](Self::take_operations).
    #[inline]
    pub(crate) fn operations(&self) -> u64 {
        let Buddy { lists, loose, partial, .. } = self;
        lists.operations.so_far() + loose.operations.so_far() + partial.operations.so_far()
    }

    /// Counts operations that somebody else does under the zone's lock.
    #[inline]
    pub(crate) fn charge(&mut self, operations: u64) {
        self.lists.operations.add(operations);
    }

    /// Counts one step that took or freed `blocks` blocks as what it stands for.
    #[inline]
    pub(super) fn charge_blocks(&mut self, blocks: u32) {
        if self.merging == Merging::AtOnce {
            self.charge(2 * u64::from(blocks - 1));
        }
    }
}

/// The pages of a free block that `free_pages` counts.
#[inline]
pub(super) fn counted_pages(order: Order, migratetype: Migratetype) -> u64 {
    counted(frame_count(order), migratetype)
}

/// How many of so many free pages `free_pages` counts.
#[inline]
pub(super) fn counted(pages: u32, migratetype: Migratetype) -> u64 {
    if migratetype == Migratetype::Isolate { 0 } else { pages.into() }
}

/// Frames in a block, in the width of frame numbers.
#[inline]
pub(super) const fn frame_count(order: Order) -> u32 {
    order.pages().0 as u32
}
