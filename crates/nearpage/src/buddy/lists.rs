//! The free lists of a zone: one per order and migratetype, linked through the frames.
//!
//! ```text
//! list (order, migratetype)   head <-> ... <-> tail   then, on the movable list of the highest order
//!                             linked blocks           only: the fresh blocks, linked nowhere
//! ```
//!
//! Invariants: a frame's word is `Free(order, migratetype)` if and only if it is linked on that list;
//! the bits of `orders` say which lists have a block, linked or fresh. Blocks enter and leave lists
//! only here, so they are counted here ([`super::operations`]). To link fresh blocks late is no operation: for
//! who looks at the lists they were linked all the time.

use super::fresh::{Fresh, FreshRange};
use super::operations::Operations;
use crate::frame::{Frame, ListEnd, Migratetype, NO_FRAME, Word, ZoneFrames};
use crate::units::{MAX_ORDER, ORDERS, Order};

/// The linked part of a list.
#[derive(Clone, Copy)]
struct List {
    /// First and last block, by [`ListEnd`].
    ends: [u32; 2],
    blocks: u32,
}

impl List {
    const EMPTY: List = List { ends: [NO_FRAME; 2], blocks: 0 };

    #[inline]
    fn end(&self, end: ListEnd) -> u32 {
        self.ends[end as usize]
    }
}

pub(super) struct FreeLists {
    lists: [[List; ORDERS]; Migratetype::COUNT],
    /// By migratetype: bit `o` is set if the list of order `o` has a block, linked or fresh.
    orders: [u16; Migratetype::COUNT],
    fresh: Fresh,
    pub operations: Operations,
}

impl FreeLists {
    pub const fn new() -> FreeLists {
        FreeLists {
            lists: [[List::EMPTY; ORDERS]; Migratetype::COUNT],
            orders: [0; Migratetype::COUNT],
            fresh: Fresh::new(),
            operations: Operations::NONE,
        }
    }

    /// The orders in which `migratetype` has a block, as bits.
    #[inline]
    pub fn orders(&self, migratetype: Migratetype) -> u16 {
        self.orders[migratetype.index()]
    }

    pub fn blocks(&self, order: Order, migratetype: Migratetype) -> u32 {
        let fresh = if has_fresh(order, migratetype) { self.fresh.blocks() } else { 0 };
        self.list(order, migratetype).blocks + fresh
    }

