//! Zonelists in two versions: a reader sees one list or the next, and a request that one of them would serve is served
//! while memory comes and goes.

use loom::sync::Arc;
use loom::thread;
use nearpage::internals::{Cell32, Versions};
use std::sync::atomic::Ordering;

use crate::cell32::Honest;
use crate::explore::{assert_found, explore};

/// Preemptions in a run.
const PREEMPTIONS: usize = 4;

/// A list of two zones, written and read as `zonelist::list` does it.
struct List<W> {
    versions: Versions<W>,
    copies: [[W; 2]; 2],
}

impl<W: Cell32> List<W> {
    fn new(zone: u32) -> Self {
        let copy = || [W::new(zone), W::new(zone)];
        Self { versions: Versions::new(), copies: [copy(), copy()] }
    }

    fn set(&self, zone: u32) {
        let version = self.versions.begin();
        for entry in &self.copies[Versions::<W>::copy(version)] {
            entry.store(zone, Ordering::Release);
        }
        self.versions.publish(version);
    }

    /// An entry of a version, if that is intact.
    fn zone(&self, version: u32, position: usize) -> Option<u32> {
        let zone = self.copies[Versions::<W>::copy(version)][position].load(Ordering::Acquire);
        self.versions.is_intact(version).then_some(zone)
    }
}

/// A reader beside a writer who replaces the list so often that its copy is written over.
fn reader_and_writer<W: Cell32 + Send + Sync + 'static>() {
    let list = Arc::new(List::<W>::new(0));
    let writer = list.clone();
    let thread = thread::spawn(move || (1..=3).for_each(|zone| writer.set(zone)));
    let version = list.versions.current();
    for zone in [0, 1].into_iter().filter_map(|position| list.zone(version, position)) {
        assert_eq!(zone, version, "a mix of two lists");
    }
    thread.join().expect("the writer does not panic");
    assert_eq!(list.zone(list.versions.current(), 1), Some(3));
}

#[test]
fn a_reader_sees_one_list_or_the_next() {
    explore("zonelist: reader and writer", PREEMPTIONS, reader_and_writer::<Honest>);
}

/// The canary: entries that do not say that their version was begun.
struct RelaxedEntries(Honest);

impl Cell32 for RelaxedEntries {
    fn new(value: u32) -> Self {
        Self(Honest::new(value))
    }

    fn load(&self, _order: Ordering) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    fn store(&self, value: u32, _order: Ordering) {
        self.0.store(value, Ordering::Relaxed);
    }

    fn replace(&self, _: u32, _: u32, _: Ordering, _: Ordering) -> Result<u32, u32> {
        unreachable!("versions are stored and loaded")
    }

    fn swap(&self, _: u32, _: Ordering) -> u32 {
        unreachable!("versions are stored and loaded")
    }

    fn set(&self, _: u32, _: Ordering) -> bool {
        unreachable!("versions have no bits")
    }

    fn clear(&self, _: u32, _: Ordering) -> bool {
        unreachable!("versions have no bits")
    }

    fn full_fence() {
        Honest::full_fence();
    }
}

#[test]
fn entries_without_release_and_acquire_are_found() {
    let test = "zonelist::entries_without_release_and_acquire_are_found";
    assert_found(test, "a mix of two lists", reader_and_writer::<RelaxedEntries>);
}

/// Whether who found nothing looks whether there is another list by now.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Again {
    Looks,
    GivesUp,
}

/// Zone 1 comes online and zone 0 goes, while a thread allocates: there is a page at each moment.
fn online_against_alloc(again: Again) {
    // The pages of each zone; what moves them is a lock, of which this is the order.
    let zones = Arc::new([Honest::new(1), Honest::new(0)]);
    let list = Arc::new(List::<Honest>::new(0));
    let (of_writer, writer) = (zones.clone(), list.clone());
    let thread = thread::spawn(move || {
        of_writer[1].store(1, Ordering::Release);
        writer.set(1);
        of_writer[0].store(0, Ordering::Release);
    });
    let served = loop {
        let version = list.versions.current();
        let pages = list.zone(version, 0).map(|zone| zones[zone as usize].load(Ordering::Acquire));
        let is_last = list.versions.current() == version || again == Again::GivesUp;
        if pages == Some(1) || is_last {
            break pages == Some(1);
        }
    };
    assert!(served, "refused although each list has a page");
    thread.join().expect("the writer does not panic");
}

#[test]
fn a_request_is_served_while_one_zone_comes_and_another_goes() {
    explore("zonelist: online against alloc", 8, || online_against_alloc(Again::Looks));
}

#[test]
fn a_request_that_looks_at_one_list_only_is_found() {
    let test = "zonelist::a_request_that_looks_at_one_list_only_is_found";
    assert_found(test, "refused although", || online_against_alloc(Again::GivesUp));
}
