//! Bulk requests where CPUs own pageblocks with maps: straight from the pageblocks, past the lists.

use super::give::note_least;
use super::visit::touch_pageblock;
use crate::alloc::allocator::PageAllocator;
use crate::alloc::bulk::SINGLE;
use crate::alloc::wanted::{Wanted, first_flags};
use crate::host::{Access, Platform};
use crate::pcp::owned::{Hold, Owned};
use crate::pcp::pageset::{OnCpu, Pageset};
use crate::pcp::swing::blocks_of_a_refill;
use crate::pcp::{CountedList, HOMEBOUND};
use crate::units::{PageCount, Pfn};
use crate::watermark::AllocFlags;

impl<'m, P: Platform> PageAllocator<'m, P> {
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
        let mut got = self.hand_out_owned(pageset, &hold, (wanted, list), out);
        if got < out.len()
            && (owned.pageblocks.has_inbox() || pageset.list(HOMEBOUND).count() > 0)
        {
            self.gather(on, pageset, &hold);
            got += self.hand_out_owned(pageset, &hold, (wanted, list), &mut out[got..]);
        }
        let mut visited = false;
        if got < out.len() {
            visited = self.visit_to_take(on, pageset, &hold, wanted.trip(AllocFlags::default()), list);
            got += self.hand_out_owned(pageset, &hold, (wanted, list), &mut out[got..]);
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
        (wanted, list): (&Wanted<'_>, usize),
        out: &mut [Pfn],
    ) -> usize {
        let (frames, word) = (pageset.frames(), pageset.held_word(list));
        let most = out.len().min(u32::MAX as usize) as u32;
        let mut got = 0;
        hold.take_pages(frames, wanted.migratetype, most, &mut |first, pages| {
            touch_pageblock(&self.platform, frames, first, Access::Write);
            frames.hand_out_all(first..first + pages, word, &mut out[got..]);
            got += pages as usize;
        });
        hold.owned().note_given(got as u64);
        got
    }
}
