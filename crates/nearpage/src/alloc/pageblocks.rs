//! Whole pageblocks on their way back, in bulk, under nearpage's own rules: one bit each. Page by page each would be an entry of
//! a list, and the pages that single allocations are to have, near and hot, would be pushed out.

use super::RuleSet;
use super::allocator::PageAllocator;
use crate::host::Platform;
use crate::units::{Order, PAGEBLOCK_ORDER, Pfn, ZoneIndex};

/// Pages of a pageblock.
pub(super) const PAGES: usize = PAGEBLOCK_ORDER.pages().0 as usize;
/// Pageblocks that move at a time.
const BLOCKS: usize = 32;

/// Pageblocks of one zone. They get there also if the host panics over a page that is refused.
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
        if P::HARDENED || !P::Rules::frees_pageblocks(self.allocator) {
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
        // What came out of the reserve goes back there page by page.
        if !frames.pageblock(number).is_mergeable() || !frames.take_back_pageblock(number) {
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

    fn give_back(&mut self) {
        let zone = self.allocator.zones[self.zone.0 as usize];
        let blocks = &self.blocks[..self.len];
        if !blocks.is_empty() {
            P::Rules::free_blocks(self.allocator, zone, blocks, PAGEBLOCK_ORDER);
        }
        self.len = 0;
    }
}

impl<P: Platform> Drop for PageblocksBack<'_, '_, P> {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use std_alloc::vec;

    use super::PAGES;
    use crate::alloc::Request;
    use crate::error::FreeError;
    use crate::gfp::Gfp;
    use crate::pcp::CountedList;
    use crate::testing::machine::TestMachine;
    use crate::units::{CpuId, Order, PageCount, Pfn};

    const REQUEST: Request = Request::new(Order(0), Gfp::HIGHUSER_MOVABLE);

    #[test]
    fn a_large_request_gets_whole_pageblocks_and_leaves_the_pageset_alone() {
        TestMachine::new().node(0, 65_536, &[0]).run(|allocator| {
            let hot = allocator.alloc(REQUEST).unwrap();
            allocator.free(hot, Order(0)).unwrap();
            let pageset = &allocator.pagesets(CpuId(0)).unwrap()[0];
            let singles = || pageset.list(1).count();
            let cached = singles();
            let mut out = vec![Pfn(0); 8 * PAGES];
            let holds = allocator.zones()[0].holds().acquisitions;
            assert_eq!(allocator.alloc_bulk(REQUEST, &mut out), Ok(8 * PAGES));
            for pageblock in out.chunks(PAGES) {
                assert!(pageblock.iter().zip(pageblock[0].0..).all(|(page, at)| page.0 == at));
            }
            allocator.free_bulk(&out).unwrap();
            // Claimed in one go, and kept, or given back in one more.
            assert!(allocator.zones()[0].holds().acquisitions - holds <= 2);
            assert_eq!(singles(), cached);
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
