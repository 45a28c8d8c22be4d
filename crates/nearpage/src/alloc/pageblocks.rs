//! Whole pageblocks in bulk.
//!
//! A request for 512 pages or more gets as much as it can in whole pageblocks, straight from the zone, and a
//! pageblock whose pages come back in order goes straight back to it: one hold of the lock for many, whatever
//! they hold. Through the pageset each page would be an entry; pages that lie scattered in the pageset would be
//! handed out, although one line of words serves sixteen pages that adjoin; and the pages that single
//! allocations are to have, near and hot, would be pushed out.
//!
//! nearpage's own (`Departures::bulk_from_zone`); Linux passes each page through the pageset.

use super::PageAllocator;
use super::refill::Runs;
use super::scan::Wanted;
use crate::platform::Platform;
use crate::units::{Order, PAGEBLOCK_ORDER, Pfn, ZoneIndex};
use crate::zone::{Zone, ZoneEvents};

/// Pages of a pageblock.
pub(super) const PAGES: usize = PAGEBLOCK_ORDER.pages().0 as usize;
/// Pageblocks that one hold of the lock gives back.
const BLOCKS: usize = 32;

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// Takes whole pageblocks of the request's own type while `out` has room for one, in one hold of the lock and
    /// at most [`Runs::MOST`] runs. Returns pages.
    pub(super) fn take_pageblocks(
        &self,
        zone: &Zone<'m, P>,
        wanted: &Wanted,
        out: &mut [Pfn],
    ) -> usize {
        let blocks = (out.len() / PAGES).min(u32::MAX as usize / PAGES) as u32;
        if blocks == 0 {
            return 0;
        }
        let mut runs = Runs::new();
        let pages = {
            let mut guard = zone.lock_to_move();
            let taken = guard.buddy().take_pageblocks(
                *zone.frames(),
                wanted.migratetype,
                blocks,
                Runs::MOST as u32,
                |first, pages| runs.push(first, pages),
            );
            let pages = taken as usize * PAGES;
            guard.note_moved(pages as u64);
            pages
        };
        let numbers = runs.as_slice().iter().flat_map(|&(first, pages)| first..first + pages);
        let word = zone.frames().allocated(Order(0), wanted.migratetype);
        zone.frames().hand_out_all(numbers, word, &mut out[..pages]);
        self.note_direct(zone, pages as u64);
        pages
    }
}

/// Pageblocks of one zone on their way back.
pub(super) struct PageblocksBack<'a, 'm, P: Platform> {
    allocator: &'a PageAllocator<'m, P>,
    zone: ZoneIndex,
    blocks: [u32; BLOCKS],
    len: usize,
}

impl<'a, 'm, P: Platform> PageblocksBack<'a, 'm, P> {
    pub(super) fn new(allocator: &'a PageAllocator<'m, P>) -> Self {
        Self { allocator, zone: ZoneIndex(0), blocks: [0; BLOCKS], len: 0 }
    }

    /// Takes back the pageblock that `pages` begin with, if they begin with one, page by page in order. Nothing
    /// is changed otherwise.
    #[inline]
    pub(super) fn take(&mut self, pages: &[Pfn]) -> bool {
        // Hardened, each page would want an exchange of its own, and a way back.
        if P::HARDENED || !self.allocator.model.departures.bulk_from_zone {
            return false;
        }
        match pages {
            [first, ..] if first.is_aligned(PAGEBLOCK_ORDER) && pages.len() >= PAGES => {
                self.take_aligned(*first, &pages[..PAGES])
            }
            _ => false,
        }
    }

    #[inline(never)]
    fn take_aligned(&mut self, first: Pfn, pages: &[Pfn]) -> bool {
        let is_in_order = pages.iter().zip(first.0..).all(|(page, expected)| page.0 == expected);
        let Some(frame) = self.allocator.map.get(first).filter(|_| is_in_order) else {
            return false;
        };
        if !frame.word().is_allocated(Order(0)) {
            return false;
        }
        let zone = frame.word().zone();
        let frames = self.allocator.zones[zone.0 as usize].frames();
        let number = frames.number(first);
        if !frames.take_back_pageblock(number) {
            return false;
        }
        if self.zone != zone || self.len == BLOCKS {
            self.give_back();
        }
        self.zone = zone;
        self.blocks[self.len] = number;
        self.len += 1;
        true
    }

    /// Gives them to their zone.
    pub(super) fn give_back(&mut self) {
        if self.len == 0 {
            return;
        }
        let zone = self.allocator.zones[self.zone.0 as usize];
        let pages = (self.len * PAGES) as u64;
        ZoneEvents::add(&zone.events().direct_free_pages, pages);
        let mut guard = zone.lock_to_move();
        for &number in &self.blocks[..self.len] {
            guard.buddy().free_run(*zone.frames(), number, PAGES as u32);
        }
        guard.note_moved(pages);
        self.len = 0;
    }
}

#[cfg(test)]
mod tests {
    use std_alloc::vec;

    use super::PAGES;
    use crate::alloc::Request;
    use crate::error::FreeError;
    use crate::gfp::Gfp;
    use crate::testing::machine::TestMachine;
    use crate::units::{CpuId, Order, PageCount, Pfn};

    const REQUEST: Request = Request::new(Order(0), Gfp::HIGHUSER_MOVABLE);

    #[test]
    fn a_large_request_gets_whole_pageblocks_and_leaves_the_pageset_alone() {
        TestMachine::new().node(0, 65_536, &[0]).run(|allocator| {
            let hot = allocator.alloc(REQUEST).unwrap();
            allocator.free(hot, Order(0)).unwrap();
            let pageset = &allocator.pagesets(CpuId(0)).unwrap()[0];
            let cached = pageset.count();
            let mut out = vec![Pfn(0); 8 * PAGES];
            let holds = allocator.zones()[0].holds().acquisitions;
            assert_eq!(allocator.alloc_bulk(REQUEST, &mut out), Ok(8 * PAGES));
            for pageblock in out.chunks(PAGES) {
                assert!(pageblock.iter().zip(pageblock[0].0..).all(|(page, at)| page.0 == at));
            }
            allocator.free_bulk(&out).unwrap();
            assert_eq!(allocator.zones()[0].holds().acquisitions - holds, 2);
            assert_eq!(pageset.count(), cached);
            assert_eq!(allocator.check().unwrap().allocated, PageCount(0));
        });
    }

    #[test]
    fn a_pageblock_with_a_page_freed_before_is_freed_but_for_that_page() {
        TestMachine::new().node(0, 65_536, &[0]).run(|allocator| {
            let mut out = vec![Pfn(0); PAGES];
            assert_eq!(allocator.alloc_bulk(REQUEST, &mut out), Ok(PAGES));
            allocator.free(out[300], Order(0)).unwrap();
            let error = allocator.free_bulk(&out).unwrap_err();
            assert_eq!((error.freed, error.refused), (PAGES - 1, 1));
            assert!(matches!(error.first, FreeError::NotAllocated { pfn, .. } if pfn == out[300]));
            assert_eq!(allocator.check().unwrap().allocated, PageCount(0));
        });
    }
}
