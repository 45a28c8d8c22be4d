//! The page allocator itself under nearpage's own rules, in all interleavings of its locks and of the words that it needs no
//! lock for: maps and bits tell the model where another CPU may come between.
//!
//! Orders of memory are not seen here: `map.rs` and `bitmap.rs` run those words on loom's cells.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use loom::thread;
use nearpage::internals::model;
use nearpage::platform::{Platform, Storage};
use nearpage::rules::pagesets::LISTS;
use nearpage::{
    Config, CpuId, Gfp, Migratetype, Model, OfflineError, Order, PageAllocator, PageCount, Pfn,
    PfnRange, RangeError, Request,
};

use crate::explore::{assert_found, explore};
use crate::host::{HonestLocks, Host, LeakyLocks, Locks, run_on};
use crate::pages::{Machine, ONE_MEMORY};

/// Preemptions in a run.
const PREEMPTIONS: usize = 4;
const SMALL: Order = Order(0);
const LARGE: Order = Order(9);
const PAGEBLOCK: u64 = 512;

loom::lazy_static! {
    /// Whoever comes to a point writes this: loom lets others come between two writers.
    static ref TURN: AtomicU32 = AtomicU32::new(0);
}

thread_local! {
    /// Loom's threads take turns on one thread of the system: the test's.
    static HAS_POINTS: Cell<bool> = const { Cell::new(false) };
}

fn point() {
    if HAS_POINTS.get() {
        TURN.fetch_add(1, Ordering::SeqCst);
    }
}

type Pages<K> = PageAllocator<'static, Host<K>>;
/// What somebody holds in the end.
type Held = Vec<(Pfn, Order)>;
/// What a CPU does, with a page of its own.
type Act<K> = fn(&Pages<K>, Pfn) -> Held;

fn take<K: Locks>(pages: &Pages<K>, order: Order) -> Held {
    let request = Request::new(order, Gfp::HIGHUSER_MOVABLE.union(Gfp::NORETRY));
    pages.alloc(request).ok().map(|first| (first, order)).into_iter().collect()
}

fn give<K: Locks>(pages: &Pages<K>, (first, order): (Pfn, Order)) {
    pages.free(first, order).expect("a block in use");
}

/// A node with two CPUs, and the last two pages that are in use of one of its pageblocks, whose other pages are free.
fn machine<K: Locks>() -> (Arc<Machine<K>>, [Pfn; 2]) {
    let _ = model::POINT.set(point);
    HAS_POINTS.set(false);
    let config = Config::new().with_model(Model::NEARPAGE);
    let machine = Machine::<K>::of_one_node(config, ONE_MEMORY[0]);
    let (block, _) = take(&machine, LARGE)[0];
    machine.split(block, LARGE, SMALL).expect("a block in use");
    let mut pages: Vec<Pfn> = (block.0..block.0 + PAGEBLOCK).map(Pfn).collect();
    let held = [pages.remove(0), pages.pop().expect("there are more")];
    machine.free_bulk(&pages).expect("pages in use");
    machine.drain_all().expect("nobody has the pagesets");
    HAS_POINTS.set(true);
    (machine, held)
}

/// Nobody works any more: every page is in one place, and after these are freed, free in whole pageblocks.
fn end<K: Locks>(machine: &Machine<K>, held: Held) {
    HAS_POINTS.set(false);
    let pages: u64 = held.iter().map(|(_, order)| order.pages().0).sum();
    machine.assert_held(PageCount(pages));
    held.into_iter().for_each(|block| give(machine, block));
    machine.drain_all().expect("nobody has the pagesets");
    machine.assert_held(PageCount(0));
    let zone = machine.zones()[0];
    assert_eq!(zone.free_pages(), zone.managed(), "all is the zone's again");
    let mut whole = 0;
    for order in [LARGE, Order(10)] {
        zone.for_each_free_block(order, Migratetype::Movable, |_| {
            whole += order.pages().0;
            ControlFlow::Continue(())
        });
    }
    assert_eq!(whole, zone.managed().0, "all pageblocks are whole");
}

/// CPU 1 does one thing while CPU 0 does another.
fn against<K: Locks>(own: Act<K>, other: Act<K>) {
    let (machine, [first, last]) = machine::<K>();
    let theirs = machine.clone();
    let thread = thread::spawn(move || {
        run_on(1);
        other(&theirs, last)
    });
    let mut held = own(&machine, first);
    held.extend(thread.join().expect("it does not panic"));
    end(&machine, held);
}

/// Brings a page home, past all lists.
fn bring<K: Locks>(pages: &Pages<K>, page: Pfn) -> Held {
    give(pages, (page, SMALL));
    // Somebody else may be at it.
    let _ = pages.drain_cpu(pages.platform().storage().current_cpu());
    vec![]
}

fn take_page<K: Locks>(pages: &Pages<K>, page: Pfn) -> Held {
    let mut held = take(pages, SMALL);
    held.push((page, SMALL));
    held
}

fn take_large<K: Locks>(pages: &Pages<K>, page: Pfn) -> Held {
    let mut held = take(pages, LARGE);
    held.push((page, SMALL));
    held
}

