//! Frees of single blocks: to the pageset of this CPU, else to the zone.

use core::hint::cold_path;

use super::RuleSet;
use super::allocator::PageAllocator;
use crate::error::FreeError;
use crate::frame::{FrameState, Migratetype, Word, WordCell};
use crate::host::{Access, Platform};
use crate::pcp::pageset::{Pageset, PagesetRules};
use crate::pcp::{COLD, Push, Storage, list_index};
use crate::units::{MAX_ORDER, Order, Pfn, ZoneKind};

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// Frees a block that [`alloc`](Self::alloc) returned, with the order that it was allocated with.
    /// The page goes back to its own zone, whoever frees it.
    ///
    /// # Errors
    /// [`FreeError`] if the block is not in the caller's hands; it is left alone then, and the host is
    /// told ([`Platform::misuse`]).
    #[inline(always)]
    pub fn free(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        // Most pages come home to the zone that this CPU's requests prefer, from movable pageblocks. To
        // ask for that first means that the addresses of the zone and of the list are known before
        // the frame's word and its pageblock's type are: those only confirm the branches.
        if let Some(list) = list_index(order, Migratetype::Movable)
            && let Some(pageset) = self.home(ZoneKind::Normal)
            && let Some((word, number)) = pageset.frames().locate(pfn)
        {
            let (was, held) = (word.get(), pageset.held_word(list));
            if P::Rules::goes_to_list(pageset, list, was, held, number, order) {
                let cached = held.given_back(order, Migratetype::Movable);
                self.take_back(word, cached, pfn, order)?;
                self.free_to_pageset(pageset, number, order, list);
                return Ok(());
            }
            if was != held && was.differs_by_tag_only(held) {
                let cached = held.given_back(order, Migratetype::Movable);
                self.take_back(word, cached, pfn, order)?;
                self.free_of_another_refill(pageset, number, was);
                return Ok(());
            }
        }
        cold_path();
        self.free_anywhere(pfn, order)
    }

    /// Where CPUs have quotas, frees a page, whose word `was` that of the pages of the list that a free looks at
    /// first but for the refill that it came with. Only single pages have tags.
    #[inline(never)]
    fn free_of_another_refill(&self, pageset: &Pageset<'m, P>, number: u32, was: Word) {
        let list =
            const { list_index(Order(0), Migratetype::Movable).expect("single pages are cached") };
        let is_of_the_last = was == pageset.held_word(list).with_last_tag();
        let list = if is_of_the_last { list } else { COLD };
        self.free_to_pageset(pageset, number, Order(0), list);
    }

    /// A free of a page of another zone or of a pageblock that is not movable, from a CPU that has no pagesets, or
    /// of a page that is not the caller's.
    #[inline(never)]
    fn free_anywhere(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        let frame = match self.map.get(pfn) {
            Some(frame) if self.may_free(frame, pfn, order) => frame,
            _ => return Err(self.refuse_free(pfn, order)),
        };
        let held = frame.word();
        self.take_back(frame.cell(), Word::cached(order, held.zone()), pfn, order)?;
        P::Rules::free_home(self, held, pfn, order);
        Ok(())
    }

    /// Puts a block that nobody holds any more into a pageset of this CPU, or, where CPUs own pageblocks, into that of the
    /// owner.
    #[inline(always)]
    pub(crate) fn free_to_pageset(
        &self,
        pageset: &Pageset<'m, P>,
        number: u32,
        order: Order,
        list: usize,
    ) {
        if P::Rules::frees_to_owners(pageset) {
            return P::Rules::free_to_owner(self, pageset, number, order, list);
        }
        if let Some(on) = pageset.enter(self.platform.storage()) {
            let pushed = pageset.push(&self.platform, &on, list, number);
            if pushed.is_done() {
                if P::Storage::EXACT {
                    P::Rules::after_free(self, &on, pageset, order, list);
                }
                return;
            }
            if pushed == Push::FULL {
                return self.free_to_full_list(on, pageset, number, order, list);
            }
        }
        self.free_to_zone(pageset.zone().index(), pageset.frames().pfn(number), order);
    }

    /// Takes an allocated block, whose word will be `cached`, out of its holder's hands.
    #[inline(always)]
    pub(super) fn take_back(
        &self,
        word: WordCell<'_>,
        cached: Word,
        pfn: Pfn,
        order: Order,
    ) -> Result<(), FreeError> {
        self.platform.touch_page(pfn, Access::Write);
        if !P::HARDENED {
            word.set(cached);
        } else {
            let held = word.swap(cached);
            if !held.is_allocated(order) {
                return Err(self.refuse_taken(word, held, pfn, order));
            }
        }
        Ok(())
    }

    /// In the same instant somebody else freed the page, or locked it: then it stays where it is.
    #[cold]
    #[inline(never)]
    fn refuse_taken(&self, word: WordCell<'_>, held: Word, pfn: Pfn, order: Order) -> FreeError {
        if held.without_lock().is_allocated(order) {
            word.replace(Word::cached(order, held.zone()), held);
        }
        self.refuse_free(pfn, order)
    }

    /// Says why a free is refused, to the caller and to the host. The page stays where it is: whoever holds
    /// it keeps it, and if nobody does it is free already.
    #[cold]
    #[inline(never)]
    pub(super) fn refuse_free(&self, pfn: Pfn, order: Order) -> FreeError {
        let error = self.why_not_free(pfn, order);
        self.platform.misuse(&error);
        error
    }

    fn why_not_free(&self, pfn: Pfn, order: Order) -> FreeError {
        let Some(frame) = self.map.get(pfn) else { return FreeError::Foreign { pfn } };
        if order > MAX_ORDER {
            return FreeError::OrderTooLarge { pfn, order };
        }
        if !pfn.is_aligned(order) {
            return FreeError::Misaligned { pfn, order };
        }
        let word = frame.word();
        match word.state() {
            FrameState::Allocated if word.order() != order => {
                FreeError::WrongOrder { pfn, order, allocated: word.order() }
            }
            FrameState::Allocated if word.is_locked() || word.has_waiters() => {
                FreeError::Locked { pfn, order }
            }
            _ if !self.is_online(pfn) => FreeError::Foreign { pfn },
            state => FreeError::NotAllocated { pfn, order, state },
        }
    }
}
