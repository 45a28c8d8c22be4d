//! A drain from outside against pops and pushes: the protocol of the owner's word.
//!
//! The lists that it is for are rings used by restartable sequences, which are assembly (`nearpage-linux`,
//! `rseq`): this is their protocol written down once more, load by load. A sequence runs without interruption as far
//! as its own CPU and `membarrier` are concerned: the kernel aborts it otherwise. So a sequence is a hold of a lock
//! here, and `membarrier` takes and releases that lock.

use loom::sync::{Arc, Mutex};
use loom::thread;
use nearpage::internals::Cell32;
use std::sync::atomic::Ordering;

use crate::cell32::Honest;
use crate::explore::{assert_found, explore};

/// Preemptions in a run.
const PREEMPTIONS: usize = 6;
const CPU: u32 = 0;
const STOPPED: u32 = 1 << 31;

/// What a mutation leaves out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mutation {
    None,
    /// `membarrier` is not called.
    NoBarrier,
    /// The sequence loads the owner relaxed.
    RelaxedOwner,
}

struct Ring {
    cpu: Mutex<()>,
    owner: Honest,
    hot: Honest,
    cold: Honest,
    entries: [Honest; 4],
    mutation: Mutation,
}

impl Ring {
    /// A ring with two pages.
    fn new(mutation: Mutation) -> Self {
        let (owner, hot, cold) = (Honest::new(CPU), Honest::new(2), Honest::new(0));
        let entries = [10, 11, 0, 0].map(Honest::new);
        Self { cpu: Mutex::new(()), owner, hot, cold, entries, mutation }
    }

    fn is_ours(&self) -> bool {
        let relaxed = self.mutation == Mutation::RelaxedOwner;
        self.owner.load(if relaxed { Ordering::Relaxed } else { Ordering::Acquire }) == CPU
    }

    /// A sequence, in one piece unless nobody waits for it.
    fn sequence<R>(&self, run: impl FnOnce() -> Option<R>) -> Option<R> {
        let _cpu =
            (self.mutation != Mutation::NoBarrier).then(|| self.cpu.lock().expect("no panic"));
        if self.is_ours() { run() } else { None }
    }

    fn pop(&self) -> Option<u32> {
        self.sequence(|| {
            let (hot, cold) = (self.hot.load(Ordering::Relaxed), self.cold.load(Ordering::Relaxed));
            if hot == cold {
                return None;
            }
            let page = self.entries[hot as usize - 1].load(Ordering::Relaxed);
            self.hot.store(hot - 1, Ordering::Relaxed);
            Some(page)
        })
    }

    fn push(&self, page: u32) -> Option<()> {
        self.sequence(|| {
            let hot = self.hot.load(Ordering::Relaxed);
            self.entries[hot as usize].store(page, Ordering::Relaxed);
            self.hot.store(hot + 1, Ordering::Relaxed);
            Some(())
        })
    }

    /// Takes all pages from outside.
    fn drain(&self) -> Vec<u32> {
        self.owner.store(STOPPED, Ordering::Relaxed);
        drop(self.cpu.lock().expect("no panic"));
        let (hot, cold) = (self.hot.load(Ordering::Relaxed), self.cold.load(Ordering::Relaxed));
        let pages =
            (cold..hot).map(|at| self.entries[at as usize].load(Ordering::Relaxed)).collect();
        self.cold.store(hot, Ordering::Relaxed);
        self.owner.store(CPU, Ordering::Release);
        pages
    }
}

fn drain_against_pop_and_push(mutation: Mutation) {
    let ring = Arc::new(Ring::new(mutation));
    let drainer = ring.clone();
    let thread = thread::spawn(move || drainer.drain());
    let mut held: Vec<u32> = [ring.pop(), ring.pop()].into_iter().flatten().collect();
    if let Some(page) = held.pop()
        && ring.push(page).is_none()
    {
        held.push(page);
    }
    held.extend(thread.join().expect("the drainer does not panic"));
    held.extend(ring.drain());
    held.sort_unstable();
    assert_eq!(held, [10, 11], "a page lost or doubled");
}

#[test]
fn a_drain_from_outside_loses_and_doubles_nothing() {
    let model = || drain_against_pop_and_push(Mutation::None);
    explore("drain: from outside against pops and a push", PREEMPTIONS, model);
}

#[test]
fn a_drain_without_a_barrier_is_found() {
    let test = "drain::a_drain_without_a_barrier_is_found";
    assert_found(test, "", || drain_against_pop_and_push(Mutation::NoBarrier));
}

#[test]
fn a_sequence_that_loads_its_owner_relaxed_is_found() {
    let test = "drain::a_sequence_that_loads_its_owner_relaxed_is_found";
    assert_found(test, "", || drain_against_pop_and_push(Mutation::RelaxedOwner));
}
