//! Frees of many order-0 pages at once: gathered by the list that they go to.

use core::fmt;

use super::RuleSet;
use super::allocator::PageAllocator;
use super::bulk::{CHUNK, FEW, SINGLE, SOME, is_one_by_one};
use super::pageblocks::{self, PageblocksBack};
use crate::error::FreeError;
use crate::frame::{Migratetype, WordCell, ZoneFrames};
use crate::host::Platform;
use crate::pcp::pageset::PagesetRules;
use crate::pcp::{COLD, Storage, list_index};
use crate::units::{Pfn, ZoneIndex, ZoneKind};

/// A bulk free met pages that it refused; the others were freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BulkFreeError {
    /// Pages that were freed.
    pub freed: usize,
    /// Pages that were refused.
    pub refused: usize,
    /// Why the first of them was.
    pub first: FreeError,
}

impl fmt::Display for BulkFreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} pages freed, {} refused, the first because: {}",
            self.freed, self.refused, self.first
        )
    }
}

impl core::error::Error for BulkFreeError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        Some(&self.first)
    }
}

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// Frees single pages of any zones, in any order. All pages are looked at.
    ///
    /// # Errors
    /// [`BulkFreeError`] if some were not in the caller's hands; each of those is told to the host.
    #[inline]
    pub fn free_bulk(&self, pages: &[Pfn]) -> Result<(), BulkFreeError> {
        match is_one_by_one::<P>(pages.len()) {
            true => self.free_few(pages),
            false => self.free_many(pages),
        }
    }

    /// Frees pages as single frees do.
    #[inline]
    fn free_few(&self, pages: &[Pfn]) -> Result<(), BulkFreeError> {
        for (at, &pfn) in pages.iter().enumerate() {
            if let Err(first) = self.free(pfn, SINGLE) {
                return self.free_few_after(pages, at, first);
            }
        }
        Ok(())
    }

    /// Frees what comes after the page at `at`, the first that was refused.
    #[cold]
    fn free_few_after(
        &self,
        pages: &[Pfn],
        at: usize,
        first: FreeError,
    ) -> Result<(), BulkFreeError> {
        let is_refused = |pfn: &&Pfn| self.free(**pfn, SINGLE).is_err();
        let refused = 1 + pages[at + 1..].iter().filter(is_refused).count();
        freed(pages.len(), refused, Some(first))
    }

    #[inline(never)]
    fn free_many(&self, pages: &[Pfn]) -> Result<(), BulkFreeError> {
        match pages.len() {
            0 => Ok(()),
            n if n <= FEW => self.free_near::<FEW>(pages),
            n if n <= SOME => self.free_near::<SOME>(pages),
            n if n <= CHUNK => self.free_near::<CHUNK>(pages),
            _ => self.free_each(pages, &[], None),
        }
    }

    /// Frees up to `MOST` pages, all of which most often go where a single [`free`](Self::free) looks first.
    #[inline(always)]
    fn free_near<const MOST: usize>(&self, pages: &[Pfn]) -> Result<(), BulkFreeError> {
        let list = list_index(SINGLE, Migratetype::Movable);
        let (Some(list), Some(pageset)) = (list, self.home(ZoneKind::Normal)) else {
            return self.free_each(pages, &[], None);
        };
        let held = pageset.held_word(list);
        let cached = held.given_back(SINGLE, Migratetype::Movable);
        let (mut numbers, mut len, mut target) = ([0; MOST], 0, list);
        for (&pfn, slot) in pages.iter().zip(&mut numbers) {
            // Hardened, a page may still be refused when it is taken back.
            let Some((word, number)) = pageset.frames().locate(pfn).filter(|_| !P::HARDENED) else {
                break;
            };
            let was = word.get();
            let to = match P::Rules::goes_to_list(pageset, list, was, held, number, SINGLE) {
                true => list,
                false if was == held || !was.differs_by_tag_only(held) => break,
                false if was == held.with_last_tag() => list,
                false => COLD,
            };
            if len == 0 {
                target = to;
            }
            if to != target || self.take_back(word, cached, pfn, SINGLE).is_err() {
                break;
            }
            *slot = number;
            len += 1;
        }
        let zone = pageset.zone().index();
        if len < pages.len() {
            return self.free_each(pages, &numbers[..len], Some((zone, target)));
        }
        self.free_batch(zone, target, &numbers[..len]);
        Ok(())
    }

    /// Frees pages wherever each belongs, after the first ones, which are taken back and stand in `taken`: they go
    /// to `target`.
    #[inline(never)]
    fn free_each(
        &self,
        pages: &[Pfn],
        taken: &[u32],
        target: Option<(ZoneIndex, usize)>,
    ) -> Result<(), BulkFreeError> {
        let (mut refused, mut first) = (0, None);
        {
            // They end where they stand, the second one first: moved to their ends, each would be on the stack twice.
            let mut whole = PageblocksBack::new(self);
            let mut bulk =
                BulkFree { allocator: self, batch: [0; CHUNK], len: taken.len(), target };
            bulk.batch[..taken.len()].copy_from_slice(taken);
            let mut rest = &pages[taken.len()..];
            while let [pfn, others @ ..] = rest {
                if whole.take(rest) {
                    rest = &rest[pageblocks::PAGES..];
                    continue;
                }
                if let Err(error) = bulk.add(*pfn) {
                    refused += 1;
                    first = first.or(Some(error));
                }
                rest = others;
            }
        }
        freed(pages.len(), refused, first)
    }

    /// Puts pages of one list into this CPU's pageset, and into the zone what it does not take.
    fn free_batch(&self, zone: ZoneIndex, list: usize, numbers: &[u32]) {
        let mut kept = 0;
        if let Some(cpu) = self.this_cpu() {
            let pageset = &cpu.pagesets[zone.0 as usize];
            if P::Rules::frees_to_owners(pageset) {
                let each = |&number: &u32| self.free_to_pageset(pageset, number, SINGLE, list);
                return numbers.iter().for_each(each);
            }
            let platform = &self.platform;
            if let Some(on) = pageset.enter(platform.storage()) {
                if P::Storage::EXACT {
                    for number in numbers {
                        kept += pageset.push_batch(platform, &on, list, &[*number]);
                        P::Rules::after_free(self, &on, pageset, SINGLE, list);
                    }
                } else {
                    kept = pageset.push_batch(platform, &on, list, numbers);
                    if kept < numbers.len() {
                        kept += P::Rules::free_rest(self, &on, pageset, list, &numbers[kept..]);
                    }
                }
            }
        }
        if kept < numbers.len() {
            P::Rules::free_blocks(self, self.zones[zone.0 as usize], &numbers[kept..], SINGLE);
        }
    }
}

