//! Rules with owners of pageblocks: refills, drains and frees of pagesets that have pieces in place of lists.
//!
//! After the RFC "pcp buddy allocator" of 2026 (facts 15.3). Where its texts say nothing, what is assumed stands here:
//!
//! * A refill wants as many pages as the tuning says. It takes, until it has them: (0) the pieces of own pageblocks that
//!   drains gave back, a pageblock at a time; (1) one whole free pageblock, if the pageset may keep as many pages more;
//!   (2) pieces of the request's type that are smaller than a pageblock, the largest that fit first; (3) if there is no
//!   block yet, the blocks that a refill without owners would take, from other types if need be.
//! * Who owns a pageblock owns it until all of it is free in the zone: the owner's drain made it whole, or the owner
//!   finds it so, or another CPU takes it whole.
//! * A drain first merges, then gives the largest pieces that fit into what is to go, the coldest first; if none fits,
//!   the smallest that there is.
//! * A free whose pageset another thread is at goes to the zone.

use super::refill::Runs;
use crate::alloc::{FromPageset, PageAllocator, ZoneRequest};
use crate::buddy::{Insertion, Search};
use crate::frame::{FrameState, ListEnd, Migratetype, OwnedBlock};
use crate::host::{Access, Platform};
use crate::pcp::list_type;
use crate::pcp::pageset::{OnCpu, Pageset};
use crate::pcp::pieces::{Kind, Pieces};
use crate::rule_set::HasBuddy;
use crate::units::{Order, PAGEBLOCK_ORDER, PageCount};
use crate::zone::ZoneGuard;

/// Pages of a pageblock.
const PAGES: u32 = PAGEBLOCK_ORDER.pages().0 as u32;

/// The first frame of the pageblock of frame `number`.
const fn first_of(number: u32) -> u32 {
    number & !(PAGES - 1)
}

impl<'m, P: Platform<Rules: HasBuddy>> PageAllocator<'m, P> {
    /// Puts a block into the pageset of the CPU that owns its pageblock, if there is one that is on, else into this CPU's
    /// `own`.
    #[cold]
    #[inline(never)]
    pub(crate) fn free_to_owner(
        &self,
        own: &Pageset<'m, P>,
        number: u32,
        order: Order,
        list: usize,
    ) {
        let owner = own.frames().owned(number).owner().and_then(|cpu| self.cpu(cpu));
        let owner = owner.filter(|cpu| cpu.is_on());
        let zone = own.zone().index();
        let pageset = owner.map_or(own, |cpu| &cpu.pagesets[zone.0 as usize]);
        let Some(on) = pageset.enter(self.platform.storage()) else {
            return self.free_to_zone(zone, own.frames().pfn(number), order);
        };
        let taken = owner.and_then(|owner| self.note_taken(owner));
        // Pieces have no limit.
        let _ = pageset.push(&self.platform, &on, list, number);
        self.after_free_by_tuning(&on, pageset, order, list);
        if let Some(taken) = taken {
            taken.end();
        }
    }

    /// Fills a pageset that has no block for a request, and takes one from it. One hold of the zone's lock.
    pub(crate) fn refill_pieces(
        &self,
        on: &OnCpu<'_, P>,
        pageset: &Pageset<'m, P>,
        pieces: &Pieces,
        wants: ZoneRequest,
        list: usize,
    ) -> FromPageset {
        let (zone, order) = (pageset.zone(), wants.order);
        let (mut tuning, totals) = pageset.tuning_for_decision(&self.model.pcp);
        let blocks = tuning.refill_blocks(&self.model.pcp, order, totals.count, zone.view());
        pageset.set_tuning(tuning);
        let wanted = order.pages_in(blocks.min(u32::MAX as u64 >> order.0) as u32).0;
        let may_claim = totals.count.0 + PAGES as u64 <= tuning.high.0
            && OwnedBlock::may_own(pageset.owner().cpu);

        let mut guard = zone.lock_to_take(wants.flags);
        self.platform.touch(zone.published_line(), Access::Write);
        let most = if may_claim { wanted.max(PAGES as u64) } else { wanted };
        let most = guard.claim((most >> order.0) as u32, order) as u64;
        let mut refill = Refill { pageset, pieces, of: list_type(list), got: 0, has_block: false };
        if most > 0 {
            let room = PageCount(most << order.0);
            refill.recover(&mut guard, order, wanted.min(room.0));
            if may_claim && refill.got < wanted && refill.got + PAGES as u64 <= room.0 {
                refill.claim(self, &mut guard);
            }
            refill.take_smaller(&mut guard, order, wanted.min(room.0));
            if !refill.has_block {
                refill.take_as_usual(&mut guard, wants, (wanted.min(room.0) >> order.0) as u32);
            }
        }
        let got = refill.got;
        guard.note_taken(got);
        drop(guard);
        if got == 0 {
            return FromPageset::Nothing;
        }
        pageset.note_pages(got, 0);
        pageset.events().refills.add(1);
        pageset.events().refilled_pages.add(got);
        let popped = pageset.pop(&self.platform, on, list);
        let Some(number) = popped.frame() else { return FromPageset::Nothing };
        self.platform.touch_page(pageset.frames().pfn(number), Access::Write);
        FromPageset::Block(number)
    }