    /// The linked blocks, in order.
    pub fn linked<'m>(
        &self,
        frames: ZoneFrames<'m>,
        order: Order,
        migratetype: Migratetype,
    ) -> impl Iterator<Item = u32> + use<'m> {
        core::iter::successors(
            some_frame(self.list(order, migratetype).end(ListEnd::Head)),
            move |&number| some_frame(frames.frame(number).next()),
        )
    }

    /// How many blocks should be linked, and the last of them.
    pub fn linked_count_and_tail(&self, order: Order, migratetype: Migratetype) -> (u32, u32) {
        let list = self.list(order, migratetype);
        (list.blocks, list.end(ListEnd::Tail))
    }

    /// The fresh blocks, in order, if they belong to this list.
    pub fn fresh(&self, order: Order, migratetype: Migratetype) -> impl Iterator<Item = u32> {
        self.fresh.heads().take(if has_fresh(order, migratetype) { usize::MAX } else { 0 })
    }

    /// Puts a block, whose head is `frame`, at one end of a list. Fresh blocks that stand at that end
    /// become linked first.
    #[inline]
    pub fn push(
        &mut self,
        frames: ZoneFrames<'_>,
        number: u32,
        frame: Frame<'_>,
        order: Order,
        migratetype: Migratetype,
        end: ListEnd,
    ) {
        if end == ListEnd::Tail && has_fresh(order, migratetype) {
            while self.link_first_fresh(frames) {}
        }
        self.operations.add(1);
        self.link(frames, number, frame, order, migratetype, end);
    }

    #[inline]
    fn link(
        &mut self,
        frames: ZoneFrames<'_>,
        number: u32,
        frame: Frame<'_>,
        order: Order,
        migratetype: Migratetype,
        end: ListEnd,
    ) {
        let list = &mut self.lists[migratetype.index()][order.0 as usize];
        let neighbour = list.ends[end as usize];
        frame.set_word(Word::free(order, migratetype, frames.zone()));
        frame.set_link(end, neighbour);
        frame.set_link(end.opposite(), NO_FRAME);
        list.ends[end as usize] = number;
        list.blocks += 1;
        if neighbour == NO_FRAME {
            list.ends[end.opposite() as usize] = number;
            self.orders[migratetype.index()] |= 1 << order.0;
        } else {
            frames.frame(neighbour).set_link(end.opposite(), number);
        }
    }

    /// Takes a linked block, whose head is `frame`, from its list. Its word becomes blank.
    #[inline(always)]
    pub fn unlink(
        &mut self,
        frames: ZoneFrames<'_>,
        frame: Frame<'_>,
        order: Order,
        migratetype: Migratetype,
    ) {
        self.operations.add(1);
        let (prev, next) = (frame.prev(), frame.next());
        let list = &mut self.lists[migratetype.index()][order.0 as usize];
        match prev {
            NO_FRAME => list.ends[ListEnd::Head as usize] = next,
            prev => frames.frame(prev).set_next(next),
        }
        match next {
            NO_FRAME => list.ends[ListEnd::Tail as usize] = prev,
            next => frames.frame(next).set_prev(prev),
        }
        list.blocks -= 1;
        frame.set_word(Word::BLANK);
        if list.blocks == 0 {
            self.unmark_empty(order, migratetype);
        }
    }

    /// Takes the first block of a list.
    #[inline]
    pub fn pop(
        &mut self,
        frames: ZoneFrames<'_>,
        order: Order,
        migratetype: Migratetype,
    ) -> Option<u32> {
        match self.list(order, migratetype).end(ListEnd::Head) {
            NO_FRAME if has_fresh(order, migratetype) => {
                let number = self.fresh.pop()?;
                self.operations.add(1);
                self.unmark_empty(order, migratetype);
                Some(number)
            }
            NO_FRAME => None,
            number => {
                self.unlink(frames, frames.frame(number), order, migratetype);
                Some(number)
            }
        }
    }

    /// The first block of a list.
    pub fn first(&self, order: Order, migratetype: Migratetype) -> Option<u32> {
        let fresh = if has_fresh(order, migratetype) { self.fresh.first() } else { None };
        some_frame(self.list(order, migratetype).end(ListEnd::Head)).or(fresh)
    }

    /// Appends untouched blocks of the highest order to the movable list.
    pub fn push_fresh(&mut self, frames: ZoneFrames<'_>, range: FreshRange) {
        self.orders[Migratetype::Movable.index()] |= 1 << MAX_ORDER.0;
        if let Some(oldest) = self.fresh.push(range) {
            for number in oldest.heads() {
                self.link_fresh(frames, number);
            }
        }
    }

    /// Links fresh blocks until the one that covers frame `number`, if one does, is linked.
    pub fn link_fresh_through(&mut self, frames: ZoneFrames<'_>, number: u32) {
        while self.fresh.contains(number) {
            self.link_first_fresh(frames);
        }
    }

    fn link_first_fresh(&mut self, frames: ZoneFrames<'_>) -> bool {
        let Some(number) = self.fresh.pop() else { return false };
        self.link_fresh(frames, number);
        true
    }

    fn link_fresh(&mut self, frames: ZoneFrames<'_>, number: u32) {
        self.link(
            frames,
            number,
            frames.frame(number),
            MAX_ORDER,
            Migratetype::Movable,
            ListEnd::Tail,
        );
    }

    #[inline]
    fn list(&self, order: Order, migratetype: Migratetype) -> &List {
        &self.lists[migratetype.index()][order.0 as usize]
    }

    /// Takes a list without linked blocks out of `orders`, unless it has fresh ones.
    #[inline]
    fn unmark_empty(&mut self, order: Order, migratetype: Migratetype) {
        if !has_fresh(order, migratetype) || self.fresh.is_empty() {
            self.orders[migratetype.index()] &= !(1 << order.0);
        }
    }
}

/// Whether this is the list that fresh blocks stand at the end of.
#[inline]
fn has_fresh(order: Order, migratetype: Migratetype) -> bool {
    order.0 == MAX_ORDER.0 && migratetype as u8 == Migratetype::Movable as u8
}

fn some_frame(number: u32) -> Option<u32> {
    (number != NO_FRAME).then_some(number)
}
