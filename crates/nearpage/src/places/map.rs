//! The free pages of a pageblock, a bit each: anybody adds pages with one OR, and takes them with one AND.
//!
//! What an AND gives back as set is the caller's; no bit is ever on its way to somebody. A map whose last bit comes is emptied
//! in one go, and its pageblock is whole: that is one bit elsewhere ([`super::zone_maps`]).

use crate::sync::{AtomicU64, Cell64, Ordering, point};

/// Adds and takes of words, and looks at the others afterwards, must be seen in one order: of two who bring the last pages
/// of two words, one must see all.
const ORDER: Ordering = Ordering::SeqCst;

/// All pages of a word.
const ALL: u64 = u64::MAX;

/// The words of a map.
#[derive(Debug)]
pub struct Map<'m, W = AtomicU64>(pub &'m [W]);

impl<W> Clone for Map<'_, W> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<W> Copy for Map<'_, W> {}

/// What an [`put`](Map::put) made of a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Put {
    /// It was empty.
    First,
    /// Neither.
    More,
    /// All of its pages are free.
    Full,
}

impl<W: Cell64> Map<'_, W> {
    /// Adds pages of a word.
    ///
    /// # Panics
    /// If one of them is there: it was freed twice.
    #[inline]
    pub fn put(self, word: usize, pages: u64) -> Put {
        point();
        let old = self.0[word].set(pages, ORDER);
        assert!(old & pages == 0, "freed twice");
        match old {
            _ if old | pages == ALL => Put::Full,
            0 => Put::First,
            _ => Put::More,
        }
    }

    /// Takes those of some pages of a word that are there.
    #[inline]
    pub fn take(self, word: usize, pages: u64) -> u64 {
        point();
        self.0[word].clear(pages, ORDER) & pages
    }

    /// The free pages of a word, now.
    #[inline]
    pub fn look(self, word: usize) -> u64 {
        self.0[word].load(Ordering::Relaxed)
    }

    /// How many pages are free, now.
    #[inline]
    pub fn count(self) -> u32 {
        self.0.iter().map(|word| word.load(ORDER).count_ones()).sum()
    }

    /// Takes all pages of some words, or none.
    pub fn take_words(self, words: core::ops::Range<usize>) -> bool {
        for word in words.clone() {
            point();
            if self.0[word].replace(ALL, 0, ORDER, ORDER).is_err() {
                (words.start..word).for_each(|taken| {
                    self.0[taken].set(ALL, ORDER);
                });
                return false;
            }
        }
        true
    }

    /// Takes the pages of all words, if all are there; returns whether. While somebody tries, others may miss pages for a
    /// moment. Of those who bring last pages at once, one succeeds.
    #[cold]
    pub fn take_all(self) -> bool {
        while self.0.iter().all(|word| word.load(ORDER) == ALL) {
            if self.take_words(0..self.0.len()) {
                return true;
            }
        }
        false
    }

    /// Adds all pages. For who has all of them: nobody else changes an empty map of a pageblock that is not whole.
    pub fn fill(self) {
        self.0.iter().for_each(|word| {
            word.set(ALL, ORDER);
        });
    }
}
