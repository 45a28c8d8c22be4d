//! Many order-0 pages at once. Reference: the 2017 bulk page allocator; facts 8.
//!
//! One walk of the zonelist, one look at the watermark, one look into the pageset that copies straight into
//! the caller's array; then what is lacking by refills, as Linux has it, or, under nearpage's own rules, straight out of maps.
//! The contract is partial success: a caller who needs all pages asks again.

use super::RuleSet;
use super::allocator::PageAllocator;
use super::near::Near;
use super::pageblocks;
use super::request::Request;
use super::wanted::Wanted;
use crate::error::AllocError;
use crate::host::Platform;
use crate::pcp::pageset::{Pageset, PagesetRules};
use crate::pcp::{CountedList, Storage};
use crate::reason::Reason;
use crate::units::{Order, PageCount, Pfn};
use crate::watermark::AllocFlags;
use crate::zone::Zone;

/// Pages between two looks at the pageset: 1 KiB of stack.
pub(super) const CHUNK: usize = 256;
/// As many for smaller requests, for which clearing the stack would be a good part of the work.
pub(super) const SOME: usize = 64;
/// As many for small ones.
pub(super) const FEW: usize = 16;
pub(super) const SINGLE: Order = Order(0);

/// So few pages are handled one by one on storages that are not exact: what a batch costs by itself is more than it saves.
const ONE_BY_ONE: usize = 4;

