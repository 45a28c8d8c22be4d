//! The page allocator itself under Linux's rules, in all interleavings of its locks: a CPU that allocates and frees against
//! a drain of its pagesets from outside, against memory of its node that goes and comes, and against its own end. Then with
//! pageblocks that CPUs own: a page that another CPU sends home against pops, drains, and the end of its owner.
//!
//! As in the models of objects, the whole core runs on loom's locks: these are its own transitions, from push and pop to
//! the buddy, with pagesets that are linked through frames. Rings have a model of their own (`drain.rs`).

use std::ops::Deref;

use loom::sync::Arc;
use loom::thread;
use nearpage::internals::SECTION_FRAMES;
use nearpage::{
    AddressMap, Config, CpuId, Gfp, Model, Node, NodeId, OfflineError, Order, PageAllocator,
    PageCount, Pfn, PfnRange, Request, Topology,
};

use crate::explore::{assert_found, explore};
use crate::host::{
    HonestLocks, Host, Leaked, LeakyLocks, Locks, MEMORY, page_allocator, page_allocator_of, run_on,
};

/// Preemptions in a run.
const PREEMPTIONS: usize = 4;
/// Cached by CPUs.
const SMALL: Order = Order(0);
/// From the zone and back, each time.
const LARGE: Order = Order(4);

/// Two nodes that are online; the metadata go last.
pub struct Machine<K: Locks> {
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
        let pages = page_allocator(Model::LINUX_6_18, &mut metadata);
        pages.online_all(&MEMORY).expect("memory of the topology");
        run_on(0);
        Arc::new(Self { pages, _metadata: metadata })
    }

    /// A node with two CPUs, each of which owns a pageblock as soon as it allocates.
    fn with_owners() -> Arc<Self> {
        let mut config = Config::new().with_model(Model::RFC_2026_OWNED);
        config.settings.percpu_pagelist_high_fraction = 8;
        Self::of_one_node(config, ONE_MEMORY[0])
    }

    /// A node with two CPUs, of whose memory this is online.
    pub fn of_one_node(config: Config, online: PfnRange) -> Arc<Self> {
        let mut metadata = Vec::new();
        let topology = Topology::new(&ONE_NODE, &[10], AddressMap::Flat).expect("valid");
        let pages = page_allocator_of(topology, config, &mut metadata);
        pages.online(online).expect("memory of the topology");
        run_on(0);
        Arc::new(Self { pages, _metadata: metadata })
    }

    fn take(&self, order: Order) -> Pfn {
        self.alloc(Request::new(order, Gfp::KERNEL)).expect("there is memory")
    }

    /// All pageblocks are movable at first.
    fn take_movable(&self) -> Pfn {
        self.alloc(Request::new(SMALL, Gfp::HIGHUSER_MOVABLE)).expect("there is memory")
    }

    fn give(&self, block: Pfn, order: Order) {
        self.free(block, order).expect("a block in use");
    }

    /// Every page is in one place, and so many are held.
    pub fn assert_held(&self, held: PageCount) {
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

/// An eighth of this is the pagesets' of two CPUs: room for a pageblock each.
pub const ONE_MEMORY: [PfnRange; 1] =
    [PfnRange::new(SECTION_FRAMES as u64, SECTION_FRAMES as u64 + 16384)];
static ONE_NODE: [Node<'static>; 1] =
    [Node { id: NodeId(0), memory: &ONE_MEMORY, cpus: &[CpuId(0), CpuId(1)], movable_from: None }];

/// Runs `owner` as CPU `cpu` while CPU 1 frees a page of a pageblock that CPU 0 owns; then all is in its place.
fn sent_home_against<K: Locks>(cpu: u32, owner: fn(&Machine<K>)) {
    let machine = Machine::<K>::with_owners();
    let [first, second] = [machine.take_movable(), machine.take_movable()];
    let owned = machine.pagesets(CpuId(0)).expect("a CPU")[0].count();
    assert_eq!(owned, PageCount(510), "a pageblock was taken whole");
    let theirs = machine.clone();
    let thread = thread::spawn(move || {
        run_on(1);
        theirs.give(first, SMALL);
    });
    run_on(cpu);
    owner(&machine);
    thread.join().expect("it does not panic");
    machine.assert_held(SMALL.pages());
    machine.give(second, SMALL);
    machine.drain_all().expect("nobody has the pagesets");
    machine.assert_held(PageCount(0));
}

fn take_and_give<K: Locks>(machine: &Machine<K>) {
    let page = machine.take_movable();
    machine.give(page, SMALL);
}

fn drain_owner<K: Locks>(machine: &Machine<K>) {
    drain(machine);
}

fn end_of_owner<K: Locks>(machine: &Machine<K>) {
    cpu_off_and_on(machine);
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
fn a_page_that_is_sent_home_against_its_owner() {
    let model = || sent_home_against::<HonestLocks>(0, take_and_give);
    explore("pages: a page sent home against pop and push", PREEMPTIONS, model);
}

#[test]
fn a_page_that_is_sent_home_against_a_drain() {
    let model = || sent_home_against::<HonestLocks>(0, drain_owner);
    explore("pages: a page sent home against a drain that merges", PREEMPTIONS, model);
}

#[test]
fn a_page_that_is_sent_home_against_the_end_of_its_owner() {
    let model = || sent_home_against::<HonestLocks>(1, end_of_owner);
    explore("pages: a page sent home against the end of the owner", PREEMPTIONS, model);
}

#[test]
fn a_page_that_comes_to_a_zone_without_a_lock_is_found() {
    let test = "pages::a_page_that_comes_to_a_zone_without_a_lock_is_found";
    assert_found(test, "", || sent_home_against::<LeakyLocks>(0, drain_owner));
}

#[test]
fn an_offline_that_keeps_nobody_out_is_found() {
    let test = "pages::an_offline_that_keeps_nobody_out_is_found";
    assert_found(test, "", || against::<LeakyLocks>(LARGE, offline_and_online));
}
