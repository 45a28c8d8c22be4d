//! The pieces of a pageset whose CPU owns pageblocks: free blocks of any order up to a pageblock, split and merged.
//!
//! ```text
//! list (order, migratetype)   hot end <-> ... <-> cold end      orders 0 to 9, three types, linked through the frames
//! ```
//!
//! A piece of a pageblock that the CPU owns says so in its word ([`FrameState::Owned`]): it merges with its buddy when
//! the pageset is drained ([`Pieces::merge`]). Other pieces are cached only. What is split off keeps its kind.
//!
//! Invariant: a frame's word says `Owned` if and only if it is linked here, in the pageset of the pageblock's owner.
//!
//! Whoever calls has hold of the CPU's lists. Nothing here knows a zone's lock.

use super::LISTS;
use crate::frame::{FrameState, ListEnd, Migratetype, NO_FRAME, Word, ZoneFrames};
use crate::host::Access;
use crate::sync::{AtomicU16, AtomicU32, Ordering, OwnedCounter};
use crate::units::{Order, PAGEBLOCK_ORDER};

const ORDERS: usize = PAGEBLOCK_ORDER.0 as usize + 1;
const TYPES: usize = Migratetype::PCP_COUNT;

/// Whether a piece merges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Of a pageblock that the CPU owns.
    Owned,
    /// Of another pageblock.
    Cached,
}

#[derive(Debug)]
struct List {
    /// The hottest and the coldest piece, by [`ListEnd`].
    ends: [AtomicU32; 2],
    count: AtomicU32,
}

impl List {
    const fn new() -> List {
        let ends = [const { AtomicU32::new(NO_FRAME) }; 2];
        List { ends, count: AtomicU32::new(0) }
    }
}

/// The pieces.
#[derive(Debug)]
pub struct Pieces {
    lists: [[List; ORDERS]; TYPES],
    /// By type: bit `o` is set if there are pieces of order `o`.
    orders: [AtomicU16; TYPES],
    /// Pageblocks that the CPU owns and that have pieces in the zone, by type: the first. Only who has the zone's lock
    /// looks here.
    fragments: [AtomicU32; TYPES],
    pops: [OwnedCounter; LISTS],
    pushes: [OwnedCounter; LISTS],
    changes: OwnedCounter,
}

/// The type of the lists that pieces of a pageblock are on.
pub(crate) fn list_of(migratetype: Migratetype) -> Migratetype {
    if migratetype.is_mergeable() { migratetype } else { Migratetype::Movable }
}

impl Pieces {
    pub(crate) fn new() -> Self {
        Self {
            lists: [const { [const { List::new() }; ORDERS] }; TYPES],
            orders: [const { AtomicU16::new(0) }; TYPES],
            fragments: [const { AtomicU32::new(NO_FRAME) }; TYPES],
            pops: core::array::from_fn(|_| OwnedCounter::new()),
            pushes: core::array::from_fn(|_| OwnedCounter::new()),
            changes: OwnedCounter::new(),
        }
    }

