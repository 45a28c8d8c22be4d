//! Single pages that came back and are not merged yet: nearpage's [`Merging::Deferred`].
//!
//! [`Merging::Deferred`]: crate::buddy::Merging::Deferred

use std_alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use std_alloc::vec::Vec;

use crate::frame::Migratetype;
use crate::units::Pfn;

const PAGEBLOCK: u64 = 512;
/// CPUs whose numbers are this far apart share a lane.
pub const LANES: usize = 8;
/// Runs of loose pages are taken by words of so many.
const WORD: u64 = 64;

/// The loose pages of a zone.
#[derive(Default, Debug)]
pub struct Loose {
    /// By type and lane, pageblocks that have loose pages: the one that was listed last is the first.
    pageblocks: [[VecDeque<u64>; LANES]; Migratetype::PCP_COUNT],
    /// The lane of the CPU that takes, or took last.
    pub lane: usize,
    /// The lane of the CPU that took pages of a pageblock last.
    lanes: BTreeMap<u64, usize>,
    pages: BTreeMap<u64, BTreeSet<Pfn>>,
}

impl Loose {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Pageblocks that have some.
    pub fn pageblocks(&self) -> u64 {
        self.pages.len() as u64
    }

    /// Whether there are none in pageblocks of a type.
    pub fn has_none_of(&self, of: Migratetype) -> bool {
        self.pageblocks[of.index()].iter().all(VecDeque::is_empty)
    }

    /// The loose pages of a type, in the order in which they are listed.
    pub fn list(&self, of: Migratetype) -> impl Iterator<Item = Pfn> {
        let pageblocks = self.pageblocks.get(of.index()).into_iter().flatten().flatten();
        pageblocks.flat_map(|pageblock| self.pages[pageblock].iter().copied())
    }

    /// Adds a page. Returns the first page of its pageblock if all of that is loose now; then none of it
    /// is any more.
    pub fn insert(&mut self, pfn: Pfn, of: Migratetype) -> Option<Pfn> {
        let pageblock = pfn.0 / PAGEBLOCK;
        let pages = self.pages.entry(pageblock).or_default();
        if pages.is_empty() {
            let lane = self.lanes.get(&pageblock).copied().unwrap_or(0);
            self.pageblocks[of.index()][lane].push_front(pageblock);
        }
        assert!(pages.insert(pfn), "{pfn} is loose already");
        if pages.len() as u64 == PAGEBLOCK {
            self.forget(pageblock);
            return Some(Pfn(pageblock * PAGEBLOCK));
        }
        None
    }

    /// The pageblock that is looked at first: in the lane at hand, or else in the next one after it, round about.
    fn first(&self, of: Migratetype) -> Option<u64> {
        let next = |step: usize| self.pageblocks[of.index()][(self.lane + step) % LANES].front();
        (0..LANES).find_map(next).copied()
    }

    /// Takes the first adjoining pages of a type, at most `most`. What is left there changes to the lane at hand.
    pub fn take_run(&mut self, of: Migratetype, most: u64) -> Vec<Pfn> {
        let Some(pageblock) = self.first(of) else { return Vec::new() };
        self.lanes.insert(pageblock, self.lane);
        let pages = self.pages.entry(pageblock).or_default();
        let mut run: Vec<Pfn> = Vec::new();
        while let Some(&pfn) = pages.first() {
            let adjoins = run.last().is_none_or(|last| last.0 + 1 == pfn.0 && pfn.0 % WORD != 0);
            if !adjoins || run.len() as u64 == most {
                break;
            }
            pages.pop_first();
            run.push(pfn);
        }
        if pages.is_empty() {
            self.forget(pageblock);
        } else {
            self.unlist(pageblock);
            self.pageblocks[of.index()][self.lane].push_front(pageblock);
        }
        run
    }

    /// A page is taken from a larger block: its pageblock changes to the lane at hand, if no page of it is loose.
    pub fn move_to_lane(&mut self, pfn: Pfn) {
        let pageblock = pfn.0 / PAGEBLOCK;
        if !self.pages.contains_key(&pageblock) {
            self.lanes.insert(pageblock, self.lane);
        }
    }

    /// Takes all pages of the first pageblock of a type, ascending.
    pub fn take_first(&mut self, of: Migratetype) -> Vec<Pfn> {
        let Some(pageblock) = self.first(of) else { return Vec::new() };
        let pages = self.pages[&pageblock].iter().copied().collect();
        self.forget(pageblock);
        pages
    }

    /// Takes all pages of the pageblock of a frame, ascending.
    pub fn take_pageblock(&mut self, pfn: Pfn) -> Vec<Pfn> {
        let pageblock = pfn.0 / PAGEBLOCK;
        let pages = self.pages.get(&pageblock).into_iter().flatten().copied().collect();
        self.forget(pageblock);
        pages
    }

    fn forget(&mut self, pageblock: u64) {
        self.pages.remove(&pageblock);
        self.unlist(pageblock);
    }

    fn unlist(&mut self, pageblock: u64) {
        let lists = self.pageblocks.iter_mut().flatten();
        lists.for_each(|list| list.retain(|&other| other != pageblock));
    }
}
