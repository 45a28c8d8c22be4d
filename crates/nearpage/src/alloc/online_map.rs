//! Which frames are online.

use crate::sync::{AtomicU8, AtomicU64, Ordering};
use crate::units::{PAGEBLOCK_ORDER, PageCount, Pfn, PfnRange, SECTION_SHIFT};

/// Which frames are online: a byte per pageblock, and a bit per frame that is touched only for pageblocks
/// of which a part is online.
#[derive(Clone, Copy)]
pub(super) struct OnlineMap<'m> {
    first_pageblock: u64,
    states: &'m [AtomicU8],
    bits: &'m [AtomicU64],
}

const PARTLY: u8 = 1;
const WHOLLY: u8 = 2;
pub(super) const PAGEBLOCK_FRAMES: u64 = PAGEBLOCK_ORDER.pages().0;

impl<'m> OnlineMap<'m> {
    /// Words of `bits` per pageblock.
    pub(super) const WORDS_PER_PAGEBLOCK: usize = PAGEBLOCK_FRAMES as usize / 64;

    /// Pageblocks in that many sections.
    pub(super) const fn pageblocks(sections: u64) -> usize {
        (sections as usize) << (SECTION_SHIFT - PAGEBLOCK_ORDER.0 as u32)
    }

    /// A map of offline frames, from zeroes.
    pub(super) fn new(first_section: u64, states: &'m [AtomicU8], bits: &'m [AtomicU64]) -> Self {
        let shift = SECTION_SHIFT - PAGEBLOCK_ORDER.0 as u32;
        Self { first_pageblock: first_section << shift, states, bits }
    }

    pub(super) fn contains(&self, pfn: Pfn) -> bool {
        let block = (pfn.0 >> PAGEBLOCK_ORDER.0).wrapping_sub(self.first_pageblock) as usize;
        match self.states.get(block).map(|state| state.load(Ordering::Relaxed)) {
            Some(WHOLLY) => true,
            Some(PARTLY) => self.word(pfn).load(Ordering::Relaxed) & 1 << (pfn.0 % 64) != 0,
            _ => false,
        }
    }

    fn word(&self, pfn: Pfn) -> &'m AtomicU64 {
        &self.bits[((pfn.0 - (self.first_pageblock << PAGEBLOCK_ORDER.0)) / 64) as usize]
    }

    fn state(&self, part: PfnRange) -> &'m AtomicU8 {
        &self.states[((part.start.0 >> PAGEBLOCK_ORDER.0) - self.first_pageblock) as usize]
    }

    /// Whether all frames of the range are online.
    pub(super) fn all(&self, range: PfnRange) -> bool {
        self.first_offline(range).is_none()
    }

    /// The first frame of the range that is not online.
    pub(super) fn first_offline(&self, range: PfnRange) -> Option<Pfn> {
        by_pageblock(range).find_map(|part| match self.try_state(part) {
            Some(WHOLLY) => None,
            Some(PARTLY) => (part.start.0..part.end.0).map(Pfn).find(|&pfn| !self.contains(pfn)),
            _ => Some(part.start),
        })
    }

    /// The last frame of a part of a pageblock that is not online.
    pub(super) fn last_offline(&self, part: PfnRange) -> Option<Pfn> {
        match self.try_state(part) {
            Some(WHOLLY) => None,
            _ => (part.start.0..part.end.0).rev().map(Pfn).find(|&pfn| !self.contains(pfn)),
        }
    }

    fn try_state(&self, part: PfnRange) -> Option<u8> {
        let block = (part.start.0 >> PAGEBLOCK_ORDER.0).wrapping_sub(self.first_pageblock);
        Some(self.states.get(usize::try_from(block).ok()?)?.load(Ordering::Relaxed))
    }

    /// Whether a frame of the range, which may reach beyond the machine, is online.
    pub(super) fn any(&self, range: PfnRange) -> bool {
        (range.start.0..range.end.0).any(|pfn| self.contains(Pfn(pfn)))
    }

    /// The parts of a range of memory that are online, or those that are not, ascending.
    pub(super) fn runs(
        self,
        range: PfnRange,
        is_online: bool,
    ) -> impl Iterator<Item = PfnRange> + Clone + use<'m> {
        let mut at = range.start;
        core::iter::from_fn(move || {
            let from = self.skip(at, range.end, !is_online);
            at = self.skip(from, range.end, is_online);
            (from < range.end).then_some(PfnRange { start: from, end: at })
        })
    }

    /// The first frame from `at` on whose state is not this one, or `end`.
    fn skip(&self, at: Pfn, end: Pfn, is_online: bool) -> Pfn {
        let mut at = at;
        while at < end && self.contains(at) == is_online {
            let block = Pfn(at.0 - at.0 % PAGEBLOCK_FRAMES);
            let next = block.plus(PAGEBLOCK_ORDER.pages());
            let is_uniform = self.try_state(PfnRange { start: at, end }) != Some(PARTLY);
            at = if is_uniform { next.min(end) } else { at.plus(PageCount(1)) };
        }
        at
    }

    /// Whether no frame of the range is online.
    pub(super) fn none(&self, range: PfnRange) -> bool {
        by_pageblock(range).all(|part| match self.state(part).load(Ordering::Relaxed) {
            WHOLLY => false,
            PARTLY => (part.start.0..part.end.0).all(|pfn| !self.contains(Pfn(pfn))),
            _ => true,
        })
    }

    /// Notes that the frames of the range are not online; in its pageblocks no others are.
    pub(super) fn clear(&self, range: PfnRange) {
        for part in by_pageblock(range) {
            if self.state(part).swap(0, Ordering::Relaxed) == PARTLY {
                for pfn in (part.start.0..part.end.0).map(Pfn) {
                    self.word(pfn).fetch_and(!(1 << (pfn.0 % 64)), Ordering::Relaxed);
                }
            }
        }
    }

    /// Notes that the frames of the range are online.
    pub(super) fn set(&self, range: PfnRange) {
        for part in by_pageblock(range) {
            if part.pages().0 == PAGEBLOCK_FRAMES {
                self.state(part).store(WHOLLY, Ordering::Relaxed);
                continue;
            }
            self.state(part).store(PARTLY, Ordering::Relaxed);
            for pfn in (part.start.0..part.end.0).map(Pfn) {
                self.word(pfn).fetch_or(1 << (pfn.0 % 64), Ordering::Relaxed);
            }
        }
    }
}

/// A range cut at the bounds of pageblocks.
pub(super) fn by_pageblock(range: PfnRange) -> impl DoubleEndedIterator<Item = PfnRange> {
    let blocks = range.start.0 / PAGEBLOCK_FRAMES..range.end.0.div_ceil(PAGEBLOCK_FRAMES);
    let parts = blocks.map(move |block| {
        let start = block * PAGEBLOCK_FRAMES;
        // A range that was made up may end with the last number there is.
        PfnRange::new(start, start.saturating_add(PAGEBLOCK_FRAMES)).intersection(range)
    });
    // An empty range within a pageblock has no part of it.
    parts.filter(|part| !part.is_empty())
}