    /// Merges the pieces of a pageset and gives `pages` back. One hold of the zone's lock.
    pub(crate) fn drain_pieces(
        &self,
        pageset: &Pageset<'m, P>,
        pieces: &Pieces,
        first_list: usize,
        pages: PageCount,
    ) {
        let frames = *pageset.frames();
        self.platform.touch(pageset.line(), Access::Write);
        pieces.merge(&frames, |number, access| {
            self.platform.touch_page(frames.pfn(number), access);
        });
        let mut guard = pageset.zone().lock_to_move();
        self.platform.touch(pageset.zone().published_line(), Access::Write);
        let mut moved = 0;
        while moved < pages.0
            && let Some(number) = pieces.next_to_drain(pages.0 - moved, list_type(first_list))
        {
            let (order, kind, _) = pieces.unlink(&frames, number);
            self.platform.touch_page(frames.pfn(number), Access::Write);
            guard.buddy().free(frames, number, order, Insertion::Usual);
            moved += order.pages().0;
            if kind == Kind::Owned {
                note_fragment(&mut guard, pageset, pieces, first_of(number));
            }
        }
        guard.note_returned(moved);
        drop(guard);
        if moved > 0 {
            pageset.note_pages(0, moved);
            pageset.events().drains.add(1);
            pageset.events().drained_pages.add(moved);
        }
    }

    /// Takes an owned pageblock from its owner, if it has one, since another takes it whole.
    pub(crate) fn disown(&self, guard: &mut ZoneGuard<'_, 'm, P>, first: u32) {
        let frames = guard.zone().frames();
        let block = frames.owned(first);
        let Some(owner) = block.owner() else { return };
        if let Some(cpu) = self.cpu(owner)
            && let Some(pieces) = cpu.pagesets[guard.zone().index().0 as usize].pieces()
        {
            unlist_fragment(guard, pieces, first);
        }
        block.set_owner(None);
    }
}

/// Notes that a piece of a pageblock of the pageset's CPU went back to the zone: there is something to take back later,
/// or the pageblock is whole and nobody's.
fn note_fragment<P: Platform<Rules: HasBuddy>>(
    guard: &mut ZoneGuard<'_, '_, P>,
    pageset: &Pageset<'_, P>,
    pieces: &Pieces,
    first: u32,
) {
    let frames = guard.zone().frames();
    let block = frames.owned(first);
    if is_whole(guard, first) {
        unlist_fragment(guard, pieces, first);
        block.set_owner(None);
    } else if block.owner() == Some(pageset.owner().cpu) && block.listed().is_none() {
        list_fragment(guard, pieces, first);
    }
}

/// Lists an owned pageblock as one with pieces in the zone: an operation under the zone's lock.
fn list_fragment<P: Platform<Rules: HasBuddy>>(
    guard: &mut ZoneGuard<'_, '_, P>,
    pieces: &Pieces,
    first: u32,
) {
    pieces.list_fragment(guard.zone().frames(), first);
    guard.buddy().charge(1);
}

/// Takes it off that list, if it is on it.
fn unlist_fragment<P: Platform<Rules: HasBuddy>>(
    guard: &mut ZoneGuard<'_, '_, P>,
    pieces: &Pieces,
    first: u32,
) {
    if pieces.unlist_fragment(guard.zone().frames(), first) {
        guard.buddy().charge(1);
    }
}

