//! Memory comes: its frames are handed over as at boot.

use core::ops::Range;

use super::free::largest_block;
use super::fresh::FreshRange;
use super::state::{Buddy, Insertion, frame_count};
use crate::frame::ZoneFrames;
use crate::units::MAX_ORDER;

impl Buddy {
    /// Hands the frames of `range` over, as at boot: cut greedily into the largest aligned blocks,
    /// each to the tail of its list (`mm/memblock.c: __free_pages_memory`, 6.12). Blocks of the
    /// highest order are counted and listed but not touched.
    ///
    /// No frame of the range is the head of anything, and its pageblocks are movable: untouched
    /// memory is so.
    pub fn online(&mut self, frames: ZoneFrames<'_>, range: Range<u32>) {
        self.set_end(range.end);
        let mut at = range.start;
        while at < range.end {
            let order = largest_block(frames.pfn(at), range.end - at, MAX_ORDER);
            let mut pages = frame_count(order);
            if order == MAX_ORDER {
                let fresh = FreshRange::new(at, (range.end - at) / pages);
                pages = fresh.pages();
                self.free_pages += pages as u64;
                self.lists.push_fresh(frames, fresh);
            } else {
                self.free(frames, at, order, Insertion::Tail);
            }
            at += pages;
        }
    }
}