/// The answer of a free of `pages` pages of which so many were refused, the `first` of them for this reason.
fn freed(pages: usize, refused: usize, first: Option<FreeError>) -> Result<(), BulkFreeError> {
    first.map_or(Ok(()), |first| Err(BulkFreeError { freed: pages - refused, refused, first }))
}

/// Pages on their way back, gathered while they go to the same list. They get there also if the host panics over a page
/// that is refused.
struct BulkFree<'a, 'm, P: Platform> {
    allocator: &'a PageAllocator<'m, P>,
    batch: [u32; CHUNK],
    len: usize,
    target: Option<(ZoneIndex, usize)>,
}

impl<P: Platform> BulkFree<'_, '_, P> {
    #[inline]
    fn add(&mut self, pfn: Pfn) -> Result<(), FreeError> {
        // Most pages go where the one before them went.
        if let Some((zone, list)) = self.target
            && self.len < CHUNK
            && let frames = self.allocator.zones[zone.0 as usize].frames()
            && let Some((word, number)) = frames.locate(pfn)
            && P::Rules::is_of_list(self.allocator, zone, list, word, number)
        {
            self.allocator.take_back(word, frames.cached(SINGLE), pfn, SINGLE)?;
            self.batch[self.len] = number;
            self.len += 1;
            return Ok(());
        }
        self.add_elsewhere(pfn)
    }

    #[inline(never)]
    fn add_elsewhere(&mut self, pfn: Pfn) -> Result<(), FreeError> {
        let allocator = self.allocator;
        let frame = match allocator.map.get(pfn) {
            Some(frame) if allocator.may_free(frame, pfn, SINGLE) => frame,
            _ => return Err(allocator.refuse_free(pfn, SINGLE)),
        };
        let held = frame.word();
        let zone = held.zone();
        let frames = allocator.zones[zone.0 as usize].frames();
        allocator.take_back(frame.cell(), frames.cached(SINGLE), pfn, SINGLE)?;
        let Some(list) = P::Rules::list_of_freed(allocator, held, pfn) else {
            P::Rules::free_home(allocator, held, pfn, SINGLE);
            return Ok(());
        };
        if self.target != Some((zone, list)) || self.len == CHUNK {
            self.flush();
            self.target = Some((zone, list));
        }
        self.batch[self.len] = frames.number(pfn);
        self.len += 1;
        Ok(())
    }

    fn flush(&mut self) {
        if let Some((zone, list)) = self.target
            && self.len > 0
        {
            self.allocator.free_batch(zone, list, &self.batch[..self.len]);
        }
        self.len = 0;
    }
}

impl<P: Platform> Drop for BulkFree<'_, '_, P> {
    fn drop(&mut self) {
        self.flush();
    }
}

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// Whether a page is allocated and goes to a list of this CPU by the type that single frees look at.
    #[inline]
    pub(crate) fn is_single_of_list(
        &self,
        zone: ZoneIndex,
        list: usize,
        word: WordCell<'_>,
        number: u32,
    ) -> bool {
        let frames = self.zones[zone.0 as usize].frames();
        frames.is_allocated(word.get(), SINGLE)
            && list_index(SINGLE, type_of::<P>(frames, word, number)) == Some(list)
    }
}

/// The type that decides on the list of a page, as for single frees.
#[inline]
fn type_of<P: Platform>(frames: &ZoneFrames<'_>, word: WordCell<'_>, number: u32) -> Migratetype {
    if P::Storage::EXACT { frames.pageblock(number) } else { word.get().migratetype() }
}
