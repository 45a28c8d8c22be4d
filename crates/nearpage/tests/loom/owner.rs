//! A pageblock changes hands: a CPU that takes its last free page makes it nobody's without a lock, while another brings a
//! page of it home, and a third gets it from the zone.
//!
//! The word of the owner and the inbox are the core's own; what stands around them is its protocol written down once more,
//! on a pageblock of three pages. The core itself is run in `owned.rs`, where every step is seen in the same order.

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Mutex};
use loom::thread;
use nearpage::CpuId;
use nearpage::internals::{Cell16, Cell32, Inbox, OwnerWord};

use crate::cells::{Forgetful16, Honest, Honest16, Honest64};
use crate::{assert_found, explore};
use std::sync::atomic::Ordering;

/// Preemptions in a run.
const OF_TWO: usize = 6;
const OF_THREE: usize = 4;
const NO_FRAME: u32 = u32::MAX;
const RELAXED: Ordering = Ordering::Relaxed;
const OWNER: CpuId = CpuId(0);
const NEXT: CpuId = CpuId(1);

/// What a mutation leaves out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mutation {
    None,
    /// Who has the zone's lock does not look at the owner once more.
    NoSecondLook,
    /// The owner lets the pageblock go before it has done with it.
    LetsGoEarly,
}

/// A pageblock of pages 0 to 2. Page 0 is free and the owner's, the others are held.
struct Zone<W> {
    lock: Mutex<()>,
    owner: OwnerWord<W>,
    free: UnsafeCell<u32>,
    /// The owner's.
    inbox: Honest64,
    next: [Honest; 3],
    mutation: Mutation,
}

// SAFETY: what is free is for the owner, or who has the lock, which is what the models are about; loom tells.
unsafe impl<W: Sync> Sync for Zone<W> {}

impl<W: Cell16> Zone<W> {
    fn new(mutation: Mutation) -> Arc<Self> {
        let owner = OwnerWord::nobodys();
        owner.set_owner(Some(OWNER));
        let inbox = Inbox::<Honest64>::EMPTY.into();
        let (free, next) = (UnsafeCell::new(0b001), [NO_FRAME; 3].map(Honest::new));
        Arc::new(Self { lock: Mutex::new(()), owner, free, inbox, next, mutation })
    }

    /// What is free before the change.
    fn change(&self, change: impl Fn(u32) -> u32) -> u32 {
        self.free.with_mut(|free| {
            // SAFETY: the caller is the owner or has the lock; loom tells if it is not.
            unsafe {
                let before = *free;
                *free = change(before);
                before
            }
        })
    }

    fn inbox(&self) -> Inbox<'_, Honest64> {
        Inbox::new(&self.inbox)
    }

    /// The owner takes a page, if one is free: the last one makes the pageblock nobody's. Returns the pages taken.
    fn take_last(&self) -> u32 {
        if self.mutation == Mutation::LetsGoEarly {
            self.owner.set_owner(None);
        }
        let taken = self.change(|free| free & (free.wrapping_sub(1)));
        let first = taken & taken.wrapping_neg();
        if taken == first && self.mutation != Mutation::LetsGoEarly {
            self.owner.set_owner(None);
        }
        first
    }

    /// Brings a page to who has its pageblock: the owner, by its inbox, or the zone. Whom it passes to next takes pages only
    /// from the zone, and answers `false`: the page stays where it is.
    fn bring_home(&self, page: u32) -> bool {
        loop {
            if self.owner.owner() == Some(OWNER) {
                self.inbox().send(page, 1, |next| self.next[page as usize].store(next, RELAXED));
                return true;
            }
            let _lock = self.lock.lock().expect("nobody panics with it");
            let owner = self.owner.owner();
            if owner.is_none() || self.mutation == Mutation::NoSecondLook {
                let before = self.change(|free| free | 1 << page);
                assert_eq!(before & 1 << page, 0, "freed twice");
                return true;
            }
            if owner == Some(NEXT) {
                return false;
            }
        }
    }

    /// The zone gives the pageblock to another CPU, if it has it and something is free. Returns the pages taken.
    fn pass_on(&self) -> u32 {
        let lock = self.lock.lock().expect("nobody panics with it");
        let has_it = self.owner.owner().is_none();
        let passes = has_it && self.change(|free| free) != 0;
        if passes {
            self.owner.set_owner(Some(NEXT));
        }
        drop(lock);
        if passes { self.take_last() } else { 0 }
    }
}

/// Page 1 comes home, and page 2 from who gets the pageblock then; in the end each page is in one place.
fn handed_over<W: Cell16 + Send + Sync + 'static>(mutation: Mutation, passes_on: bool) {
    let zone = Zone::<W>::new(mutation);
    let (sender, taker) = (zone.clone(), zone.clone());
    let sender = thread::spawn(move || if sender.bring_home(1) { 0 } else { 0b010 });
    let taker = passes_on.then(|| {
        thread::spawn(move || {
            assert!(taker.bring_home(2), "the next owner is this thread");
            taker.pass_on()
        })
    });
    let mut held = zone.take_last() | if passes_on { 0 } else { 0b100 };
    held |= sender.join().expect("it does not panic");
    if let Some(taker) = taker {
        held |= taker.join().expect("it does not panic");
    }
    let mut sent = 0;
    let (mut next, mut pages) = zone.inbox().take();
    while next != NO_FRAME {
        sent |= 1 << next;
        next = zone.next[next as usize].load(RELAXED);
        pages -= 1;
    }
    let free = zone.change(|free| free);
    assert_eq!(held & free | held & sent | free & sent, 0, "a page is in two places");
    assert_eq!(held | free | sent, 0b111, "a page is nowhere");
    assert_eq!((pages, zone.inbox().pages()), (0, 0));
}

#[test]
fn a_page_comes_home_while_its_pageblock_is_let_go() {
    let model = || handed_over::<Honest16>(Mutation::None, false);
    explore("owner: a page against the last take", OF_TWO, model);
}

#[test]
fn a_page_comes_home_while_its_pageblock_changes_hands() {
    let model = || handed_over::<Honest16>(Mutation::None, true);
    explore("owner: a page against the last take and the next owner", OF_THREE, model);
}

#[test]
fn an_owner_that_lets_go_without_releasing_is_found() {
    let test = "owner::an_owner_that_lets_go_without_releasing_is_found";
    assert_found(test, "", || handed_over::<Forgetful16<false>>(Mutation::None, false));
}

#[test]
fn a_look_at_the_owner_that_does_not_acquire_is_found() {
    let test = "owner::a_look_at_the_owner_that_does_not_acquire_is_found";
    assert_found(test, "", || handed_over::<Forgetful16<true>>(Mutation::None, false));
}

#[test]
fn an_owner_that_lets_go_too_early_is_found() {
    let test = "owner::an_owner_that_lets_go_too_early_is_found";
    assert_found(test, "", || handed_over::<Honest16>(Mutation::LetsGoEarly, false));
}

#[test]
fn a_page_brought_home_without_a_second_look_is_found() {
    let test = "owner::a_page_brought_home_without_a_second_look_is_found";
    assert_found(test, "", || handed_over::<Honest16>(Mutation::NoSecondLook, true));
}
