//! Pages on their way to who has their pageblocks, by pageblock: each parcel is a map of those of one.
//!
//! A pageblock has one of [`PROBES`] places, so that it is found by a few comparisons of words that lie side by side. What
//! finds no place waits elsewhere ([`super::owned`]).
//!
//! For who has hold of what the CPU owns.

use core::ops::Range;

use crate::frame::{FreeMap, NO_FRAME, words_of};
use crate::sync::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use crate::units::PAGEBLOCK_ORDER;

/// The most parcels: about as many pageblocks as one hold of a zone's lock can pass.
pub(crate) const PARCELS: usize = 96;
/// Places that a pageblock may have.
const PROBES: usize = 8;
const PAGES: u32 = PAGEBLOCK_ORDER.pages().0 as u32;
const WORDS: usize = PAGES as usize / 64;

/// The parcels of a CPU, 70 bytes each.
#[derive(Debug)]
pub(crate) struct Parcels {
    /// The pageblocks, by their first frames; [`NO_FRAME`] where there is none.
    firsts: [AtomicU32; PARCELS],
    pages: [AtomicU16; PARCELS],
    maps: [[AtomicU64; WORDS]; PARCELS],
    total: AtomicU32,
}

impl Parcels {
    pub(crate) fn new() -> Self {
        Self {
            firsts: [const { AtomicU32::new(NO_FRAME) }; PARCELS],
            pages: [const { AtomicU16::new(0) }; PARCELS],
            maps: [const { [const { AtomicU64::new(0) }; WORDS] }; PARCELS],
            total: AtomicU32::new(0),
        }
    }

    /// Pages in all parcels.
    #[inline]
    pub(crate) fn total(&self) -> u32 {
        self.total.load(Ordering::Relaxed)
    }

    /// The places that have a parcel.
    pub(crate) fn places(&self) -> impl Iterator<Item = usize> {
        (0..PARCELS).filter(|&at| self.first(at) != NO_FRAME)
    }

    /// The pageblock of the parcel at a place, by its first frame.
    #[inline]
    pub(crate) fn first(&self, at: usize) -> u32 {
        self.firsts[at].load(Ordering::Relaxed)
    }

    /// Pages in it.
    #[inline]
    pub(crate) fn pages(&self, at: usize) -> u32 {
        self.pages[at].load(Ordering::Relaxed).into()
    }

    /// Which pages those are.
    pub(crate) fn map(&self, at: usize) -> FreeMap {
        FreeMap::of_words(core::array::from_fn(|word| self.maps[at][word].load(Ordering::Relaxed)))
    }

    /// Adds adjoining pages of the pageblock at `first`, by their places in it; `false` if it finds no place.
    ///
    /// # Panics
    /// If one of them is there already: it was freed twice.
    #[inline]
    pub(crate) fn add(&self, first: u32, pages: Range<u32>) -> bool {
        // Neighbours have different places.
        let home = (first / PAGES) as usize % PARCELS;
        let probes = (home..home + PROBES).map(|at| at % PARCELS);
        let Some(at) = { probes.clone() }.find(|&at| self.first(at) == first).or_else(|| {
            let at = { probes }.find(|&at| self.first(at) == NO_FRAME)?;
            self.firsts[at].store(first, Ordering::Relaxed);
            Some(at)
        }) else {
            return false;
        };
        let more = pages.end - pages.start;
        for (word, bits) in words_of(pages) {
            let word = &self.maps[at][word];
            let before = word.load(Ordering::Relaxed);
            assert!(before & bits == 0, "freed twice");
            word.store(before | bits, Ordering::Relaxed);
        }
        self.pages[at].store((self.pages(at) + more) as u16, Ordering::Relaxed);
        self.total.store(self.total() + more, Ordering::Relaxed);
        true
    }

    /// Takes a parcel away; returns its pages.
    pub(crate) fn take(&self, at: usize) -> FreeMap {
        let map = self.map(at);
        self.maps[at].iter().for_each(|word| word.store(0, Ordering::Relaxed));
        self.total.store(self.total() - self.pages(at), Ordering::Relaxed);
        self.pages[at].store(0, Ordering::Relaxed);
        self.firsts[at].store(NO_FRAME, Ordering::Relaxed);
        map
    }
}

#[cfg(test)]
mod tests {
    use std_alloc::collections::{BTreeMap, BTreeSet};
    use std_alloc::vec::Vec;

    use super::*;
    use crate::frame::first_of;
    use crate::testing::random::Random;

    /// Beside a map by pageblock that has room for all.
    #[test]
    fn each_pageblock_has_its_pages() {
        let mut refused = 0;
        for seed in 0..200 {
            let mut random = Random(seed);
            let parcels = Parcels::new();
            let mut naive: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
            for _ in 0..2000 {
                let number = random.below(200 * u64::from(PAGES)) as u32;
                let (first, at) = (first_of(number), number % PAGES);
                let pages = at..(at + random.below(9) as u32 + 1).min(PAGES);
                if random.one_in(40) {
                    let places: Vec<usize> = parcels.places().collect();
                    for at in places.into_iter().filter(|_| random.one_in(2)) {
                        let first = parcels.first(at);
                        let taken: Vec<u32> = parcels.take(at).runs().flatten().collect();
                        assert_eq!(taken, Vec::from_iter(naive.remove(&first).unwrap()));
                    }
                }
                let there = naive.get(&first);
                if pages.clone().any(|page| there.is_some_and(|all| all.contains(&page))) {
                    continue;
                }
                match parcels.add(first, pages.clone()) {
                    true => naive.entry(first).or_default().extend(pages),
                    false => {
                        assert!(!naive.contains_key(&first));
                        refused += 1;
                    }
                }
                let total: usize = naive.values().map(BTreeSet::len).sum();
                assert_eq!(parcels.total() as usize, total);
            }
            assert_eq!(parcels.places().count(), naive.len());
            for at in parcels.places() {
                let pages: Vec<u32> = parcels.map(at).runs().flatten().collect();
                assert_eq!(parcels.pages(at) as usize, pages.len());
                assert_eq!(pages, Vec::from_iter(naive[&parcels.first(at)].iter().copied()));
            }
        }
        assert!(refused > 0);
    }
}
