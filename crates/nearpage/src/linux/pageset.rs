//! A pageset under Linux's rules: lists that are tuned, or, where CPUs own pageblocks, pieces.

use crate::check_error::CheckError;
use crate::frame::{FrameState, ListEnd, Migratetype, NO_FRAME, Word};
use crate::host::{Access, Platform};
use crate::pcp::pageset::{OnCpu, Pageset, Totals};
use crate::pcp::pieces::{Kind, Pieces};
use crate::pcp::storage::ListCounts;
use crate::pcp::tuning::{PcpRules, Tuning};
use crate::pcp::{CountedList, LISTS, Pop, Push, Storage, list_index, list_order, list_type};
use crate::rule_set::HasBuddy;
use crate::units::{Order, PAGEBLOCK_ORDER};

impl<'m, P: Platform<Rules: HasBuddy>> Pageset<'m, P> {
    /// The pieces, if CPUs own pageblocks. Only on storages that are exact: others cannot reach another CPU's lists.
    #[inline(always)]
    pub(crate) fn pieces(&self) -> Option<&'m Pieces> {
        if P::Storage::EXACT { P::Rules::pieces(self.cache()) } else { None }
    }

    #[inline(always)]
    pub(crate) fn has_pieces(&self) -> bool {
        self.pieces().is_some()
    }

    /// Whether a block is of a pageblock that this pageset's CPU owns.
    pub(crate) fn kind_of(&self, number: u32) -> Kind {
        let is_ours = self.frames().owned(number).owner() == Some(self.cpu());
        if is_ours { Kind::Owned } else { Kind::Cached }
    }

    #[inline(always)]
    pub(crate) fn pop_piece_or_listed(&self, platform: &P, on: &OnCpu<'_, P>, index: usize) -> Pop {
        match self.pieces() {
            None => platform.storage().pop(on, self.list(index), self.frames()),
            Some(pieces) => self.pop_piece(platform, pieces, index),
        }
    }

    #[inline(always)]
    pub(crate) fn push_piece_or_listed(
        &self,
        platform: &P,
        on: &OnCpu<'_, P>,
        index: usize,
        number: u32,
    ) -> Push {
        match self.pieces() {
            None => platform.storage().push(on, self.list(index), self.frames(), number),
            Some(pieces) => self.push_piece(platform, pieces, index, number),
        }
    }

    #[inline]
    pub(crate) fn pop_pieces_or_listed(
        &self,
        platform: &P,
        on: &OnCpu<'_, P>,
        index: usize,
        out: &mut [u32],
    ) -> usize {
        let Some(pieces) = self.pieces() else {
            return platform.storage().pop_batch(on, self.list(index), self.frames(), out);
        };
        let next = || self.pop_piece(platform, pieces, index).frame();
        let slots = out.iter_mut().zip(core::iter::from_fn(next));
        slots.map(|(slot, number)| *slot = number).count()
    }

    #[inline]
    pub(crate) fn push_pieces_or_listed(
        &self,
        platform: &P,
        on: &OnCpu<'_, P>,
        index: usize,
        numbers: &[u32],
    ) -> usize {
        let Some(pieces) = self.pieces() else {
            return platform.storage().push_batch(on, self.list(index), self.frames(), numbers);
        };
        numbers.iter().for_each(|&number| {
            let _ = self.push_piece(platform, pieces, index, number);
        });
        numbers.len()
    }

    pub(crate) fn append_pieces_or_listed(
        &self,
        storage: &P::Storage,
        on: &OnCpu<'_, P>,
        index: usize,
        first: u32,
        blocks: u32,
    ) -> u32 {
        let Some(pieces) = self.pieces() else {
            return storage.append_run(
                on,
                self.list(index),
                self.frames(),
                first,
                list_order(index),
                blocks,
            );
        };
        let (order, of) = (list_order(index), list_type(index));
        for number in (0..blocks).map(|block| first + (block << order.0)) {
            let kind = self.kind_of(number);
            pieces.push(self.frames(), number, order, (kind, of), ListEnd::Tail);
        }
        blocks
    }

    pub(crate) fn each_piece_or_listed(&self, index: usize, each: &mut dyn FnMut(u32)) {
        match self.pieces() {
            None => P::Storage::for_each(self.list(index), self.frames(), each),
            Some(pieces) => {
                pieces.for_each(self.frames(), list_order(index), list_type(index), each);
            }
        }
    }

    /// Under rules with owners, of the pieces of the list's order and type.
    pub(crate) fn counts_of_pieces_or_listed(&self, index: usize) -> ListCounts {
        let Some(pieces) = self.pieces() else { return self.list(index).counts() };
        let (pushes, pops) = pieces.seen(index);
        let count = pieces.count(list_order(index), list_type(index));
        ListCounts { count, pops, pushes }
    }

    pub(crate) fn changes_of_pieces(&self) -> (u64, u64) {
        self.pieces().map_or_else(|| (self.blocks(), 0), |pieces| (0, pieces.changes()))
    }

    pub(crate) fn count_pieces_in(&self, totals: &mut Totals) {
        if self.has_pieces() {
            totals.count = self.count();
        }
    }

    /// That is the list of its pageblock's type, or on storages that are not exact of the type that it was allocated for: its
    /// word tells that for nothing, and a page on the wrong list only waits there for a request of that type.
    #[inline(always)]
    pub(crate) fn is_type_of_list(
        &self,
        list: usize,
        was: Word,
        held: Word,
        number: u32,
        order: Order,
    ) -> bool {
        if !P::Storage::EXACT {
            return was == held;
        }
        let frames = self.frames();
        frames.is_allocated(was, order) && list_index(order, frames.pageblock(number)) == Some(list)
    }

    /// No more than the largest list can hold.
    pub(crate) fn bounds_of_lists(&self) -> (u64, u64) {
        let pages = |index: usize| u64::from(self.list(index).capacity()) << list_order(index).0;
        ((0..LISTS).map(pages).max().unwrap_or(0), 1)
    }

    #[inline(always)]
    pub(crate) fn note_alloc_in_tuning(&self, rules: &PcpRules, popped: Pop) {
        if P::Storage::EXACT {
            let mut tuning = self.tuning();
            tuning.before_alloc(rules);
            if popped.frame().is_some() && rules.counts_unused() {
                tuning.after_alloc(self.count());
            }
            self.set_tuning(tuning);
        }
    }

    pub(crate) fn note_left_in_tuning(&self, rules: &PcpRules) {
        if P::Storage::EXACT && rules.counts_unused() {
            let mut tuning = self.tuning();
            tuning.after_alloc(self.count());
            self.set_tuning(tuning);
        }
    }

    /// Splits `high` over the lists.
    pub(crate) fn open_by_tuning(&self, tuning: &Tuning, busy: usize) {
        let mut left = tuning.high.0;
        for (index, list) in self.lists().enumerate().filter(|(index, _)| *index != busy) {
            let order = list_order(index).0;
            let room = (tuning.batch.0 >> order).max(1);
            let blocks = list.counts().count as u64 + room;
            list.set_limit(blocks.min(u32::MAX as u64) as u32);
            left = left.saturating_sub((blocks - room) << order);
        }
        let blocks = (left >> list_order(busy).0).clamp(1, u32::MAX as u64);
        self.list(busy).set_limit(blocks as u32);
    }

    #[cold]
    fn pop_piece(&self, platform: &P, pieces: &Pieces, index: usize) -> Pop {
        platform.touch(self.line(), Access::Write);
        let touch = |number| platform.touch_page(self.frames().pfn(number), Access::Write);
        match pieces.pop(self.frames(), list_order(index), list_type(index), touch) {
            Some(number) => {
                pieces.note(index, 0, 1);
                Pop(number)
            }
            None => Pop::EMPTY,
        }
    }

    #[cold]
    fn push_piece(&self, platform: &P, pieces: &Pieces, index: usize, number: u32) -> Push {
        platform.touch(self.line(), Access::Write);
        let kind = self.kind_of(number);
        let (order, of) = (list_order(index), list_type(index));
        pieces.push(self.frames(), number, order, (kind, of), ListEnd::Head);
        pieces.note(index, 1, 0);
        Push::DONE
    }

    /// Marks the pieces; returns their pages. A piece says of its word whether its CPU owns the pageblock, and the
    /// pageblocks listed as having pieces in the zone are the CPU's.
    pub(crate) fn mark_pieces(
        &self,
        mark: impl Fn(u32, Order) -> Result<(), CheckError>,
    ) -> Result<u64, CheckError> {
        let Some(pieces) = self.pieces() else { return Ok(0) };
        let (frames, cpu) = (self.frames(), self.cpu());
        let mut pages = 0;
        for order in (0..=PAGEBLOCK_ORDER.0).map(Order) {
            for of in Migratetype::ALL.into_iter().take(Migratetype::PCP_COUNT) {
                let (mut found, mut result) = (0, Ok(()));
                pieces.for_each(frames, order, of, &mut |number| {
                    found += 1;
                    let word = frames.frame(number).word();
                    let is_ours = frames.owned(number).owner() == Some(cpu);
                    let is_owned = word.state() == FrameState::Owned;
                    if result.is_ok() {
                        result = match is_owned && !is_ours || word.order() != order {
                            true => Err(CheckError::Twice { pfn: frames.pfn(number), word }),
                            false => mark(number, order),
                        };
                    }
                });
                result?;
                let counted = pieces.count(order, of);
                if counted != found {
                    let list = order.0 as usize * Migratetype::PCP_COUNT + of.index();
                    return Err(CheckError::ListCount { cpu, list, counted, found });
                }
                pages += (found as u64) << order.0;
            }
        }
        let listed = Migratetype::ALL.into_iter().take(Migratetype::PCP_COUNT);
        for of in listed {
            let mut before = NO_FRAME;
            for first in frames.pageblocks_from(pieces.first_fragment(of).unwrap_or(NO_FRAME)) {
                let block = frames.owned(first);
                let is_linked =
                    frames.pageblock_before(first) == before && block.listed() == Some(of);
                if !is_linked || block.owner() != Some(cpu) {
                    return Err(CheckError::OwnedBlock { cpu, pfn: frames.pfn(first) });
                }
                before = first;
            }
        }
        Ok(pages)
    }
}
