//! The pageblocks that have loose pages, by migratetype and lane ([`super::loose`] says what they are for).

use super::operations::Operations;
use crate::frame::{LooseMap, Migratetype, NO_FRAME, ZoneFrames};
use crate::units::PAGEBLOCK_ORDER;

/// Lanes of a migratetype; CPUs whose ids differ by a multiple of it share one.
pub(super) const LANES: usize = 8;

/// The pageblocks that have loose pages, by migratetype and lane.
pub(super) struct Loose {
    /// Last frame of the pageblock that was listed last, or [`NO_FRAME`]. A zone may begin within a
    /// pageblock, so that the first frame has no number.
    pub(super) heads: [[u32; LANES]; Migratetype::PCP_COUNT],
    pub(super) pages: [u32; Migratetype::PCP_COUNT],
    /// The lane of the CPU that takes now, or took last.
    pub(super) lane: usize,
    pub(super) operations: Operations,
}

impl Loose {
    pub const fn new() -> Loose {
        let heads = [[NO_FRAME; LANES]; Migratetype::PCP_COUNT];
        let operations = Operations::NONE;
        Loose { heads, pages: [0; Migratetype::PCP_COUNT], lane: 0, operations }
    }

    /// Loose pages of a type.
    #[inline]
    pub fn pages(&self, migratetype: Migratetype) -> u32 {
        self.pages.get(migratetype.index()).copied().unwrap_or(0)
    }

    /// Whether there are loose pages of any type.
    #[inline]
    pub fn any(&self) -> bool {
        self.pages != [0; Migratetype::PCP_COUNT]
    }

    /// The pageblock of a type that was listed last, in the lane at hand or the next one that has any; and its lane.
    pub(super) fn first(&self, migratetype: Migratetype) -> Option<(u32, usize)> {
        let lanes = (self.lane..LANES).chain(0..self.lane);
        let heads = &self.heads[migratetype.index()];
        lanes.map(|lane| (heads[lane], lane)).find(|(head, _)| *head != NO_FRAME)
    }

    /// Puts a pageblock, whose last frame is `last`, at the head of the list of its type, in its lane.
    pub(super) fn list(
        &mut self,
        frames: ZoneFrames<'_>,
        map: LooseMap<'_>,
        last: u32,
        migratetype: Migratetype,
    ) {
        self.operations.add(1);
        let head = &mut self.heads[migratetype.index()][map.lane()];
        frames.link_pageblock(last, *head);
        *head = last;
    }

    /// Takes a pageblock from the list of its type.
    pub(super) fn unlist(&mut self, frames: ZoneFrames<'_>, last: u32, migratetype: Migratetype) {
        self.operations.add(1);
        if let Some(next) = frames.unlink_pageblock(last) {
            let heads = &mut self.heads[migratetype.index()];
            let head = heads.iter_mut().find(|head| **head == last);
            *head.expect("what has none before it is the head of a lane") = next;
        }
    }

    /// The loose pages of a type, pageblock by pageblock.
    pub fn iter<'m>(
        &self,
        frames: ZoneFrames<'m>,
        migratetype: Migratetype,
    ) -> impl Iterator<Item = u32> + use<'m> {
        let heads = self.heads.get(migratetype.index()).copied().unwrap_or([NO_FRAME; LANES]);
        heads
            .into_iter()
            .flat_map(move |head| frames.pageblocks_from(head))
            .flat_map(move |last| frames.loose(last).pages().map(move |page| page_of(last, page)))
    }
}

pub(super) const PAGEBLOCK_FRAMES: u32 = PAGEBLOCK_ORDER.pages().0 as u32;

/// The last frame of the pageblock that frame `number` is of.
#[inline]
pub(super) const fn last_of(number: u32) -> u32 {
    number | (PAGEBLOCK_FRAMES - 1)
}

/// The frame number of a page of the pageblock whose last frame is `last`.
#[inline]
pub(super) const fn page_of(last: u32, page: u32) -> u32 {
    last - (PAGEBLOCK_FRAMES - 1 - page)
}
