//! Refills under Linux's rules: from the buddy to a list, in one hold of the zone's lock.

use crate::alloc::{FromPageset, PageAllocator, ZoneRequest};
use crate::buddy::Search;
use crate::host::{Access, Platform};
use crate::pcp::pageset::{OnCpu, Pageset};
use crate::rule_set::HasBuddy;
use crate::zone::ZoneGuard;

/// Runs of blocks that are taken from the buddy before they are put on a list: 512 bytes of stack.
const RUNS: usize = 64;

impl<'m, P: Platform<Rules: HasBuddy>> PageAllocator<'m, P> {
    /// Fills the empty list and takes one block from it. One hold of the zone's lock, of at most
    /// `batch << scale_max` pages.
    pub(crate) fn refill_from_buddy(
        &self,
        on: &OnCpu<'_, P>,
        pageset: &Pageset<'m, P>,
        wants: ZoneRequest,
        list: usize,
    ) -> FromPageset {
        if let Some(pieces) = pageset.pieces() {
            return self.refill_pieces(on, pageset, pieces, wants, list);
        }
        let (zone, order) = (pageset.zone(), wants.order);
        let (mut tuning, totals) = pageset.tuning_for_decision(&self.model.pcp);
        let blocks = tuning.refill_blocks(&self.model.pcp, order, totals.count, zone.view());
        let blocks = blocks.min(u32::MAX as u64) as u32;
        pageset.set_tuning(tuning);
        pageset.share_high(&tuning, list);

        let mut guard = zone.lock_to_take(wants.flags);
        let blocks = guard.claim(blocks, order);
        self.platform.touch(zone.published_line(), Access::Write);
        let refill = self.move_to_list(&mut guard, on, pageset, wants, list, blocks);
        guard.note_taken((refill.taken as u64) << order.0);
        drop(guard);

        if refill.listed > 0 {
            pageset.events().refills.add(1);
            pageset.events().refilled_pages.add((refill.listed as u64) << order.0);
        }
        if refill.taken == 0 {
            return FromPageset::Nothing;
        }
        // Moved to another CPU since? Then the pages wait there for who comes next.
        let popped = pageset.pop(&self.platform, on, list);
        popped.frame().map_or(FromPageset::Busy, FromPageset::Block)
    }

    /// Takes blocks from the buddy in as large runs as there are and appends them to the list.
    fn move_to_list(
        &self,
        guard: &mut ZoneGuard<'_, 'm, P>,
        on: &OnCpu<'_, P>,
        pageset: &Pageset<'m, P>,
        wants: ZoneRequest,
        list: usize,
        blocks: u32,
    ) -> Refill {
        let frames = pageset.zone().frames();
        let (request, order) = (wants.block(), wants.order);
        let (mut refill, mut search) = (Refill::default(), Search::Own);
        while refill.taken < blocks {
            let mut runs = <Runs>::new();
            let left = blocks - refill.taken;
            let most_runs = RUNS as u32;
            let take = |first, blocks| runs.push(first, blocks);
            let taken = guard.buddy().take(*frames, request, &mut search, left, most_runs, take);
            refill.taken += taken;
            for &(first, run) in runs.as_slice() {
                for block in 0..run {
                    let page = frames.pfn(first + (block << order.0));
                    self.platform.touch_page(page, Access::Write);
                }
                let storage = self.platform.storage();
                let on_list = pageset.append_run(storage, on, list, first, run);
                refill.listed += on_list;
                // The list is full, or the thread was moved: the rest was never away.
                if on_list < run {
                    let rest = first + (on_list << order.0);
                    guard.buddy().free_run(*frames, rest, order, run - on_list);
                }
            }
            if taken == 0 || refill.listed < refill.taken {
                break;
            }
        }
        refill
    }
}

#[derive(Default)]
struct Refill {
    /// Blocks that the buddy gave.
    taken: u32,
    /// Blocks of those that are on the list now.
    listed: u32,
}

/// Up to `N` runs of adjoining blocks.
pub(crate) struct Runs<const N: usize = RUNS> {
    runs: [(u32, u32); N],
    len: usize,
}

impl Runs {
    /// As many as fit usually.
    pub(crate) const MOST: usize = RUNS;
}

impl<const N: usize> Runs<N> {
    pub(crate) fn new() -> Self {
        Self { runs: [(0, 0); N], len: 0 }
    }

    pub(crate) fn push(&mut self, first: u32, blocks: u32) {
        self.runs[self.len] = (first, blocks);
        self.len += 1;
    }

    pub(crate) fn as_slice(&self) -> &[(u32, u32)] {
        &self.runs[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use std_alloc::vec::Vec;

    use crate::alloc::{Config, PageAllocator, Request};
    use crate::frame::Migratetype;
    use crate::gfp::Gfp;
    use crate::model::Model;
    use crate::testing::machine::TestMachine;
    use crate::testing::plain::PlainPlatform;
    use crate::units::{CpuId, Order, PageCount, Pfn};
    use crate::watermark::Settings;

    const UNMOVABLE: Gfp = Gfp::KERNEL.union(Gfp::MEMALLOC);
    const MOVABLE: Gfp = UNMOVABLE.union(Gfp::MOVABLE);
    /// A CPU without pagesets.
    const NO_CPU: CpuId = CpuId(9);

    fn take(allocator: &PageAllocator<'_, PlainPlatform>, order: u8, gfp: Gfp) -> Option<Pfn> {
        allocator.alloc(Request::new(Order(order), gfp)).ok()
    }

    /// Two pageblocks of single movable pages; all other memory is in use. The CPU's next refill is a full
    /// one, of 224 pages.
    fn two_pageblocks(allocator: &PageAllocator<'_, PlainPlatform>) -> Vec<Pfn> {
        for _ in 0..7 * 31 {
            take(allocator, 0, UNMOVABLE).unwrap();
        }
        allocator.drain_all().unwrap();
        allocator.platform().run_on(NO_CPU);
        let pages = (0..1024).map(|_| take(allocator, 0, MOVABLE).unwrap()).collect();
        for order in (0..=10).rev() {
            while take(allocator, order, UNMOVABLE).is_some() {}
        }
        pages
    }

    #[test]
    fn a_refill_that_steals_goes_on_stealing() {
        let settings = Settings { percpu_pagelist_high_fraction: 8, ..Settings::default() };
        let config = Config { model: Model::LINUX_6_12, settings, ..Config::default() };
        TestMachine::new().node(0, 24_576, &[0]).config(config).run(|allocator| {
            let pages = two_pageblocks(allocator);
            // Half of the second is free: it would do for a claim. The first would not, and is looked
            // at first.
            let free = pages[512..].iter().step_by(2).chain(pages[..512].iter().step_by(5));
            free.for_each(|&page| allocator.free(page, Order(0)).unwrap());
            allocator.platform().run_on(CpuId(0));
            take(allocator, 0, UNMOVABLE).unwrap();
            let count = allocator.pagesets(CpuId(0)).unwrap()[0].count();
            assert_eq!(count, PageCount(7 * 32 - 1));
            let frames = allocator.zones()[0].frames();
            let pageblock = frames.pageblock(frames.number(pages[512]));
            assert_eq!(pageblock, Migratetype::Movable, "stolen from, not claimed");
        });
    }
}
