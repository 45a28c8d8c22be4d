//! Whole pageblocks in bulk.
//!
//! A request for 512 pages or more gets as much as it can in whole pageblocks: those that this CPU's pageset
//! keeps as huge pages, the others straight from the zone in one hold of the lock. A pageblock whose pages come
//! back in order goes the same way back. Page by page each would be an entry of the pageset; pages that lie
//! scattered would be handed out, although one line of words serves sixteen pages that adjoin; and the pages
//! that single allocations are to have, near and hot, would be pushed out.
//!
//! nearpage's own (`Departures::bulk_from_zone`); Linux passes each page through the pageset.

use super::allocator::PageAllocator;
use super::refill::Runs;
use super::wanted::{Wanted, first_flags};
use crate::frame::Migratetype;
use crate::host::Platform;
use crate::pcp::pageset::Pageset;
use crate::pcp::{CountedList, Storage, list_index};
use crate::sync::Ordering;
use crate::units::{Order, PAGEBLOCK_ORDER, PageCount, Pfn, ZoneIndex};
use crate::watermark::AllocFlags;
use crate::zone::{Zone, ZoneEvents};

/// Pages of a pageblock.
pub(super) const PAGES: usize = PAGEBLOCK_ORDER.pages().0 as usize;
/// Pageblocks that move at a time.
const BLOCKS: usize = 32;
/// The pages of a pageblock that its one entry in a pageset does not count.
const UNCOUNTED: u64 = PAGES as u64 - 1;

