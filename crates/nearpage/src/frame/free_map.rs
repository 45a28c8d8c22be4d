//! Which pages of a pageblock are free: 512 bits, and what follows from them.
//!
//! Pure: a map is a value. [`crate::places::map`] has the maps of a machine, where they lie.

use core::ops::Range;

use crate::units::{ORDERS, Order, PAGEBLOCK_ORDER};

const PAGES: usize = 1 << PAGEBLOCK_ORDER.0;
/// Words of a map.
pub(super) const WORDS: usize = PAGES / 64;
/// Orders up to this one lie within a word.
const WORD_ORDER: u8 = 6;

/// By order: a bit for each place within a word where a block of that order may begin.
const HEADS: [u64; WORD_ORDER as usize + 1] = [
    u64::MAX,
    0x5555_5555_5555_5555,
    0x1111_1111_1111_1111,
    0x0101_0101_0101_0101,
    0x0001_0001_0001_0001,
    0x0000_0001_0000_0001,
    1,
];

/// The free pages of a pageblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FreeMap(pub(super) [u64; WORDS]);

impl FreeMap {
    /// No pages.
    pub(crate) const NONE: FreeMap = FreeMap([0; WORDS]);

    /// Those of these words.
    pub(crate) const fn from_words(words: [u64; WORDS]) -> FreeMap {
        FreeMap(words)
    }

    /// Some adjoining pages.
    pub(crate) fn of(pages: Range<u32>) -> FreeMap {
        let mut map = FreeMap::NONE;
        map.add(pages);
        map
    }

    /// Adds adjoining pages.
    #[inline]
    pub(crate) fn add(&mut self, pages: Range<u32>) {
        words_of(pages).for_each(|(at, bits)| self.0[at] |= bits);
    }

    /// Free pages.
    #[inline]
    pub(crate) fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Whether the block of `order` that begins at a page is wholly free.
    #[inline]
    fn has_block(&self, head: u32, order: Order) -> bool {
        let pages = order.pages().0 as u32;
        let at = (head / 64) as usize;
        if order.0 <= WORD_ORDER {
            let (at, bits) = bits_of(head..head + pages);
            return self.0[at] & bits == bits;
        }
        self.0[at..at + pages as usize / 64].iter().all(|&word| word == u64::MAX)
    }

    /// The blocks of `order` that there are if the free pages make up the largest blocks that they can, by their first pages.
    pub(crate) fn heads(self, order: Order) -> impl Iterator<Item = u32> {
        let pages = order.pages().0 as usize;
        let parent = Order(order.0 + 1);
        let is_head = move |&head: &u32| {
            let is_part = || {
                parent <= PAGEBLOCK_ORDER
                    && self.has_block(head & !(parent.pages().0 as u32 - 1), parent)
            };
            order <= PAGEBLOCK_ORDER && self.has_block(head, order) && !is_part()
        };
        (0..PAGES as u32).step_by(pages).filter(is_head)
    }

    /// How many of them there are, by order: of the aligned blocks that are free, those that are not half of a larger one.
    pub(crate) fn blocks(self) -> [u32; PAGEBLOCK_ORDER.0 as usize + 1] {
        let aligned: [u32; ORDERS] = core::array::from_fn(|order| self.aligned_blocks(order as u8));
        core::array::from_fn(|order| aligned[order] - 2 * aligned[order + 1])
    }

    /// How many blocks of an order are free, parts of larger ones too.
    fn aligned_blocks(&self, order: u8) -> u32 {
        if order <= WORD_ORDER {
            return self.0.iter().map(|&word| run_heads(word, Order(order)).count_ones()).sum();
        }
        // A map has no span of an order above a pageblock's.
        let spans = self.0.chunks_exact(1 << (order - WORD_ORDER));
        spans.filter(|span| span.iter().all(|&word| word == u64::MAX)).count() as u32
    }

    /// How many of some pages are free.
    pub(crate) fn pages_between(self, pages: Range<u32>) -> u32 {
        let runs = self.runs().map(|run| run.start.max(pages.start)..run.end.min(pages.end));
        runs.map(|run| run.len() as u32).sum()
    }

    /// The first page from `from` on that is not free.
    pub(crate) fn first_held(&self, from: u32) -> Option<u32> {
        self.next(from, false)
    }

    /// Adjoining free pages, ascending.
    #[inline]
    pub(crate) fn runs(self) -> impl Iterator<Item = Range<u32>> {
        let mut from = 0;
        core::iter::from_fn(move || {
            let first = self.next(from, true)?;
            let end = self.next(first, false).unwrap_or(PAGES as u32);
            from = end;
            Some(first..end)
        })
    }