/// A block that reaches over several words.
fn take_half<K: Locks>(pages: &Pages<K>, page: Pfn) -> Held {
    let mut held = take(pages, Order(8));
    held.push((page, SMALL));
    held
}

/// Drains CPU 0 from outside.
fn drain_other<K: Locks>(pages: &Pages<K>, page: Pfn) -> Held {
    let _ = pages.drain_cpu(CpuId(0));
    vec![(page, SMALL)]
}

fn cpu_off_and_on<K: Locks>(pages: &Pages<K>, page: Pfn) -> Held {
    if pages.offline_cpu(CpuId(0)).is_ok() {
        pages.online_cpu(CpuId(0)).expect("it is off");
    }
    vec![(page, SMALL)]
}

/// The memory of the page's pageblock goes, if its last pages are free.
fn memory_off_and_on<K: Locks>(pages: &Pages<K>, page: Pfn) -> Held {
    give(pages, (page, SMALL));
    let start = page.0 - page.0 % PAGEBLOCK;
    let range = PfnRange::new(start, start + PAGEBLOCK);
    match pages.offline(range) {
        Ok(_) => assert_eq!(pages.online(range), Ok(PageCount(PAGEBLOCK))),
        Err(error) => assert!(matches!(error, OfflineError::InUse { .. }), "{error}"),
    }
    vec![]
}

/// The pageblock of a page is wanted in one piece.
fn take_range<K: Locks>(pages: &Pages<K>, page: Pfn) -> Held {
    give(pages, (page, SMALL));
    let start = page.0 - page.0 % PAGEBLOCK;
    match pages.alloc_at(Pfn(start), PageCount(PAGEBLOCK)) {
        Ok(()) => vec![(Pfn(start), LARGE)],
        Err(error) => {
            assert!(matches!(error, RangeError::InUse { .. }), "{error}");
            vec![]
        }
    }
}

/// What is on a CPU's lists does not change while it is stopped, as for a fork. Its quota may.
fn stop_as_a_fork_does<K: Locks>(pages: &Pages<K>, page: Pfn) -> Held {
    look_twice(pages, true);
    vec![(page, SMALL)]
}

/// The canary of that: nobody is stopped.
fn look_without_a_stop<K: Locks>(pages: &Pages<K>, page: Pfn) -> Held {
    look_twice(pages, false);
    vec![(page, SMALL)]
}

fn look_twice<K: Locks>(pages: &Pages<K>, stops: bool) {
    let pageset = &pages.pagesets(CpuId(0)).expect("a CPU")[0];
    let kept = || -> u32 { (0..LISTS).map(|list| pageset.list_counts(list).count).sum() };
    let stillness = pages.stillness();
    let cpu = stillness.cpus().next().expect("a CPU");
    let stopped = cpu.try_stop(pages.platform().storage());
    if stops && stopped.is_none() {
        return;
    }
    let stopped = stopped.filter(|_| stops);
    let before = kept();
    thread::yield_now();
    point();
    assert_eq!(kept(), before, "a CPU works that is stopped");
    drop(stopped);
}

fn explored(name: &str, own: Act<HonestLocks>, other: Act<HonestLocks>) {
    explore(&format!("places: {name}"), PREEMPTIONS, move || against(own, other));
}

#[test]
fn last_pages_of_a_pageblock() {
    explored("two last pages of a pageblock", bring, bring);
}

#[test]
fn a_last_page_against_a_take() {
    explored("a last page against a take", take_page, bring);
}

#[test]
fn a_last_page_against_large_blocks() {
    explored("a last page against a take of half a pageblock", take_half, bring);
    explored("a last page against a take of a pageblock", take_large, bring);
}

#[test]
fn two_takes() {
    explored("two takes of single pages", take_page, take_page);
    explored("a take of half a pageblock against one of a page", take_half, take_page);
}

#[test]
fn a_drain_from_outside() {
    explored("a take against a drain from outside", take_page, drain_other);
    explored("a last page against a drain from outside", bring, drain_other);
}

#[test]
fn a_cpu_off_and_on() {
    explored("a take against its CPU off and on", take_page, cpu_off_and_on);
}

#[test]
fn memory_that_goes_and_comes() {
    explored("a last page against memory off and on", bring, memory_off_and_on);
    explored("a take against memory off and on", take_page, memory_off_and_on);
}

#[test]
fn a_range_in_one_piece() {
    explored("a last page against its range", bring, take_range);
    explored("a take against a range", take_page, take_range);
}

#[test]
fn a_stop_as_for_a_fork() {
    explored("a take against a stop as for a fork", take_page, stop_as_a_fork_does);
}

#[test]
fn a_fork_that_stops_nobody_is_found() {
    let model = || against::<HonestLocks>(take_page, look_without_a_stop);
    assert_found("places::a_fork_that_stops_nobody_is_found", "a CPU works that is stopped", model);
}

#[test]
fn ranges_that_keep_nobody_out_are_found() {
    let model = || against::<LeakyLocks>(take_range, memory_off_and_on);
    assert_found("places::ranges_that_keep_nobody_out_are_found", "", model);
}
