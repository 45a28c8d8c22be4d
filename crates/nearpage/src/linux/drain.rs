//! Drains and frees under Linux's rules: from lists to the buddy, as the tuning says.

use crate::alloc::{Cpu, DrainBusy, PageAllocator};
use crate::buddy::Insertion;
use crate::host::{Access, Platform};
use crate::pcp::pageset::{OnCpu, Pageset};
use crate::pcp::tuning::Tuning;
use crate::pcp::{CountedList, LISTS, list_order};
use crate::rule_set::HasBuddy;
use crate::units::{Order, PageCount};
use crate::zone::{Zone, ZoneEvents, ZoneGuard};

/// Blocks that are taken from a list before they go to the buddy: 1 KiB of stack.
const CHUNK: usize = 256;

impl<'m, P: Platform<Rules: HasBuddy>> PageAllocator<'m, P> {
    /// After a push of a storage that keeps the tuning with each operation: drains if it says so.
    #[inline]
    pub(crate) fn after_free_by_tuning(
        &self,
        on: &OnCpu<'_, P>,
        pageset: &Pageset<'m, P>,
        order: Order,
        list: usize,
    ) {
        let before = pageset.tuning();
        let (mut tuning, count) = (before, pageset.count());
        let drain = self.drain_after_free(&mut tuning, pageset.zone(), order, count);
        pageset.set_tuning(tuning);
        if let Some(pages) = drain {
            if before.empties_for(&self.model.pcp, order, count) {
                pageset.events().high_order_drains.add(1);
            }
            self.drain_exact(on, pageset, list, pages);
        }
    }

    /// What a free drains: as the tuning decides, but while more is out than a hard limit allows, all that there is,
    /// as far as it goes in one hold.
    #[inline]
    fn drain_after_free(
        &self,
        tuning: &mut Tuning,
        zone: &Zone<'m, P>,
        order: Order,
        count: PageCount,
    ) -> Option<PageCount> {
        let rules = &self.model.pcp;
        let drain = tuning.after_free(rules, order, count, zone.view());
        if zone.is_over_limit() { Some(count.min(tuning.hold_max(rules))) } else { drain }
    }

    #[cold]
    #[inline(never)]
    fn drain_exact(
        &self,
        on: &OnCpu<'_, P>,
        pageset: &Pageset<'m, P>,
        list: usize,
        pages: PageCount,
    ) {
        self.drain_pageset(on, pageset, list, pages);
        pageset.zone().clear_below_high();
    }

    /// Raises the limit of a full list, or drains it, as the tuning decides.
    pub(crate) fn make_room_by_tuning(
        &self,
        on: &OnCpu<'_, P>,
        pageset: &Pageset<'m, P>,
        order: Order,
        list: usize,
    ) {
        let (mut tuning, totals) = pageset.tuning_for_decision(&self.model.pcp);
        let count = PageCount(totals.count.0 + order.pages().0);
        let drain = self.drain_after_free(&mut tuning, pageset.zone(), order, count);
        pageset.set_tuning(tuning);
        pageset.share_high(&tuning, list);
        let full = pageset.list(list).counts().count >= pageset.list(list).limit();
        // A list can be full below `high`: its ring is smaller, or other lists hold the rest.
        let pages = match drain {
            Some(pages) => pages,
            None if full => PageCount(tuning.batch.0.max(order.pages().0)),
            None => return,
        };
        self.drain_pageset(on, pageset, list, pages);
        pageset.zone().clear_below_high();
        pageset.share_high(&tuning, list);
    }

    /// Gives `pages` of a pageset back, coldest first, beginning with list `first_list` and going round.
    /// One hold of the zone's lock. Facts 7.5.
    fn drain_pageset(
        &self,
        on: &OnCpu<'_, P>,
        pageset: &Pageset<'m, P>,
        first_list: usize,
        pages: PageCount,
    ) {
        if let Some(pieces) = pageset.pieces() {
            return self.drain_pieces(pageset, pieces, first_list, pages);
        }
        let mut guard = pageset.zone().lock_to_move();
        self.platform.touch(pageset.zone().published_line(), Access::Write);
        let mut moved = 0;
        for step in 0..LISTS {
            if moved >= pages.0 {
                break;
            }
            let index = (first_list + step) % LISTS;
            let left = pages.0 - moved;
            moved += self.drain_list(&mut guard, on, pageset, index, left);
        }
        guard.note_returned(moved);
        drop(guard);
        if moved > 0 {
            pageset.events().drains.add(1);
            pageset.events().drained_pages.add(moved);
        }
    }

