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
//! **Allocation** takes the head of the smallest list that suffices. The lowest part of the block is
//! handed out, the rest goes back as blocks of falling order, each to the *head* of its list. If the
//! lists of the type have nothing, other types give (`fallback`).
//!
//! **Free** merges with the buddy as long as it is free and of the same order. The block goes to the
//! head of its list, or to the tail if the parent's buddy is free as well: then the parent is likely to
//! merge soon, and a block at the tail is handed out last.
//! `mm/page_alloc.c: __free_one_page, expand, __rmqueue_smallest, rmqueue_bulk`, 6.12.
//!
//! Whoever calls holds the lock of the zone. Nothing here allocates memory, waits, or knows a host.
//! Not here: watermarks, counters by event, pagesets (they stand above), and compaction.

mod check;
mod fallback;
mod fresh;
mod lists;

pub use check::BuddyError;
pub use fallback::{FallbackModel, FallbackRules, HeldMovable};

use core::ops::Range;

use crate::frame::{FrameState, ListEnd, Migratetype, SectionFrames, ZoneFrames};
use crate::units::{MAX_ORDER, Order, PAGEBLOCK_ORDER, PageCount, Pfn};
use fresh::FreshRange;
use lists::FreeLists;

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
    lists: FreeLists,
    /// Pages on all lists but those of isolated blocks, as Linux counts them
    /// (`mm/page_alloc.c: account_freepages`, 6.12). Blocks merge only with blocks that count alike.
    free_pages: u64,
    /// The zone ends before this frame number.
    spanned: u32,
    claims_tried: u32,
}

/// A block that was just taken from its list.
struct TakenBlock {
    number: u32,
    order: Order,
    /// The list that what is left of it goes back to.
    migratetype: Migratetype,
}

/// Where an allocation looks. `rmqueue_bulk` keeps this from block to block: once a block was stolen,
/// the lists of the own type are known to be empty (`enum rmqueue_mode`, 6.12).
#[derive(PartialEq)]
enum Search {
    Own,
    Stealing,
}

impl Buddy {
    /// A zone without memory.
    pub const fn new(rules: FallbackRules) -> Buddy {
        Buddy { rules, lists: FreeLists::new(), free_pages: 0, spanned: 0, claims_tried: 0 }
    }

    /// Says that the zone spans `frames` frames from its start, managed or not (`spanned_pages`). It
    /// spans at least what was brought online. A pageblock that reaches beyond keeps its type.
    pub fn set_spanned(&mut self, frames: u32) {
        self.spanned = self.spanned.max(frames);
    }

