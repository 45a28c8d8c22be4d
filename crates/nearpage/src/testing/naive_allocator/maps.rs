//! Zones that know what is free by pageblock: a set of pages for each that is free in part, and a note of when it was listed
//! where. What is looked for is looked for among all.

use std_alloc::collections::{BTreeMap, BTreeSet};
use std_alloc::vec;
use std_alloc::vec::Vec;

use super::owners::first_of;
use super::zone::{Begins, Blocks, NaiveZone, Pageblocks, donors};
use crate::buddy::Merging;
use crate::frame::Migratetype;
use crate::units::{CpuId, Order, Pfn, PfnRange};
use crate::watermark::AllocFlags;

pub(super) const PAGEBLOCK: u64 = 512;
/// Pageblocks are listed by how much is free, in steps of so many pages.
const STEP: u64 = 64;

/// Pages of one pageblock.
pub(super) type Pages = BTreeSet<Pfn>;

/// The list that a pageblock of a zone is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
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
    free: BTreeMap<Pfn, Pages>,
    /// Where the zone has listed its own, and when.
    listed: BTreeMap<Pfn, (Place, u64)>,
    time: u64,
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
fn blocks(pages: &Pages, order: Order) -> Vec<Pfn> {
    let size = order.pages().0;
    let in_run = |(at, end): (u64, u64)| {
        let heads = (at.next_multiple_of(size)..end).step_by(size as usize);
        heads.filter(move |head| head + size <= end).map(Pfn)
    };
    runs(pages).into_iter().flat_map(in_run).collect()
}

fn largest(pages: &Pages) -> Option<Order> {
    let runs = runs(pages);
    let fits = |order: &Order| {
        let size = order.pages().0;
        runs.iter().any(|(at, end)| at.next_multiple_of(size) + size <= *end)
    };
    (0..=9).rev().map(Order).find(fits)
}

