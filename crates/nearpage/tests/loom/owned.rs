//! The page allocator itself, with pageblocks that CPUs own and maps of them, in all interleavings of its locks and of the
//! words that it needs no lock for: the hold, the owner, and the inbox tell the model where another CPU may come between.
//!
//! Orders of memory are not seen here: `hold.rs`, `inbox.rs` and `owner.rs` run those words on loom's cells.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use loom::thread;
use nearpage::internals::model;
use nearpage::platform::Platform;
use nearpage::{
    Config, CpuId, Gfp, Model, OfflineError, Order, PageAllocator, PageCount, Pfn, PfnRange,
    Request,
};

use crate::pages::{Machine, ONE_MEMORY};
use crate::slab::{HonestLocks, Host, LeakyLocks, Locks, run_on};
use crate::{assert_found, explore};

/// Preemptions in a run.
const PREEMPTIONS: usize = 3;
const SMALL: Order = Order(0);
const PAGEBLOCK: u64 = 512;
/// Pages that a list gets at once.
const REFILL: u64 = 64;

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

fn take<K: Locks>(pages: &Pages<K>) -> Option<Pfn> {
    pages.alloc(Request::new(SMALL, Gfp::HIGHUSER_MOVABLE.union(Gfp::NORETRY))).ok()
}

fn give<K: Locks>(pages: &Pages<K>, page: Pfn) {
    pages.free(page, SMALL).expect("a page in use");
}

/// A node with two CPUs, of which CPU 0 has taken so many pages, and works when this returns.
fn machine<K: Locks>(online: PfnRange, taken: u64) -> (Arc<Machine<K>>, Vec<Pfn>) {
    let _ = model::POINT.set(point);
    HAS_POINTS.set(false);
    let config = Config::new().with_model(Model::NEARPAGE);
    let machine = Machine::<K>::of_one_node(config, online);
    let held = (0..taken).map(|_| take(&machine).expect("there is memory")).collect();
    HAS_POINTS.set(true);
    (machine, held)
}

/// Nobody works any more: every page is in one place, and after these are freed, free.
fn end<K: Locks>(machine: &Machine<K>, held: Vec<Pfn>) {
    HAS_POINTS.set(false);
    let count = PageCount(held.len() as u64);
    machine.assert_held(count);
    held.into_iter().for_each(|page| give(machine, page));
    machine.drain_all().expect("nobody has the pagesets");
    machine.assert_held(PageCount(0));
    let free: u64 = machine.zones().iter().map(|zone| zone.free_pages().0).sum();
    let managed: u64 = machine.zones().iter().map(|zone| zone.managed().0).sum();
    assert_eq!(free, managed, "all is the zone's again");
}

/// Runs `other` as CPU 1, with one of the pages that CPU 0 took, while CPU 0 does `own` with another. Each returns what it
/// holds in the end.
fn against<K: Locks>(
    (online, taken): (PfnRange, u64),
    own: fn(&Pages<K>, Pfn) -> Vec<Pfn>,
    other: fn(&Pages<K>, Pfn) -> Vec<Pfn>,
) {
    let (machine, mut held) = machine::<K>(online, taken);
    let [first, last] = [held.remove(0), held.pop().expect("two pages")];
    let theirs = machine.clone();
    let thread = thread::spawn(move || {
        run_on(1);
        other(&theirs, first)
    });
    held.extend(own(&machine, last));
    held.extend(thread.join().expect("it does not panic"));
    end(&machine, held);
}

/// Sends a page home, past all lists.
fn send_home<K: Locks>(pages: &Pages<K>, page: Pfn) -> Vec<Pfn> {
    give(pages, page);
    // The other one may be at it.
    let _ = pages.drain_cpu(CpuId(1));
    vec![]
}

/// Sends a page home, and takes one: of the pageblock's zone, if it was given back.
fn send_home_and_take<K: Locks>(pages: &Pages<K>, page: Pfn) -> Vec<Pfn> {
    send_home(pages, page);
    take(pages).into_iter().collect()
}

/// Takes one page more: the first of the next refill.
fn take_one<K: Locks>(pages: &Pages<K>, page: Pfn) -> Vec<Pfn> {
    [page].into_iter().chain(take(pages)).collect()
}

fn give_and_drain<K: Locks>(pages: &Pages<K>, page: Pfn) -> Vec<Pfn> {
    give(pages, page);
    let _ = pages.drain_cpu(CpuId(0));
    vec![]
}

/// Drains CPU 0 from outside.
fn drain_other<K: Locks>(pages: &Pages<K>, page: Pfn) -> Vec<Pfn> {
    let _ = pages.drain_cpu(CpuId(0));
    vec![page]
}

fn cpu_off_and_on<K: Locks>(pages: &Pages<K>, page: Pfn) -> Vec<Pfn> {
    if pages.offline_cpu(CpuId(0)).is_ok() {
        pages.online_cpu(CpuId(0)).expect("it is off");
    }
    vec![page]
}

