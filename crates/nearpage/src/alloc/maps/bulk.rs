//! Bulk requests where CPUs own pageblocks with maps: straight from the pageblocks, past the lists.

use super::give::{has_homebound, note_least};
use super::visit::touch_pageblock;
use crate::alloc::allocator::PageAllocator;
use crate::alloc::bulk::SINGLE;
use crate::alloc::wanted::{Wanted, first_flags};
use crate::frame::{Migratetype, Word};
use crate::host::{Access, Platform};
use crate::pcp::owned::{Hold, Owned};
use crate::pcp::pageset::{OnCpu, Pageset};
use crate::pcp::swing::blocks_of_a_refill;
use crate::units::{PAGEBLOCK_ORDER, PageCount, Pfn};
use crate::watermark::AllocFlags;

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// What a bulk request lacks, from the pageblocks that the CPU owns if they have so much: it need not look at the zone then.
    /// Returns how many pages it got.
    pub(in crate::alloc) fn bulk_from_own(
        &self,
        on: &OnCpu<'_, P>,
        pageset: &Pageset<'m, P>,
        (migratetype, list): (Migratetype, usize),
        out: &mut [Pfn],
    ) -> usize {
        let Some(owned) = pageset.owned() else { return 0 };
        let refill = blocks_of_a_refill(SINGLE) as usize;
        if owned.pageblocks.free().0 < out.len().max(refill) as u64 {
            return 0;
        }
        let Some(hold) = owned.enter() else { return 0 };
        note_least(pageset, owned);
        if out.len() >= refill {
            return self.hand_out_owned(pageset, &hold, (migratetype, list), out);
        }
        self.fill(on, pageset, &hold, (SINGLE, migratetype), list);
        drop(hold);
        self.pop_many(on, pageset, list, out)
    }

    /// Hands out whole pageblocks that the CPU owns, while `out` has room for one. Returns pages.
    pub(in crate::alloc) fn pageblocks_from_own(
        &self,
        pageset: &Pageset<'m, P>,
        (migratetype, word): (Migratetype, Word),
        out: &mut [Pfn],
    ) -> usize {
        let (frames, pages) = (pageset.frames(), PAGEBLOCK_ORDER.pages().0 as usize);
        let Some(owned) = pageset.owned().filter(|_| out.len() >= pages) else { return 0 };
        let Some(hold) = owned.enter() else { return 0 };
        note_least(pageset, owned);
        let mut got = 0;
        while out.len() - got >= pages
            && let Some(first) = hold.take_block(frames, migratetype, PAGEBLOCK_ORDER)
        {
            touch_pageblock(&self.platform, frames, first, Access::Write);
            frames.hand_out_all(first..first + pages as u32, word, &mut out[got..]);
            got += pages;
        }
        pageset.events().given_pages.add(got as u64);
        got
    }

    /// Frees single pages for which list `list` has no room: to where they belong.
    pub(in crate::alloc) fn free_past_list(
        &self,
        on: &OnCpu<'_, P>,
        pageset: &Pageset<'m, P>,
        owned: &Owned<'_>,
        list: usize,
        numbers: &[u32],
    ) {
        match owned.enter() {
            Some(hold) => {
                owned.note_sent(numbers.len() as u32);
                self.put_each(pageset, &hold, numbers);
            }
            None => self.free_home(pageset.zone(), numbers),
        }
        self.after_free_to_list(on, pageset, owned, list);
    }

    /// Whether a bulk request that lacks so many pages, of a zone with `room`, takes them from pageblocks: a list gets fewer at
    /// once, and there is room for what a visit to the zone takes, too.
    pub(in crate::alloc) fn takes_from_maps(
        owned: &Owned<'_>,
        lacking: usize,
        room: PageCount,
    ) -> bool {
        lacking >= blocks_of_a_refill(SINGLE) as usize
            && owned.pageblocks.size().0.saturating_add(lacking as u64) <= room.0
    }

    /// Fills `out` from the pageblocks that the CPU owns and, if they are too few, after one visit to the zone. Returns how many
    /// pages it got.
    pub(in crate::alloc) fn bulk_from_maps(
        &self,
        on: &OnCpu<'_, P>,
        pageset: &Pageset<'m, P>,
        owned: &Owned<'_>,
        (wanted, list): (&Wanted<'_>, usize),
        out: &mut [Pfn],
    ) -> usize {
        let Some(hold) = owned.enter() else { return 0 };
        note_least(pageset, owned);
        let mut got = self.hand_out_owned(pageset, &hold, (wanted.migratetype, list), out);
        if got < out.len() && has_homebound(pageset, owned) {
            self.gather(on, pageset, &hold);
            got += self.hand_out_owned(pageset, &hold, (wanted.migratetype, list), &mut out[got..]);
        }
        let mut visited = false;
        if got < out.len() {
            visited =
                self.visit_to_take(on, pageset, &hold, wanted.trip(AllocFlags::default()), list);
            got += self.hand_out_owned(pageset, &hold, (wanted.migratetype, list), &mut out[got..]);
        }
        drop(hold);
        if visited {
            // What could not pass as pageblocks is on the list.
            got += self.pop_many(on, pageset, list, &mut out[got..]);
            self.wake_above_soft_limit(pageset.zone(), first_flags(wanted.gfp, pageset.zone()));
        }
        got
    }

    /// Hands pages of the CPU's pageblocks out, as those of the list are now.
    fn hand_out_owned(
        &self,
        pageset: &Pageset<'m, P>,
        hold: &Hold<'_>,
        (migratetype, list): (Migratetype, usize),
        out: &mut [Pfn],
    ) -> usize {
        let (frames, word) = (pageset.frames(), pageset.held_word(list));
        let most = out.len().min(u32::MAX as usize) as u32;
        let mut got = 0;
        hold.take_pages(frames, migratetype, (most, u32::MAX), &mut |first, pages| {
            touch_pageblock(&self.platform, frames, first, Access::Write);
            frames.hand_out_all(first..first + pages, word, &mut out[got..]);
            got += pages as usize;
        });
        pageset.events().given_pages.add(got as u64);
        got
    }
}
