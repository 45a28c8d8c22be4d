//! One pageset: the lists of one CPU for one zone, their tuning and their counters.
//!
//! **Two ways to keep the tuning.** A storage that is [`Storage::EXACT`] moves lists and tuning together:
//! each allocation and free updates the state, as Linux does. Other storages write nothing but their
//! cursor on the fast path; the tuning learns at the next slow event (a list found empty or full) how many
//! blocks were popped and pushed since the last one, from the cursors themselves.
//!
//! **Limits.** Such a storage also cannot look at the pageset's `high` when it pushes. So `high` is split
//! over the lists as limits ([`Pageset::share_high`]): the list at hand gets what the others do not hold,
//! the others keep room for a batch. The pageset never holds more than `high` and a batch per list. While more is
//! out than a hard limit allows, these limits are 0, so that what comes back goes home.
//!
//! All of this state is written by threads on the pageset's CPU only (and by who stopped that CPU). A
//! thread preempted in the middle of a slow event may lose an update of the tuning or of an event counter
//! of a storage that is not exact; counts of pages come from the cursors and never drift. The settings
//! within the tuning are written by whoever resizes, on any CPU, and by nobody else.

use core::ops::Range;

use super::pieces::{Kind, Pieces};
use super::storage::{CountedList, ListCounts, Pop, Push, Storage};
use super::tuning::{PcpRules, SETTING_WORDS, Tuning, WORDS};
use super::{ALL_LISTS, COLD, LISTS, list_index, list_order, list_type};
use crate::frame::{ListEnd, Word, ZoneFrames};
use crate::host::{Access, PageblockOwners, Platform};
use crate::places::quota::Quota;
use crate::places::size::{COLD_MAX, QuotaSize};
use crate::sync::{AtomicU32, AtomicU64, Ordering, OwnedCounter};
use crate::units::{CpuId, NodeIndex, Order, PageCount, Pfn};
use crate::zone::{WorkCounters, Zone};

/// A list of `P`'s storage.
pub(crate) type List<'m, P> = <<P as Platform>::Storage as Storage>::List<'m>;

/// Trips between a pageset and its zone, as of a moment ago.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct PagesetCounts {
    /// Trips to the zone to refill a list.
    pub refills: u64,
    /// Pages that refills brought.
    pub refilled_pages: PageCount,
    /// Trips to the zone to give pages back.
    pub drains: u64,
    /// Pages that drains took.
    pub drained_pages: PageCount,
    /// Drains because blocks of order 1 to 3 came back in a row, with room left; only on storages that are
    /// [exact](Storage::EXACT).
    pub high_order_drains: u64,
    /// Writes to words that all CPUs share, under nearpage's own rules: the zone's counter and its bits.
    pub shared_writes: u64,
}

/// Under nearpage's own rules each pageset has what these say.
const QUOTA_OF_EACH: &str = "each pageset has a quota";

/// Events of a pageset, counted by its CPU.
#[derive(Debug, Default)]
pub(crate) struct PagesetEvents {
    /// Single pages handed out as part of a pageblock, without the first, which its list counts. Exact: who counts them
    /// may have moved to another CPU since they were popped.
    pub bulk_allocs: AtomicU64,
    /// Blocks handed out past the lists, by quota.
    pub given_blocks: OwnedCounter,
    /// Their pages.
    pub given_pages: OwnedCounter,
    /// Trips to the zone to refill a list.
    pub refills: OwnedCounter,
    /// Pages that refills brought.
    pub refilled_pages: OwnedCounter,
    /// Trips to the zone to give pages back.
    pub drains: OwnedCounter,
    /// Pages that drains took.
    pub drained_pages: OwnedCounter,
    /// Drains because blocks of order 1 to 3 came back in a row, with room left; on exact storages only.
    pub high_order_drains: OwnedCounter,
}

/// Whose pagesets they are.
#[repr(align(64))]
pub(crate) struct Owner<P: Platform> {
    /// The CPU.
    pub cpu: CpuId,
    /// Its node.
    pub node: NodeIndex,
    /// What makes the lists of this CPU exclusive.
    pub exclusion: <P::Storage as Storage>::PerCpu,
    /// Takes of its pagesets by other CPUs. Whoever has them writes.
    pub taken: WorkCounters,
}

