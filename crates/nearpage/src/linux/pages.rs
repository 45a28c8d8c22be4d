//! Where blocks come from and go to under Linux's rules, past the lists that every request looks at first.

use core::ops::Range;

use crate::alloc::{FromPageset, PageAllocator, Wanted, ZoneRequest, first_flags, hand_out};
use crate::buddy::Buddy;
use crate::frame::{Word, ZoneFrames};
use crate::host::{Access, Platform};
use crate::pcp::list_index;
use crate::pcp::pageset::{OnCpu, Pageset};
use crate::rule_set::HasBuddy;
use crate::units::{Order, PAGEBLOCK_ORDER, Pfn};
use crate::watermark::AllocFlags;
use crate::zone::{Zone, ZoneGuard};

const SINGLE: Order = Order(0);
const PAGES: u32 = PAGEBLOCK_ORDER.pages().0 as u32;

impl<'m, P: Platform<Rules: HasBuddy>> PageAllocator<'m, P> {
    /// A block straight from the buddy.
    pub(crate) fn take_from_buddy(
        &self,
        zone: &Zone<'m, P>,
        wanted: &Wanted<'_>,
        flags: AllocFlags,
    ) -> Option<u32> {
        let mut guard = zone.lock_to_take(flags);
        if guard.claim(1, wanted.order) == 0 {
            return None;
        }
        self.platform.touch(zone.published_line(), Access::Write);
        let number = take_block(guard.buddy(), *zone.frames(), wanted.of_zone(flags))?;
        guard.note_taken(wanted.order.pages().0);
        drop(guard);
        self.platform.touch_page(zone.frames().pfn(number), Access::Write);
        self.note_direct(zone, 1, wanted.order);
        self.wake_above_soft_limit(zone, flags);
        Some(number)
    }

    /// Every page through the pageset.
    pub(crate) fn bulk_through_lists(
        &self,
        zone: &'m Zone<'m, P>,
        wanted: &Wanted<'_>,
        out: &mut [Pfn],
    ) -> usize {
        let (Some(cpu), Some(list)) = (self.this_cpu(), list_index(SINGLE, wanted.migratetype))
        else {
            return 0;
        };
        let pageset = &cpu.pagesets[zone.index().0 as usize];
        let Some(on) = pageset.enter(self.platform.storage()) else { return 0 };
        let got = self.pop_many(&on, pageset, list, out);
        got + self.bulk_by_refills(&on, pageset, wanted, list, &mut out[got..])
    }

    /// Linux's way: every page through the pageset, refilled as often as it runs empty.
    fn bulk_by_refills(
        &self,
        on: &OnCpu<'_, P>,
        pageset: &Pageset<'m, P>,
        wanted: &Wanted<'_>,
        list: usize,
        out: &mut [Pfn],
    ) -> usize {
        let mut got = 0;
        while got < out.len() {
            match self.bulk_by_refill(on, pageset, wanted, list, &mut out[got..]) {
                0 => break,
                more => got += more,
            }
        }
        got
    }

    /// Refills the empty list, and takes from it what there is.
    fn bulk_by_refill(
        &self,
        on: &OnCpu<'_, P>,
        pageset: &Pageset<'m, P>,
        wanted: &Wanted<'_>,
        list: usize,
        out: &mut [Pfn],
    ) -> usize {
        let refilled =
            self.refill_from_buddy(on, pageset, wanted.of_zone(AllocFlags::default()), list);
        let FromPageset::Block(number) = refilled else { return 0 };
        let zone = pageset.zone();
        self.wake_above_soft_limit(zone, first_flags(wanted.gfp, zone));
        out[0] = hand_out(pageset.frames(), number, pageset.held_word(list), SINGLE);
        1 + self.pop_many(on, pageset, list, &mut out[1..])
    }

    /// A free goes to the list of its pageblock's type.
    pub(crate) fn free_by_pageblock(&self, held: Word, pfn: Pfn, order: Order) {
        let zone = held.zone();
        let list = list_index(order, self.map.pageblock(pfn));
        match (list, self.this_cpu()) {
            (Some(list), Some(cpu)) => {
                let pageset = &cpu.pagesets[zone.0 as usize];
                self.free_to_pageset(pageset, pageset.frames().number(pfn), order, list);
            }
            _ => self.free_to_zone(zone, pfn, order),
        }
    }

    /// Takes isolated pages of a pageblock out of the buddy: they are somebody's from now on.
    pub(crate) fn take_isolated_from_buddy(
        &self,
        guard: &mut ZoneGuard<'_, 'm, P>,
        range: Range<u32>,
    ) {
        let frames = *guard.zone().frames();
        guard.buddy().take_isolated(frames, range.clone());
        if range.len() == PAGES as usize {
            self.disown(guard, range.start);
        }
    }

    /// Takes isolated pages out of the zone.
    pub(crate) fn take_out_of_buddy(&self, guard: &mut ZoneGuard<'_, 'm, P>, range: Range<u32>) {
        let frames = *guard.zone().frames();
        guard.buddy().take_out(frames, range.clone());
        let mut at = range.start;
        while at < range.end {
            self.disown(guard, at);
            at += PAGES - at % PAGES;
        }
    }
}

/// A block from the buddy: from the reserve first for those that it is for, and last for others who cannot
/// wait. `rmqueue_buddy`, facts 1.7.
fn take_block(buddy: &mut Buddy, frames: ZoneFrames<'_>, wants: ZoneRequest) -> Option<u32> {
    let reserved = |buddy: &mut Buddy, rights| {
        if wants.flags.intersects(rights) {
            buddy.alloc_reserved(frames, wants.order)
        } else {
            None
        }
    };
    reserved(buddy, AllocFlags::HIGHATOMIC)
        .or_else(|| buddy.alloc(frames, wants.block()))
        .or_else(|| reserved(buddy, AllocFlags::OOM.union(AllocFlags::NON_BLOCK)))
}
