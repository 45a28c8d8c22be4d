//! What a zone of the naive model does with pageblocks that are free in part.

use std_alloc::vec;
use std_alloc::vec::Vec;

use super::{Begins, Blocks, NaiveZone, Pageblocks, donors};
use crate::buddy::Merging;
use crate::frame::Migratetype;
use crate::testing::naive_allocator::maps::{PAGEBLOCK, Pages, run, words};
use crate::testing::naive_allocator::owners::first_of;
use crate::units::{CpuId, Order, Pfn, PfnRange};
use crate::watermark::AllocFlags;

impl NaiveZone {
    /// Whether what is free around a frame is known by pageblock.
    pub(in crate::testing::naive_allocator) fn has_map(
        &self,
        pfn: Pfn,
        pageblocks: &Pageblocks,
    ) -> bool {
        self.merging == Merging::ByPageblock && !pageblocks.is_shared(pfn)
    }

    /// Gives a pageblock a type, which may cost an operation.
    pub(in crate::testing::naive_allocator) fn set_type(
        &mut self,
        first: Pfn,
        to: Migratetype,
        pageblocks: &mut Pageblocks,
    ) {
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
    pub(in crate::testing::naive_allocator) fn free_in_map(
        &mut self,
        pages: &Pages,
        pageblocks: &mut Pageblocks,
    ) {
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
    pub(in crate::testing::naive_allocator) fn retype_map(
        &mut self,
        first: Pfn,
        to: Migratetype,
        pageblocks: &mut Pageblocks,
    ) {
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
    pub(in crate::testing::naive_allocator) fn take_from_maps(
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
    pub(in crate::testing::naive_allocator) fn take_reserved_from_maps(
        &mut self,
        order: Order,
    ) -> Option<Pfn> {
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
    pub(in crate::testing::naive_allocator) fn fullest_reserved(
        &self,
        order: Order,
    ) -> Option<Pfn> {
        self.maps.fullest(Migratetype::HighAtomic, order)
    }

    /// The fullest pageblock of a type with a block of an order.
    pub(in crate::testing::naive_allocator) fn fullest(
        &self,
        of: Migratetype,
        order: Order,
    ) -> Option<Pfn> {
        self.maps.fullest(of, order)
    }

    /// A pageblock that is free in part becomes a CPU's; returns its pages.
    pub(in crate::testing::naive_allocator) fn give_away(&mut self, first: Pfn, cpu: CpuId) -> u64 {
        let pages = self.maps.free_in(first);
        self.unlist_pageblock(first);
        self.free.0 -= pages;
        self.owners.owners.insert(first, cpu);
        self.operations += 2;
        pages
    }

    /// A whole pageblock becomes a CPU's.
    pub(in crate::testing::naive_allocator) fn give_whole(
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
    pub(in crate::testing::naive_allocator) fn take_back(
        &mut self,
        first: Pfn,
        pageblocks: &mut Pageblocks,
    ) -> u64 {
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
    pub(in crate::testing::naive_allocator) fn take_maps_out(&mut self, range: PfnRange) {
        for first in (first_of(range.start).0..range.end.0).step_by(PAGEBLOCK as usize).map(Pfn) {
            self.unlist_pageblock(first);
            self.free.0 -= self.maps.take_all(first).len() as u64;
        }
    }

    /// Whether a frame is free in a pageblock of the zone.
    pub(in crate::testing::naive_allocator) fn is_free_in_map(&self, pfn: Pfn) -> bool {
        let first = first_of(pfn);
        let is_ours = self.owners.of(first).is_none();
        is_ours && self.maps.free.get(&first).is_some_and(|pages| pages.contains(&pfn))
    }

    /// Whether the pageblock of a frame is a block of the zone's lists, or part of one.
    pub(in crate::testing::naive_allocator) fn is_whole(&self, first: Pfn) -> bool {
        matches!(self.begins(first), Begins::Free(Order(9), _))
    }
}