    /// How often a piece was linked or unlinked.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.get()
    }

    #[inline]
    fn list(&self, order: Order, of: Migratetype) -> &List {
        &self.lists[of.index()][order.0 as usize]
    }

    /// Pieces of an order on the list of a type.
    pub(crate) fn count(&self, order: Order, of: Migratetype) -> u32 {
        self.list(order, of).count.load(Ordering::Relaxed)
    }

    /// Notes blocks that the pageset gave to somebody, or got from somebody, under the number of their list.
    pub(crate) fn note(&self, index: usize, pushed: u64, popped: u64) {
        self.pushes[index].add(pushed);
        self.pops[index].add(popped);
    }

    /// Blocks that came and went under the number of a list.
    pub(crate) fn seen(&self, index: usize) -> (u64, u64) {
        (self.pushes[index].get(), self.pops[index].get())
    }

    /// Puts a piece at one end of the list of a type.
    pub(crate) fn push(
        &self,
        frames: &ZoneFrames<'_>,
        number: u32,
        order: Order,
        (kind, of): (Kind, Migratetype),
        end: ListEnd,
    ) {
        self.changes.add(1);
        let (list, frame) = (self.list(order, of), frames.frame(number));
        let neighbour = list.ends[end as usize].load(Ordering::Relaxed);
        frame.set_word(Word::piece(kind == Kind::Owned, order, of, frames.zone()));
        frame.set_link(end, neighbour);
        frame.set_link(end.opposite(), NO_FRAME);
        match neighbour {
            NO_FRAME => list.ends[end.opposite() as usize].store(number, Ordering::Relaxed),
            neighbour => frames.frame(neighbour).set_link(end.opposite(), number),
        }
        list.ends[end as usize].store(number, Ordering::Relaxed);
        let count = list.count.load(Ordering::Relaxed);
        list.count.store(count + 1, Ordering::Relaxed);
        let orders = &self.orders[of.index()];
        orders.store(orders.load(Ordering::Relaxed) | 1 << order.0, Ordering::Relaxed);
    }

    /// Takes a piece from its list; its word is as of a page that nobody has. Returns what it was.
    pub(crate) fn unlink(
        &self,
        frames: &ZoneFrames<'_>,
        number: u32,
    ) -> (Order, Kind, Migratetype) {
        self.changes.add(1);
        let frame = frames.frame(number);
        let word = frame.word();
        let (order, of) = (word.order(), word.migratetype());
        let list = self.list(order, of);
        for end in [ListEnd::Head, ListEnd::Tail] {
            match frame.link(end.opposite()) {
                NO_FRAME => list.ends[end as usize].store(frame.link(end), Ordering::Relaxed),
                neighbour => frames.frame(neighbour).set_link(end, frame.link(end)),
            }
        }
        let count = list.count.load(Ordering::Relaxed) - 1;
        list.count.store(count, Ordering::Relaxed);
        if count == 0 {
            let orders = &self.orders[of.index()];
            orders.store(orders.load(Ordering::Relaxed) & !(1 << order.0), Ordering::Relaxed);
        }
        frame.set_word(Word::cached(order, frames.zone()));
        let kind = if word.state() == FrameState::Owned { Kind::Owned } else { Kind::Cached };
        (order, kind, of)
    }

    /// Takes the hottest block of `order`: the smallest piece that suffices gives its lowest part, and the rest goes to
    /// the hot ends of its lists. `touch` is told the first frame of each part that stays.
    pub(crate) fn pop(
        &self,
        frames: &ZoneFrames<'_>,
        order: Order,
        of: Migratetype,
        touch: impl Fn(u32),
    ) -> Option<u32> {
        let above = self.orders[of.index()].load(Ordering::Relaxed) >> order.0;
        if above == 0 {
            return None;
        }
        let found = Order(order.0 + above.trailing_zeros() as u8);
        let number = self.end(found, of, ListEnd::Head)?;
        let (mut half, kind, _) = self.unlink(frames, number);
        while half > order {
            half.0 -= 1;
            let rest = number + half.pages().0 as u32;
            touch(rest);
            self.push(frames, rest, half, (kind, of), ListEnd::Head);
        }
        frames.frame(number).set_word(Word::cached(order, frames.zone()));
        Some(number)
    }

    /// The piece at one end of a list.
    pub(crate) fn end(&self, order: Order, of: Migratetype, end: ListEnd) -> Option<u32> {
        let number = self.list(order, of).ends[end as usize].load(Ordering::Relaxed);
        (number != NO_FRAME).then_some(number)
    }

    /// Calls `each` with every piece of an order and a type, hottest first.
    pub(crate) fn for_each(
        &self,
        frames: &ZoneFrames<'_>,
        order: Order,
        of: Migratetype,
        each: &mut dyn FnMut(u32),
    ) {
        let mut next = self.end(order, of, ListEnd::Head);
        while let Some(number) = next {
            each(number);
            next = Some(frames.frame(number).next()).filter(|&next| next != NO_FRAME);
        }
    }

    /// Merges owned pieces with their buddies, from the lowest order up. What is merged is cold. `touch` is told each frame
    /// that is looked at, and whether it is changed.
    pub(crate) fn merge(&self, frames: &ZoneFrames<'_>, touch: impl Fn(u32, Access)) {
        for order in (0..PAGEBLOCK_ORDER.0).map(Order) {
            for of in Migratetype::ALL.into_iter().take(TYPES) {
                let mut next = self.end(order, of, ListEnd::Head);
                while let Some(number) = next {
                    let mut after = frames.frame(number).next();
                    let buddy = number ^ order.pages().0 as u32;
                    let is_owned = |number: u32| {
                        let word = frames.frame(number).word();
                        word.state() == FrameState::Owned
                            && word.order() == order
                            && word.zone() == frames.zone()
                    };
                    let merges = is_owned(number) && is_owned(buddy);
                    let access = if merges { Access::Write } else { Access::Read };
                    touch(number, access);
                    if is_owned(number) {
                        touch(buddy, access);
                    }
                    if merges {
                        if after == buddy {
                            after = frames.frame(buddy).next();
                        }
                        self.unlink(frames, number);
                        self.unlink(frames, buddy);
                        let first = number.min(buddy);
                        let merged = Order(order.0 + 1);
                        let of = list_of(frames.pageblock(first));
                        self.push(frames, first, merged, (Kind::Owned, of), ListEnd::Tail);
                    }
                    next = Some(after).filter(|&after| after != NO_FRAME);
                }
            }
        }
    }

    /// The coldest piece that a drain of `pages` gives next: of the largest order that is not above `pages`, or, if all
    /// are, of the smallest. Types go round from `first` on.
    pub(crate) fn next_to_drain(&self, pages: u64, first: Migratetype) -> Option<u32> {
        let all = self.orders.iter().fold(0, |all, of| all | of.load(Ordering::Relaxed));
        let fitting = all & ((2_u32 << pages.max(1).ilog2().min(15)) - 1) as u16;
        let order = match fitting {
            0 if all == 0 => return None,
            0 => all.trailing_zeros(),
            fitting => fitting.ilog2(),
        };
        let order = Order(order as u8);
        let types = (0..TYPES).map(|step| Migratetype::ALL[(first.index() + step) % TYPES]);
        types.filter_map(|of| self.end(order, of, ListEnd::Tail)).next()
    }
}

/// The list of owned pageblocks with pieces in the zone. Whoever calls has the zone's lock.
impl Pieces {
    /// The first pageblock of a type, by its first frame.
    pub(crate) fn first_fragment(&self, of: Migratetype) -> Option<u32> {
        let number = self.fragments[of.index()].load(Ordering::Relaxed);
        (number != NO_FRAME).then_some(number)
    }

    /// Puts a pageblock first on the list of its type; it is on none.
    pub(crate) fn list_fragment(&self, frames: &ZoneFrames<'_>, first: u32) {
        let of = list_of(frames.pageblock(first));
        let head = &self.fragments[of.index()];
        frames.owned(first).set_listed(Some(of));
        frames.link_pageblock(first, head.load(Ordering::Relaxed));
        head.store(first, Ordering::Relaxed);
    }

    /// Takes a pageblock from its list, if it is on one; returns whether it was.
    pub(crate) fn unlist_fragment(&self, frames: &ZoneFrames<'_>, first: u32) -> bool {
        let block = frames.owned(first);
        let Some(of) = block.listed() else { return false };
        if let Some(next) = frames.unlink_pageblock(first) {
            self.fragments[of.index()].store(next, Ordering::Relaxed);
        }
        block.set_listed(None);
        true
    }
}
