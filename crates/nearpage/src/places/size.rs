//! How large a CPU's quota of a zone is: from the time between its claims.
//!
//! A CPU claims pages from the zone's counter when its quota has none, and gives some back when it has more than it may keep.
//! Each is a write to a word that all CPUs share, and what is kept in between is memory that others cannot have. Both follow
//! from the **size**:
//!
//! ```text
//! more than size pages                 give back until there are size / 4
//! none left                            claim size / 2 pages
//! a claim within 32 ms of the last one the size doubles, up to half of the pageset's high_max
//! a claim later than that              it halves for each doubling of the time, down to size_min
//! ```
//!
//! So a load that swings, or flows one way, is met by a size with which its claims lie some 32 ms apart, whatever its
//! speed; and what a burst has raised goes with the time. Once a second, half of what was not used at all since goes back
//! ([`QuotaSize::unused`]).
//!
//! Pure. Units are pages, and times in units of 2^20 ns (about a millisecond) that wrap.

use crate::units::{Order, PAGEBLOCK_ORDER, PageCount};

/// Moves further apart than this, about 32 ms, are rare: at one a CPU, 30 a second, they cost nothing that anybody notices.
const NEAR: u32 = 32;
/// A few pageblocks: with fewer, no two of them can be filled and emptied side by side.
const SIZE_MIN: u32 = 2048;
/// A pageset that may keep less than a pageblock keeps that.
const PAGEBLOCK: u64 = PAGEBLOCK_ORDER.pages().0;
/// 64 MiB, so that a claim of half of it is 16 whole pageblocks.
const SIZE_MAX: u64 = 16_384;

/// Huge blocks that a list gets at once: their bits are in one word as often as not, and are taken with one write.
const HUGE_BLOCKS: u32 = 4;

/// Pages that a list gets at once, and half of what it holds at most.
const LIST_PAGES: u32 = 128;
/// Cold pages that are kept at most before they go back: enough to hide how long each takes.
pub(crate) const COLD_MAX: u32 = 128;
/// Blocks of an order that a list gets at once.
pub(crate) const fn blocks_of_a_refill(order: Order) -> u32 {
    let blocks = LIST_PAGES >> order.0;
    if blocks == 0 { HUGE_BLOCKS } else { blocks }
}

/// Blocks of an order that a list holds at most, however much is kept.
pub(crate) const fn list_max(order: Order) -> u32 {
    2 * blocks_of_a_refill(order)
}

/// The state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct QuotaSize {
    /// The most pages that are kept.
    pub pages: u32,
    /// When pages last went to or came from the zone.
    pub moved: u32,
}

impl QuotaSize {
    /// After pages went to or came from the zone now, for a CPU that may keep at most `most` pages.
    #[must_use]
    pub(crate) fn after_move(self, now_ns: u64, most: PageCount) -> QuotaSize {
        let now = (now_ns >> 20) as u32;
        let since = now.wrapping_sub(self.moved);
        let pages = match since.checked_div(NEAR) {
            Some(0) => self.pages.saturating_mul(2),
            Some(times) => self.pages >> (times.ilog2() + 1).min(31),
            None => self.pages,
        };
        QuotaSize { pages, moved: now }.within(most)
    }

    /// The same for a CPU that may keep at most `most` pages.
    #[must_use]
    pub(crate) fn within(self, most: PageCount) -> QuotaSize {
        let most = (most.0 / 2).max(most.0.min(PAGEBLOCK)).min(SIZE_MAX) as u32;
        QuotaSize { pages: self.pages.clamp(SIZE_MIN.min(most / 2), most), ..self }
    }

    /// What is left when pages go back because there are too many.
    pub(crate) fn left(self) -> PageCount {
        PageCount((self.pages / 4).into())
    }

    /// Blocks of an order whose pages a quota gets when it has none.
    pub(crate) fn refill(self, order: Order) -> u32 {
        ((self.pages / 2) >> order.0).max(1)
    }

    /// Blocks of an order that a list holds now: no list has more than an eighth of what may be kept, but for a block of the
    /// orders that are asked for all the time.
    pub(crate) fn list_limit(self, order: Order) -> u32 {
        let least = u32::from(order <= Order(3));
        ((self.pages / 8) >> order.0).clamp(least, list_max(order))
    }

    /// Of pages that nobody used for a second, those that go back.
    pub(crate) fn unused(least: PageCount) -> PageCount {
        PageCount(least.0 / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: PageCount = PageCount(32_768);

    fn moves(times_ms: &[u64]) -> u32 {
        let start = QuotaSize { pages: SIZE_MIN, moved: 0 };
        times_ms.iter().fold(start, |size, ms| size.after_move(ms * 1_048_576, MOST)).pages
    }

    #[test]
    fn moves_in_a_row_double_the_size_up_to_the_most() {
        assert_eq!(moves(&[100]), SIZE_MIN);
        assert_eq!(moves(&[100, 110]), 2 * SIZE_MIN);
        assert_eq!(moves(&[100, 110, 120, 130, 140, 150]), MOST.0 as u32 / 2);
    }

    #[test]
    fn with_time_the_size_goes_down_to_the_least() {
        let raised = [100, 110, 120, 130];
        let after = |wait: u64| moves(&[&raised[..], &[130 + wait]].concat());
        assert_eq!(after(31), 16 * SIZE_MIN.min(1024));
        assert_eq!(
            [32, 63, 64, 128, 10_000].map(after),
            [4 * SIZE_MIN, 4 * SIZE_MIN, 2 * SIZE_MIN, SIZE_MIN, SIZE_MIN]
        );
    }

    #[test]
    fn a_small_pageset_keeps_what_it_may() {
        let size = QuotaSize { pages: 0, moved: 0 }.after_move(1 << 30, PageCount(100));
        assert_eq!(
            QuotaSize { moved: 1024, ..size }.after_move(1 << 30, PageCount(100)).pages,
            100
        );
        assert_eq!((size.pages, size.left(), size.refill(Order(0))), (50, PageCount(12), 25));
    }
}