/// Whether a batch of so many pages is handled one by one.
#[inline(always)]
pub(super) fn is_one_by_one<P: Platform>(pages: usize) -> bool {
    !P::Storage::EXACT && pages <= ONE_BY_ONE
}

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// Allocates up to `out.len()` single pages and returns how many: at least one if a single allocation
    /// would have succeeded and `out` is not empty. No zone is pushed below its low watermark, except
    /// by that one page. The pages are `out[..n]`.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc), and [`AllocError::BulkOrder`] for any order but 0.
    #[inline]
    pub fn alloc_bulk(&self, request: Request, out: &mut [Pfn]) -> Result<usize, AllocError> {
        let near = match is_one_by_one::<P>(out.len()) && request.order == SINGLE {
            true => self.few_near(request, out),
            false => self.bulk_near(request, out).unwrap_or(0),
        };
        if near > 0 && near == out.len() { Ok(near) } else { self.bulk_scan(request, out, near) }
    }

    /// Pages as single requests get them, as far as the pageset at hand has them. Returns how many.
    #[inline]
    fn few_near(&self, request: Request, out: &mut [Pfn]) -> usize {
        for (at, slot) in out.iter_mut().enumerate() {
            match self.alloc_fast(request) {
                Some(pfn) => *slot = pfn,
                None => return at,
            }
        }
        out.len()
    }

    /// Pages from this CPU's pageset: what the scan would find first, without walking to it. On exact storages all that
    /// are asked for, or none.
    #[inline]
    fn bulk_near(&self, request: Request, out: &mut [Pfn]) -> Option<usize> {
        let Near { pageset, list } = self.near(request)?;
        if request.order != SINGLE
            || P::Storage::EXACT && (pageset.list(list).count() as usize) < out.len()
            || !self.has_near_room(pageset.zone(), out.len())
        {
            return None;
        }
        let on = pageset.enter(self.platform.storage())?;
        let got = match out.len() <= FEW {
            true => self.pop_into::<FEW>(&on, pageset, list, out),
            false => self.pop_many(&on, pageset, list, out),
        };
        Some(got)
    }

    /// Whether a bulk request for `pages` pages may take them from this CPU's pageset for `zone`. Under nearpage's own
    /// rules it may as far as a [single one](Self::alloc_fast) may.
    #[inline]
    fn has_near_room(&self, zone: &Zone<'m, P>, pages: usize) -> bool {
        if self.model.departures.bulk_from_zone {
            return pages < pageblocks::PAGES
                && (!P::Storage::EXACT || zone.has_headroom_for(pages));
        }
        self.bulk_share(zone.room(AllocFlags::WMARK_LOW, zone.kind()), pages) == pages
    }

    /// What the pageset at hand did not have: it gave the first `near` pages.
    #[cold]
    #[inline(never)]
    fn bulk_scan(
        &self,
        request: Request,
        out: &mut [Pfn],
        near: usize,
    ) -> Result<usize, AllocError> {
        let wanted = self.wanted(request)?;
        if near > 0 {
            // Nobody reclaims for the rest of a request that got something.
            return Ok(near + self.bulk_from_first_zone(&wanted, &mut out[near..]));
        }
        self.bulk_wanted(&wanted, out)
    }

    /// Pages for a request that was checked.
    pub(super) fn bulk_wanted(
        &self,
        wanted: &Wanted<'_>,
        out: &mut [Pfn],
    ) -> Result<usize, AllocError> {
        if wanted.order != SINGLE {
            return Err(AllocError::BulkOrder { order: wanted.order });
        }
        if out.is_empty() {
            return Ok(0);
        }
        let got = self.bulk_from_first_zone(wanted, out);
        if got > 0 {
            return Ok(got);
        }
        out[0] = self.alloc_scoped(wanted)?;
        Ok(1)
    }

    /// Takes from the first zone with room, and from no other. It is a zone of the preferred node, so that
    /// each page is a `numa_hit` (facts 8, 11.1).
    fn bulk_from_first_zone(&self, wanted: &Wanted<'_>, out: &mut [Pfn]) -> usize {
        let flags = AllocFlags::WMARK_LOW;
        let mut preferred = None;
        for zone in self.zonelist(wanted) {
            let preferred = *preferred.get_or_insert(zone);
            if preferred.node() != zone.node() {
                break;
            }
            // The reserve is that against the preferred zone's kind, not the request's: facts 8.
            let room = zone.room(flags, preferred.kind());
            let share = self.bulk_share(room, out.len());
            if share == 0 {
                continue;
            }
            let got = self.bulk_from_zone(zone, wanted, &mut out[..share]);
            if got > 0 {
                self.note_fallback(wanted, zone, PageCount(got as u64), || {
                    let is_limited = preferred.is_limited(SINGLE.pages());
                    if is_limited { Reason::Limit } else { Reason::Watermark }
                });
                return got;
            }
            if !self.model.departures.bulk_from_zone {
                break;
            }
        }
        0
    }

    /// How many of `pages` a zone with `room` gives. Linux gives all, with a page to spare as its watermark
    /// check has it, or none; and one page is no bulk to it. Facts 8.
    fn bulk_share(&self, room: PageCount, pages: usize) -> usize {
        if self.model.departures.bulk_from_zone {
            return room.0.min(pages as u64) as usize;
        }
        if pages > 1 && room.0 > pages as u64 { pages } else { 0 }
    }

    /// Fills `out` from a zone that has `room` for so many pages, and for as many as `out` has.
    fn bulk_from_zone(&self, zone: &'m Zone<'m, P>, wanted: &Wanted<'_>, out: &mut [Pfn]) -> usize {
        P::Rules::bulk(self, zone, wanted, out)
    }

    /// Copies pages from the pageset until `out` is full or the list is empty; a call away from who asks for a few.
    #[inline(never)]
    pub(crate) fn pop_many(
        &self,
        on: &<P::Storage as Storage>::OnCpu<'_>,
        pageset: &Pageset<'m, P>,
        list: usize,
        out: &mut [Pfn],
    ) -> usize {
        // To clear the place for what is not there would be a good part of the work.
        if P::Rules::is_empty(pageset, list) {
            return 0;
        }
        if out.len() <= SOME {
            return self.pop_into::<SOME>(on, pageset, list, out);
        }
        let mut got = 0;
        for part in out.chunks_mut(CHUNK) {
            let popped = self.pop_into::<CHUNK>(on, pageset, list, part);
            got += popped;
            if popped < part.len() {
                break;
            }
        }
        got
    }

    /// Copies as many pages as `out` has room for, at most `MOST`, or as the list has.
    #[inline(always)]
    fn pop_into<const MOST: usize>(
        &self,
        on: &<P::Storage as Storage>::OnCpu<'_>,
        pageset: &Pageset<'m, P>,
        list: usize,
        out: &mut [Pfn],
    ) -> usize {
        let frames = pageset.frames();
        let mut numbers = [0; MOST];
        let popped = pageset.pop_batch(&self.platform, on, list, &mut numbers[..out.len()]);
        let word = pageset.held_word(list);
        // Four to a turn of the loop take a tenth less time than one.
        let (fours, rest) = numbers[..popped].as_chunks::<4>();
        let (outs, _) = out.as_chunks_mut::<4>();
        fours.iter().zip(outs).for_each(|(four, out)| frames.hand_out_all(*four, word, out));
        let out = &mut out[popped - rest.len()..];
        frames.hand_out_all(rest.iter().copied(), word, out);
        popped
    }
}

