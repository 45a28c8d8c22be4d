//! The inbox of a CPU that owns pageblocks: runs of pages that other CPUs freed. Anybody adds, one takes all.
//!
//! Runs are linked through their first frames. The inbox is one word:
//!
//! ```text
//! bit 0-31 the first frame of the run that came last, or NO_FRAME   32-63 pages of all runs
//! ```

use crate::frame::NO_FRAME;
use crate::sync::{Cell64, Ordering, point};

/// The inbox.
#[derive(Debug)]
pub struct Inbox<'a, W> {
    word: &'a W,
}

/// Runs: the first frame of the first, or [`NO_FRAME`], and their pages.
type Runs = (u32, u32);

#[inline]
const fn runs_of(word: u64) -> Runs {
    (word as u32, (word >> 32) as u32)
}

#[inline]
const fn word_of((first, pages): Runs) -> u64 {
    first as u64 | (pages as u64) << 32
}

impl<'a, W: Cell64> Inbox<'a, W> {
    /// The word of an empty inbox.
    pub const EMPTY: u64 = word_of((NO_FRAME, 0));

    /// The inbox of this word.
    #[inline]
    pub fn new(word: &'a W) -> Self {
        Self { word }
    }

    /// What is here now.
    #[inline]
    fn look(&self) -> Runs {
        runs_of(self.word.load(Ordering::Relaxed))
    }

    /// The first frame of the first run, or [`NO_FRAME`]. Only while nobody uses the inbox are its links for others.
    pub fn first(&self) -> u32 {
        self.look().0
    }

    /// Pages here.
    #[inline]
    pub fn pages(&self) -> u32 {
        self.look().1
    }

    /// Whether there is something.
    #[inline]
    pub fn has_some(&self) -> bool {
        self.first() != NO_FRAME
    }

    /// Adds a chain of runs that begins at frame `first`: `link` links the first frame of its last run to what was there.
    pub fn send(&self, first: u32, pages: u32, link: impl Fn(u32)) {
        point();
        let mut before = self.word.load(Ordering::Relaxed);
        loop {
            let (next, more) = runs_of(before);
            link(next);
            point();
            let after = word_of((first, more + pages));
            // Releases the links, and what was written to the pages; `take` acquires them.
            match self.word.replace(before, after, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => before = now,
            }
        }
    }

    /// Takes all runs. For one at a time.
    pub fn take(&self) -> Runs {
        if !self.has_some() {
            return (NO_FRAME, 0);
        }
        point();
        // Pairs with the exchange in `send`.
        runs_of(self.word.swap(Self::EMPTY, Ordering::Acquire))
    }
}