/// Words of 64 pages that pages lie in.
fn words(pages: &Pages) -> u64 {
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

    fn remove(&mut self, first: Pfn, taken: &[Pfn]) {
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

    fn place(&self, first: Pfn, of: Migratetype) -> Option<Place> {
        let pages = self.free.get(&first)?;
        let largest = largest(pages).filter(|&largest| largest < Order(9))?;
        Some(Place { of, fill: (pages.len() as u64 - 1) / STEP, largest })
    }

    /// The listed pageblocks of a type that have a block of an order.
    fn with(&self, of: Migratetype, order: Order) -> impl Iterator<Item = (Pfn, Place, u64)> {
        let listed = self.listed.iter().map(|(&first, &(place, time))| (first, place, time));
        listed.filter(move |(_, place, _)| place.of == of && place.largest >= order)
    }

    /// The fullest pageblock with a block of an order; of those, the one whose largest block is the smallest, and that was
    /// listed last.
    fn fullest(&self, of: Migratetype, order: Order) -> Option<Pfn> {
        let key = |&(_, place, time): &(Pfn, Place, u64)| (place.fill, place.largest, !time);
        self.with(of, order).min_by_key(key).map(|(first, ..)| first)
    }

    /// The emptiest one; otherwise as the fullest.
    fn emptiest(&self, of: Migratetype, order: Order) -> Option<Pfn> {
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

impl NaiveZone {
    /// Whether what is free around a frame is known by pageblock.
    pub(super) fn has_map(&self, pfn: Pfn, pageblocks: &Pageblocks) -> bool {
        self.merging == Merging::ByPageblock && !pageblocks.is_shared(pfn)
    }

    /// Gives a pageblock a type, which may cost an operation.
    pub(super) fn set_type(&mut self, first: Pfn, to: Migratetype, pageblocks: &mut Pageblocks) {
        self.operations += u64::from(pageblocks.of(first) != to);
        pageblocks.set(first, to);
    }

    fn unlist_pageblock(&mut self, first: Pfn) {
        self.operations += u64::from(self.maps.listed.remove(&first).is_some());
    }

    /// Lists a pageblock of the zone where it belongs now; it keeps its place if that is the same.
    fn relist_pageblock(&mut self, first: Pfn, of: Migratetype) {
        let now = self.maps.place(first, of);
        if self.maps.listed.get(&first).map(|(place, _)| *place) == now {
            return;
        }
        self.unlist_pageblock(first);
        if let Some(place) = now {
            self.maps.time += 1;
            self.operations += 1;
            self.maps.listed.insert(first, (place, self.maps.time));
        }
    }

    /// Pages of a pageblock come back, which is the zone's.
    pub(super) fn free_in_map(&mut self, pages: &Pages, pageblocks: &mut Pageblocks) {
        let Some(first) = pages.first().map(|&pfn| first_of(pfn)) else { return };
        let before = self.maps.free_in(first);
        if before + (pages.len() as u64) < PAGEBLOCK {
            self.maps.add(first, pages);
            self.operations += words(pages) + 1;
            self.free.0 += pages.len() as u64;
            self.relist_pageblock(first, pageblocks.of(first));
            return;
        }
        if before > 0 {
            self.unlist_pageblock(first);
            let free = self.maps.take_all(first);
            assert!(free.is_disjoint(pages), "freed twice");
            self.operations += words(&free) + 1;
            self.free.0 -= before;
        }
        self.free(first, Order(9), pageblocks);
    }

    /// A pageblock of the zone that is free in part gets another type.
    pub(super) fn retype_map(&mut self, first: Pfn, to: Migratetype, pageblocks: &mut Pageblocks) {
        if self.owners.of(first).is_some() {
            return pageblocks.set(first, to);
        }
        self.unlist_pageblock(first);
        self.set_type(first, to, pageblocks);
        self.relist_pageblock(first, to);
    }

    /// A whole pageblock of one of some types.
    fn pop_whole(&mut self, types: &[Migratetype]) -> Option<Pfn> {
        types.iter().find_map(|&of| Some(self.split_smallest(Order(9), &[of])?.0))
    }

    /// A whole pageblock of a type, or of another that becomes one of that type.
    fn pop_whole_for(&mut self, of: Migratetype, pageblocks: &mut Pageblocks) -> Option<Pfn> {
        let types: Vec<Migratetype> = [of].iter().chain(donors(of)).copied().collect();
        let first = self.pop_whole(&types)?;
        self.set_type(first, of, pageblocks);
        Some(first)
    }

    /// A whole pageblock that was taken from the lists is one of which all pages are free, until something of it is taken in
    /// the same breath.
    fn open(&mut self, first: Pfn) {
        self.maps.add(first, &run(first, PAGEBLOCK));
        self.free.0 += PAGEBLOCK;
        self.operations += PAGEBLOCK / 64 + 1;
    }

    /// The pageblock that serves a request for less than a pageblock.
    fn find_in_maps(&mut self, wanted: Blocks, pageblocks: &mut Pageblocks) -> Option<Pfn> {
        let (of, order) = (wanted.migratetype, wanted.order);
        if let Some(first) = self.maps.fullest(of, order) {
            return Some(first);
        }
        if let Some(first) = self.pop_whole_for(of, pageblocks) {
            self.open(first);
            return Some(first);
        }
        if wanted.flags.contains(AllocFlags::NOFRAGMENT) {
            return None;
        }
        let first = donors(of).iter().find_map(|&of| self.maps.emptiest(of, order))?;
        self.boost_for(wanted.flags);
        if self.maps.free_in(first) >= PAGEBLOCK / 2 {
            self.retype_map(first, of, pageblocks);
        }
        Some(first)
    }

    /// Blocks of less than a pageblock.
    pub(super) fn take_from_maps(
        &mut self,
        wanted: Blocks,
        pageblocks: &mut Pageblocks,
    ) -> Vec<Pfn> {
        let (mut taken, mut runs) = (vec![], 0);
        let lacks = |taken: &Vec<Pfn>| wanted.blocks - taken.len() as u64;
        while lacks(&taken) > 0
            && runs < wanted.runs_max
            && let Some(first) = self.find_in_maps(wanted, pageblocks)
        {
            while lacks(&taken) > 0 && runs < wanted.runs_max {
                let run = match wanted.order {
                    Order(0) => self.maps.take_run(first, lacks(&taken)),
                    order => self.maps.take_block(first, order).into_iter().collect(),
                };
                if run.is_empty() {
                    break;
                }
                self.free.0 -= (run.len() as u64) << wanted.order.0;
                taken.extend(run);
                runs += 1;
            }
            self.relist_pageblock(first, pageblocks.of(first));
        }
        // Last what is in pageblocks that zones share, which are movable and have no maps.
        let is_listed = |order| self.head(Order(order), Migratetype::Movable).is_some();
        if taken.is_empty() && wanted.blocks > 0 && (wanted.order.0..9).any(is_listed) {
            let shared = self.split_smallest(wanted.order, &[Migratetype::Movable]);
            taken.extend(shared.map(|(pfn, _)| pfn));
        }
        taken
    }

    /// A block of less than a pageblock from those that are reserved.
    pub(super) fn take_reserved_from_maps(&mut self, order: Order) -> Option<Pfn> {
        let of = Migratetype::HighAtomic;
        let first = self.maps.fullest(of, order).or_else(|| {
            let first = self.pop_whole(&[of])?;
            self.open(first);
            Some(first)
        })?;
        let block = self.maps.take_block(first, order);
        self.free.0 -= order.pages().0;
        self.relist_pageblock(first, of);
        block
    }

    /// The pageblock of the smallest reserved block that is in a map.
    pub(super) fn fullest_reserved(&self, order: Order) -> Option<Pfn> {
        self.maps.fullest(Migratetype::HighAtomic, order)
    }

    /// The fullest pageblock of a type with a block of an order.
    pub(super) fn fullest(&self, of: Migratetype, order: Order) -> Option<Pfn> {
        self.maps.fullest(of, order)
    }

    /// A pageblock that is free in part becomes a CPU's; returns its pages.
    pub(super) fn give_away(&mut self, first: Pfn, cpu: CpuId) -> u64 {
        let pages = self.maps.free_in(first);
        self.unlist_pageblock(first);
        self.free.0 -= pages;
        self.owners.owners.insert(first, cpu);
        self.operations += 2;
        pages
    }

    /// A whole pageblock becomes a CPU's.
    pub(super) fn give_whole(
        &mut self,
        of: Migratetype,
        cpu: CpuId,
        pageblocks: &mut Pageblocks,
    ) -> Option<Pfn> {
        let first = self.pop_whole_for(of, pageblocks)?;
        self.owners.owners.insert(first, cpu);
        self.operations += 2;
        Some(first)
    }

    /// A pageblock that a CPU owned is the zone's, with all that is free in it; returns the pages.
    pub(super) fn take_back(&mut self, first: Pfn, pageblocks: &mut Pageblocks) -> u64 {
        self.owners.owners.remove(&first);
        self.operations += 1;
        let pages = self.maps.free_in(first);
        if pages == PAGEBLOCK {
            self.maps.take_all(first);
            self.free(first, Order(9), pageblocks);
        } else {
            self.free.0 += pages;
            self.relist_pageblock(first, pageblocks.of(first));
        }
        pages
    }

    /// All that is free in the pageblocks of a range goes.
    pub(super) fn take_maps_out(&mut self, range: PfnRange) {
        for first in (first_of(range.start).0..range.end.0).step_by(PAGEBLOCK as usize).map(Pfn) {
            self.unlist_pageblock(first);
            self.free.0 -= self.maps.take_all(first).len() as u64;
        }
    }

    /// Whether a frame is free in a pageblock of the zone.
    pub(super) fn is_free_in_map(&self, pfn: Pfn) -> bool {
        let first = first_of(pfn);
        let is_ours = self.owners.of(first).is_none();
        is_ours && self.maps.free.get(&first).is_some_and(|pages| pages.contains(&pfn))
    }

    /// Whether the pageblock of a frame is a block of the zone's lists, or part of one.
    pub(super) fn is_whole(&self, first: Pfn) -> bool {
        matches!(self.begins(first), Begins::Free(Order(9), _))
    }
}
