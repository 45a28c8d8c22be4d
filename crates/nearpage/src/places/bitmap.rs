//! Bits that any thread sets and clears, with a second level that says which words may have some.
//!
//! A search reads a word of the second level for 4096 bits. That level is a hint: a word that it misses for a moment is one
//! into which somebody is about to set the first bit.

use crate::sync::{AtomicU64, Cell64, Ordering, point};

/// Every access that two threads must see in one order: a bit and the hint of its word, set and looked for.
const ORDER: Ordering = Ordering::SeqCst;

const BITS: u32 = u64::BITS;

/// The bits.
#[derive(Debug)]
pub struct Bitmap<'m, W = AtomicU64> {
    words: &'m [W],
    /// A bit for each word: it may have some.
    hints: &'m [W],
}

impl<'m, W: Cell64> Bitmap<'m, W> {
    /// Words in memory for so many bits: those of the bits, and those of the hints.
    pub const fn words(bits: u32) -> (usize, usize) {
        let words = bits.div_ceil(BITS);
        (words as usize, words.div_ceil(BITS) as usize)
    }

    /// The bits of these words, all clear.
    pub const fn new(words: &'m [W], hints: &'m [W]) -> Self {
        Self { words, hints }
    }

    /// Sets a bit; returns whether it was clear.
    pub fn set(&self, at: u32) -> bool {
        self.set_all(at, place(at).1) != 0
    }

    /// Sets bits of the word that `at` is in, with one write; returns those that were clear.
    pub fn set_all(&self, at: u32, bits: u64) -> u64 {
        let (word, _) = place(at);
        point();
        let old = self.words[word].set(bits, ORDER);
        if old == 0 {
            self.hint(word);
        }
        bits & !old
    }

    /// Clears a bit; returns whether it was set.
    pub fn clear(&self, at: u32) -> bool {
        self.clear_all(at, place(at).1) != 0
    }

    /// Clears bits of the word that `at` is in, with one write; returns those that were set.
    pub fn clear_all(&self, at: u32, bits: u64) -> u64 {
        let (word, _) = place(at);
        point();
        self.words[word].clear(bits, ORDER) & bits
    }

    /// The bits from `at` to the end of its word that are set now.
    pub fn rest(&self, at: u32) -> u64 {
        let (word, bit) = place(at);
        self.words[word].load(ORDER) & !(bit - 1)
    }

    /// Clears a bit and its neighbour, the one at `at ^ 1`, if both are set; returns whether.
    pub fn clear_pair(&self, at: u32) -> bool {
        let (word, bit) = place(at & !1);
        let pair = bit | bit << 1;
        let mut now = self.words[word].load(ORDER);
        while now & pair == pair {
            match self.words[word].replace(now, now & !pair, ORDER, ORDER) {
                Ok(_) => return true,
                Err(other) => now = other,
            }
        }
        false
    }

    /// Whether a bit is set now.
    #[inline]
    pub fn get(&self, at: u32) -> bool {
        let (word, bit) = place(at);
        self.words[word].load(ORDER) & bit != 0
    }

    /// The first bit from `from` on that is set.
    pub fn next(&self, from: u32) -> Option<u32> {
        let (mut word, bit) = place(from);
        let mut bits = self.words.get(word)?.load(ORDER) & !(bit - 1);
        while bits == 0 {
            word = self.next_word(word + 1)?;
            bits = self.words[word].load(ORDER);
            if bits == 0 {
                self.forget(word);
            }
        }
        Some(word as u32 * BITS + bits.trailing_zeros())
    }

    /// The first bit from `from` on that is set and, in `other`, is not.
    pub fn next_without(&self, from: u32, other: &Self) -> Option<u32> {
        let (mut word, bit) = place(from);
        let but = |word: usize, bits: u64| bits & !other.words[word].load(ORDER);
        let mut bits = but(word, self.words.get(word)?.load(ORDER) & !(bit - 1));
        while bits == 0 {
            word = self.next_word(word + 1)?;
            bits = self.words[word].load(ORDER);
            if bits == 0 {
                self.forget(word);
            }
            bits = but(word, bits);
        }
        Some(word as u32 * BITS + bits.trailing_zeros())
    }

