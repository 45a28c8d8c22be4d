//! The map of a pageblock: who brings pages, who takes them, and who finds all of them there. Each page is in one place, and
//! of those who bring the last pages at once one finds all.
//!
//! The map is the core's own, of two words. Pages that are brought and taken hold something, so that what who had one wrote is
//! seen by who has it next.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use nearpage::internals::{Cell64, Map, Put};

use crate::cells::{Honest64, InNoOneOrder, Mutant64, Mutation64, Overwrites, Relaxed};
use crate::explore::{assert_found, explore};
use std::sync::atomic::Ordering;

/// Preemptions in a run.
const OF_TWO: usize = 6;
const OF_THREE: usize = 3;
const ALL: u64 = u64::MAX;

/// The first page of each word is not there at first.
struct Pageblock<W> {
    words: [W; 2],
    /// What the first two pages of each word hold.
    pages: [[UnsafeCell<u32>; 2]; 2],
}

// SAFETY: pages are reached by who has them, which is what the models are about; loom tells.
unsafe impl<W: Sync> Sync for Pageblock<W> {}

impl<W: Cell64 + From<u64>> Pageblock<W> {
    fn new(lacking: [u64; 2]) -> Arc<Self> {
        let pages = [(); 2].map(|()| [(); 2].map(|()| UnsafeCell::new(0)));
        Arc::new(Self { words: lacking.map(|lacking| W::from(!lacking)), pages })
    }

    fn map(&self) -> Map<'_, W> {
        Map(&self.words)
    }

    /// Writes to those of the first pages of a word that the caller has.
    fn write(&self, word: usize, pages: u64) {
        for page in (0..2).filter(|page| pages >> page & 1 == 1) {
            self.pages[word][page].with_mut(|content| {
                // SAFETY: the caller has the page; loom tells if it has not.
                unsafe { *content += 1 }
            });
        }
    }

    /// Brings a page; returns whether all were there then, which are the caller's.
    fn bring(&self, word: usize, page: u64) -> bool {
        self.write(word, page);
        let found = self.map().put(word, page) == Put::Full && self.map().take_all();
        if found {
            (0..2).for_each(|word| self.write(word, ALL));
        }
        found
    }

    fn take(&self, word: usize, pages: u64) -> u64 {
        let taken = self.map().take(word, pages);
        self.write(word, taken);
        taken
    }

    /// Takes all pages of both words, or none; returns those that it took.
    fn take_words(&self) -> u64 {
        if !self.map().take_words(0..2) {
            return 0;
        }
        (0..2).for_each(|word| self.write(word, ALL));
        ALL
    }

    fn words(&self) -> [u64; 2] {
        [0, 1].map(|word| self.words[word].load(Ordering::SeqCst))
    }
}

trait Word: Cell64 + From<u64> + Send + Sync + 'static {}

impl<W: Cell64 + From<u64> + Send + Sync + 'static> Word for W {}

/// Two threads bring the last page of a word each.
fn two_last_pages<W: Word>() {
    let pageblock = Pageblock::<W>::new([1, 1]);
    let other = pageblock.clone();
    let other = thread::spawn(move || other.bring(1, 1));
    let found = u32::from(pageblock.bring(0, 1));
    let found = found + u32::from(other.join().expect("it does not panic"));
    assert_eq!(found, 1, "one of those who bring the last pages finds all");
    assert_eq!(pageblock.words(), [0, 0]);
}

/// One brings the last page while another takes a page, and brings it back.
fn last_page_and_taker<W: Word>(comes_back: bool) {
    let pageblock = Pageblock::<W>::new([1, 0]);
    let other = pageblock.clone();
    let other = thread::spawn(move || {
        let taken = other.take(1, 1);
        let found = taken != 0 && comes_back && other.bring(1, 1);
        (if comes_back { 0 } else { taken }, found)
    });
    let mine = pageblock.bring(0, 1);
    let (taken, theirs) = other.join().expect("it does not panic");
    let found = u32::from(mine) + u32::from(theirs);
    let expected = if found > 0 { [0, 0] } else { [ALL, ALL & !taken] };
    assert_eq!(pageblock.words(), expected, "each page is in one place");
    assert_eq!(found, u32::from(taken == 0), "who brings the last page finds all");
}

