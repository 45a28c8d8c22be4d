//! The stage: pages on their way home, in rows. A pageblock's row follows from where it lies, and some share one.
//!
//! The rules do not say in which order pageblocks of one row are looked at, but who predicts each page has to know it: the one
//! that came last first; and what stays goes to the front.

use std_alloc::vec;
use std_alloc::vec::Vec;

use super::maps::{Pages, run, runs};
use super::owners::first_of;
use crate::testing::kept::Run;
use crate::units::Pfn;

/// Entries that there is room for, for each row.
const ENTRIES_PER_ROW: usize = 5;

/// What becomes of the pages of a pageblock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    Gone,
    Kept,
    /// As `Kept`, and so does all that comes after.
    Stop,
    /// As `Stop`, but of this pageblock only these stay.
    StopWith(Pages),
}

/// The stage of a CPU for a zone.
#[derive(Clone, Default, Debug)]
pub(super) struct Stage {
    /// Of each row, the entry that came last first.
    rows: Vec<Vec<Run>>,
    /// The first frame of row 0.
    base: u64,
}

/// All pages of some runs.
pub(super) fn pages_of(runs: &[Run]) -> Pages {
    let mut pages = Pages::new();
    for &(first, count) in runs {
        for pfn in run(first, count) {
            assert!(pages.insert(pfn), "{pfn} is freed twice");
        }
    }
    pages
}

impl Stage {
    /// An empty stage for a zone whose first section begins at frame `base`.
    pub(super) fn new(rows: usize, base: Pfn) -> Self {
        Self { rows: vec![vec![]; rows], base: base.0 }
    }

    fn entries(&self) -> usize {
        self.rows.iter().map(Vec::len).sum()
    }

    /// How many more entries there is room for.
    pub(super) fn room(&self) -> usize {
        self.rows.len() * ENTRIES_PER_ROW - self.entries()
    }

    /// Pages here.
    pub(super) fn pages(&self) -> u64 {
        self.runs().map(|(_, pages)| pages).sum()
    }

    /// All that is here.
    pub(super) fn runs(&self) -> impl Iterator<Item = Run> {
        self.rows.iter().flatten().copied()
    }

    /// Adds adjoining pages of one pageblock; `false` if there is no room.
    pub(super) fn add(&mut self, first: Pfn, pages: u64) -> bool {
        if self.room() == 0 {
            return false;
        }
        let row = ((first.0 - self.base) / 512) as usize % self.rows.len();
        self.rows[row].insert(0, (first, pages));
        true
    }

    /// Asks for the fate of each pageblock's pages, from a row on. Returns the row in which it said to stop.
    pub(super) fn each_pageblock(
        &mut self,
        from: usize,
        mut decide: impl FnMut(Pfn, Pages) -> Fate,
    ) -> Option<usize> {
        for (number, row) in self.rows.iter_mut().enumerate().skip(from) {
            let mut rest = core::mem::take(row);
            while let Some(&(pfn, _)) = rest.first() {
                let is_theirs = |run: &Run| first_of(run.0) == first_of(pfn);
                let (theirs, others): (Vec<Run>, Vec<Run>) = rest.into_iter().partition(is_theirs);
                let fate = decide(first_of(pfn), pages_of(&theirs));
                let is_end = matches!(fate, Fate::Stop | Fate::StopWith(_));
                let stay = match fate {
                    Fate::Gone => vec![],
                    Fate::Kept | Fate::Stop => theirs,
                    Fate::StopWith(pages) => {
                        runs(&pages).into_iter().map(|(at, end)| (Pfn(at), end - at)).collect()
                    }
                };
                row.splice(0..0, stay);
                if is_end {
                    row.splice(0..0, others);
                    return Some(number);
                }
                rest = others;
            }
        }
        None
    }
}
