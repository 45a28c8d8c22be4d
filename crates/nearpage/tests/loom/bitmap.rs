//! Bits with hints of where there are some: no bit is set in the end whose word has no hint, and each bit is in one place.

use loom::sync::Arc;
use loom::thread;
use nearpage::internals::{Bitmap, Cell64};

use crate::cells::{Honest64, InNoOneOrder, Mutant64, Overwrites};
use crate::explore::{assert_found, explore};
use std::sync::Mutex;
use std::sync::atomic::Ordering;

/// Preemptions in a run.
const OF_TWO: usize = 6;
const OF_THREE: usize = 3;
/// The first bit of the second word: a search from the first one needs its hint.
const SECOND: u32 = 64;

/// Two words of bits, and one of hints.
struct Bits<W> {
    words: [W; 2],
    hints: [W; 1],
}

impl<W: Cell64 + From<u64>> Bits<W> {
    fn new(words: [u64; 2], hints: u64) -> Arc<Self> {
        Arc::new(Self { words: words.map(W::from), hints: [hints.into()] })
    }

    fn bitmap(&self) -> Bitmap<'_, W> {
        Bitmap::new(&self.words, &self.hints)
    }
}

/// A bit is set while a search finds its word empty, and forgets the hint.
fn set_and_search<W: Cell64 + From<u64> + Send + Sync + 'static>() {
    let bits = Bits::<W>::new([0, 0], 0b10);
    let other = bits.clone();
    let other = thread::spawn(move || other.bitmap().set(SECOND + 1));
    let found = bits.bitmap().next(0);
    assert!(found.is_none() || found == Some(SECOND + 1));
    assert!(other.join().expect("it does not panic"), "it was clear");
    assert_eq!(bits.bitmap().next(0), Some(SECOND + 1), "a bit without its hint");
}

/// The same beside one who takes a bit of that word.
fn set_clear_and_search() {
    let bits = Bits::<Honest64>::new([0, 1], 0b10);
    let (setter, taker) = (bits.clone(), bits.clone());
    let setter = thread::spawn(move || setter.bitmap().set(SECOND + 1));
    let taker = thread::spawn(move || taker.bitmap().clear(SECOND));
    let found = bits.bitmap().next(0);
    assert!([None, Some(SECOND), Some(SECOND + 1)].contains(&found));
    assert!(setter.join().expect("it does not panic"), "it was clear");
    assert!(taker.join().expect("it does not panic"), "it was set");
    assert_eq!(bits.bitmap().next(0), Some(SECOND + 1), "a bit without its hint");
}

/// A pair is taken while one of it is taken, and comes back.
fn pair_and_one<W: Cell64 + From<u64> + Send + Sync + 'static>() {
    let bits = Bits::<W>::new([0b11, 0], 0b01);
    let other = bits.clone();
    let other = thread::spawn(move || {
        let taken = other.bitmap().clear(1);
        if taken {
            assert!(other.bitmap().set(1), "somebody else brought it");
        }
    });
    let pair = bits.bitmap().clear_pair(1);
    other.join().expect("it does not panic");
    let left = bits.words[0].load(Ordering::SeqCst);
    assert_eq!(left, if pair { 0 } else { 0b11 }, "a bit in two places, or in none");
}

/// Of two that take a pair one gets it.
fn two_pairs() {
    let bits = Bits::<Honest64>::new([0b11, 0], 0b01);
    let (other, setter) = (bits.clone(), bits.clone());
    let other = thread::spawn(move || other.bitmap().clear_pair(0));
    let setter = thread::spawn(move || setter.bitmap().set(2));
    let mine = bits.bitmap().clear_pair(0);
    let theirs = other.join().expect("it does not panic");
    assert!(setter.join().expect("it does not panic"), "it was clear");
    assert!(mine != theirs, "one gets it");
    assert_eq!(bits.words[0].load(Ordering::SeqCst), 0b100);
}

#[test]
fn no_bit_is_without_its_hint() {
    explore("bitmap: a set against a search", OF_TWO, set_and_search::<Honest64>);
    explore("bitmap: a set and a clear against a search", OF_THREE, set_clear_and_search);
}

#[test]
fn a_pair_is_taken_whole() {
    explore("bitmap: a pair against one of it", OF_TWO, pair_and_one::<Honest64>);
    explore("bitmap: two who take a pair", OF_THREE, two_pairs);
}

#[test]
fn looks_in_no_one_order_are_found() {
    let test = "bitmap::looks_in_no_one_order_are_found";
    assert_found(test, "a bit without its hint", set_and_search::<Mutant64<InNoOneOrder>>);
}

#[test]
fn an_exchange_that_overwrites_is_found() {
    let test = "bitmap::an_exchange_that_overwrites_is_found";
    assert_found(test, "", pair_and_one::<Mutant64<Overwrites>>);
}

/// The canary: who looks at a word twice in a row sees twice what it saw first, as if it had not looked again.
struct SeenOnce {
    cell: Honest64,
    /// What a thread saw here last, if it did nothing else here since.
    seen: Mutex<Vec<(thread::ThreadId, u64)>>,
}

impl From<u64> for SeenOnce {
    fn from(value: u64) -> Self {
        Self { cell: value.into(), seen: Mutex::default() }
    }
}

impl SeenOnce {
    fn changed<R>(&self, change: impl FnOnce(&Honest64) -> R) -> R {
        let me = thread::current().id();
        self.seen.lock().expect("nobody panics with it").retain(|(thread, _)| *thread != me);
        change(&self.cell)
    }
}

impl Cell64 for SeenOnce {
    fn load(&self, order: Ordering) -> u64 {
        let me = thread::current().id();
        let known = |seen: &[(thread::ThreadId, u64)]| {
            seen.iter().find(|(thread, _)| *thread == me).map(|(_, value)| *value)
        };
        let seen = known(&self.seen.lock().expect("nobody panics with it"));
        if let Some(value) = seen {
            return self.changed(|_| value);
        }
        let value = self.cell.load(order);
        self.seen.lock().expect("nobody panics with it").push((me, value));
        value
    }

    fn replace(&self, current: u64, new: u64, yes: Ordering, no: Ordering) -> Result<u64, u64> {
        self.changed(|cell| cell.replace(current, new, yes, no))
    }

    fn swap(&self, new: u64, order: Ordering) -> u64 {
        self.changed(|cell| cell.swap(new, order))
    }

    fn set(&self, bits: u64, order: Ordering) -> u64 {
        self.changed(|cell| cell.set(bits, order))
    }

    fn clear(&self, bits: u64, order: Ordering) -> u64 {
        self.changed(|cell| cell.clear(bits, order))
    }
}

#[test]
fn who_forgets_a_hint_without_a_second_look_is_found() {
    let test = "bitmap::who_forgets_a_hint_without_a_second_look_is_found";
    assert_found(test, "a bit without its hint", set_and_search::<SeenOnce>);
}
