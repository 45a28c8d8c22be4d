//! The free pages of one pageblock, where they lie, and its place on a list: what rules keep whose zones know their free
//! pages by pageblock ([`crate::pageblocks`]).
//!
//! ```text
//! map     64 bytes   a bit for each page: free, and with whoever has the pageblock
//! links    8 bytes   neighbours on the list of whoever has it
//! owner    2 bytes   the CPU that has it, or nobody: then its zone has it
//! state    2 bytes   free pages | order of the largest free block | on a list
//! ```
//!
//! **Who writes what.** While a CPU owns the pageblock, that CPU, with hold of its own pageblocks; else who holds the
//! zone's lock. [`owner`](Pageblock::owner) alone is read by others:
//!
//! * Nobody -> a CPU: under the zone's lock, or by a CPU that has every page of the pageblock in its hands.
//! * A CPU -> nobody: by that CPU, under the zone's lock if pages are free. If none is, without it: then the pageblock is on
//!   no list, and the store is the last that the CPU does to it. It releases what the CPU wrote before; whoever becomes
//!   the owner acquires it.

use core::ops::Range;

use super::free_map::{FreeMap, WORDS, words_of};
use super::loose::{LooseEntry, LoosePages};
use crate::sync::{AtomicU64, Ordering};
use crate::units::{CpuId, Order, PAGEBLOCK_ORDER};

/// ```text
/// bit 0-9 free pages  10-13 order of the largest free block, and one more; 0 if there is none  14-15 which list; 0 if none
/// ```
const FREE_MASK: u16 = 0x3ff;
const LARGEST_SHIFT: u32 = 10;
const LARGEST_MASK: u16 = 0xf << LARGEST_SHIFT;
const LIST_SHIFT: u32 = 14;
const LIST_MASK: u16 = 0b11 << LIST_SHIFT;

/// The pages of a pageblock.
pub(crate) const PAGES: u32 = PAGEBLOCK_ORDER.pages().0 as u32;
const _: () = assert!(PAGES <= FREE_MASK as u32, "all pages of a pageblock are counted");

/// The free pages of a pageblock, where they lie.
#[derive(Clone, Copy)]
pub(crate) struct Pageblock<'m> {
    words: &'m [AtomicU64; WORDS],
    entry: &'m LooseEntry,
}

impl<'m> Pageblock<'m> {
    #[inline]
    pub(super) fn new(pages: &'m LoosePages, entry: &'m LooseEntry) -> Self {
        Self { words: pages.words(), entry }
    }

    /// The lines of its map and of what else is known of it, for [`Platform::touch`](crate::Platform::touch).
    #[inline]
    pub(crate) fn lines(self) -> [*const (); 2] {
        [(&raw const *self.words).cast(), (&raw const *self.entry).cast()]
    }

    /// Free pages.
    #[inline]
    pub(crate) fn free(self) -> u32 {
        (self.entry.state().load(Ordering::Relaxed) & FREE_MASK) as u32
    }

    /// Whether all of its pages are free.
    #[inline]
    pub(crate) fn is_whole(self) -> bool {
        self.free() == PAGES
    }

    /// The order of the largest free block, as [`note_largest`](Self::note_largest) saw it last.
    #[inline]
    pub(crate) fn largest(self) -> Option<Order> {
        let one_more = (self.entry.state().load(Ordering::Relaxed) & LARGEST_MASK) >> LARGEST_SHIFT;
        one_more.checked_sub(1).map(|order| Order(order as u8))
    }

    /// The number of the list that it is on, 0 to 2, as [`set_listed`](Self::set_listed) was told.
    #[inline]
    pub(crate) fn listed(self) -> Option<usize> {
        let one_more = (self.entry.state().load(Ordering::Relaxed) & LIST_MASK) >> LIST_SHIFT;
        one_more.checked_sub(1).map(usize::from)
    }

    #[inline]
    fn set_state(self, bits: u16, mask: u16) {
        let state = self.entry.state();
        state.store(state.load(Ordering::Relaxed) & !mask | bits, Ordering::Relaxed);
    }

    #[inline]
    fn set_free(self, pages: u32) {
        // Where nothing is free, there is no largest block.
        let mask = if pages == 0 { FREE_MASK | LARGEST_MASK } else { FREE_MASK };
        self.set_state(pages as u16, mask);
    }

    /// Notes the list that it is on, by a number of 0 to 2.
    #[inline]
    pub(crate) fn set_listed(self, list: Option<usize>) {
        let one_more = list.map_or(0, |list| list as u16 + 1);
        self.set_state(one_more << LIST_SHIFT, LIST_MASK);
    }