/// The pages that one CPU caches of one zone.
///
/// The fast path loads nothing but this, the list's entry and the frame's word: so the way to the zone's frames
/// is kept here too. The pagesets of two CPUs share no pair of lines.
#[repr(C, align(128))]
pub struct Pageset<'m, P: Platform> {
    zone: &'m Zone<'m, P>,
    frames: ZoneFrames<'m>,
    /// What words of blocks from each list say while somebody has them.
    held_words: [AtomicU32; LISTS],
    owner: &'m Owner<P>,
    lists: [List<'m, P>; ALL_LISTS],
    tuning: TuningCell,
    /// Pages on all lists, if the storage is exact: then each operation asks.
    pages: OwnedCounter,
    events: PagesetEvents,
    /// What takes the place of the lists if CPUs own pageblocks.
    pieces: Option<&'m Pieces>,
    /// What the CPU may take past its lists, under nearpage's own rules.
    quota: Option<&'m Quota>,
}

impl<P: Platform> core::fmt::Debug for Pageset<'_, P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Pageset")
            .field("cpu", &self.owner.cpu)
            .field("zone", &self.zone.index())
            .field("count", &self.count())
            .field("tuning", &self.tuning())
            .finish_non_exhaustive()
    }
}

/// Proof that this thread may use the lists of `P`'s pagesets of a CPU.
pub(crate) type OnCpu<'a, P> = <<P as Platform>::Storage as Storage>::OnCpu<'a>;

impl<'m, P: Platform> Pageset<'m, P> {
    /// An empty pageset with the tuning of a booting kernel: everything passes straight through.
    pub(crate) fn new(
        zone: &'m Zone<'m, P>,
        owner: &'m Owner<P>,
        lists: [List<'m, P>; ALL_LISTS],
        pieces: Option<&'m Pieces>,
        quota: Option<&'m Quota>,
    ) -> Self {
        let frames = *zone.frames();
        // A cell of zeroes is `Tuning::BOOT`.
        let (tuning, events) = (TuningCell::default(), PagesetEvents::default());
        let held_words = core::array::from_fn(|index| {
            let word = frames.allocated(list_order(index), list_type(index));
            AtomicU32::new(word.bits())
        });
        let pages = OwnedCounter::new();
        Self { zone, frames, held_words, owner, lists, tuning, pages, events, pieces, quota }
    }

    /// Takes hold of the lists, from the CPU that owns them; `None` if somebody else is at them.
    #[inline(always)]
    pub(crate) fn enter<'a>(
        &self,
        storage: &'a P::Storage,
    ) -> Option<<P::Storage as Storage>::OnCpu<'a>>
    where
        'm: 'a,
    {
        storage.enter(self.owner.cpu, &self.owner.exclusion)
    }

