//! The storage of pagesets: lists of frame numbers that one CPU owns.
//!
//! Each operation is atomic with respect to the CPU that owns the list: a thread that is moved to another
//! CPU, or interrupted by another thread of its own CPU, sees or leaves a whole list. How that is done
//! differs by host: a restartable sequence, a per-CPU try-lock, or exclusion by construction.
//!
//! A list has a **hot** end, where single pages are popped and pushed, and a **cold** end, where refills
//! append and drains take: the coldest pages go back to the buddy, and a refill from one large block
//! comes out in ascending order (facts 6, 7.3, 7.5).

use crate::frame::ZoneFrames;
use crate::sync::AtomicU32;
use crate::units::{CpuId, Order};

/// The answer of [`Storage::pop`]: a frame number, or `MOVED` or `EMPTY`, which are no frame numbers. One word, so that the
/// fast path needs one comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct Pop(pub u32);

impl Pop {
    /// This thread is not on the list's CPU any more, or the list is being drained from outside.
    pub const MOVED: Pop = Pop(u32::MAX);
    /// The list is empty.
    pub const EMPTY: Pop = Pop(u32::MAX - 1);

    /// The frame number that was hottest.
    #[inline(always)]
    pub const fn frame(self) -> Option<u32> {
        if self.0 < Self::EMPTY.0 { Some(self.0) } else { None }
    }
}

/// The answer of [`Storage::push`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct Push(pub u32);

impl Push {
    /// The frame is on the list.
    pub const DONE: Push = Push(0);
    /// The list holds its limit.
    pub const FULL: Push = Push(1);
    /// As [`Pop::MOVED`].
    pub const MOVED: Push = Push(2);

    /// Whether the frame is on the list.
    #[inline(always)]
    pub const fn is_done(self) -> bool {
        self.0 == Self::DONE.0
    }
}

/// What a list has seen since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ListCounts {
    /// Blocks on the list now.
    pub count: u32,
    /// Blocks popped at the hot end, one at a time or in bulk.
    pub pops: u64,
    /// Blocks pushed at the hot end.
    pub pushes: u64,
}

/// What a list of any storage says of itself, to whoever asks.
pub trait CountedList: Sync {
    /// What the list holds and has seen; exact when its CPU is quiet.
    fn counts(&self) -> ListCounts;

    /// Blocks on the list now, as in [`Self::counts`]; while its CPU is not quiet, about so many.
    #[inline]
    fn count(&self) -> u32 {
        self.counts().count
    }

    /// The most blocks that a push lets the list hold.
    fn limit(&self) -> u32;

    /// Sets the most blocks that a push lets the list hold; returns what was set, at most what fits. A list without a ring
    /// has no limit: it sets nothing and returns `u32::MAX`, as [`limit`](Self::limit) does.
    fn set_limit(&self, blocks: u32) -> u32;

    /// The most blocks that fit.
    fn capacity(&self) -> u32;
}

/// Calls its argument with lists, one after the other: those that [`Storage::stop`] is about.
pub type EachList<'a, L> = dyn Fn(&mut dyn FnMut(&L)) + 'a;

/// How lists are kept.
///
/// `number`s are frame numbers within the zone whose `frames` are passed; a list only ever sees one zone.
pub trait Storage {
    /// One list, whose entries may lie in memory that lives for `'m`.
    type List<'m>: CountedList;
    /// What makes the lists of one CPU exclusive.
    type PerCpu: Sync;
    /// Proof that this thread may use the lists of a CPU.
    type OnCpu<'a>
    where
        Self: 'a;
    /// Whether lists and tuning state move together, so that each operation may update the tuning.
    /// Otherwise the tuning learns of single operations at the next refill or drain only.
    const EXACT: bool;
    /// Whether each operation finds out by itself that this thread is not on the list's CPU, and answers so.
    /// Otherwise who looks for a CPU's lists compares first.
    const CHECKS_CPU: bool = false;

    /// Entries that a list of `order` needs in memory of its own, if the pagesets of a zone may hold
    /// `high_max` pages: a power of two, or 0 for storages that link frames.
    fn ring_entries(order: Order, high_max: u32) -> u32;

    /// The state for `cpu`.
    fn per_cpu(cpu: CpuId) -> Self::PerCpu;

    /// An empty list of `cpu`, with the entries that [`Self::ring_entries`] asked for. Its limit is what fits.
    fn list<'m>(cpu: CpuId, ring: &'m [AtomicU32]) -> Self::List<'m>;

    /// The CPU that this thread runs on, as a hint.
    fn current_cpu(&self) -> CpuId;

    /// Takes hold of the lists of `cpu`; `None` if somebody else is at them.
    fn enter<'a>(&'a self, cpu: CpuId, per_cpu: &'a Self::PerCpu) -> Option<Self::OnCpu<'a>>;

    /// Takes the hottest block.
    fn pop(&self, on: &Self::OnCpu<'_>, list: &Self::List<'_>, frames: &ZoneFrames<'_>) -> Pop;

    /// Puts a block at the hot end.
    fn push(
        &self,
        on: &Self::OnCpu<'_>,
        list: &Self::List<'_>,
        frames: &ZoneFrames<'_>,
        number: u32,
    ) -> Push;

    /// Takes up to `out.len()` blocks from the hot end, hottest first; returns how many.
    fn pop_batch(
        &self,
        on: &Self::OnCpu<'_>,
        list: &Self::List<'_>,
        frames: &ZoneFrames<'_>,
        out: &mut [u32],
    ) -> usize;

    /// Puts blocks at the hot end, the last one hottest, as far as the limit allows; returns how many.
    fn push_batch(
        &self,
        on: &Self::OnCpu<'_>,
        list: &Self::List<'_>,
        frames: &ZoneFrames<'_>,
        numbers: &[u32],
    ) -> usize;

    /// Appends `blocks` adjoining blocks of `order` at the cold end, the one at `first` the hottest of
    /// them, as far as there is room; returns how many, counted from `first`.
    fn append_run(
        &self,
        on: &Self::OnCpu<'_>,
        list: &Self::List<'_>,
        frames: &ZoneFrames<'_>,
        first: u32,
        order: Order,
        blocks: u32,
    ) -> u32;

    /// Takes up to `out.len()` blocks from the cold end, coldest first; returns how many.
    fn pop_cold(
        &self,
        on: &Self::OnCpu<'_>,
        list: &Self::List<'_>,
        frames: &ZoneFrames<'_>,
        out: &mut [u32],
    ) -> usize;

    /// Calls `each` for every block, hottest first. Only while nobody uses the list.
    fn for_each(list: &Self::List<'_>, frames: &ZoneFrames<'_>, each: &mut dyn FnMut(u32));

    /// Takes hold of the lists of another CPU, so that no thread there can use them until the proof is
    /// dropped. `lists` calls its argument with every list of that CPU that will be used.
    /// `None` if somebody else drains that CPU, or a thread there is in the midst of an operation: this call does not wait
    /// for long.
    fn stop<'a>(
        &'a self,
        cpu: CpuId,
        per_cpu: &'a Self::PerCpu,
        lists: &EachList<'_, Self::List<'_>>,
    ) -> Option<Self::OnCpu<'a>>;

    /// Ends what [`Self::stop`] began; the proof is dropped afterwards.
    fn resume(&self, on: Self::OnCpu<'_>, lists: &EachList<'_, Self::List<'_>>);
}
