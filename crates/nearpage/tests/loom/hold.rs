//! Hold of what stands behind a CPU's lists: one at a time has it, and sees what the one before wrote.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use nearpage::internals::{Cell16, HoldWord};

use crate::cells::{Forgetful16, Honest16, Torn16};
use crate::{assert_found, explore};
use std::sync::atomic::Ordering;

/// Preemptions in a run.
const OF_TWO: usize = 8;
const OF_THREE: usize = 4;

/// A cell whose stores are exchanges. Of a store and an exchange by two threads, loom lets either be the last one, whatever
/// the exchange found; on real cells an exchange that found the word held comes before the store that lets go.
struct InOneOrder<W>(W);

impl<W: Cell16> Cell16 for InOneOrder<W> {
    fn new(value: u16) -> Self {
        Self(W::new(value))
    }

    fn load(&self, order: Ordering) -> u16 {
        self.0.load(order)
    }

    fn store(&self, value: u16, order: Ordering) {
        self.0.swap(value, order);
    }

    fn swap(&self, new: u16, order: Ordering) -> u16 {
        self.0.swap(new, order)
    }
}

/// A word, and what is behind it.
struct Behind<W> {
    word: HoldWord<W>,
    number: UnsafeCell<u32>,
}

// SAFETY: the number is reached by who has hold, which is what the models are about; loom tells.
unsafe impl<W: Sync> Sync for Behind<W> {}

impl<W: Cell16> Behind<W> {
    /// Counts one, if nobody else is at it; returns how many were counted.
    fn try_count(&self) -> u32 {
        if !self.word.enter() {
            return 0;
        }
        self.number.with_mut(|number| {
            // SAFETY: there is hold; loom tells if somebody else has it too.
            unsafe { *number += 1 }
        });
        self.word.let_go();
        1
    }
}

/// So many threads come twice each: whoever has hold counts, and nothing that was counted is lost.
fn threads<W: Cell16 + Send + Sync + 'static>(count: usize) {
    let behind = Arc::new(Behind::<W> { word: HoldWord::unheld(), number: UnsafeCell::new(0) });
    let others: Vec<_> = (1..count)
        .map(|_| {
            let behind = behind.clone();
            thread::spawn(move || behind.try_count() + behind.try_count())
        })
        .collect();
    let mut counted = behind.try_count() + behind.try_count();
    for other in others {
        counted += other.join().expect("it does not panic");
    }
    assert!(counted >= 2, "one who is alone finds nobody");
    assert!(behind.word.enter(), "nobody has hold any more");
    behind.number.with(|number| {
        // SAFETY: as in `try_count`.
        assert_eq!(unsafe { *number }, counted, "two had hold");
    });
}

#[test]
fn one_at_a_time_has_hold() {
    explore("hold: two threads", OF_TWO, || threads::<InOneOrder<Honest16>>(2));
    explore("hold: three threads", OF_THREE, || threads::<InOneOrder<Honest16>>(3));
}

#[test]
fn who_enters_without_acquiring_is_found() {
    let test = "hold::who_enters_without_acquiring_is_found";
    assert_found(test, "", || threads::<InOneOrder<Forgetful16<true>>>(2));
}

#[test]
fn who_lets_go_without_releasing_is_found() {
    let test = "hold::who_lets_go_without_releasing_is_found";
    assert_found(test, "", || threads::<InOneOrder<Forgetful16<false>>>(2));
}

#[test]
fn an_exchange_in_two_steps_is_found() {
    assert_found("hold::an_exchange_in_two_steps_is_found", "", || threads::<Torn16>(2));
}