    /// The pieces, if CPUs own pageblocks. Only on storages that are exact.
    #[inline(always)]
    pub(crate) fn pieces(&self) -> Option<&'m Pieces> {
        let may_be = matches!(P::OWNERS, None | Some(PageblockOwners::Cpus));
        if P::Storage::EXACT && may_be { self.pieces } else { None }
    }

    /// Whether a block is of a pageblock that this pageset's CPU owns.
    pub(crate) fn kind_of(&self, number: u32) -> Kind {
        let is_ours = self.frames.owned(number).owner() == Some(self.owner.cpu);
        if is_ours { Kind::Owned } else { Kind::Cached }
    }

    /// The CPU that owns the lists.
    #[inline(always)]
    pub(crate) fn owner(&self) -> &'m Owner<P> {
        self.owner
    }

    /// The frames of the zone.
    #[inline(always)]
    pub(crate) fn frames(&self) -> &ZoneFrames<'m> {
        &self.frames
    }

    /// The word of a block from list `index` while somebody has it and nobody has its lock.
    #[inline(always)]
    pub(crate) fn held_word(&self, index: usize) -> Word {
        match self.held_words.get(index) {
            Some(word) => Word::of_bits(word.load(Ordering::Relaxed)),
            None => self.frames.allocated(list_order(index), list_type(index)),
        }
    }

    /// The list that takes a block whose word was `held`, under nearpage's own rules: the one that blocks of its order and type
    /// come from, but for single pages that it did not give in its last refills.
    #[inline]
    pub(crate) fn list_of_freed(&self, held: Word, order: Order) -> Option<usize> {
        // What came out of the reserve goes back there.
        let of = Some(held.migratetype()).filter(|of| of.is_mergeable())?;
        let list = list_index(order, of)?;
        let word = self.held_word(list);
        let is_hot = order > Order(0) || held == word || held == word.with_last_tag();
        Some(if is_hot { list } else { COLD })
    }

    /// From now on, blocks from list `index` are told apart from those that it gave before.
    pub(crate) fn begin_tag(&self, index: usize) {
        let word = self.held_word(index).with_next_tag();
        self.held_words[index].store(word.bits(), Ordering::Relaxed);
    }

    /// What the CPU may take past its lists, under nearpage's own rules.
    #[inline(always)]
    pub(crate) fn quota(&self) -> Option<&'m Quota> {
        match P::OWNERS {
            None => self.quota,
            Some(PageblockOwners::Quotas) => Some(self.quota.expect(QUOTA_OF_EACH)),
            Some(_) => None,
        }
    }

    /// The zone that the pages are of.
    #[inline(always)]
    pub fn zone(&self) -> &'m Zone<'m, P> {
        self.zone
    }

    /// List `index`.
    #[inline(always)]
    pub(crate) fn list(&self, index: usize) -> &List<'m, P> {
        &self.lists[index]
    }

    /// Blocks on all lists.
    pub(crate) fn blocks(&self) -> u64 {
        self.lists().map(|list| u64::from(list.count())).sum()
    }

    /// All lists, by their numbers.
    pub(crate) fn lists(&self) -> impl Iterator<Item = &List<'m, P>> + Clone {
        self.lists[..self.list_count()].iter()
    }

    /// How many lists there are.
    pub fn list_count(&self) -> usize {
        if self.quota.is_some() { ALL_LISTS } else { LISTS }
    }

    /// Events, to be counted.
    pub(crate) fn events(&self) -> &PagesetEvents {
        &self.events
    }

    /// What happened to the pageset so far.
    pub fn counts(&self) -> PagesetCounts {
        let events = &self.events;
        PagesetCounts {
            refills: events.refills.get(),
            refilled_pages: PageCount(events.refilled_pages.get()),
            drains: events.drains.get(),
            drained_pages: PageCount(events.drained_pages.get()),
            high_order_drains: events.high_order_drains.get(),
            shared_writes: self.quota.map_or(0, |quota| quota.shared_writes.get()),
        }
    }

    /// The CPU that caches the pages.
    pub fn cpu(&self) -> CpuId {
        self.owner.cpu
    }

    /// What the list with this number holds and has seen; the numbers are those of
    /// [`list_index`](super::list_index).
    ///
    /// # Panics
    /// If there are not so many lists.
    pub fn list_counts(&self, index: usize) -> ListCounts {
        self.counts_of(index)
    }

    /// Calls `each` with the first frame of every block on a list, hottest first. Only while no other thread uses the
    /// pageset: what the answer is otherwise means nothing, and it may not end.
    ///
    /// # Panics
    /// If there are not so many lists.
    #[doc(hidden)]
    pub fn for_each_block(&self, index: usize, mut each: impl FnMut(Pfn)) {
        let each = &mut |number| each(self.frames.pfn(number));
        match self.pieces() {
            None => P::Storage::for_each(self.list(index), &self.frames, each),
            Some(pieces) => {
                pieces.for_each(&self.frames, list_order(index), list_type(index), each);
            }
        }
    }

    /// The tuning state now.
    #[inline]
    pub fn tuning(&self) -> Tuning {
        self.tuning.load()
    }

    /// Stores what a decision changed. The settings stay: whoever resizes may have changed them since the
    /// state was read.
    #[inline]
    pub(crate) fn set_tuning(&self, tuning: Tuning) {
        self.tuning.store(tuning, SETTING_WORDS..WORDS);
    }

    /// Stores new settings, and the state with them. The caller holds the lock that serializes settings.
    pub(crate) fn set_settings(&self, tuning: Tuning) {
        self.tuning.store(tuning, 0..WORDS);
    }

    /// Takes the hottest block of a list.
    #[inline(always)]
    pub(crate) fn pop(&self, platform: &P, on: &OnCpu<'_, P>, index: usize) -> Pop {
        let popped = match self.pieces() {
            None => platform.storage().pop(on, self.list(index), &self.frames),
            Some(pieces) => self.pop_piece(platform, pieces, index),
        };
        if P::Storage::EXACT && popped.frame().is_some() {
            self.note_change(index, 0, 1);
        }
        popped
    }

    /// Puts a block at the hot end of a list.
    #[inline(always)]
    pub(crate) fn push(&self, platform: &P, on: &OnCpu<'_, P>, index: usize, number: u32) -> Push {
        let pushed = match self.pieces() {
            None => platform.storage().push(on, self.list(index), &self.frames, number),
            Some(pieces) => self.push_piece(platform, pieces, index, number),
        };
        if pushed.is_done() {
            self.note_change(index, 1, 0);
        }
        pushed
    }

    /// Takes up to `out.len()` blocks from the hot end of a list, hottest first; returns how many.
    #[inline]
    pub(crate) fn pop_batch(
        &self,
        platform: &P,
        on: &OnCpu<'_, P>,
        index: usize,
        out: &mut [u32],
    ) -> usize {
        let popped = match self.pieces() {
            None => platform.storage().pop_batch(on, self.list(index), &self.frames, out),
            Some(pieces) => {
                let next = || self.pop_piece(platform, pieces, index).frame();
                let slots = out.iter_mut().zip(core::iter::from_fn(next));
                slots.map(|(slot, number)| *slot = number).count()
            }
        };
        self.note_change(index, 0, popped as u64);
        popped
    }

    /// Puts blocks at the hot end of a list, the last one hottest, as far as its limit allows; returns how many.
    #[inline]
    pub(crate) fn push_batch(
        &self,
        platform: &P,
        on: &OnCpu<'_, P>,
        index: usize,
        numbers: &[u32],
    ) -> usize {
        let pushed = match self.pieces() {
            None => platform.storage().push_batch(on, self.list(index), &self.frames, numbers),
            Some(pieces) => {
                numbers.iter().for_each(|&number| {
                    let _ = self.push_piece(platform, pieces, index, number);
                });
                numbers.len()
            }
        };
        self.note_change(index, pushed as u64, 0);
        pushed
    }

    /// Appends adjoining blocks from `first` on at the cold end of a list, as far as there is room; returns how many.
    pub(crate) fn append_run(
        &self,
        storage: &P::Storage,
        on: &OnCpu<'_, P>,
        index: usize,
        first: u32,
        blocks: u32,
    ) -> u32 {
        let (list, order) = (self.list(index), list_order(index));
        let appended = match self.pieces() {
            None => storage.append_run(on, list, &self.frames, first, order, blocks),
            Some(pieces) => {
                let numbers = (0..blocks).map(|block| first + (block << order.0));
                for number in numbers {
                    let kind = self.kind_of(number);
                    let of = list_type(index);
                    pieces.push(&self.frames, number, order, (kind, of), ListEnd::Tail);
                }
                blocks
            }
        };
        self.note_change(index, appended as u64, 0);
        appended
    }

    /// Takes up to `out.len()` blocks from the cold end of a list, coldest first; returns how many.
    pub(crate) fn pop_cold(
        &self,
        storage: &P::Storage,
        on: &OnCpu<'_, P>,
        index: usize,
        out: &mut [u32],
    ) -> usize {
        let taken = storage.pop_cold(on, self.list(index), &self.frames, out);
        self.note_change(index, 0, taken as u64);
        taken
    }

    /// The line of what each operation changes, for [`Platform::touch`]: where CPUs own pageblocks, others come to it too.
    pub(crate) fn line(&self) -> *const () {
        (&raw const self.pages).cast()
    }

    #[cold]
    fn pop_piece(&self, platform: &P, pieces: &Pieces, index: usize) -> Pop {
        platform.touch(self.line(), Access::Write);
        let touch = |number| platform.touch_page(self.frames.pfn(number), Access::Write);
        match pieces.pop(&self.frames, list_order(index), list_type(index), touch) {
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
        pieces.push(&self.frames, number, order, (kind, of), ListEnd::Head);
        pieces.note(index, 1, 0);
        Push::DONE
    }

    /// Counts pages that came to the pieces and left them otherwise than one by one.
    pub(crate) fn note_pieces(&self, came: u64, left: u64) {
        self.pages.add(came.wrapping_sub(left));
    }

    /// What list `index` holds and has seen; under rules with owners, the pieces of its order and type.
    fn counts_of(&self, index: usize) -> ListCounts {
        let Some(pieces) = self.pieces() else { return self.list(index).counts() };
        let (pushes, pops) = pieces.seen(index);
        let count = pieces.count(list_order(index), list_type(index));
        ListCounts { count, pops, pushes }
    }

    #[inline(always)]
    fn note_change(&self, index: usize, added: u64, taken: u64) {
        if P::Storage::EXACT {
            self.pages.add(added.wrapping_sub(taken) << list_order(index).0);
        }
    }

    /// Pages in the pageset.
    #[inline]
    pub fn count(&self) -> PageCount {
        let quota = self.quota.map_or(0, |quota| quota.pages().0);
        PageCount(self.listed().0 + quota)
    }

    /// Pages on the lists, or in the pieces.
    #[inline]
    pub(crate) fn listed(&self) -> PageCount {
        if P::Storage::EXACT {
            return PageCount(self.pages.get());
        }
        let pages =
            |(index, list): (usize, &List<'m, P>)| (list.count() as u64) << list_order(index).0;
        PageCount(self.lists().enumerate().map(pages).sum())
    }

    /// What all lists hold and have seen.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for index in 0..self.list_count() {
            let ListCounts { count, pops, pushes } = self.counts_of(index);
            let order = list_order(index).0;
            totals.count.0 += (count as u64) << order;
            totals.allocs = totals.allocs.wrapping_add(pops);
            totals.alloc_pages = totals.alloc_pages.wrapping_add(pops << order);
            totals.freed_pages = totals.freed_pages.wrapping_add(pushes << order);
        }
        if self.pieces().is_some() {
            totals.count = self.count();
        }
        if let Some(quota) = self.quota() {
            totals.count = self.count();
            let past_lists = quota.pages_put.get().wrapping_sub(quota.pages_listed.get());
            totals.freed_pages = totals.freed_pages.wrapping_add(past_lists);
            let (blocks, pages) = (&self.events.given_blocks, &self.events.given_pages);
            totals.allocs = totals.allocs.wrapping_add(blocks.get());
            totals.alloc_pages = totals.alloc_pages.wrapping_add(pages.get());
        }
        totals
    }

    /// The tuning state for a decision: if the storage is not exact, with the operations since the
    /// last decision folded in.
    pub(crate) fn tuning_for_decision(&self, rules: &PcpRules) -> (Tuning, Totals) {
        let mut tuning = self.tuning();
        let totals = self.totals();
        if !P::Storage::EXACT {
            let allocs = totals.allocs.wrapping_sub(self.tuning.allocs_seen.get());
            let freed_pages = totals.freed_pages.wrapping_sub(self.tuning.freed_pages_seen.get());
            self.tuning.allocs_seen.set(totals.allocs);
            self.tuning.freed_pages_seen.set(totals.freed_pages);
            tuning.absorb(rules, allocs, freed_pages);
        }
        (tuning, totals)
    }

    /// Notes an allocation and what it left, for rules that want to know: not where the CPU has a quota. Nothing on storages that
    /// are not exact.
    #[inline(always)]
    pub(crate) fn note_alloc(&self, rules: &PcpRules, popped: Pop) {
        if P::Storage::EXACT && self.quota().is_none() {
            let mut tuning = self.tuning();
            tuning.before_alloc(rules);
            if popped.frame().is_some() && rules.counts_unused() {
                tuning.after_alloc(self.count());
            }
            self.set_tuning(tuning);
        }
    }

    /// Notes what a refill and its allocation left, for rules that want to know.
    pub(crate) fn note_left(&self, rules: &PcpRules) {
        if P::Storage::EXACT && rules.counts_unused() {
            let mut tuning = self.tuning();
            tuning.after_alloc(self.count());
            self.set_tuning(tuning);
        }
    }

    /// Splits `high` over the lists as their limits; most of it goes to list `busy`. As long as more is out than a
    /// hard limit allows, the lists are closed instead.
    pub(crate) fn share_high(&self, tuning: &Tuning, busy: usize) {
        if P::Storage::EXACT {
            return;
        }
        if !self.zone.is_over_limit() {
            self.open(tuning, busy);
        }
        // A limit may have come meanwhile.
        if self.zone.is_over_limit() {
            self.close();
        }
    }

    /// Lets the lists take nothing, until [`share_high`](Self::share_high): each free is a slow event then. Nothing on
    /// storages that are exact, which ask after each free.
    pub(crate) fn close(&self) {
        for list in self.lists() {
            list.set_limit(0);
        }
    }

    /// The most blocks that a list holds where its CPU has a quota.
    pub(crate) fn limit_of(&self, index: usize, size: QuotaSize) -> u32 {
        if index == COLD { COLD_MAX } else { size.list_limit(list_order(index)) }
    }

    /// Gives the lists the limits that follow from how much may be kept; nothing while they are closed.
    pub(crate) fn set_limits(&self, size: QuotaSize) {
        if P::Storage::EXACT || self.zone.is_over_limit() {
            return;
        }
        for (index, list) in self.lists().enumerate() {
            list.set_limit(self.limit_of(index, size));
        }
        // A limit may have come meanwhile.
        if self.zone.is_over_limit() {
            self.close();
        }
    }

    fn open(&self, tuning: &Tuning, busy: usize) {
        if let Some(quota) = self.quota {
            return self.set_limits(quota.size());
        }
        let mut left = tuning.high.0;
        for (index, list) in self.lists().enumerate().filter(|(index, _)| *index != busy) {
            let order = list_order(index).0;
            let room = (tuning.batch.0 >> order).max(1);
            let blocks = list.counts().count as u64 + room;
            list.set_limit(blocks.min(u32::MAX as u64) as u32);
            left = left.saturating_sub((blocks - room) << order);
        }
        let blocks = (left >> list_order(busy).0).clamp(1, u32::MAX as u64);
        self.lists[busy].set_limit(blocks as u32);
    }
}