/// Memory that nobody uses goes: a pageblock, which comes in halves.
fn memory_off_and_on<K: Locks>(pages: &Pages<K>, page: Pfn) -> Vec<Pfn> {
    let end = ONE_MEMORY[0].end.0;
    let (start, middle) = (end - PAGEBLOCK, end - PAGEBLOCK / 2);
    match pages.offline(PfnRange::new(start, end)) {
        Ok(_) => {
            pages.online(PfnRange::new(start, middle)).expect("it is offline");
            pages.online(PfnRange::new(middle, end)).expect("it is offline");
        }
        Err(error) => assert!(matches!(error, OfflineError::InUse { .. }), "{error}"),
    }
    vec![page]
}

/// The half of a pageblock that is offline at first.
const LATER: PfnRange = PfnRange::new(ONE_MEMORY[0].end.0 - PAGEBLOCK / 2, ONE_MEMORY[0].end.0);

fn other_half_comes<K: Locks>(pages: &Pages<K>, page: Pfn) -> Vec<Pfn> {
    pages.online(LATER).expect("it is offline");
    vec![page]
}

/// What a CPU keeps does not change while it is stopped, as for a fork.
fn stop_as_a_fork_does<K: Locks>(pages: &Pages<K>, page: Pfn) -> Vec<Pfn> {
    look_twice(pages, true);
    vec![page]
}

/// The canary of that: nobody is stopped.
fn look_without_a_stop<K: Locks>(pages: &Pages<K>, page: Pfn) -> Vec<Pfn> {
    look_twice(pages, false);
    vec![page]
}

fn look_twice<K: Locks>(pages: &Pages<K>, stops: bool) {
    let kept = || pages.pagesets(CpuId(0)).expect("a CPU")[0].count();
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

/// So many pages are taken that a pageblock's last are to be taken next.
const LAST: u64 = PAGEBLOCK - REFILL;
const ALL: PfnRange = ONE_MEMORY[0];
/// A pageblock and a half; the half is taken first.
const PART: PfnRange = PfnRange::new(LATER.start.0 - 3 * PAGEBLOCK / 2, LATER.start.0);

#[test]
fn a_page_sent_home_against_a_refill() {
    let model = || against::<HonestLocks>((ALL, REFILL), take_one, send_home);
    explore("owned: a page sent home against a refill", PREEMPTIONS, model);
}

#[test]
fn a_page_sent_home_against_the_last_take() {
    let model = || against::<HonestLocks>((ALL, LAST), take_one, send_home);
    explore("owned: a page sent home against the last take of its pageblock", PREEMPTIONS, model);
}

#[test]
fn a_page_sent_home_against_the_last_take_and_the_next_owner() {
    let model = || against::<HonestLocks>((ALL, LAST), take_one, send_home_and_take);
    explore("owned: a page sent home, and taken, against the last take", PREEMPTIONS, model);
}

#[test]
fn a_page_sent_home_against_a_drain() {
    let model = || against::<HonestLocks>((ALL, LAST), give_and_drain, send_home);
    explore("owned: a page sent home against a drain", PREEMPTIONS, model);
}

#[test]
fn a_refill_against_a_drain_from_outside() {
    let model = || against::<HonestLocks>((ALL, LAST), take_one, drain_other);
    explore("owned: a refill against a drain from outside", PREEMPTIONS, model);
}

#[test]
fn a_refill_against_a_stop_as_for_a_fork() {
    let model = || against::<HonestLocks>((ALL, LAST), take_one, stop_as_a_fork_does);
    explore("owned: a refill against a stop as for a fork", PREEMPTIONS, model);
}

#[test]
fn a_refill_against_the_end_of_its_cpu() {
    let model = || against::<HonestLocks>((ALL, LAST), take_one, cpu_off_and_on);
    explore("owned: a refill against its CPU off and on", PREEMPTIONS, model);
}

#[test]
fn a_refill_against_memory_off_and_on() {
    let model = || against::<HonestLocks>((ALL, LAST), take_one, memory_off_and_on);
    explore("owned: a refill against memory off and on", PREEMPTIONS, model);
}

#[test]
fn a_half_that_comes_beside_one_that_a_cpu_owns() {
    for (own, name) in [
        (take_one as fn(&Pages<HonestLocks>, Pfn) -> Vec<Pfn>, "a refill"),
        (give_and_drain, "a drain"),
    ] {
        let model = move || against::<HonestLocks>((PART, REFILL), own, other_half_comes);
        explore(&format!("owned: memory beside an owned half against {name}"), PREEMPTIONS, model);
    }
}

#[test]
fn pages_sent_home_without_a_lock_are_found() {
    let test = "owned::pages_sent_home_without_a_lock_are_found";
    assert_found(test, "", || {
        against::<LeakyLocks>((ALL, LAST), give_and_drain, send_home_and_take)
    });
}

#[test]
fn a_fork_that_stops_nobody_is_found() {
    let model = || against::<HonestLocks>((ALL, LAST), take_one, look_without_a_stop);
    assert_found("owned::a_fork_that_stops_nobody_is_found", "a CPU works that is stopped", model);
}
