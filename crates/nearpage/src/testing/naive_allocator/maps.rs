//! Zones that know what is free by pageblock: a set of pages for each that is free in part, and a note of when it was listed
//! where. What is looked for is looked for among all.

use std_alloc::collections::{BTreeMap, BTreeSet};
use std_alloc::vec;
use std_alloc::vec::Vec;

use super::owners::first_of;
use crate::frame::Migratetype;
use crate::units::{Order, Pfn};

pub(super) const PAGEBLOCK: u64 = 512;
/// Pageblocks are listed by how much is free, in steps of so many pages.
const STEP: u64 = 64;

/// Pages of one pageblock.
pub(super) type Pages = BTreeSet<Pfn>;

/// The list that a pageblock of a zone is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    of: Migratetype,
    fill: u64,
    /// The order of the largest block.
    largest: Order,
}

/// What is free by pageblock, and which pageblocks the zone has listed.
#[derive(Default, Debug)]
pub(super) struct Maps {
    /// By first frame, the zone's and those that CPUs own; not those of which nothing is free, or that are a block of the
    /// zone's lists.
    pub(super) free: BTreeMap<Pfn, Pages>,
    /// Where the zone has listed its own, and when.
    pub(super) listed: BTreeMap<Pfn, (Place, u64)>,
    pub(super) time: u64,
}

/// Adjoining pages.
pub(super) fn run(first: Pfn, pages: u64) -> Pages {
    (first.0..first.0 + pages).map(Pfn).collect()
}

/// Adjoining pages among some: the first one, and where they end.
pub(super) fn runs(pages: &Pages) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = vec![];
    for pfn in pages {
        match runs.last_mut() {
            Some((_, end)) if *end == pfn.0 => *end += 1,
            _ => runs.push((pfn.0, pfn.0 + 1)),
        }
    }
    runs
}

/// The blocks of an order, up to that of a pageblock, of which each page is there.
pub(super) fn blocks(pages: &Pages, order: Order) -> Vec<Pfn> {
    let size = order.pages().0;
    let in_run = |(at, end): (u64, u64)| {
        let heads = (at.next_multiple_of(size)..end).step_by(size as usize);
        heads.filter(move |head| head + size <= end).map(Pfn)
    };
    runs(pages).into_iter().flat_map(in_run).collect()
}

pub(super) fn largest(pages: &Pages) -> Option<Order> {
    let runs = runs(pages);
    let fits = |order: &Order| {
        let size = order.pages().0;
        runs.iter().any(|(at, end)| at.next_multiple_of(size) + size <= *end)
    };
    (0..=9).rev().map(Order).find(fits)
}

/// Words of 64 pages that pages lie in.
pub(super) fn words(pages: &Pages) -> u64 {
    pages.iter().map(|pfn| pfn.0 / 64).collect::<BTreeSet<u64>>().len() as u64
}

impl Maps {
    /// What is free in the pageblock at `first`: where adjoining pages begin and end.
    pub(super) fn runs(&self, first: Pfn) -> Vec<(u64, u64)> {
        self.free.get(&first).map_or(vec![], runs)
    }

    /// How many pages are free in the pageblock at `first`.
    pub(super) fn free_in(&self, first: Pfn) -> u64 {
        self.free.get(&first).map_or(0, |pages| pages.len() as u64)
    }

    /// Adds free pages of the pageblock at `first`.
    pub(super) fn add(&mut self, first: Pfn, pages: &Pages) {
        let free = self.free.entry(first).or_default();
        for &pfn in pages {
            assert!(first_of(pfn) == first && free.insert(pfn), "{pfn} is freed twice");
        }
    }

    /// Takes all out of a pageblock.
    pub(super) fn take_all(&mut self, first: Pfn) -> Pages {
        self.free.remove(&first).unwrap_or_default()
    }