    /// The first word from `from` on that may have bits.
    fn next_word(&self, from: usize) -> Option<usize> {
        let (mut at, bit) = place(from as u32);
        let mut hints = self.hints.get(at)?.load(ORDER) & !(bit - 1);
        while hints == 0 {
            at += 1;
            hints = self.hints.get(at)?.load(ORDER);
        }
        Some(at * BITS as usize + hints.trailing_zeros() as usize)
    }

    fn hint(&self, word: usize) {
        let (at, bit) = place(word as u32);
        if self.hints[at].load(ORDER) & bit == 0 {
            self.hints[at].set(bit, ORDER);
        }
    }

    /// Takes the hint of a word away that has no bits. A thread that sets one meanwhile finds no hint and sets it, or this one sees
    /// the bit.
    #[cold]
    fn forget(&self, word: usize) {
        let (at, bit) = place(word as u32);
        self.hints[at].clear(bit, ORDER);
        if self.words[word].load(ORDER) != 0 {
            self.hints[at].set(bit, ORDER);
        }
    }

    /// The line that a bit is on.
    pub fn line(&self, at: u32) -> *const () {
        (&raw const self.words[place(at).0]).cast()
    }
}

const fn place(at: u32) -> (usize, u64) {
    ((at / BITS) as usize, 1 << (at % BITS))
}

#[cfg(test)]
mod tests {
    use std_alloc::collections::BTreeSet;
    use std_alloc::vec::Vec;

    use super::*;
    use crate::testing::random::Random;

    const BITS: u32 = 20_000;

    /// A bitmap and a set of numbers are the same, whatever happens to both.
    #[test]
    fn as_a_set() {
        let (words, hints) = Bitmap::<AtomicU64>::words(BITS);
        let zeroes = |count| (0..count).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
        let (words, hints) = (zeroes(words), zeroes(hints));
        let (bitmap, mut set) = (Bitmap::new(&words, &hints), BTreeSet::new());
        let (other_words, other_hints) = (zeroes(words.len()), zeroes(hints.len()));
        let other = Bitmap::new(&other_words, &other_hints);
        (0..BITS).filter(|at| at % 3 == 0).for_each(|at| _ = other.set(at));
        let mut random = Random(0x6d61_7073);
        for _ in 0..100_000 {
            // Few places, so that words fill and empty.
            let at = random.below(8) as u32 * 2500 + random.below(70) as u32;
            match random.below(8) {
                6 => {
                    let some = random.below(u64::MAX) & bitmap.rest(at);
                    let first = at - at % 64;
                    let gone = (0..64).filter(|bit| some >> bit & 1 == 1).map(|bit| first + bit);
                    let gone: Vec<u32> = gone.collect();
                    assert!(
                        gone.iter().all(|at| set.remove(at)) && gone.iter().all(|&gone| gone >= at)
                    );
                    assert_eq!(bitmap.clear_all(at, some), some);
                    assert_eq!(bitmap.clear_all(at, some), 0);
                }
                7 => {
                    let some = 0b1011 << (at % 60);
                    let first = at - at % 64;
                    let all = (0..64).filter(|bit| some >> bit & 1 == 1);
                    let new = all.filter(|bit| set.insert(first + bit)).map(|bit| 1 << bit);
                    assert_eq!(bitmap.set_all(at, some), new.sum::<u64>());
                }
                0 | 1 => assert_eq!(bitmap.set(at), set.insert(at)),
                2 | 3 => assert_eq!(bitmap.clear(at), set.remove(&at)),
                4 => {
                    let is_pair = set.contains(&(at & !1)) && set.contains(&(at | 1));
                    assert_eq!(bitmap.clear_pair(at), is_pair);
                    if is_pair {
                        set.remove(&(at & !1));
                        set.remove(&(at | 1));
                    }
                }
                _ => {
                    assert_eq!(bitmap.next(at), set.range(at..).next().copied());
                    assert_eq!(bitmap.get(at), set.contains(&at));
                    let mut outside = set.range(at..).filter(|&at| at % 3 != 0);
                    assert_eq!(bitmap.next_without(at, &other), outside.next().copied());
                }
            }
        }
        assert_eq!(bitmap.next(BITS), None);
    }
}
