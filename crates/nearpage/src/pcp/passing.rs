//! Pageblocks on their way between a CPU and its zone, linked through their places on lists.
//!
//! Those of which all is free pass as if nothing were: their maps are written by the CPU, before or after it has the zone's
//! lock.

use crate::frame::{NO_FRAME, ZoneFrames};

/// The pageblocks.
#[derive(Debug)]
pub(crate) struct Passing {
    head: u32,
}

impl Passing {
    pub(crate) const fn new() -> Self {
        Self { head: NO_FRAME }
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.head == NO_FRAME
    }

    /// Adds the pageblock at `first`, which is on no list.
    pub(crate) fn push(&mut self, frames: &ZoneFrames<'_>, first: u32) {
        frames.link_pageblock(first, self.head);
        self.head = first;
    }

    /// All of them, by their first frames; the one that was added last comes first.
    pub(crate) fn each<'m>(&self, frames: &ZoneFrames<'m>) -> impl Iterator<Item = u32> + use<'m> {
        frames.pageblocks_from(self.head)
    }

    /// Takes the one that was added last.
    pub(crate) fn pop(&mut self, frames: &ZoneFrames<'_>) -> Option<u32> {
        let first = Some(self.head).filter(|&head| head != NO_FRAME)?;
        self.head = frames.unlink_pageblock(first).expect("the head has none before it");
        Some(first)
    }
}
