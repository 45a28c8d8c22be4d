//! Free memory that nobody has touched: ranges of whole blocks of the highest order.
//!
//! Invariant: the ranges, in the order of the array, are the end of the movable list of the highest
//! order, and no frame of theirs is the head of anything. So memory comes online in constant time
//! and its metadata costs nothing resident until a block is taken.

use crate::units::MAX_ORDER;

/// Ranges kept; the machines recorded so far hand a zone over in at most three.
const RANGES: usize = 4;
/// Frames in a block here.
const BLOCK_FRAMES: u32 = MAX_ORDER.pages().0 as u32;

/// Blocks that adjoin in ascending order.
#[derive(Clone, Copy)]
pub(super) struct FreshRange {
    /// Frame number of the first block.
    first: u32,
    blocks: u32,
}

impl FreshRange {
    pub fn new(first: u32, blocks: u32) -> FreshRange {
        FreshRange { first, blocks }
    }

    pub fn pages(self) -> u32 {
        self.blocks * BLOCK_FRAMES
    }

    pub fn heads(self) -> impl Iterator<Item = u32> {
        (0..self.blocks).map(move |at| self.first + at * BLOCK_FRAMES)
    }

    fn contains(self, number: u32) -> bool {
        number.wrapping_sub(self.first) / BLOCK_FRAMES < self.blocks
    }
}

pub(super) struct Fresh {
    /// The first `len` are not empty.
    ranges: [FreshRange; RANGES],
    len: usize,
}

impl Fresh {
    pub const fn new() -> Fresh {
        Fresh { ranges: [FreshRange { first: 0, blocks: 0 }; RANGES], len: 0 }
    }

    pub fn first(&self) -> Option<u32> {
        self.ranges().first().map(|range| range.first)
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn blocks(&self) -> u32 {
        self.ranges().iter().map(|range| range.blocks).sum()
    }

    pub fn heads(&self) -> impl Iterator<Item = u32> {
        self.ranges().iter().flat_map(|range| range.heads())
    }

    pub fn contains(&self, number: u32) -> bool {
        self.ranges().iter().any(|range| range.contains(number))
    }

    /// Appends a range of at least one block. Returns the oldest range, no longer held here, if
    /// there was no room.
    #[must_use]
    pub fn push(&mut self, range: FreshRange) -> Option<FreshRange> {
        if let Some(last) = self.len.checked_sub(1).map(|at| &mut self.ranges[at])
            && last.first + last.blocks * BLOCK_FRAMES == range.first
        {
            last.blocks += range.blocks;
            return None;
        }
        let oldest = if self.len == RANGES { Some(self.remove_oldest()) } else { None };
        self.ranges[self.len] = range;
        self.len += 1;
        oldest
    }

    /// Takes the first block.
    pub fn pop(&mut self) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        let oldest = &mut self.ranges[0];
        let head = oldest.first;
        oldest.first += BLOCK_FRAMES;
        oldest.blocks -= 1;
        if oldest.blocks == 0 {
            self.remove_oldest();
        }
        Some(head)
    }

    fn remove_oldest(&mut self) -> FreshRange {
        let oldest = self.ranges[0];
        self.ranges.copy_within(1.., 0);
        self.len -= 1;
        oldest
    }

    fn ranges(&self) -> &[FreshRange] {
        &self.ranges[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std_alloc::vec::Vec;

    #[test]
    fn blocks_come_back_in_the_order_of_their_ranges() {
        let mut fresh = Fresh::new();
        // The second range adjoins the first and grows it; the third lies below both.
        for (first, blocks) in [(10 * 1024, 2), (12 * 1024, 1), (0, 2)] {
            assert!(fresh.push(FreshRange::new(first, blocks)).is_none());
        }
        assert_eq!((fresh.len, fresh.blocks()), (2, 5));
        assert!(fresh.contains(12 * 1024 + 1023) && !fresh.contains(13 * 1024));
        assert!(fresh.contains(0) && !fresh.contains(10 * 1024 - 1));
        let listed: Vec<u32> = fresh.heads().collect();
        let popped: Vec<u32> = core::iter::from_fn(|| fresh.pop()).collect();
        assert_eq!(listed, [10, 11, 12, 0, 1].map(|block| block * 1024));
        assert_eq!(popped, listed);
        assert!(fresh.is_empty() && fresh.blocks() == 0);
    }

    #[test]
    fn the_oldest_range_gives_way() {
        let mut fresh = Fresh::new();
        for at in 0..RANGES as u32 {
            assert!(fresh.push(FreshRange::new(at * 8 * 1024, 1)).is_none());
        }
        let oldest = fresh.push(FreshRange::new(1024 * 1024, 3)).expect("there is no room");
        assert!(oldest.heads().eq([0]));
        assert!(!fresh.contains(0) && fresh.blocks() == RANGES as u32 - 1 + 3);
    }
}
