//! The page allocator itself in all interleavings of its locks: a CPU that allocates and frees against a drain of its
//! pagesets from outside, against memory of its node that goes and comes, and against its own end.
//!
//! As in the models of objects, the whole core runs on loom's locks: these are its own transitions, from push and pop to
//! the buddy, with pagesets that are linked through frames. Rings have a model of their own (`drain.rs`).

use std::ops::Deref;

use loom::sync::Arc;
use loom::thread;
use nearpage::{CpuId, Gfp, NodeId, OfflineError, Order, PageAllocator, PageCount, Pfn, Request};

use crate::slab::{HonestLocks, Host, Leaked, LeakyLocks, Locks, MEMORY, page_allocator, run_on};
use crate::{assert_found, explore};

/// Preemptions in a run.
const PREEMPTIONS: usize = 4;
/// Cached by CPUs.
const SMALL: Order = Order(0);
/// From the zone and back, each time.
const LARGE: Order = Order(4);

/// Two nodes that are online; the metadata go last.
struct Machine<K: Locks> {
    pages: Leaked<PageAllocator<'static, Host<K>>>,
    _metadata: Vec<Leaked<[u8]>>,
}

// SAFETY: loom's threads take turns on one thread of the system, and change only in its own operations.
unsafe impl<K: Locks> Send for Machine<K> {}
// SAFETY: as above.
unsafe impl<K: Locks> Sync for Machine<K> {}

impl<K: Locks> Deref for Machine<K> {
    type Target = PageAllocator<'static, Host<K>>;

    fn deref(&self) -> &Self::Target {
        &self.pages
    }
}

impl<K: Locks> Machine<K> {
    fn new() -> Arc<Self> {
        let mut metadata = Vec::new();
        let pages = page_allocator(&mut metadata);
        pages.online_all(&MEMORY).expect("memory of the topology");
        run_on(0);
        Arc::new(Self { pages, _metadata: metadata })
    }

    fn take(&self, order: Order) -> Pfn {
        self.alloc(Request::new(order, Gfp::KERNEL)).expect("there is memory")
    }

    fn give(&self, block: Pfn, order: Order) {
        self.free(block, order).expect("a block in use");
    }

    /// Every page is in one place, and so many are held.
    fn assert_held(&self, held: PageCount) {
        let checked = self.check().expect("the walker finds nothing");
        assert_eq!(checked.allocated, held, "a page lost or doubled");
    }
}

/// Runs `other` as CPU 1 while CPU 0 gives a block back, takes two, and gives one back; then all is in its place.
fn against<K: Locks>(order: Order, other: fn(&PageAllocator<'static, Host<K>>)) {
    let machine = Machine::<K>::new();
    let first = machine.take(order);
    let theirs = machine.clone();
    let thread = thread::spawn(move || {
        run_on(1);
        other(&theirs);
    });
    machine.give(first, order);
    let held = [machine.take(order), machine.take(order)];
    assert_ne!(held[0], held[1], "a block was given twice");
    machine.give(held[0], order);
    thread.join().expect("it does not panic");
    machine.assert_held(order.pages());
    machine.give(held[1], order);
    machine.drain_all().expect("nobody has the pagesets");
    machine.assert_held(PageCount(0));
}

fn drain<K: Locks>(pages: &PageAllocator<'static, Host<K>>) {
    // A pageset that is in use just then is busy.
    let _ = pages.drain_cpu(CpuId(0));
}

fn offline_and_online<K: Locks>(pages: &PageAllocator<'static, Host<K>>) {
    match pages.offline_node(NodeId(0)) {
        Ok(gone) => assert_eq!(pages.online_node(NodeId(0)), Ok(gone)),
        Err(error) => assert!(matches!(error, OfflineError::InUse { .. }), "{error}"),
    }
}

fn cpu_off_and_on<K: Locks>(pages: &PageAllocator<'static, Host<K>>) {
    if pages.offline_cpu(CpuId(0)).is_ok() {
        pages.online_cpu(CpuId(0)).expect("it is off");
    }
}

#[test]
fn a_drain_against_pop_and_push() {
    let model = || against::<HonestLocks>(SMALL, drain);
    explore("pages: a drain from outside against pops and pushes", PREEMPTIONS, model);
}

#[test]
fn memory_that_goes_and_comes_against_pages() {
    let model = || against::<HonestLocks>(SMALL, offline_and_online);
    explore("pages: offline and online against pages of a CPU", PREEMPTIONS, model);
}

#[test]
fn memory_that_goes_and_comes_against_large_blocks() {
    let model = || against::<HonestLocks>(LARGE, offline_and_online);
    explore("pages: offline and online against blocks of the zone", PREEMPTIONS, model);
}

#[test]
fn a_cpu_that_goes_and_comes_against_its_own_pages() {
    let model = || against::<HonestLocks>(SMALL, cpu_off_and_on);
    explore("pages: a CPU off and on against its pages", PREEMPTIONS, model);
}

#[test]
fn an_offline_that_keeps_nobody_out_is_found() {
    let test = "pages::an_offline_that_keeps_nobody_out_is_found";
    assert_found(test, "", || against::<LeakyLocks>(LARGE, offline_and_online));
}
