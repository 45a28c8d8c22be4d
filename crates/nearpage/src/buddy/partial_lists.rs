//! The pageblocks of a zone of which some pages are free, by migratetype, by how much is free, and by the largest block.
//!
//! ```text
//! list (type, fill, order)   head <-> ... <-> last     fill 0: up to 64 free pages ... fill 7: up to 511
//! ```
//!
//! Invariant: a pageblock is on the list that its type, its count of free pages and its largest free block say, if its zone
//! has it and some of its pages are free, and on none otherwise.

use super::operations::Operations;
use crate::frame::{Migratetype, NO_FRAME, Pageblock, ZoneFrames};
use crate::units::{Order, PAGEBLOCK_ORDER};

/// Classes by how many pages are free.
pub(super) const FILLS: usize = 8;
const PAGES_OF_A_FILL: u32 = (PAGEBLOCK_ORDER.pages().0 as usize / FILLS) as u32;
/// Orders that the largest free block may have: a pageblock that is wholly free is not partial.
const ORDERS: usize = PAGEBLOCK_ORDER.0 as usize;

/// Which list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    of: Migratetype,
    fill: usize,
    largest: Order,
}

impl Place {
    /// The list that a pageblock belongs on, if some of its pages are free.
    pub(super) fn of(block: Pageblock<'_>, of: Migratetype) -> Option<Place> {
        let fill = (block.free().checked_sub(1)? / PAGES_OF_A_FILL) as usize;
        let largest = block.largest().filter(|&largest| largest < PAGEBLOCK_ORDER)?;
        Some(Place { of, fill, largest })
    }
}

/// The lists.
pub(super) struct PartialLists {
    /// The first frame of the pageblock that was listed last, or [`NO_FRAME`].
    heads: [[[u32; ORDERS]; FILLS]; Migratetype::COUNT],
    /// By type and fill: bit `o` is set if the list of order `o` has a pageblock.
    orders: [[u16; FILLS]; Migratetype::COUNT],
    /// Free pages in pageblocks of each type.
    pages: [u64; Migratetype::COUNT],
    pub(super) operations: Operations,
}

impl PartialLists {
    pub(super) const fn new() -> Self {
        let heads = [[[NO_FRAME; ORDERS]; FILLS]; Migratetype::COUNT];
        let (orders, pages) = ([[0; FILLS]; Migratetype::COUNT], [0; Migratetype::COUNT]);
        Self { heads, orders, pages, operations: Operations::NONE }
    }

    /// Free pages in listed pageblocks of a type.
    #[inline]
    pub(super) fn pages(&self, of: Migratetype) -> u64 {
        self.pages[of.index()]
    }

    /// The orders of the largest blocks that pageblocks of a type have, as bits.
    pub(super) fn orders(&self, of: Migratetype) -> u16 {
        self.orders[of.index()].iter().fold(0, |all, orders| all | orders)
    }

    /// The fullest pageblock of a type, by classes, in which a block of `order` is free; of one class, the one with the
    /// smallest largest block.
    pub(super) fn fullest(&self, of: Migratetype, order: Order) -> Option<u32> {
        (0..FILLS).find_map(|fill| self.head(of, fill, order))
    }

    /// The emptiest pageblock of a type, by classes, in which a block of `order` is free.
    pub(super) fn emptiest(&self, of: Migratetype, order: Order) -> Option<u32> {
        (0..FILLS).rev().find_map(|fill| self.head(of, fill, order))
    }

    fn head(&self, of: Migratetype, fill: usize, order: Order) -> Option<u32> {
        let above = self.orders[of.index()][fill].checked_shr(order.0.into()).unwrap_or(0);
        if above == 0 {
            return None;
        }
        Some(self.heads[of.index()][fill][order.0 as usize + above.trailing_zeros() as usize])
    }

    /// All listed pageblocks of a type, by their first frames.
    pub(super) fn each<'m>(
        &self,
        frames: ZoneFrames<'m>,
        of: Migratetype,
    ) -> impl Iterator<Item = u32> + use<'m> {
        self.each_with_place(frames, of).map(|(_, first)| first)
    }

    /// All listed pageblocks of a type, each with the list that it stands on.
    pub(super) fn each_with_place<'m>(
        &self,
        frames: ZoneFrames<'m>,
        of: Migratetype,
    ) -> impl Iterator<Item = (Place, u32)> + use<'m> {
        let (heads, orders) = (self.heads[of.index()], self.orders[of.index()]);
        let places = (0..FILLS * ORDERS).map(|at| (at / ORDERS, at % ORDERS));
        let with_some = places.filter(move |&(fill, order)| orders[fill] >> order & 1 == 1);
        with_some.flat_map(move |(fill, order)| {
            let place = Place { of, fill, largest: Order(order as u8) };
            frames.pageblocks_from(heads[fill][order]).map(move |first| (place, first))
        })
    }

    /// Lists a pageblock where it belongs; it is on no list. Nothing if none of its pages are free.
    pub(super) fn list(&mut self, frames: ZoneFrames<'_>, first: u32, of: Migratetype) {
        let block = frames.free_in_pageblock(first);
        let Some(Place { fill, largest, .. }) = Place::of(block, of) else { return };
        let head = &mut self.heads[of.index()][fill][largest.0 as usize];
        frames.link_pageblock(first, *head);
        *head = first;
        self.orders[of.index()][fill] |= 1 << largest.0;
        self.pages[of.index()] += u64::from(block.free());
        block.set_listed(Some(0));
        self.operations.add(1);
    }

    /// Takes a pageblock from its list, before anything changes by which it is listed. Nothing if it is on none.
    pub(super) fn unlist(&mut self, frames: ZoneFrames<'_>, first: u32, of: Migratetype) {
        let block = frames.free_in_pageblock(first);
        if let Some(place) = Place::of(block, of).filter(|_| block.listed().is_some()) {
            self.pages[of.index()] -= u64::from(block.free());
            self.unlink(frames, first, place);
        }
    }

    /// Changes the free pages of a pageblock, and notes the order of its largest free block; afterwards it is listed where it
    /// belongs, if some are free and not all. `change` says how many words of the map it wrote.
    pub(super) fn change(
        &mut self,
        frames: ZoneFrames<'_>,
        first: u32,
        of: Migratetype,
        change: impl FnOnce(Pageblock<'_>) -> u64,
    ) {
        let block = frames.free_in_pageblock(first);
        let (before, pages) =
            (Place::of(block, of).filter(|_| block.listed().is_some()), block.free());
        let words = change(block);
        self.operations.add(words + 1);
        let after = Place::of(block, of);
        if let Some(place) = before {
            self.pages[of.index()] -= u64::from(pages);
            if before == after {
                self.pages[of.index()] += u64::from(block.free());
                return;
            }
            self.unlink(frames, first, place);
        }
        if after.is_some() {
            self.list(frames, first, of);
        }
    }

    fn unlink(&mut self, frames: ZoneFrames<'_>, first: u32, place: Place) {
        let Place { of, fill, largest } = place;
        if let Some(next) = frames.unlink_pageblock(first) {
            self.heads[of.index()][fill][largest.0 as usize] = next;
            if next == NO_FRAME {
                self.orders[of.index()][fill] &= !(1 << largest.0);
            }
        }
        frames.free_in_pageblock(first).set_listed(None);
        self.operations.add(1);
    }
}