/// Whether all of a pageblock is free in the zone, in one block.
fn is_whole<P: Platform>(guard: &ZoneGuard<'_, '_, P>, first: u32) -> bool {
    let frames = guard.zone().frames();
    let is_free = |number: u32, order: u8| {
        frames.try_frame(number).is_some_and(|of| of.word().is_free(Order(order), frames.zone()))
    };
    is_free(first, PAGEBLOCK_ORDER.0) || is_free(first & !(2 * PAGES - 1), PAGEBLOCK_ORDER.0 + 1)
}

/// A refill under way.
struct Refill<'a, 'm, P: Platform> {
    pageset: &'a Pageset<'m, P>,
    pieces: &'a Pieces,
    /// The type of the lists that are filled.
    of: Migratetype,
    /// Pages so far.
    got: u64,
    /// Whether there is a block for the request.
    has_block: bool,
}

impl<'m, P: Platform<Rules: HasBuddy>> Refill<'_, 'm, P> {
    /// Puts a block at the cold end. `wanted` is the order of the request.
    fn add(&mut self, number: u32, order: Order, wanted: Order) {
        let kind = self.pageset.kind_of(number);
        self.pieces.push(self.pageset.frames(), number, order, (kind, self.of), ListEnd::Tail);
        self.got += order.pages().0;
        self.has_block |= order >= wanted;
    }

    /// Takes the pieces of own pageblocks back that drains gave to the zone, until there are `most` pages.
    fn recover(&mut self, guard: &mut ZoneGuard<'_, 'm, P>, wanted: Order, most: u64) {
        let frames = *self.pageset.frames();
        while self.got < most
            && let Some(first) = self.pieces.first_fragment(self.of)
        {
            unlist_fragment(guard, self.pieces, first);
            if is_whole(guard, first) {
                frames.owned(first).set_owner(None);
                continue;
            }
            let mut at = first;
            while at < first + PAGES {
                let Some(frame) = frames.try_frame(at) else { break };
                let word = frame.word();
                let is_head = word.state() != FrameState::Blank && word.zone() == frames.zone();
                let order = if is_head { word.order() } else { Order(0) };
                if is_head && word.state() == FrameState::Free && word.migratetype() == self.of {
                    if self.got + order.pages().0 > most && self.got > 0 {
                        // What does not fit any more stays for later.
                        list_fragment(guard, self.pieces, first);
                        return;
                    }
                    guard.buddy().take_block_at(frames, at);
                    self.add(at, order, wanted);
                }
                at += order.pages().0 as u32;
            }
        }
    }

    /// Takes one whole pageblock of the type, and owns it.
    fn claim(&mut self, allocator: &PageAllocator<'m, P>, guard: &mut ZoneGuard<'_, 'm, P>) {
        let frames = *self.pageset.frames();
        let mut claimed = None;
        guard.buddy().take_pageblocks(frames, self.of, 1, 1, |first, _| claimed = Some(first));
        let Some(first) = claimed else { return };
        allocator.disown(guard, first);
        frames.owned(first).set_owner(Some(self.pageset.owner().cpu));
        self.add(first, PAGEBLOCK_ORDER, PAGEBLOCK_ORDER);
    }

    /// Takes pieces that are smaller than a pageblock, the largest that fit first, until there are `most` pages.
    fn take_smaller(&mut self, guard: &mut ZoneGuard<'_, 'm, P>, wanted: Order, most: u64) {
        let frames = *self.pageset.frames();
        while let Some(left) = most.checked_sub(self.got).and_then(u64::checked_ilog2) {
            let largest = Order((left as u8).min(PAGEBLOCK_ORDER.0 - 1));
            let taken = guard.buddy().take_largest(frames, wanted..=largest, self.of);
            let Some((number, order)) = taken else { return };
            self.add(number, order, wanted);
        }
    }

    /// Takes up to `blocks` blocks as a refill without owners does.
    fn take_as_usual(&mut self, guard: &mut ZoneGuard<'_, 'm, P>, wants: ZoneRequest, blocks: u32) {
        let (frames, mut search, mut taken) = (*self.pageset.frames(), Search::Own, 0);
        while taken < blocks {
            let mut runs = <Runs>::new();
            let (left, most_runs) = (blocks - taken, Runs::MOST as u32);
            let take = |first, blocks| runs.push(first, blocks);
            let got = guard.buddy().take(frames, wants.block(), &mut search, left, most_runs, take);
            for &(first, run) in runs.as_slice() {
                (0..run).for_each(|block| {
                    self.add(first + (block << wants.order.0), wants.order, wants.order)
                });
            }
            taken += got;
            if got == 0 {
                return;
            }
        }
    }
}