#[cfg(test)]
mod tests {
    use crate::alloc::{Config, Request};
    use crate::error::FreeError;
    use crate::gfp::Gfp;
    use crate::model::Model;
    use crate::testing::machine::TestMachine;
    use crate::units::{CpuId, Order, Pfn, ZoneKind};
    use crate::watermark::AllocFlags;

    /// Pages of a bulk request for so many pages more, or less, than the zone has room for.
    fn bulk_beside_room(model: Model, more: i64) -> (u64, usize) {
        let config = Config { model, ..Config::default() };
        TestMachine::new().node(0, 8192, &[0]).config(config).run(|allocator| {
            let room = allocator.zones()[0].room(AllocFlags::WMARK_LOW, ZoneKind::Normal).0;
            let mut out = [Pfn(0); 8192];
            let out = &mut out[..room.saturating_add_signed(more) as usize];
            (room, allocator.alloc_bulk(Request::new(Order(0), Gfp::KERNEL), out).unwrap())
        })
    }

    #[test]
    fn linux_gives_all_with_a_page_to_spare_or_one() {
        let (room, pages) = bulk_beside_room(Model::LINUX_6_12, -1);
        assert_eq!(pages as u64, room - 1);
        for more in [0, 1] {
            assert_eq!(bulk_beside_room(Model::LINUX_6_12, more).1, 1);
        }
    }

    #[test]
    fn nearpage_gives_what_there_is_room_for() {
        for more in [-1, 0, 1] {
            let (room, pages) = bulk_beside_room(Model::NEARPAGE, more);
            assert_eq!(pages as u64, room.saturating_add_signed(more).min(room));
        }
    }

    #[test]
    fn cpus_that_take_a_few_at_a_time_do_not_share_lines_of_words() {
        TestMachine::new().node(0, 65_536, &[0, 1]).run(|allocator| {
            let request = Request::new(Order(0), Gfp::HIGHUSER_MOVABLE);
            let mut holder = [None; 3 * 65_536 / 32];
            for turn in 0..400 {
                let cpu = CpuId(turn % 2);
                allocator.platform().run_on(cpu);
                let mut out = [Pfn(0); 16];
                let wanted = 1 + turn as usize % 16;
                assert_eq!(allocator.alloc_bulk(request, &mut out[..wanted]), Ok(wanted));
                for page in &out[..wanted] {
                    let line = &mut holder[page.0 as usize / 32];
                    assert_eq!(*line.get_or_insert(cpu), cpu, "{page:?}");
                }
            }
        });
    }

    #[test]
    fn a_bulk_free_goes_on_after_pages_that_are_not_the_callers() {
        TestMachine::new().node(0, 8192, &[0]).run(|allocator| {
            let request = Request::new(Order(0), Gfp::HIGHUSER_MOVABLE);
            let mut pages = [Pfn(0); 200];
            assert_eq!(allocator.alloc_bulk(request, &mut pages), Ok(200));
            let free = allocator.zones()[0].free_pages();
            let kept = pages[150];
            // Twice the same page, and one that is of no node.
            pages[20] = pages[10];
            pages[150] = Pfn(1 << 40);
            let error = allocator.free_bulk(&pages).unwrap_err();
            assert_eq!((error.freed, error.refused), (198, 2));
            assert!(matches!(error.first, FreeError::NotAllocated { pfn, .. } if pfn == pages[10]));
            assert!(allocator.zones()[0].free_pages() >= free);
            allocator.free(kept, Order(0)).unwrap();
        });
    }
}