/// Sums over the lists of a pageset.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Totals {
    /// Pages on the lists now.
    pub count: PageCount,
    /// Blocks handed out.
    pub allocs: u64,
    /// Pages of those.
    pub alloc_pages: u64,
    /// Pages given back.
    pub freed_pages: u64,
}

/// Tuning state in per-CPU memory. A reader on another CPU may see words of two moments.
#[derive(Debug, Default)]
struct TuningCell {
    words: [AtomicU64; WORDS],
    allocs_seen: OwnedCounter,
    freed_pages_seen: OwnedCounter,
}

impl TuningCell {
    #[inline]
    fn load(&self) -> Tuning {
        Tuning::from_words(core::array::from_fn(|at| self.words[at].load(Ordering::Relaxed)))
    }

    #[inline]
    fn store(&self, tuning: Tuning, which: Range<usize>) {
        for (cell, word) in self.words[which.clone()].iter().zip(&tuning.to_words()[which]) {
            cell.store(*word, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::machine::TestMachine;
    use crate::units::CpuId;

    #[test]
    fn a_decision_on_old_settings_leaves_new_ones() {
        let machine = TestMachine::new().node(0, 32_768, &[0]);
        machine.run(|allocator| {
            let pageset = &allocator.pagesets(CpuId(0)).expect("the CPU is there")[0];
            let decision = Tuning { free_count: PageCount(5), ..pageset.tuning() };
            let mut settings = allocator.settings();
            settings.percpu_pagelist_high_fraction = 100;
            allocator.set_settings(settings).expect("100 is accepted");
            let resized = pageset.tuning();
            assert_ne!(resized.high_max, decision.high_max);
            pageset.set_tuning(decision);
            let expected = Tuning { high: decision.high, free_count: PageCount(5), ..resized };
            assert_eq!(pageset.tuning(), expected);
        });
    }
}
