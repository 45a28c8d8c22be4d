//! What happens when the lists of a type have nothing: other types give.
//!
//! Invariant (6.12): a free block is listed under the type of its pageblock. 6.1 does not keep it.
//!
//! Types differ because pages of one pageblock should be movable together, or not at all. A request
//! that must take memory of another type therefore takes as much as it can make its own:
//!
//! ```text
//! 6.12  claim   from the largest donor block down: whole pageblocks change their type; a part of one
//!               does if half of its pages are free or of a kind with the request
//!       steal   from the smallest donor block up: one block is taken, its rest stays with the donor
//! 6.1           from the largest donor block down: all free blocks of its pageblock change lists, the
//!               pageblock changes its type only if half of it agrees; a movable request that finds
//!               only small blocks moves one block, the smallest
//! ```
//!
//! `mm/page_alloc.c: __rmqueue_claim, __rmqueue_steal, try_to_claim_block`, 6.12, and
//! `__rmqueue_fallback, steal_suitable_fallback`, 6.1. The recorded 6.12.95 behaves as described here.

use super::rules::{FallbackModel, HeldMovable};
use super::state::{BlockRequest, Buddy, Fragmentation, Insertion, counted_pages, frame_count};
use super::take::{TakenBlock, first_order_from};
use crate::frame::{FrameState, ListEnd, Migratetype, Word, ZoneFrames};
use crate::units::{MAX_ORDER, Order, PAGEBLOCK_ORDER, PageCount};

const PAGEBLOCK_FRAMES: u32 = frame_count(PAGEBLOCK_ORDER);

/// Donors of each type, first choice first. `mm/page_alloc.c: fallbacks`, 6.12.
pub(super) const fn donors(migratetype: Migratetype) -> &'static [Migratetype] {
    use Migratetype::{HighAtomic, Isolate, Movable, Reclaimable, Unmovable};
    match migratetype {
        Unmovable => &[Reclaimable, Movable],
        Movable => &[Reclaimable, Unmovable],
        Reclaimable => &[Unmovable, Movable],
        HighAtomic | Isolate => &[],
    }
}

/// Whether more than the block itself may change its type. Unmovable and reclaimable pages do most
/// harm where they are few, so they always take what they can; movable ones only from blocks so
/// large that most of the pageblock follows. `mm/page_alloc.c: can_steal_fallback`, 6.1.
const fn may_claim(order: Order, migratetype: Migratetype) -> bool {
    order.0 >= PAGEBLOCK_ORDER.0 / 2
        || matches!(migratetype, Migratetype::Unmovable | Migratetype::Reclaimable)
}

/// What a pageblock holds.
struct Census {
    free: u32,
    /// Pages in use that count as movable.
    movable: u32,
}

impl Census {
    /// Whether at least half of a pageblock of `theirs` is free or of a kind with `ours`.
    fn agrees(&self, theirs: Migratetype, ours: Migratetype) -> bool {
        let alike = match (ours, theirs) {
            (Migratetype::Movable, _) => self.movable,
            // What is neither free nor movable is unmovable or reclaimable; which, nobody knows.
            (_, Migratetype::Movable) => PAGEBLOCK_FRAMES - self.free - self.movable,
            // Of the three types only two can be told apart, so nothing is known to be alike.
            _ => 0,
        };
        self.free + alike >= PAGEBLOCK_FRAMES / 2
    }
}

impl Buddy {
    /// Moves all free blocks of the pageblock of frame `number` to the tails of the lists of
    /// `migratetype`, lowest first, which becomes the pageblock's type. Returns how many pages
    /// moved, or `None`, and changes nothing, if the pageblock is not wholly inside the zone, or shared.
    ///
    /// A free block of two pageblocks is cut, and each half freed as what its pageblock then is:
    /// they stay apart if either type is not mergeable ([`Migratetype::Isolate`]), and otherwise
    /// merge again, so that the other pageblock follows.
    /// `mm/page_alloc.c: move_freepages_block_isolate`, 6.12.
    pub fn retype_pageblock(
        &mut self,
        frames: ZoneFrames<'_>,
        number: u32,
        migratetype: Migratetype,
    ) -> Option<PageCount> {
        let first = self.pageblock_start(frames, number)?;
        Some(self.retype(frames, first, migratetype, || frames.set_pageblock(first, migratetype)))
    }

    /// Gives a pageblock a type, and nothing else.
    pub(super) fn set_type(&mut self, frames: ZoneFrames<'_>, number: u32, to: Migratetype) {
        self.note_type(frames, number, || frames.set_pageblock(number, to));
    }

    /// Counts what `set` does to the type of a pageblock.
    pub(super) fn note_type(&mut self, frames: ZoneFrames<'_>, number: u32, set: impl FnOnce()) {
        let before = frames.pageblock(number);
        set();
        self.charge((frames.pageblock(number) != before).into());
    }