    /// Gives back blocks of one list until `pages` are reached or it is empty; returns pages.
    fn drain_list(
        &self,
        guard: &mut ZoneGuard<'_, 'm, P>,
        on: &OnCpu<'_, P>,
        pageset: &Pageset<'m, P>,
        index: usize,
        pages: u64,
    ) -> u64 {
        let frames = *guard.zone().frames();
        let order = list_order(index);
        let mut blocks_left = pages.div_ceil(order.pages().0);
        let mut moved = 0;
        let mut chunk = [0; CHUNK];
        while blocks_left > 0 {
            let want = blocks_left.min(CHUNK as u64) as usize;
            let got = pageset.pop_cold(self.platform.storage(), on, index, &mut chunk[..want]);
            if got == 0 {
                break;
            }
            for &number in &chunk[..got] {
                self.platform.touch_page(frames.pfn(number), Access::Write);
            }
            guard.buddy().free_batch(frames, &chunk[..got], order);
            blocks_left -= got as u64;
            moved += (got as u64) << order.0;
        }
        moved
    }

    /// Frees a block straight to its zone.
    #[cold]
    #[inline(never)]
    pub(crate) fn free_to_buddy(&self, zone: &Zone<'m, P>, number: u32, order: Order) {
        ZoneEvents::add(&zone.events().direct_free_pages, order.pages().0);
        let mut guard = zone.lock_to_move();
        self.platform.touch(zone.published_line(), Access::Write);
        guard.buddy().free(*zone.frames(), number, order, Insertion::Usual);
        guard.note_returned(order.pages().0);
    }

    pub(crate) fn free_all_to_buddy(&self, zone: &Zone<'m, P>, numbers: &[u32], order: Order) {
        ZoneEvents::add(&zone.events().direct_free_pages, (numbers.len() as u64) << order.0);
        let mut guard = zone.lock_to_move();
        guard.buddy().free_batch(*zone.frames(), numbers, order);
        guard.note_returned((numbers.len() as u64) << order.0);
    }

    /// Empties a CPU's pagesets in holds of the zone's lock of at most `batch << 5` pages (facts 7.7).
    pub(crate) fn drain_by_holds(
        &self,
        cpu: &'m Cpu<'m, P>,
        wanted: impl Fn(&Pageset<'m, P>) -> bool,
    ) -> Result<PageCount, DrainBusy> {
        let filled = |pageset: &&Pageset<'m, P>| pageset.count().0 > 0 && wanted(pageset);
        self.while_taken(cpu, &wanted, |on| {
            let mut drained = PageCount(0);
            for pageset in cpu.pagesets.iter().filter(filled) {
                let piece = PageCount(pageset.tuning().batch.0 << 5);
                while pageset.count().0 > 0 {
                    let before = pageset.count().0;
                    self.drain_pageset(on, pageset, 0, piece);
                    let gone = before.saturating_sub(pageset.count().0);
                    // A count that no list stands behind is the walker's to report, not a reason to go on for ever.
                    if gone == 0 {
                        break;
                    }
                    drained.0 += gone;
                }
            }
            drained
        })
    }

    /// Lets a CPU's pagesets decay by one step. Facts 7.6.
    pub(crate) fn decay_by_tuning(&self, cpu: &'m Cpu<'m, P>) -> Result<PageCount, DrainBusy> {
        let decays = |pageset: &Pageset<'m, P>| {
            let tuning = pageset.tuning();
            tuning.high > tuning.high_min || pageset.count() > tuning.high
        };
        if !cpu.pagesets.iter().any(&decays) {
            return Ok(PageCount(0));
        }
        self.while_taken(
            cpu,
            |_| true,
            |on| {
                let decaying = cpu.pagesets.iter().filter(|pageset| decays(pageset));
                PageCount(decaying.map(|pageset| self.decay_pageset(on, pageset)).sum())
            },
        )
    }

    fn decay_pageset(&self, on: &OnCpu<'_, P>, pageset: &Pageset<'m, P>) -> u64 {
        let (mut tuning, totals) = pageset.tuning_for_decision(&self.model.pcp);
        let mut left = tuning.decay(&self.model.pcp, totals.count).0;
        pageset.set_tuning(tuning);
        let batch = tuning.batch.0.max(1);
        let mut drained = 0;
        while left > 0 {
            let before = pageset.count().0;
            self.drain_pageset(on, pageset, 0, PageCount(left.min(batch)));
            let gone = before.saturating_sub(pageset.count().0);
            if gone == 0 {
                break;
            }
            drained += gone;
            left = left.saturating_sub(gone);
        }
        drained
    }

    /// Pagesets of zones of other nodes give back a batch if they were not used for three turns. Facts 7.6.
    pub(crate) fn expire_by_tuning(
        &self,
        on: &OnCpu<'_, P>,
        cpu: &'m Cpu<'m, P>,
        used: impl Fn(&Zone<'m, P>) -> bool,
    ) -> PageCount {
        let mut drained = PageCount(0);
        let is_far = |of: &&Pageset<'m, P>| of.zone().node() != cpu.owner.node;
        for pageset in cpu.pagesets.iter().filter(is_far) {
            let mut tuning = pageset.tuning();
            if used(pageset.zone()) {
                tuning.keep_remote();
            }
            let pages = tuning.expire_remote(pageset.count());
            pageset.set_tuning(tuning);
            if pages.0 > 0 {
                let before = pageset.count().0;
                self.drain_pageset(on, pageset, 0, pages);
                drained.0 += before - pageset.count().0;
            }
        }
        drained
    }
}
