//! How much may still be done in one hold of a CPU's pagesets.
//!
//! Each thing is charged with the most operations that it may be: blocks linked or unlinked, and words written for them.

use crate::units::{Order, PAGEBLOCK_ORDER};

/// Operations in one hold of another CPU's pagesets.
const OPERATIONS: u32 = 256;
/// To move pages of one pageblock from one place to another: two links, eight words of a map and its count, and a place.
pub(super) const OF_A_MOVE: u32 = 12;
/// To move a single page off a list: two links, a word and a count, and a place.
const OF_A_PAGE: u32 = 5;
/// To let what the stage has of a pageblock go, or to link a run to a chain. What the zone does for it is counted there.
pub(super) const OF_A_PARTING: u32 = 1;

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

    /// Takes room for up to `wanted` such things; returns for how many. If they are fewer, something is left to be done.
    pub(super) fn take(&mut self, operations: u32, wanted: u32) -> u32 {
        let count = (self.left / operations).min(wanted);
        self.left -= operations * count;
        self.is_short |= count < wanted;
        count
    }

    /// Whether there was no room for something.
    pub(super) fn is_short(&self) -> bool {
        self.is_short
    }

    /// Takes room for one.
    pub(super) fn take_one(&mut self, operations: u32) -> bool {
        self.take(operations, 1) == 1
    }

    /// Operations so far, at most.
    pub(super) fn used(&self) -> u64 {
        u64::from(self.most - self.left)
    }
}

/// To move a block of this order off a list.
pub(super) fn of_a_block(order: Order) -> u32 {
    match order {
        Order(0) => OF_A_PAGE,
        order => OF_A_MOVE << order.0.saturating_sub(PAGEBLOCK_ORDER.0),
    }
}
