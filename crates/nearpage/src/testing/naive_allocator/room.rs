//! How much may still be done in one hold of another CPU's pagesets.

use crate::units::Order;

/// Operations in one.
const OPERATIONS: u64 = 256;
/// Operations that pages of one pageblock are worth that move, and a single page of a list.
pub(super) const OF_A_MOVE: u64 = 12;
const OF_A_PAGE: u64 = 5;
/// What leaves the stage.
pub(super) const OF_A_PARTING: u64 = 1;

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

    /// Takes room for up to so many things; returns for how many.
    pub fn take(&mut self, each: u64, wanted: u64) -> u64 {
        let mut count = 0;
        while count < wanted && self.left >= each {
            self.left -= each;
            count += 1;
        }
        self.is_short |= count < wanted;
        count
    }

    pub fn take_one(&mut self, each: u64) -> bool {
        self.take(each, 1) == 1
    }
}

/// What a block of a list is worth that moves.
pub(super) fn of_a_block(order: Order) -> u64 {
    match order.0 {
        0 => OF_A_PAGE,
        1..=9 => OF_A_MOVE,
        _ => 2 * OF_A_MOVE,
    }
}
