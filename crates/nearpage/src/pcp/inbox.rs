//! The inbox of a CPU that owns pageblocks: runs of pages that other CPUs freed. Anybody adds, one takes all.
//!
//! Runs are linked through their first frames; the inbox has two words: where the first run is, and how much it is about.

use crate::frame::NO_FRAME;
use crate::sync::{Cell32, Cell64, Ordering, point};

const USES_SHIFT: u32 = 32;
const PAGES: u64 = u32::MAX as u64;

/// The two words.
#[derive(Debug)]
pub struct Inbox<'a, W, C> {
    /// The first frame of the run that came last, or [`NO_FRAME`].
    head: &'a W,
    /// Pages, about so many while somebody adds, with those that were taken and have not gone on; and in the upper half, how
    /// often that was written.
    work: &'a C,
}

impl<'a, W: Cell32, C: Cell64> Inbox<'a, W, C> {
    /// The inbox of these words.
    #[inline]
    pub fn new(head: &'a W, work: &'a C) -> Self {
        Self { head, work }
    }

    /// Pages here.
    #[inline]
    pub fn pages(&self) -> u64 {
        self.work.load(Ordering::Relaxed) & PAGES
    }

    /// How often somebody added, or took some.
    #[inline]
    pub fn uses(&self) -> u32 {
        (self.work.load(Ordering::Relaxed) >> USES_SHIFT) as u32
    }

    /// Whether there may be something.
    #[inline]
    pub fn has_some(&self) -> bool {
        self.head.load(Ordering::Relaxed) != NO_FRAME
    }

    /// Adds a chain of runs that begins at frame `first`: `link` links the first frame of its last run to what was there.
    pub fn send(&self, first: u32, pages: u32, link: impl Fn(u32)) {
        point();
        // Before the runs are there: who takes them subtracts no more than was added.
        self.work.add((1 << USES_SHIFT) + u64::from(pages), Ordering::Relaxed);
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            link(head);
            point();
            // Releases the links, what was written to the pages, and the count; `take` acquires them.
            match self.head.replace(head, first, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Takes all runs: answers the first one. Their pages are counted here until [`note_gone`](Self::note_gone). For one at a
    /// time.
    pub fn take(&self) -> u32 {
        if !self.has_some() {
            return NO_FRAME;
        }
        point();
        // Pairs with the exchange in `send`.
        self.head.swap(NO_FRAME, Ordering::Acquire)
    }

    /// Notes that pages that were taken have gone on.
    pub fn note_gone(&self, pages: u32) {
        self.work.add((1 << USES_SHIFT) - u64::from(pages), Ordering::Relaxed);
    }

    /// Notes that pages wait beside those that were taken.
    pub fn note_waiting(&self, pages: u32) {
        self.work.add((1 << USES_SHIFT) + u64::from(pages), Ordering::Relaxed);
    }
}