    /// The first page from `from` on that is free, or that is not.
    #[inline]
    fn next(&self, from: u32, is_free: bool) -> Option<u32> {
        let flip = if is_free { 0 } else { u64::MAX };
        let mut word = from as usize / 64;
        let mut bits = (self.0.get(word)? ^ flip) & u64::MAX << (from % 64);
        while bits == 0 {
            word += 1;
            bits = self.0.get(word)? ^ flip;
        }
        Some(word as u32 * 64 + bits.trailing_zeros())
    }
}

/// The places in a word where free blocks of an order, up to 6, begin.
#[inline]
pub(crate) fn run_heads(word: u64, order: Order) -> u64 {
    let runs = (0..order.0).fold(word, |runs, order| runs & runs >> (1 << order));
    runs & HEADS[order.0 as usize]
}

/// Adjoining pages, word by word: which word, and the pages as bits of it.
#[inline]
pub(super) fn words_of(pages: Range<u32>) -> impl Iterator<Item = (usize, u64)> {
    let mut first = pages.start;
    core::iter::from_fn(move || {
        let end = pages.end.min((first | 63) + 1);
        let word = (first < end).then(|| bits_of(first..end))?;
        first = end;
        Some(word)
    })
}

/// The part of `pages`, which lie in one word, as bits of it, and which word.
#[inline]
fn bits_of(pages: Range<u32>) -> (usize, u64) {
    let count = pages.end - pages.start;
    debug_assert!(count > 0 && pages.start / 64 == (pages.end - 1) / 64, "within a word");
    (pages.start as usize / 64, u64::MAX >> (64 - count) << (pages.start % 64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::random::Random;
    use std_alloc::vec::Vec;

    /// Maps with large and small holes.
    fn maps() -> impl Iterator<Item = FreeMap> {
        let mut random = Random(9);
        (0..3000).map(move |turn| {
            let mut words = [if turn % 2 == 0 { 0 } else { u64::MAX }; WORDS];
            for _ in 0..random.below(12) {
                let order = random.below(10) as u32;
                let first = (random.below(512) as u32) & !((1 << order) - 1);
                for page in first..first + (1 << order) {
                    words[page as usize / 64] ^= 1 << (page % 64);
                }
            }
            FreeMap(words)
        })
    }

    fn is_free(map: &FreeMap, page: u32) -> bool {
        map.0[page as usize / 64] >> (page % 64) & 1 == 1
    }

    /// Free blocks of an order, by trying all places.
    fn naive_heads(map: &FreeMap, order: u8) -> Vec<u32> {
        let heads = (0..512).step_by(1 << order);
        heads.filter(|&head| (head..head + (1 << order)).all(|page| is_free(map, page))).collect()
    }

    #[test]
    fn blocks_are_found_as_by_trying_all_places() {
        for map in maps() {
            let heads: Vec<Vec<u32>> = (0..=9).map(|order| naive_heads(&map, order)).collect();
            for order in 0..=9 {
                let above = |head: &u32| {
                    let parents = heads.get(order + 1);
                    parents.is_some_and(|parents| parents.contains(&(head & !((2 << order) - 1))))
                };
                let expected: Vec<u32> =
                    heads[order].iter().copied().filter(|head| !above(head)).collect();
                let found: Vec<u32> = map.heads(Order(order as u8)).collect();
                assert_eq!(found, expected, "{map:?}, {order}");
                assert_eq!(map.blocks()[order] as usize, expected.len());
            }
            assert_eq!(map.count() as usize, heads[0].len());
        }
    }

    #[test]
    fn runs_are_all_free_pages_and_adjoin_no_other() {
        for map in maps() {
            let runs: Vec<Range<u32>> = map.runs().collect();
            assert!(runs.windows(2).all(|pair| pair[0].end < pair[1].start));
            let pages: Vec<u32> = runs.iter().cloned().flatten().collect();
            assert_eq!(pages, naive_heads(&map, 0));
        }
    }

    #[test]
    fn bits_are_those_of_the_pages() {
        for (pages, expected) in [
            (0..1, (0, 1)),
            (63..64, (0, 1 << 63)),
            (64..128, (1, u64::MAX)),
            (70..73, (1, 7 << 6)),
        ] {
            assert_eq!(bits_of(pages), expected);
        }
    }
}
