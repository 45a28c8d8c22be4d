//! Taking free blocks by where they are or how large: for hosts that give the memory behind them back, and for CPUs that
//! own pageblocks.

use core::ops::{Range, RangeInclusive};

use super::state::{Buddy, counted_pages, frame_count};
use crate::frame::{FrameState, Migratetype, ZoneFrames};
use crate::units::{Order, PAGEBLOCK_ORDER};

impl Buddy {
    /// Takes the first free block of a pageblock or more whose head lies in `range`, from its list; returns
    /// its first frame and its order. It goes back by [`free`](Self::free). Untouched memory is not found, since
    /// nothing is behind it, nor are blocks that are reserved or isolated.
    ///
    /// Looks at one frame a pageblock.
    pub fn take_between(
        &mut self,
        frames: ZoneFrames<'_>,
        range: Range<u32>,
    ) -> Option<(u32, Order)> {
        // Numbers have the alignment of their PFNs: a zone's first section begins at number 0.
        let step = frame_count(PAGEBLOCK_ORDER);
        let heads = (range.start.next_multiple_of(step)..range.end).step_by(step as usize);
        for number in heads {
            let Some(frame) = frames.try_frame(number) else { continue };
            let word = frame.word();
            let is_free = word.state() == FrameState::Free && word.zone() == frames.zone();
            if is_free && word.order() >= PAGEBLOCK_ORDER && word.migratetype().is_mergeable() {
                self.lists.unlink(frames, frame, word.order(), word.migratetype());
                self.free_pages -= word.order().pages().0;
                return Some((number, word.order()));
            }
        }
        None
    }

    /// Takes the free block whose head is frame `number` from its list.
    pub(crate) fn take_block_at(&mut self, frames: ZoneFrames<'_>, number: u32) {
        let frame = frames.frame(number);
        let word = frame.word();
        self.lists.unlink(frames, frame, word.order(), word.migratetype());
        self.free_pages -= counted_pages(word.order(), word.migratetype());
    }

    /// Takes the first block of the largest of these orders that the lists of a type have.
    pub(crate) fn take_largest(
        &mut self,
        frames: ZoneFrames<'_>,
        orders: RangeInclusive<Order>,
        migratetype: Migratetype,
    ) -> Option<(u32, Order)> {
        let (least, most) = (orders.start().0, orders.end().0);
        let order = (least..=most)
            .rev()
            .map(Order)
            .find(|order| self.lists.orders(migratetype) >> order.0 & 1 == 1)?;
        let number = self.lists.pop(frames, order, migratetype)?;
        self.free_pages -= order.pages().0;
        Some((number, order))
    }
}