    /// The same for the pageblock that starts at `first`, wherever it lies; `set` makes it `migratetype`.
    pub(super) fn retype(
        &mut self,
        frames: ZoneFrames<'_>,
        first: u32,
        migratetype: Migratetype,
        set: impl FnOnce(),
    ) -> PageCount {
        self.lists.link_fresh_through(frames, first);
        let (home, at) = frames.section(first);
        let head = at & !(frame_count(MAX_ORDER) - 1);
        let word = home.frame(head).word();
        if word.is_free(MAX_ORDER, frames.zone()) {
            self.lists.unlink(frames, home.frame(head), MAX_ORDER, word.migratetype());
            self.free_pages -= counted_pages(MAX_ORDER, word.migratetype());
            self.note_type(frames, first, set);
            for half in [at ^ PAGEBLOCK_FRAMES, at] {
                self.free(frames, home.number(half), PAGEBLOCK_ORDER, Insertion::Usual);
            }
            return PAGEBLOCK_ORDER.pages();
        }
        self.note_type(frames, first, set);
        self.move_free_blocks(frames, first, migratetype)
    }

    /// Makes blocks of other types the request's own. Afterwards the smallest of its own blocks that
    /// suffices is the one to take. Returns whether it found any.
    pub(super) fn fall_back(&mut self, frames: ZoneFrames<'_>, request: BlockRequest) -> bool {
        let found = match self.rules.model {
            FallbackModel::Linux6_12 => self.claim(frames, request),
            FallbackModel::Linux6_1 => self.take_over(frames, request),
        };
        self.fallbacks += u64::from(found);
        found
    }

    /// Takes one block of another type (6.12), smallest first, which stays that type's.
    pub(super) fn steal(
        &mut self,
        frames: ZoneFrames<'_>,
        request: BlockRequest,
    ) -> Option<TakenBlock> {
        if self.rules.model != FallbackModel::Linux6_12
            || request.fragmentation == Fragmentation::Avoided
        {
            return None;
        }
        let (order, donor) = self.smallest_donor(request)?;
        let number = self.lists.pop(frames, order, donor)?;
        self.fallbacks += 1;
        Some(TakenBlock { number, order, migratetype: donor })
    }

    /// 6.12: makes at least half a pageblock the request's own.
    fn claim(&mut self, frames: ZoneFrames<'_>, request: BlockRequest) -> bool {
        for order in orders_down_to(request) {
            let Some(donor) = self.donor(order, request.migratetype) else { continue };
            if !may_claim(order, request.migratetype) {
                return false;
            }
            if order >= PAGEBLOCK_ORDER {
                self.claim_pageblocks(frames, order, donor, request.migratetype);
                return true;
            }
            let Some(number) = self.lists.first(order, donor) else { continue };
            self.claims_tried += 1;
            if let Some(first) = self.pageblock_start(frames, number)
                && self.census(frames, first).agrees(donor, request.migratetype)
            {
                self.set_type(frames, first, request.migratetype);
                self.move_free_blocks(frames, first, request.migratetype);
                return true;
            }
        }
        false
    }

    /// 6.1: moves the free blocks of a pageblock, or one block, to the request's own lists.
    fn take_over(&mut self, frames: ZoneFrames<'_>, request: BlockRequest) -> bool {
        let ours = request.migratetype;
        let Some((order, donor)) = self.take_over_from(request) else { return false };
        let Some(number) = self.lists.first(order, donor) else { return false };
        let theirs = frames.pageblock(number);
        if theirs == Migratetype::HighAtomic {
            // Pages of that reserve may lie on other lists; the reserve itself is not broken up.
            self.move_first(frames, order, donor, ours);
        } else if order >= PAGEBLOCK_ORDER {
            self.claim_pageblocks(frames, order, donor, ours);
        } else {
            self.claims_tried += 1;
            match self.pageblock_start(frames, number).filter(|_| may_claim(order, ours)) {
                None => self.move_first(frames, order, donor, ours),
                Some(first) => {
                    if self.census(frames, first).agrees(theirs, ours) {
                        self.set_type(frames, first, ours);
                    }
                    self.move_free_blocks(frames, first, ours);
                }
            }
        }
        true
    }

    /// 6.1: the largest block of a donor; but the smallest, if a movable request could not take over
    /// more than the block anyway.
    fn take_over_from(&self, request: BlockRequest) -> Option<(Order, Migratetype)> {
        let (order, donor) = orders_down_to(request)
            .find_map(|order| Some((order, self.donor(order, request.migratetype)?)))?;
        if may_claim(order, request.migratetype) {
            Some((order, donor))
        } else {
            self.smallest_donor(request)
        }
    }