/// The list that keeps whole pageblocks of a type. Of the two only that of movable ones keeps one type.
fn pageblock_list(migratetype: Migratetype) -> Option<usize> {
    list_index(PAGEBLOCK_ORDER, migratetype).filter(|_| migratetype == Migratetype::Movable)
}

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// Takes whole pageblocks of the request's own type while `out` has room for one. Returns pages.
    pub(super) fn take_pageblocks(
        &self,
        zone: &Zone<'m, P>,
        wanted: &Wanted,
        out: &mut [Pfn],
    ) -> usize {
        if out.len() < PAGES {
            return 0;
        }
        let got = self.pageblocks_from_pageset(zone, wanted, out);
        got + self.pageblocks_from_zone(zone, wanted, &mut out[got..])
    }

    fn pageblocks_from_pageset(
        &self,
        zone: &Zone<'m, P>,
        wanted: &Wanted,
        out: &mut [Pfn],
    ) -> usize {
        let Some(list) = pageblock_list(wanted.migratetype) else { return 0 };
        let Some(cpu) = self.this_cpu() else { return 0 };
        let pageset = &cpu.pagesets[zone.index().0 as usize];
        let platform = &self.platform;
        let Some(on) = pageset.enter(platform.storage()) else { return 0 };
        let word = zone.frames().allocated(Order(0), wanted.migratetype);
        let (mut got, blocks) = (0, out.len() / PAGES);
        while got < blocks {
            let mut numbers = [0; BLOCKS];
            let want = &mut numbers[..(blocks - got).min(BLOCKS)];
            let popped = pageset.pop_batch(platform, &on, list, want);
            for &first in &want[..popped] {
                let pages = first..first + PAGES as u32;
                pageset.frames().hand_out_all(pages, word, &mut out[got * PAGES..]);
                got += 1;
            }
            if popped < want.len() {
                self.grow_for_bulk(pageset, (blocks - got) * PAGES, list);
                break;
            }
        }
        pageset.events().bulk_allocs.fetch_add(got as u64 * UNCOUNTED, Ordering::Relaxed);
        let got = got * PAGES;
        got + self.pageblocks_from_own(pageset, (wanted.migratetype, word), &mut out[got..])
    }

    /// In one hold, of at most [`Runs::MOST`] runs.
    fn pageblocks_from_zone(&self, zone: &Zone<'m, P>, wanted: &Wanted, out: &mut [Pfn]) -> usize {
        let blocks = (out.len() / PAGES).min(u32::MAX as usize / PAGES) as u32;
        if blocks == 0 {
            return 0;
        }
        let mut runs = <Runs>::new();
        let pages = {
            let mut guard = zone.lock_to_move();
            let pages = PAGEBLOCK_ORDER.pages_in(blocks);
            let allowed = self.allowed(&mut guard, wanted.trip(AllocFlags::default()), pages);
            let blocks = (allowed.0 / PAGES as u64) as u32;
            let blocks = guard.claim(blocks, PAGEBLOCK_ORDER);
            if blocks == 0 {
                return 0;
            }
            guard.buddy().serve(self.platform.storage().current_cpu());
            let taken = guard.buddy().take_pageblocks(
                *zone.frames(),
                wanted.migratetype,
                blocks,
                Runs::MOST as u32,
                |first, pages| runs.push(first, pages),
            );
            let pages = taken as usize * PAGES;
            guard.note_taken(pages as u64);
            pages
        };
        let numbers = runs.as_slice().iter().flat_map(|&(first, pages)| first..first + pages);
        let word = zone.frames().allocated(Order(0), wanted.migratetype);
        zone.frames().hand_out_all(numbers, word, &mut out[..pages]);
        self.note_direct(zone, pages as u64);
        if pages > 0 {
            self.wake_above_soft_limit(zone, first_flags(wanted.gfp, zone));
        }
        pages
    }

    /// Puts pageblocks of one zone into this CPU's pageset, and into the zone what it does not take.
    fn give_pageblocks_back(&self, zone: ZoneIndex, list: Option<usize>, numbers: &[u32]) {
        let mut kept = 0;
        if let Some(list) = list
            && let Some(cpu) = self.this_cpu()
        {
            kept = self.pageblocks_to_pageset(&cpu.pagesets[zone.0 as usize], list, numbers);
        }
        let rest = &numbers[kept..];
        if rest.is_empty() {
            return;
        }
        let zone = self.zones[zone.0 as usize];
        let pages = (rest.len() * PAGES) as u64;
        ZoneEvents::add(&zone.events().direct_free_pages, pages);
        let mut guard = zone.lock_to_move();
        for &number in rest {
            guard.buddy().free_run(*zone.frames(), number, Order(0), PAGES as u32);
        }
        guard.note_returned(pages);
    }

    /// How many the pageset took.
    fn pageblocks_to_pageset(
        &self,
        pageset: &Pageset<'m, P>,
        list: usize,
        numbers: &[u32],
    ) -> usize {
        if pageset.pieces().is_some() || pageset.owned().is_some() {
            let order = PAGEBLOCK_ORDER;
            numbers.iter().for_each(|&number| self.free_to_pageset(pageset, number, order, list));
            return numbers.len();
        }
        let platform = &self.platform;
        let Some(on) = pageset.enter(platform.storage()) else { return 0 };
        if !P::Storage::EXACT {
            let kept = pageset.push_batch(platform, &on, list, numbers);
            let rest = &numbers[kept..];
            if rest.is_empty() {
                return kept;
            }
            self.make_singles_give_way(&on, pageset, list, (rest.len() * PAGES) as u64);
            return kept + pageset.push_batch(platform, &on, list, rest);
        }
        for number in numbers {
            pageset.push_batch(platform, &on, list, &[*number]);
            self.after_exact_free(&on, pageset, PAGEBLOCK_ORDER, list);
        }
        numbers.len()
    }

    /// Makes room for `pages` pages in whole pageblocks, as far as `high` allows, where single pages take it up:
    /// the coldest of those go back. Whoever moves pageblocks has no use for cold pages that lie scattered.
    #[cold]
    #[inline(never)]
    fn make_singles_give_way(
        &self,
        on: &<P::Storage as Storage>::OnCpu<'_>,
        pageset: &Pageset<'m, P>,
        list: usize,
        pages: u64,
    ) {
        let (tuning, totals) = pageset.tuning_for_decision(&self.model.pcp);
        let singles = list_index(Order(0), Migratetype::Movable).unwrap_or(0);
        let held = pageset.list(singles).count() as u64;
        let wanted = totals.count.0 + pages.min(tuning.high.0);
        let mut over = wanted.saturating_sub(tuning.high.0).min(held);
        while over > 0 {
            let piece = over.min(tuning.hold_max(&self.model.pcp).0.max(1));
            self.drain_pageset(on, pageset, singles, PageCount(piece));
            over -= piece;
        }
        pageset.share_high(&tuning, list);
    }
}

/// Pageblocks of one zone on their way back. They get there also if the host panics over a page that is refused.
pub(super) struct PageblocksBack<'a, 'm, P: Platform> {
    allocator: &'a PageAllocator<'m, P>,
    target: (ZoneIndex, Option<usize>),
    blocks: [u32; BLOCKS],
    len: usize,
}

impl<'a, 'm, P: Platform> PageblocksBack<'a, 'm, P> {
    pub(super) fn new(allocator: &'a PageAllocator<'m, P>) -> Self {
        Self { allocator, target: (ZoneIndex(0), None), blocks: [0; BLOCKS], len: 0 }
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
        let target = (zone, pageblock_list(frames.pageblock(number)));
        if self.target != target || self.len == BLOCKS {
            self.give_back();
        }
        self.target = target;
        self.blocks[self.len] = number;
        self.len += 1;
        true
    }

    fn give_back(&mut self) {
        let (zone, list) = self.target;
        self.allocator.give_pageblocks_back(zone, list, &self.blocks[..self.len]);
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
            // Taken in one hold, and kept by the pageset, or given back in one more.
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
