//! The walker: is every list what it should be?

use core::fmt;

use super::state::{Buddy, frame_count};
use crate::frame::{Migratetype, NO_FRAME, Word, ZoneFrames};
use crate::units::{MAX_ORDER, Order, PAGEBLOCK_ORDER, PageCount};

/// Something that [`Buddy::check`] found. `number` is a frame number within the zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BuddyError {
    /// A block does not link back to the one that links to it.
    Link {
        /// The block.
        number: u32,
        /// What its `prev` should be.
        expected: u32,
        /// What it is.
        found: u32,
    },
    /// A listed block whose word does not say so, or a fresh block whose word says it is listed.
    Word {
        /// The block.
        number: u32,
        /// Its word.
        found: Word,
    },
    /// A block that is not aligned to its order.
    Alignment {
        /// The block.
        number: u32,
        /// Its order.
        order: Order,
    },
    /// A list whose length is not what was counted.
    Count {
        /// The list's order.
        order: Order,
        /// The list's type.
        migratetype: Migratetype,
        /// Blocks counted.
        expected: u32,
        /// Blocks found; one more than expected may mean a circle.
        found: u32,
    },
    /// Two buddies, both free, that should have merged.
    Unmerged {
        /// One of them.
        number: u32,
        /// Their order.
        order: Order,
    },
    /// A block on the list of another type than its pageblock's, where the rules forbid it.
    Pageblock {
        /// The block.
        number: u32,
        /// The list's type.
        listed: Migratetype,
        /// The pageblock's type.
        pageblock: Migratetype,
    },
    /// The free pages counted are not those on the lists.
    FreePages {
        /// Pages counted.
        expected: PageCount,
        /// Pages found.
        found: PageCount,
    },
}

impl fmt::Display for BuddyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link { number, expected, found } => {
                write!(f, "frame {number}: prev is {found}, the list says {expected}")
            }
            Self::Word { number, found } => {
                write!(f, "frame {number}: its word, {found:?}, is not what its list says")
            }
            Self::Alignment { number, order } => {
                write!(f, "frame {number}: not aligned to order {order}")
            }
            Self::Count { order, migratetype, expected, found } => {
                let name = migratetype.name();
                write!(f, "list of order {order}, {name}: {found} blocks, counted {expected}")
            }
            Self::Unmerged { number, order } => {
                write!(f, "frame {number}: its buddy of order {order} is free too")
            }
            Self::Pageblock { number, listed, pageblock } => write!(
                f,
                "frame {number}: listed as {}, its pageblock is {}",
                listed.name(),
                pageblock.name()
            ),
            Self::FreePages { expected, found } => {
                write!(f, "{found} free pages on the lists, counted {expected}")
            }
        }
    }
}

impl core::error::Error for BuddyError {}

impl Buddy {
    /// Walks all lists: links, words, counts, alignment, types, and that nothing is left unmerged.
    /// Costs time by the number of free blocks.
    ///
    /// # Errors
    /// The first thing found wrong.
    pub fn check(&self, frames: ZoneFrames<'_>) -> Result<(), BuddyError> {
        let mut pages = 0;
        for order in (0..=MAX_ORDER.0).map(Order) {
            for migratetype in Migratetype::ALL {
                self.check_list(frames, order, migratetype)?;
                if migratetype != Migratetype::Isolate {
                    pages += self.blocks(order, migratetype) as u64 * order.pages().0;
                }
            }
        }
        let (expected, found) = (self.free_pages(), PageCount(pages));
        if expected == found { Ok(()) } else { Err(BuddyError::FreePages { expected, found }) }
    }

    fn check_list(
        &self,
        frames: ZoneFrames<'_>,
        order: Order,
        migratetype: Migratetype,
    ) -> Result<(), BuddyError> {
        let (expected, tail) = self.lists.linked_count_and_tail(order, migratetype);
        let listed = Word::free(order, migratetype, frames.zone());
        let (mut prev, mut found) = (NO_FRAME, 0);
        for number in self.lists.linked(frames, order, migratetype).take(expected as usize + 1) {
            let frame = frames.frame(number);
            if frame.prev() != prev {
                return Err(BuddyError::Link { number, expected: prev, found: frame.prev() });
            }
            if frame.word() != listed {
                return Err(BuddyError::Word { number, found: frame.word() });
            }
            self.check_block(frames, number, order, migratetype)?;
            prev = number;
            found += 1;
        }
        let is_listed = self.lists.orders(migratetype) >> order.0 & 1 == 1;
        let has_blocks = self.lists.blocks(order, migratetype) > 0;
        if found != expected || tail != prev || is_listed != has_blocks {
            return Err(BuddyError::Count { order, migratetype, expected, found });
        }
        for number in self.lists.fresh(order, migratetype) {
            let found = frames.frame(number).word();
            if found.is_free(order, frames.zone()) {
                return Err(BuddyError::Word { number, found });
            }
            self.check_block(frames, number, order, migratetype)?;
        }
        Ok(())
    }

    fn check_block(
        &self,
        frames: ZoneFrames<'_>,
        number: u32,
        order: Order,
        listed: Migratetype,
    ) -> Result<(), BuddyError> {
        if !frames.pfn(number).is_aligned(order) {
            return Err(BuddyError::Alignment { number, order });
        }
        let (home, at) = frames.section(number);
        let buddy = home.frame(at ^ frame_count(order)).word();
        if order < PAGEBLOCK_ORDER && buddy.is_free(order, frames.zone()) {
            return Err(BuddyError::Unmerged { number, order });
        }
        if self.rules.lists_follow_pageblocks() {
            for at in (0..frame_count(order)).step_by(frame_count(PAGEBLOCK_ORDER) as usize) {
                let pageblock = frames.pageblock(number + at);
                if pageblock != listed {
                    return Err(BuddyError::Pageblock { number: number + at, listed, pageblock });
                }
            }
        }
        Ok(())
    }
}