    /// The first donor of `migratetype` that has a block of exactly `order`.
    fn donor(&self, order: Order, migratetype: Migratetype) -> Option<Migratetype> {
        let has = |donor: &Migratetype| self.lists.orders(*donor) >> order.0 & 1 == 1;
        donors(migratetype).iter().copied().find(has)
    }

    fn smallest_donor(&self, request: BlockRequest) -> Option<(Order, Migratetype)> {
        let donors = donors(request.migratetype);
        let orders = donors.iter().fold(0, |all, &donor| all | self.lists.orders(donor));
        let order = first_order_from(orders, request.order)?;
        Some((order, self.donor(order, request.migratetype)?))
    }

    /// Gives the first block of a donor, one pageblock or more, to another type for good.
    pub(super) fn claim_pageblocks(
        &mut self,
        frames: ZoneFrames<'_>,
        order: Order,
        donor: Migratetype,
        ours: Migratetype,
    ) {
        if let Some(number) = self.lists.first(order, donor) {
            for at in (0..frame_count(order)).step_by(PAGEBLOCK_FRAMES as usize) {
                self.set_type(frames, number + at, ours);
            }
            self.move_first(frames, order, donor, ours);
        }
    }

    /// Moves the first block of a donor's list to the tail of another type's.
    fn move_first(
        &mut self,
        frames: ZoneFrames<'_>,
        order: Order,
        donor: Migratetype,
        ours: Migratetype,
    ) {
        if let Some(number) = self.lists.pop(frames, order, donor) {
            self.lists.push(frames, number, frames.frame(number), order, ours, ListEnd::Tail);
        }
    }

    /// Moves the free blocks of the pageblock that starts at `first` to the tails of the lists of
    /// `ours`, lowest first. They are all smaller than two pageblocks.
    fn move_free_blocks(
        &mut self,
        frames: ZoneFrames<'_>,
        first: u32,
        ours: Migratetype,
    ) -> PageCount {
        let mut pages = 0;
        for_each_head(frames, first, |number, word| {
            if word.state() == FrameState::Free {
                let frame = frames.frame(number);
                self.lists.unlink(frames, frame, word.order(), word.migratetype());
                self.lists.push(frames, number, frame, word.order(), ours, ListEnd::Tail);
                self.free_pages -= counted_pages(word.order(), word.migratetype());
                self.free_pages += counted_pages(word.order(), ours);
                pages += word.order().pages().0;
            }
        });
        PageCount(pages)
    }

    fn census(&self, frames: ZoneFrames<'_>, first: u32) -> Census {
        let mut census = Census { free: 0, movable: 0 };
        for_each_head(frames, first, |_, word| {
            if word.state() == FrameState::Free {
                census.free += frame_count(word.order());
            } else if self.rules.held == HeldMovable::ByWord
                && word.migratetype() == Migratetype::Movable
            {
                census.movable += frame_count(word.order());
            }
        });
        census
    }

    /// Whether a block that begins in the pageblock of frame `number` is free.
    pub(super) fn has_free_in_pageblock(&self, frames: ZoneFrames<'_>, number: u32) -> bool {
        let mut has_free = false;
        for_each_head(frames, number - number % PAGEBLOCK_FRAMES, |_, word| {
            has_free |= word.state() == FrameState::Free;
        });
        has_free
    }

    /// The first frame of the pageblock of `number`, unless the pageblock reaches out of the zone or
    /// holds frames of another zone whose span it lies in too: on that zone's lists stand blocks of its
    /// type.
    fn pageblock_start(&self, frames: ZoneFrames<'_>, number: u32) -> Option<u32> {
        let first = number - number % PAGEBLOCK_FRAMES;
        let is_inside = frames.first() <= first && first + PAGEBLOCK_FRAMES <= self.end;
        (is_inside && !frames.is_pageblock_shared(number)).then_some(first)
    }
}

/// The orders in which a request looks for donors, highest first.
fn orders_down_to(request: BlockRequest) -> impl Iterator<Item = Order> {
    let least = match request.fragmentation {
        Fragmentation::Allowed => request.order,
        Fragmentation::Avoided => request.order.max(PAGEBLOCK_ORDER),
    };
    (least.0..=MAX_ORDER.0).rev().map(Order)
}

/// Calls `visit` with each head of a free or allocated block in a pageblock, ascending.
fn for_each_head(frames: ZoneFrames<'_>, first: u32, mut visit: impl FnMut(u32, Word)) {
    let (home, start) = frames.section(first);
    let mut at = start;
    while at < start + PAGEBLOCK_FRAMES {
        let word = home.frame(at).word();
        let is_head = matches!(word.state(), FrameState::Free | FrameState::Allocated)
            && word.zone() == frames.zone();
        if is_head {
            visit(home.number(at), word);
        }
        at += if is_head { frame_count(word.order()) } else { 1 };
    }
}