/// A block of two words is taken, or put back where a page lacks; another thread takes that page.
fn block_and_taker<W: Word>() {
    let pageblock = Pageblock::<W>::new([0, 0]);
    let other = pageblock.clone();
    let other = thread::spawn(move || other.take(1, 0b11));
    let block = pageblock.take_words();
    let taken = other.join().expect("it does not panic");
    assert_eq!(block & taken, 0, "a page was given twice");
    assert!(block != 0 || taken == 0b11, "somebody gets it");
    assert_eq!(pageblock.words(), [ALL & !block, ALL & !block & !taken]);
}

/// Of two that take the same block one gets it, while a third takes a page.
fn two_blocks_and_taker<W: Word>() {
    let pageblock = Pageblock::<W>::new([0, 0]);
    let (second, third) = (pageblock.clone(), pageblock.clone());
    let second = thread::spawn(move || second.take_words());
    let third = thread::spawn(move || third.take(1, 1));
    let first = pageblock.take_words();
    let second = second.join().expect("it does not panic");
    let taken = third.join().expect("it does not panic");
    let all = [first, second, taken];
    let (block, pages) = (first | second, all.iter().map(|pages| pages.count_ones()).sum::<u32>());
    assert_eq!((block | taken).count_ones(), pages, "a page was given twice");
    assert_eq!(pageblock.words(), [ALL & !block, ALL & !block & !taken]);
}

#[test]
fn one_of_two_who_bring_last_pages_finds_all() {
    explore("map: two last pages", OF_TWO, two_last_pages::<Honest64>);
}

#[test]
fn a_last_page_against_a_taker() {
    explore("map: a last page against a taker", OF_TWO, || last_page_and_taker::<Honest64>(false));
    let model = || last_page_and_taker::<Honest64>(true);
    explore("map: a last page against one that is taken and comes back", OF_TWO, model);
}

#[test]
fn a_block_that_is_put_back_against_a_taker() {
    explore("map: a block against a taker", OF_TWO, block_and_taker::<Honest64>);
    let model = two_blocks_and_taker::<Honest64>;
    explore("map: two blocks against a taker", OF_THREE, model);
}

#[test]
fn looks_in_no_one_order_are_found() {
    let test = "map::looks_in_no_one_order_are_found";
    assert_found(test, "finds all", two_last_pages::<Mutant64<InNoOneOrder>>);
}

#[test]
fn a_relaxed_map_is_found() {
    let model = || last_page_and_taker::<Mutant64<Relaxed>>(true);
    assert_found("map::a_relaxed_map_is_found", "", model);
}

#[test]
fn an_exchange_that_overwrites_is_found() {
    let test = "map::an_exchange_that_overwrites_is_found";
    assert_found(test, "", block_and_taker::<Mutant64<Overwrites>>);
}

/// The canary: what lacks a page is not put back.
struct NoWayBack;

impl Mutation64 for NoWayBack {
    fn set(cell: &Honest64, bits: u64, order: Ordering) -> u64 {
        cell.set(if bits == ALL { 0 } else { bits }, order)
    }
}

#[test]
fn a_block_without_its_way_back_is_found() {
    let test = "map::a_block_without_its_way_back_is_found";
    assert_found(test, "", block_and_taker::<Mutant64<NoWayBack>>);
}

/// The canary: who finds all looks once, and not again after somebody was in the way.
fn looks_once() {
    let pageblock = Pageblock::<Honest64>::new([1, 0]);
    let bring = |pageblock: &Pageblock<Honest64>, word, page| {
        let map = pageblock.map();
        let is_full = map.put(word, page) == Put::Full && pageblock.words() == [ALL, ALL];
        is_full && map.take_words(0..2)
    };
    let other = pageblock.clone();
    let other = thread::spawn(move || other.take(1, 1) != 0 && bring(&other, 1, 1));
    let mine = bring(&pageblock, 0, 1);
    let theirs = other.join().expect("it does not panic");
    assert!(mine || theirs, "nobody finds all");
}

#[test]
fn who_looks_once_is_found() {
    assert_found("map::who_looks_once_is_found", "nobody finds all", looks_once);
}
