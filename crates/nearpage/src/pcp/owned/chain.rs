//! Runs of pages on their way between CPUs.

use crate::frame::{FreeMap, NO_FRAME, ZoneFrames};

/// A chain of such runs under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain {
    pub(super) first: u32,
    pub(super) last: u32,
    pages: u32,
}

impl Chain {
    pub(crate) const NONE: Chain = Chain { first: NO_FRAME, last: NO_FRAME, pages: 0 };

    /// The runs that begin with the one at frame `first`; how many pages they have is not known.
    pub(super) fn starting_at(first: u32) -> Self {
        Self { first, ..Self::NONE }
    }

    /// Adds a run before the others.
    pub(crate) fn push(&mut self, frames: &ZoneFrames<'_>, first: u32, pages: u32) {
        let frame = frames.frame(first);
        frame.set_next(self.first);
        frame.set_prev(pages);
        if self.last == NO_FRAME {
            self.last = first;
        }
        (self.first, self.pages) = (first, self.pages + pages);
    }

    /// Adds pages of the pageblock at `first`.
    pub(crate) fn push_map(&mut self, frames: &ZoneFrames<'_>, first: u32, map: FreeMap) {
        map.runs().for_each(|run| self.push(frames, first + run.start, run.end - run.start));
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.first == NO_FRAME
    }

    /// Pages that were added.
    pub(crate) fn pages(&self) -> u32 {
        self.pages
    }

    /// Takes the first run: its first frame, and its pages.
    pub(crate) fn pop(&mut self, frames: &ZoneFrames<'_>) -> Option<(u32, u32)> {
        let first = Some(self.first).filter(|&first| first != NO_FRAME)?;
        let frame = frames.frame(first);
        let pages = frame.prev();
        (self.first, self.pages) = (frame.next(), self.pages.wrapping_sub(pages));
        Some((first, pages))
    }
}