    /// Takes the first adjoining pages of a pageblock.
    pub(super) fn take_run(&mut self, first: Pfn, most: u64) -> Vec<Pfn> {
        let Some(pages) = self.free.get(&first) else { return vec![] };
        let Some(&lowest) = pages.first() else { return vec![] };
        let adjoining = pages.iter().copied().zip(lowest.0..).take(most as usize);
        let run: Vec<Pfn> =
            adjoining.take_while(|(pfn, at)| pfn.0 == *at).map(|(pfn, _)| pfn).collect();
        self.remove(first, &run);
        run
    }

    pub(super) fn remove(&mut self, first: Pfn, taken: &[Pfn]) {
        let Some(pages) = self.free.get_mut(&first) else { return };
        for pfn in taken {
            assert!(pages.remove(pfn), "{pfn} is taken twice");
        }
        if pages.is_empty() {
            self.free.remove(&first);
        }
    }

    /// Whether a block of an order is free in a pageblock.
    pub(super) fn has_block(&self, first: Pfn, order: Order) -> bool {
        self.free.get(&first).is_some_and(|pages| largest(pages) >= Some(order))
    }

    /// Takes the first block of an order out of a pageblock.
    pub(super) fn take_block(&mut self, first: Pfn, order: Order) -> Option<Pfn> {
        let block = *blocks(self.free.get(&first)?, order).first()?;
        let pages: Vec<Pfn> = run(block, order.pages().0).into_iter().collect();
        self.remove(first, &pages);
        Some(block)
    }

    pub(super) fn place(&self, first: Pfn, of: Migratetype) -> Option<Place> {
        let pages = self.free.get(&first)?;
        let largest = largest(pages).filter(|&largest| largest < Order(9))?;
        Some(Place { of, fill: (pages.len() as u64 - 1) / STEP, largest })
    }

    /// The listed pageblocks of a type that have a block of an order.
    pub(super) fn with(
        &self,
        of: Migratetype,
        order: Order,
    ) -> impl Iterator<Item = (Pfn, Place, u64)> {
        let listed = self.listed.iter().map(|(&first, &(place, time))| (first, place, time));
        listed.filter(move |(_, place, _)| place.of == of && place.largest >= order)
    }

    /// The fullest pageblock with a block of an order; of those, the one whose largest block is the smallest, and that was
    /// listed last.
    pub(super) fn fullest(&self, of: Migratetype, order: Order) -> Option<Pfn> {
        let key = |&(_, place, time): &(Pfn, Place, u64)| (place.fill, place.largest, !time);
        self.with(of, order).min_by_key(key).map(|(first, ..)| first)
    }

    /// The emptiest one; otherwise as the fullest.
    pub(super) fn emptiest(&self, of: Migratetype, order: Order) -> Option<Pfn> {
        let key = |&(_, place, time): &(Pfn, Place, u64)| (!place.fill, place.largest, !time);
        self.with(of, order).min_by_key(key).map(|(first, ..)| first)
    }

    /// Free pages in listed pageblocks of a type.
    pub(super) fn pages(&self, of: Migratetype) -> u64 {
        self.with(of, Order(0)).map(|(first, ..)| self.free_in(first)).sum()
    }

    /// Whether a listed pageblock of a type has a largest block of this order.
    pub(super) fn has_largest(&self, of: Migratetype, order: Order) -> bool {
        self.with(of, order).any(|(_, place, _)| place.largest == order)
    }

    /// The largest blocks that listed pageblocks of a type are made up of, of one order.
    pub(super) fn list(&self, of: Migratetype, order: Order) -> Vec<Pfn> {
        let mut listed: Vec<_> = self.with(of, order).collect();
        listed.sort_by_key(|&(_, place, time)| (place.fill, place.largest, !time));
        let above = Order(order.0 + 1);
        if order > Order(9) {
            return vec![];
        }
        let in_pageblock = |(first, ..): (Pfn, Place, u64)| {
            let pages = &self.free[&first];
            let parents = if above.0 <= 9 { blocks(pages, above) } else { vec![] };
            let is_part = move |pfn: &Pfn| parents.contains(&Pfn(pfn.0 & !(above.pages().0 - 1)));
            blocks(pages, order).into_iter().filter(|pfn| !is_part(pfn)).collect::<Vec<Pfn>>()
        };
        listed.into_iter().flat_map(in_pageblock).collect()
    }
}
