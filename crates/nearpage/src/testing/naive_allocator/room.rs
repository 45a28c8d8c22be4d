//! How much may still be done in one hold of another CPU's pagesets.

use crate::units::Order;

/// Operations in one.
const OPERATIONS: u64 = 256;
/// The most that it is worth to move pages of one pageblock, and a page of a list.
pub(super) const OF_A_MOVE: u64 = 12;
pub(super) const OF_A_PAGE: u64 = 5;

/// Operations that are left, and whether they were too few for something.
#[derive(Debug)]
pub(super) struct Room {
    left: u64,
    pub is_short: bool,
}

impl Room {
    pub fn of_a_foreign_hold() -> Self {
        Self { left: OPERATIONS, is_short: false }
    }

    pub fn any() -> Self {
        Self { left: u64::MAX, is_short: false }
    }

    /// For how many of some things there is room.
    pub fn fits(&mut self, each: u64, wanted: u64) -> u64 {
        let count = wanted.min(self.left / each);
        self.is_short |= wanted > 0 && count == 0;
        count
    }

    pub fn has(&mut self, operations: u64) -> bool {
        self.fits(operations, 1) > 0
    }

    pub fn take(&mut self, operations: u64) -> bool {
        let has_room = self.has(operations);
        if has_room {
            self.charge(operations);
        }
        has_room
    }

    /// Takes room for up to so many operations; returns for how many.
    pub fn take_steps(&mut self, wanted: u64) -> u64 {
        let count = wanted.min(self.left);
        self.is_short |= count < wanted;
        self.charge(count);
        count
    }

    pub fn charge(&mut self, operations: u64) {
        self.left = self.left.checked_sub(operations).expect("there was room");
    }
}

/// The most that it is worth to make pages of a pageblock free in so many words of its map.
pub(super) fn of_a_put(words: u64) -> u64 {
    words.min(8) + 3
}

/// The most that a block of a list is worth that moves.
pub(super) fn of_a_block(order: Order) -> u64 {
    match order.0 {
        0 => OF_A_PAGE,
        1..=9 => OF_A_MOVE,
        _ => 2 * OF_A_MOVE,
    }
}
