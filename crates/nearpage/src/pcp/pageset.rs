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

use super::pieces::Pieces;
use super::storage::{CountedList, ListCounts, Pop, Push, Storage};
use super::tuning::{PcpRules, SETTING_WORDS, Tuning, WORDS};
use super::{ALL_LISTS, LISTS, list_order, list_type};
use crate::check_error::CheckError;
use crate::frame::{Word, ZoneFrames};
use crate::host::Platform;
use crate::places::quota::Quota;
use crate::rule_set::{ByModel, CacheByModel, HasMaps, RuleParts, rules};
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
    cache: CacheOf<'m, P>,
}

/// What a CPU has of a zone beside its lists.
pub(crate) type CacheOf<'m, P> = <<P as Platform>::Rules as RuleParts>::Cache<'m>;

rules! {
    /// What rules do to a pageset.
    trait PagesetRules: RuleParts;

    /// Takes the hottest block of a list.
    fn pop(pageset: &Pageset, platform: &P, on: &OnCpu<'_, P>, index: usize) -> Pop
        => { platform.storage().pop(on, pageset.list(index), pageset.frames()) }
        | pop_piece_or_listed;
    /// Puts a block at the hot end of a list.
    fn push(pageset: &Pageset, platform: &P, on: &OnCpu<'_, P>, index: usize, number: u32) -> Push
        => { platform.storage().push(on, pageset.list(index), pageset.frames(), number) }
        | push_piece_or_listed;
    /// Takes up to `out.len()` blocks from the hot end of a list, hottest first; returns how many.
    fn pop_batch(pageset: &Pageset, platform: &P, on: &OnCpu<'_, P>, index: usize, out: &mut [u32]) -> usize
        => { platform.storage().pop_batch(on, pageset.list(index), pageset.frames(), out) }
        | pop_pieces_or_listed;
    /// Puts blocks at the hot end of a list, the last one hottest, as far as its limit allows; returns how many.
    fn push_batch(pageset: &Pageset, platform: &P, on: &OnCpu<'_, P>, index: usize, numbers: &[u32]) -> usize
        => { platform.storage().push_batch(on, pageset.list(index), pageset.frames(), numbers) }
        | push_pieces_or_listed;
    /// Appends adjoining blocks at the cold end of a list, as far as there is room; returns how many.
    fn append_run(
        pageset: &Pageset,
        storage: &P::Storage,
        on: &OnCpu<'_, P>,
        index: usize,
        first: u32,
        blocks: u32,
    ) -> u32 => { storage.append_run(on, pageset.list(index), pageset.frames(), first, list_order(index), blocks) }
        | append_pieces_or_listed;
    /// Calls `each` with every block on a list, hottest first.
    fn for_each_block(pageset: &Pageset, index: usize, each: &mut dyn FnMut(u32)) => { P::Storage::for_each(pageset.list(index), pageset.frames(), each) }
        | each_piece_or_listed;
    /// What a list holds and has seen.
    fn counts_of(pageset: &Pageset, index: usize) -> ListCounts
        => { pageset.list(index).counts() } | counts_of_pieces_or_listed;
    /// Whether a list has no block for a pop.
    fn is_empty(pageset: &Pageset, index: usize) -> bool
        => { pageset.list(index).count() == 0 } | { !pageset.has_pieces() && pageset.list(index).count() == 0 };
    /// Blocks on lists, and changes of the pieces.
    fn changes(pageset: &Pageset) -> (u64, u64) => { (pageset.blocks(), 0) } | changes_of_pieces;
    /// Whether frees go to the CPU that owns a pageblock.
    fn frees_to_owners(pageset: &Pageset) -> bool => { false } | has_pieces;
    /// Marks blocks that the CPU has beside its lists, in a walk; returns their pages.
    fn mark_beside(
        pageset: &Pageset,
        mark: impl Fn(u32, Order) -> Result<(), CheckError>,
    ) -> Result<u64, CheckError> => { Ok(0) } | mark_pieces;
    /// Pages that the CPU may take beside its lists.
    fn beside(pageset: &Pageset) -> PageCount => { pageset.quota().pages() } | { PageCount(0) };
    /// Writes to words that all CPUs share.
    fn shared_writes(pageset: &Pageset) -> u64 => { pageset.quota().shared_writes.get() } | { 0 };
    /// What the lists do not tell.
    fn complete(pageset: &Pageset, totals: &mut Totals) => add_quota_to | count_pieces_in;
    /// Notes an allocation and what it left; nothing on storages that are not exact.
    fn note_alloc(pageset: &Pageset, rules: &PcpRules, popped: Pop) => {} | note_alloc_in_tuning;
    /// Notes what a refill and its allocation left, for rules that want to know.
    fn note_left(pageset: &Pageset, rules: &PcpRules) => {} | note_left_in_tuning;
    /// Whether a block is allocated, and goes to list `list` of its order when it is freed; its word is `was`.
    fn goes_to_list(pageset: &Pageset, list: usize, was: Word, held: Word, number: u32, order: Order) -> bool
        => { was == held } | is_type_of_list;
    /// Gives the lists their limits; most of what may be kept goes to list `busy`.
    fn open(pageset: &Pageset, tuning: &Tuning, busy: usize)
        => { pageset.set_limits(pageset.quota().size()) } | open_by_tuning;
    /// The most pages that a pageset can be tuned for, and how many times that it keeps in all, if there is a budget. A quota has
    /// no bound of its own, and lists come on top of it.
    fn bounds(pageset: &Pageset) -> (u64, u64) => { (u64::MAX, 3) } | bounds_of_lists;
}

impl<P: Platform<Rules = ByModel>> Pageset<'_, P> {
    #[inline(always)]
    fn has_maps(&self) -> bool {
        matches!(self.cache, CacheByModel::Places(_))
    }
}

impl<'m, P: Platform<Rules: HasMaps>> Pageset<'m, P> {
    /// What the CPU may take past its lists.
    #[inline(always)]
    pub(crate) fn quota(&self) -> &'m Quota {
        P::Rules::quota(self.cache)
    }
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
        let cache = P::Rules::cache(pieces, quota);
        Self { zone, frames, held_words, owner, lists, tuning, pages, events, cache }
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
        P::Rules::lists(self.cache)
    }

    pub(crate) fn cache(&self) -> CacheOf<'m, P> {
        self.cache
    }

    /// Words of blocks from each list while somebody has them, to be changed.
    pub(crate) fn held_words(&self) -> &[AtomicU32; LISTS] {
        &self.held_words
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
            shared_writes: P::Rules::shared_writes(self),
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
        P::Rules::counts_of(self, index)
    }

    /// Calls `each` with the first frame of every block on a list, hottest first. Only while no other thread uses the
    /// pageset: what the answer is otherwise means nothing, and it may not end.
    ///
    /// # Panics
    /// If there are not so many lists.
    #[doc(hidden)]
    pub fn for_each_block(&self, index: usize, mut each: impl FnMut(Pfn)) {
        P::Rules::for_each_block(self, index, &mut |number| each(self.frames.pfn(number)));
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
        let popped = P::Rules::pop(self, platform, on, index);
        if P::Storage::EXACT && popped.frame().is_some() {
            self.note_change(index, 0, 1);
        }
        popped
    }

    /// Puts a block at the hot end of a list.
    #[inline(always)]
    pub(crate) fn push(&self, platform: &P, on: &OnCpu<'_, P>, index: usize, number: u32) -> Push {
        let pushed = P::Rules::push(self, platform, on, index, number);
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
        let popped = P::Rules::pop_batch(self, platform, on, index, out);
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
        let pushed = P::Rules::push_batch(self, platform, on, index, numbers);
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
        let appended = P::Rules::append_run(self, storage, on, index, first, blocks);
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

    #[inline(always)]
    fn note_change(&self, index: usize, added: u64, taken: u64) {
        if P::Storage::EXACT {
            self.pages.add(added.wrapping_sub(taken) << list_order(index).0);
        }
    }

    /// Counts pages that came and left otherwise than one by one, on exact storages.
    pub(crate) fn note_pages(&self, came: u64, left: u64) {
        self.pages.add(came.wrapping_sub(left));
    }

    /// Pages in the pageset.
    #[inline]
    pub fn count(&self) -> PageCount {
        PageCount(self.listed().0 + P::Rules::beside(self).0)
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
            let ListCounts { count, pops, pushes } = P::Rules::counts_of(self, index);
            let order = list_order(index).0;
            totals.count.0 += (count as u64) << order;
            totals.allocs = totals.allocs.wrapping_add(pops);
            totals.alloc_pages = totals.alloc_pages.wrapping_add(pops << order);
            totals.freed_pages = totals.freed_pages.wrapping_add(pushes << order);
        }
        P::Rules::complete(self, &mut totals);
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

    /// Splits `high` over the lists as their limits; most of it goes to list `busy`. As long as more is out than a
    /// hard limit allows, the lists are closed instead.
    pub(crate) fn share_high(&self, tuning: &Tuning, busy: usize) {
        if P::Storage::EXACT {
            return;
        }
        if !self.zone.is_over_limit() {
            P::Rules::open(self, tuning, busy);
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