    /// Hands the frames of `range` over, as at boot: cut greedily into the largest aligned blocks,
    /// each to the tail of its list (`mm/memblock.c: __free_pages_memory`, 6.12). Blocks of the
    /// highest order are counted and listed but not touched.
    ///
    /// No frame of the range is the head of anything, and its pageblocks are movable: untouched
    /// memory is so.
    pub fn online(&mut self, frames: ZoneFrames<'_>, range: Range<u32>) {
        self.set_spanned(range.end);
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

    /// Takes one block and returns its first frame. That frame's word is not `Free`; the words of the
    /// others are as they were.
    ///
    /// # Panics
    /// If the order is above [`MAX_ORDER`].
    pub fn alloc(&mut self, frames: ZoneFrames<'_>, request: BlockRequest) -> Option<u32> {
        let block = self.find(frames, request, &mut Search::Own)?;
        self.put_rest_back(frames, &block, frame_count(request.order));
        Some(block.number)
    }

    /// Takes up to `blocks` blocks, the same as [`alloc`](Self::alloc) called so often would, but a
    /// free block that is wanted whole is handed out whole: `sink(first, n)` gets `n` blocks that
    /// adjoin, the first at frame `first`. Stops early after `max_runs` calls of `sink`, or when
    /// nothing is left. Returns how many blocks it took.
    ///
    /// # Panics
    /// If the order is above [`MAX_ORDER`].
    pub fn take(
        &mut self,
        frames: ZoneFrames<'_>,
        request: BlockRequest,
        blocks: u32,
        max_runs: u32,
        mut sink: impl FnMut(u32, u32),
    ) -> u32 {
        let mut search = Search::Own;
        let (mut taken, mut runs) = (0, 0);
        while taken < blocks && runs < max_runs {
            let Some(block) = self.find(frames, request, &mut search) else { break };
            // All lists of this type below the block's order are empty, or a smaller block would have
            // been found. So the next allocations would use this block up, from its start.
            let run = (blocks - taken).min(1 << (block.order.0 - request.order.0));
            self.put_rest_back(frames, &block, run << request.order.0);
            sink(block.number, run);
            taken += run;
            runs += 1;
        }
        taken
    }

    /// Gives a block back: merges it and lists it under the type of its pageblock. Its frames are
    /// heads of nothing, by their words; none is in a free block.
    ///
    /// # Panics
    /// If the block is not aligned to its order, its order is above [`MAX_ORDER`], or its first frame
    /// is a free block's.
    pub fn free(
        &mut self,
        frames: ZoneFrames<'_>,
        number: u32,
        order: Order,
        placement: Placement,
    ) {
        assert!(order <= MAX_ORDER && frames.pfn(number).is_aligned(order));
        if order > PAGEBLOCK_ORDER && self.rules.lists_follow_pageblocks() {
            // The pageblocks may differ in type. `mm/page_alloc.c: split_large_buddy`, 6.12.
            for half in [number, number + frame_count(PAGEBLOCK_ORDER)] {
                self.merge(frames, half, PAGEBLOCK_ORDER, placement);
            }
        } else {
            self.merge(frames, number, order, placement);
        }
    }

    /// Gives `pages` adjoining pages back in the fewest steps: as the largest aligned blocks within
    /// pageblocks, in ascending order. The free blocks are then the same as if each page had been
    /// freed alone, in ascending order; their places on the lists may differ.
    ///
    /// # Panics
    /// As [`free`](Self::free).
    pub fn free_run(&mut self, frames: ZoneFrames<'_>, first: u32, pages: u32) {
        let end = first + pages;
        let mut at = first;
        while at < end {
            let order = largest_block(frames.pfn(at), end - at, PAGEBLOCK_ORDER);
            self.merge(frames, at, order, Placement::Usual);
            at += frame_count(order);
        }
    }

    /// x
    pub fn free_batch(&mut self, frames: ZoneFrames<'_>, numbers: &[u32], order: Order) {
        assert!(order < PAGEBLOCK_ORDER);
        let mut rest = numbers;
        while let Some((&first, _)) = rest.split_first() {
            if let Some(&ahead) = rest.get(AHEAD) {
                core::hint::black_box(frames.frame(ahead).word());
            }
            self.merge(frames, first, order, Placement::Usual);
            rest = &rest[1..];
        }
    }

    /// Pages on all lists but those of [`Migratetype::Isolate`] (`NR_FREE_PAGES`).
    #[inline]
    pub fn free_pages(&self) -> PageCount {
        PageCount(self.free_pages)
    }

    /// Blocks on one list.
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
    pub fn list(
        &self,
        frames: ZoneFrames<'_>,
        order: Order,
        migratetype: Migratetype,
    ) -> impl Iterator<Item = u32> {
        self.lists.linked(frames, order, migratetype).chain(self.lists.fresh(order, migratetype))
    }

    /// How often a piece of a pageblock was asked of another type since the last call: tried, not
    /// necessarily given. Linux boosts the zone's watermark at each such attempt
    /// (`mm/page_alloc.c: boost_watermark`, 6.12), so call this after each allocation.
    #[inline]
    pub fn drain_claims_tried(&mut self) -> u32 {
        core::mem::take(&mut self.claims_tried)
    }

    #[inline]
    fn find(
        &mut self,
        frames: ZoneFrames<'_>,
        request: BlockRequest,
        search: &mut Search,
    ) -> Option<TakenBlock> {
        assert!(request.order <= MAX_ORDER);
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
    fn pop_smallest(
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
    fn put_rest_back(&mut self, frames: ZoneFrames<'_>, block: &TakenBlock, used: u32) {
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

    /// Frees a block whose frames are all of one type.
    #[inline(always)]
    fn merge(&mut self, frames: ZoneFrames<'_>, number: u32, order: Order, placement: Placement) {
        let (home, mut at) = frames.section(number);
        let migratetype = home.pageblock(at);
        assert!(home.frame(at).word().state() != FrameState::Free, "freed twice");
        self.free_pages += counted_pages(order, migratetype);
        let mut order = order;
        let mut size = frame_count(order);
        while order < PAGEBLOCK_ORDER {
            let frame = home.frame(at ^ size);
            let word = frame.word();
            if !word.is_free(order, frames.zone()) {
                break;
            }
            self.lists.unlink(frames, frame, order, word.migratetype());
            at &= !size;
            size *= 2;
            order.0 += 1;
        }
        if order == PAGEBLOCK_ORDER
            && self.join_types(frames, home, at, migratetype)
            && self.absorb_buddy(frames, home, at, order)
        {
            at &= !frame_count(order);
            order.0 += 1;
        }
        let end = match placement {
            Placement::Usual if next_merge_is_near(frames, home, at, order) => ListEnd::Tail,
            Placement::Usual => ListEnd::Head,
            Placement::Tail => ListEnd::Tail,
        };
        self.lists.push(frames, home.number(at), home.frame(at), order, migratetype, end);
    }

    /// Unlists the buddy of the block at `at` if it is free as a whole.
    #[inline]
    fn absorb_buddy(
        &mut self,
        frames: ZoneFrames<'_>,
        home: SectionFrames<'_>,
        at: u32,
        order: Order,
    ) -> bool {
        let frame = home.frame(at ^ frame_count(order));
        let word = frame.word();
        let is_free = word.is_free(order, frames.zone());
        if is_free {
            self.lists.unlink(frames, frame, order, word.migratetype());
        }
        is_free
    }

    /// Whether the pageblock at `at`, of `migratetype`, may merge with its buddy, as far as types go.
    /// In 6.12 a free buddy takes that type over; in 6.1 it keeps its own.
    fn join_types(
        &self,
        frames: ZoneFrames<'_>,
        home: SectionFrames<'_>,
        at: u32,
        migratetype: Migratetype,
    ) -> bool {
        let buddy = at ^ frame_count(PAGEBLOCK_ORDER);
        let theirs = home.pageblock(buddy);
        let joins = theirs == migratetype || theirs.is_mergeable() && migratetype.is_mergeable();
        if joins
            && self.rules.lists_follow_pageblocks()
            && home.frame(buddy).word().is_free(PAGEBLOCK_ORDER, frames.zone())
        {
            home.set_pageblock(buddy, migratetype);
        }
        joins
    }
}

const AHEAD: usize = 4;
/// Whether the parent's buddy is free, so that the parent would merge as soon as it is whole.
/// Nothing merges into more than the highest order.
#[inline]
fn next_merge_is_near(
    frames: ZoneFrames<'_>,
    home: SectionFrames<'_>,
    at: u32,
    order: Order,
) -> bool {
    if order.0 + 1 >= MAX_ORDER.0 {
        return false;
    }
    let parent = at & !frame_count(order);
    let above = Order(order.0 + 1);
    home.frame(parent ^ frame_count(above)).word().is_free(above, frames.zone())
}

/// The largest block of at most `most` that may start at `pfn` and has at most `frames` frames.
#[inline]
fn largest_block(pfn: Pfn, frames: u32, most: Order) -> Order {
    let fits = frames.ilog2().min(pfn.0.trailing_zeros());
    Order(fits.min(most.0 as u32) as u8)
}

/// The lowest order from `order` up whose bit is set in `orders`.
#[inline]
fn first_order_from(orders: u16, order: Order) -> Option<Order> {
    let above = orders >> order.0;
    (above != 0).then(|| Order(order.0 + above.trailing_zeros() as u8))
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
