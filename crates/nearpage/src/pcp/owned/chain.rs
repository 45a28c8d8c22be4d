//! Runs of pages on their way between CPUs: the first frame of each says in `next` which run is next, and in `prev` how many
//! pages it has, and whether it was the first of a chain that was sent.

use crate::frame::{FreeMap, NO_FRAME, ZoneFrames};

/// What marks the first run of a chain that was sent.
const SENT: u32 = 1 << 31;

/// A chain of such runs under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain {
    pub(super) first: u32,
    pub(super) last: u32,
    pages: u32,
    /// Chains of which it was received so far.
    sent: u32,
}

impl Chain {
    pub(crate) const NONE: Chain = Chain { first: NO_FRAME, last: NO_FRAME, pages: 0, sent: 0 };

    /// The runs that begin with the one at a frame, and have so many pages.
    pub(super) fn of((first, pages): (u32, u32)) -> Self {
        Self { first, pages, ..Self::NONE }
    }

    /// Notes that it is sent.
    pub(super) fn mark(&self, frames: &ZoneFrames<'_>) {
        let frame = frames.frame(self.first);
        frame.set_prev(frame.prev() | SENT);
    }

    /// How many chains that were sent began with a run that was taken.
    pub(crate) fn sent(&self) -> u32 {
        self.sent
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

    /// Pages of all runs.
    pub(crate) fn pages(&self) -> u32 {
        self.pages
    }

    /// Takes the first run: its first frame, and its pages.
    pub(crate) fn pop(&mut self, frames: &ZoneFrames<'_>) -> Option<(u32, u32)> {
        let first = Some(self.first).filter(|&first| first != NO_FRAME)?;
        let frame = frames.frame(first);
        let pages = frame.prev() & !SENT;
        self.sent += u32::from(frame.prev() & SENT != 0);
        (self.first, self.pages) = (frame.next(), self.pages.wrapping_sub(pages));
        Some((first, pages))
    }
}
