//! Which pages of a pageblock are loose: free, and not merged yet (`buddy::loose`).

use super::ListEnd;
use super::free_map::words_of;
use super::owner_word::OwnerWord;
use crate::sync::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use crate::units::{CpuId, PAGEBLOCK_ORDER};

const PAGEBLOCK_PAGES: usize = 1 << PAGEBLOCK_ORDER.0;

/// A bit for each page of a pageblock. A line, and to add or to take a page touches no other: CPUs that free pages of
/// each other's pageblocks take these lines from each other.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct LoosePages {
    bits: [AtomicU64; PAGEBLOCK_PAGES / 64],
}

impl LoosePages {
    /// The words of the bits.
    #[inline]
    pub(super) fn words(&self) -> &[AtomicU64; PAGEBLOCK_PAGES / 64] {
        &self.bits
    }

    /// Adds the page at `at` (modulo a pageblock) if it is neither there already nor the first one nor the last one that
    /// was missing; returns whether.
    #[inline(always)]
    pub fn insert_among_others(&self, at: u32) -> bool {
        let index = at as usize % PAGEBLOCK_PAGES / 64;
        let before = self.bits[index].load(Ordering::Relaxed);
        let after = before | 1 << (at % 64);
        let mut words = self.bits.iter().map(|word| word.load(Ordering::Relaxed));
        let is_usual = match before {
            _ if before == after => false,
            0 => words.any(|word| word != 0),
            _ if after == u64::MAX => words.filter(|&word| word != u64::MAX).count() > 1,
            _ => true,
        };
        if is_usual {
            self.bits[index].store(after, Ordering::Relaxed);
        }
        is_usual
    }
}

/// A pageblock's place on the list of those that have loose pages.
#[derive(Debug)]
pub struct LooseEntry {
    /// Next and previous pageblock, by [`ListEnd`]; they mean something while there are pages.
    links: [AtomicU32; 2],
    /// The lane; under rules with owners of pageblocks, what [`super::owners`] and [`super::pageblock`] say.
    state: AtomicU16,
    owner: OwnerWord<AtomicU16>,
}

impl LooseEntry {
    /// The CPU that owns the pageblock.
    #[inline]
    pub(super) fn owner(&self) -> Option<CpuId> {
        self.owner.owner()
    }

    /// Makes a CPU the owner, or nobody.
    #[inline]
    pub(super) fn set_owner(&self, cpu: Option<CpuId>) {
        self.owner.set_owner(cpu);
    }

    /// The word that rules with owners of pageblocks keep here.
    #[inline]
    pub(super) fn state(&self) -> &AtomicU16 {
        &self.state
    }

    /// The neighbour on the list on the side away from `end`, by its number.
    #[inline]
    pub(super) fn link(&self, end: ListEnd) -> u32 {
        self.links[end as usize].load(Ordering::Relaxed)
    }

    /// Sets what [`link`](Self::link) returns.
    #[inline]
    pub(super) fn set_link(&self, end: ListEnd, number: u32) {
        self.links[end as usize].store(number, Ordering::Relaxed);
    }
}

/// The loose pages of a pageblock. Written under the lock of the zone; of a pageblock that zones share nothing is used.
#[derive(Clone, Copy)]
pub struct LooseMap<'m> {
    bits: &'m [AtomicU64; PAGEBLOCK_PAGES / 64],
    entry: &'m LooseEntry,
}

/// What a [`LooseMap`] is after a page was added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filled {
    /// The page is the only one.
    First,
    /// There were some and there is room.
    More,
    /// All pages of the pageblock are there.
    All,
}

impl<'m> LooseMap<'m> {
    #[inline(always)]
    pub(super) fn new(pages: &'m LoosePages, entry: &'m LooseEntry) -> Self {
        Self { bits: &pages.bits, entry }
    }

    /// Adds `pages` adjoining pages, fewer than all, from `at` (modulo a pageblock) on. [`Filled::First`] if there were
    /// none before.
    ///
    /// # Panics
    /// If one of them is there already: it was freed twice.
    pub fn insert_run(&self, at: u32, pages: u32) -> Filled {
        let at = at % PAGEBLOCK_PAGES as u32;
        let was_empty = self.is_empty();
        words_of(at..at + pages).for_each(|(index, pages)| self.add(index, pages));
        match was_empty {
            true => Filled::First,
            false if self.bits.iter().all(|word| word.load(Ordering::Relaxed) == u64::MAX) => {
                Filled::All
            }
            false => Filled::More,
        }
    }

    /// Adds pages of one word.
    #[inline]
    fn add(&self, index: usize, pages: u64) {
        let before = self.bits[index].load(Ordering::Relaxed);
        assert!(before & pages == 0, "freed twice");
        self.bits[index].store(before | pages, Ordering::Relaxed);
    }

    /// Takes all pages out.
    pub fn clear(&self) {
        self.bits.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// Takes out the first adjoining pages, at most `most` and not over a bound of 64; returns the first
    /// of them and how many.
    #[inline]
    pub fn take_run(&self, most: u32) -> Option<(u32, u32)> {
        let index = self.bits.iter().position(|word| word.load(Ordering::Relaxed) != 0)?;
        let bits = self.bits[index].load(Ordering::Relaxed);
        let first = bits.trailing_zeros();
        let run = (bits >> first).trailing_ones().min(most);
        let taken = if run == 64 { u64::MAX } else { ((1 << run) - 1) << first };
        self.bits[index].store(bits & !taken, Ordering::Relaxed);
        Some((index as u32 * 64 + first, run))
    }

    /// Whether there are no pages.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bits.iter().all(|word| word.load(Ordering::Relaxed) == 0)
    }

    /// The pages, ascending.
    pub fn pages(self) -> impl Iterator<Item = u32> + use<'m> {
        let is_in = move |page: &u32| {
            self.bits[*page as usize / 64].load(Ordering::Relaxed) >> (page % 64) & 1 == 1
        };
        (0..PAGEBLOCK_PAGES as u32).filter(is_in)
    }

    /// The lane that the pageblock is listed in while there are pages.
    #[inline]
    pub fn lane(&self) -> usize {
        self.entry.state.load(Ordering::Relaxed) as usize
    }

    /// Sets [`lane`](Self::lane); the pageblock is not listed.
    #[inline]
    pub fn set_lane(&self, lane: usize) {
        self.entry.state.store(lane as u16, Ordering::Relaxed);
    }
}