    /// Looks for the order of the largest free block.
    #[inline]
    pub(crate) fn note_largest(self) {
        let largest = self.map().largest_order().map_or(0, |order| u16::from(order.0) + 1);
        self.set_state(largest << LARGEST_SHIFT, LARGEST_MASK);
    }

    /// Which pages are free.
    #[inline]
    pub(crate) fn map(self) -> FreeMap {
        FreeMap(core::array::from_fn(|at| self.words[at].load(Ordering::Relaxed)))
    }

    /// Makes pages free, by their place in the pageblock. Returns how many words it wrote.
    ///
    /// # Panics
    /// If one of them is free already.
    #[inline]
    pub(crate) fn add(self, pages: Range<u32>) -> u64 {
        self.set_free(self.free() + (pages.end - pages.start));
        self.change(pages, |word, bits| {
            assert!(word & bits == 0, "freed twice");
            word | bits
        })
    }

    /// Makes the pages of a map free, which has so many. Returns how many words it changed.
    ///
    /// # Panics
    /// If one of them is free already.
    #[inline]
    pub(crate) fn add_map(self, map: &FreeMap, pages: u32) -> u64 {
        // All words are written: which ones a map has is no pattern that a processor could foresee.
        let (mut words, mut were) = (0, 0);
        for (word, &bits) in self.words.iter().zip(&map.0) {
            let free = word.load(Ordering::Relaxed);
            were |= free & bits;
            word.store(free | bits, Ordering::Relaxed);
            words += u64::from(bits != 0);
        }
        assert!(were == 0, "freed twice");
        self.set_free(self.free() + pages);
        words
    }

    /// Takes all free pages out, which are all but those of `held`. Returns how many words it wrote.
    ///
    /// # Panics
    /// If one of those is free.
    pub(crate) fn clear(self, held: &FreeMap) -> u64 {
        let mut words = 0;
        for (word, held) in self.words.iter().zip(held.0) {
            let free = word.load(Ordering::Relaxed);
            assert!(free & held == 0, "freed twice");
            if free != 0 {
                word.store(0, Ordering::Relaxed);
                words += 1;
            }
        }
        self.set_free(0);
        words
    }

    /// Notes that the page at `at` was made free: the largest free block may be around it.
    #[inline]
    pub(crate) fn note_added(self, at: u32) {
        let around = self.map().order_around(at);
        if self.largest().is_none_or(|largest| largest < around) {
            self.set_state((u16::from(around.0) + 1) << LARGEST_SHIFT, LARGEST_MASK);
        }
    }

    /// Takes free pages out, by their place in the pageblock. Returns how many words it wrote.
    ///
    /// # Panics
    /// If one of them is not free.
    #[inline]
    pub(crate) fn remove(self, pages: Range<u32>) -> u64 {
        self.set_free(self.free() - (pages.end - pages.start));
        self.change(pages, |word, bits| {
            assert!(word & bits == bits, "taken twice");
            word & !bits
        })
    }

    #[inline]
    fn change(self, pages: Range<u32>, change: impl Fn(u64, u64) -> u64) -> u64 {
        let mut words = 0;
        for (at, bits) in words_of(pages) {
            let word = &self.words[at];
            word.store(change(word.load(Ordering::Relaxed), bits), Ordering::Relaxed);
            words += 1;
        }
        words
    }

    /// Takes up to `most` adjoining free pages, the first ones.
    #[inline]
    pub(crate) fn take_run(self, most: u32) -> Option<Range<u32>> {
        let mut run = { self.map().runs() }.next()?;
        run.end = run.end.min(run.start + most);
        self.remove(run.clone());
        Some(run)
    }

    /// Takes the first free block of an order up to that of a pageblock.
    #[inline]
    pub(crate) fn take_block(self, order: Order) -> Option<Range<u32>> {
        if self.free() < order.pages().0 as u32 {
            return None;
        }
        let first = self.map().first_block(order)?;
        let block = first..first + order.pages().0 as u32;
        self.remove(block.clone());
        Some(block)
    }

    /// The CPU that owns it.
    #[inline]
    pub(crate) fn owner(self) -> Option<CpuId> {
        self.entry.owner()
    }

    /// Makes a CPU the owner, or nobody.
    #[inline]
    pub(crate) fn set_owner(self, cpu: Option<CpuId>) {
        self.entry.set_owner(cpu);
    }
}

/// The first frame of the pageblock of frame `number`.
#[inline]
pub(crate) const fn first_of(number: u32) -> u32 {
    number & !(PAGES - 1)
}
