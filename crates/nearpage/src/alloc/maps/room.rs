//! How much may still be done in one hold of a CPU's pagesets.
//!
//! Operations are blocks linked or unlinked, and words written for them. Nothing is begun that there may be no room for: what
//! takes less than it might have is charged with what it took.

use crate::units::{Order, PAGEBLOCK_ORDER};

/// Operations in one hold of another CPU's pagesets.
const OPERATIONS: u32 = 256;
/// The most that it takes to move pages of one pageblock: off a list or chain, and [into a map](of_a_put).
pub(super) const OF_A_MOVE: u32 = OF_A_STEP + of_a_put(u32::MAX);
/// The most that it takes to move a page off a list, alone or with others.
pub(super) const OF_A_PAGE: u32 = 5;
/// To put a run on the stage, to link it to a chain or take it off, or to let what the stage has of a pageblock go. What the
/// zone does for that is counted there.
pub(super) const OF_A_STEP: u32 = 1;

/// Operations that are left.
#[derive(Debug)]
pub(super) struct Room {
    most: u32,
    left: u32,
    is_short: bool,
}

impl Room {
    fn of(most: u32) -> Self {
        Self { most, left: most, is_short: false }
    }

    /// All that there may be while another CPU is kept from its pagesets.
    pub(super) fn of_a_foreign_hold() -> Self {
        Self::of(OPERATIONS)
    }

    /// As much as there is to do, for the CPU itself.
    pub(super) fn any() -> Self {
        Self::of(u32::MAX)
    }

    /// For how many of up to `wanted` things of so many operations each there is room. If for none, something is left to be done.
    pub(super) fn fits(&mut self, operations: u32, wanted: u32) -> u32 {
        let count = (self.left / operations).min(wanted);
        self.is_short |= count < wanted.min(1);
        count
    }

    /// Whether there is room for so many operations.
    pub(super) fn has(&mut self, operations: u32) -> bool {
        self.fits(operations, 1) == 1
    }

    /// Takes room for so many, if there is.
    pub(super) fn take(&mut self, operations: u32) -> bool {
        let has_room = self.has(operations);
        self.charge(if has_room { operations } else { 0 });
        has_room
    }

    /// Takes room for up to `wanted` steps; returns for how many. If they are fewer, something is left to be done.
    pub(super) fn take_steps(&mut self, wanted: u32) -> u32 {
        let count = self.fits(OF_A_STEP, wanted);
        self.charge(OF_A_STEP * count);
        self.is_short |= count < wanted;
        count
    }

    /// So many operations were done; there was room for them.
    pub(super) fn charge(&mut self, operations: u32) {
        self.left -= operations;
    }

    /// Whether something is left to be done.
    pub(super) fn is_short(&self) -> bool {
        self.is_short
    }

    /// Operations so far.
    pub(super) fn used(&self) -> u64 {
        u64::from(self.most - self.left)
    }
}

/// The most that it takes to make so many pages of a pageblock free in its map: its words, their count, and its place on a list.
pub(super) const fn of_a_put(pages: u32) -> u32 {
    let words = if pages < 8 { pages } else { 8 };
    words + 3
}

/// The most that it takes to move a block of this order off a list.
pub(super) fn of_a_block(order: Order) -> u32 {
    match order {
        Order(0) => OF_A_PAGE,
        order => OF_A_MOVE << order.0.saturating_sub(PAGEBLOCK_ORDER.0),
    }
}
