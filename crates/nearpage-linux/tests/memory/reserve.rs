//! The reserve for urgent requests: what ordinary ones leave of a zone, while they take all that they can and when they have
//! it.
//!
//! Counted are the pages that are free in the zone, without those that CPUs cache. The core's test of the same name does it
//! for lists that are exact, and for the reserves of lower zones.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;

use nearpage::{CpuId, Gfp, Model, NodeId, Order, Pfn, Request};
use nearpage_linux::{HostMachine, HostNode, Memory};

use super::affinity::{allowed_cpus, run_on};

const ORDINARY: Gfp = Gfp::HIGHUSER_MOVABLE;
const NODE: NodeId = NodeId(0);
/// Sizes of pagesets follow from the number of CPUs.
const CPUS: u32 = 4;
/// A pageset's refill is of up to so many pages.
const REFILL_MOST: u64 = 2016;

/// How a memory keeps what CPUs cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Storage {
    Rseq,
    Locked,
    Hardened,
    /// With locks, and each thread has a CPU of its own.
    Seats,
}

const STORAGES: [Storage; 4] = [Storage::Rseq, Storage::Locked, Storage::Hardened, Storage::Seats];

thread_local! {
    static SEAT: CpuId = {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        CpuId(NEXT.fetch_add(1, Ordering::Relaxed) % CPUS)
    };
}

fn seat() -> CpuId {
    SEAT.with(|seat| *seat)
}

fn memory(model: Model, storage: Storage, mebibytes: u64) -> Memory {
    let cpus = (0..CPUS).map(CpuId).collect();
    let nodes = vec![HostNode { id: NODE, cpus, has_memory: true }];
    let machine = HostMachine { nodes, distances: vec![10], emulated: true };
    let builder = Memory::builder().machine(machine).model(model).bytes_per_node(mebibytes << 20);
    let builder = match storage {
        Storage::Rseq => builder,
        Storage::Locked => builder.use_rseq(false),
        Storage::Hardened => builder.hardened(true),
        Storage::Seats => builder.cpu_of_thread(seat),
    };
    builder.build().unwrap()
}

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ask {
    /// One block of this order.
    Block(Order),
    /// Up to 64 pages by one call.
    Bulk,
}

impl Ask {
    /// Whether there was something.
    fn of(self, memory: &Memory, gfp: Gfp) -> bool {
        match self {
            Self::Block(order) => memory.alloc_frames(Request::new(order, gfp)).is_ok(),
            Self::Bulk => {
                let page = Request::new(Order(0), gfp);
                memory.alloc_frames_bulk(page, &mut [Pfn(0); 64]).is_ok()
            }
        }
    }
}

const PAGE: Ask = Ask::Block(Order(0));

/// Pages by which the zone is below its min mark.
fn missing(memory: &Memory, min: u64) -> u64 {
    min.saturating_sub(memory.free_pages(NODE).0)
}

/// What is missing of the min mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Missing {
    /// The most that a thread saw after a request that succeeded.
    at_worst: u64,
    /// When every ordinary request fails.
    at_the_end: u64,
}

const NOTHING: Missing = Missing { at_worst: 0, at_the_end: 0 };

/// Asks, by so many threads at once, until every request fails.
fn take_all(memory: &Memory, ask: Ask, threads: usize) -> Missing {
    let min = memory.watermarks(NODE).min.0;
    let at_worst = AtomicU64::new(0);
    let take = || {
        while ask.of(memory, ORDINARY) {
            at_worst.fetch_max(missing(memory, min), Ordering::Relaxed);
        }
    };
    thread::scope(|scope| (0..threads).for_each(|_| _ = scope.spawn(take)));
    // Who failed first may have failed for want of what others then gave back.
    take();
    Missing { at_worst: at_worst.into_inner(), at_the_end: missing(memory, min) }
}

/// Blocks that no pageset keeps come from the zone one at a time, each after a look at the mark.
#[test]
fn orders_that_are_not_cached_leave_the_min_mark_whole() {
    for model in Model::ALL {
        for storage in STORAGES {
            for order in (4..=8).chain([10]).map(Order) {
                let memory = memory(model, storage, 64);
                let missing = take_all(&memory, Ask::Block(order), 1);
                assert_eq!(missing, NOTHING, "{}, {storage:?}, order {order}", model.name);
                assert!(PAGE.of(&memory, Gfp::ATOMIC));
            }
        }
    }
}

/// A refill looks at the mark before it begins, as Linux's, and then takes what it wants: Linux's rules stay as they are.
#[test]
fn refills_of_linux_eat_of_the_min_mark() {
    for model in [Model::LINUX_6_12, Model::LINUX_6_18] {
        for storage in STORAGES {
            let memory = memory(model, storage, 1024);
            let missing = on_a_thread(true, || take_all(&memory, PAGE, 1));
            assert!((1..REFILL_MOST).contains(&missing.at_worst), "{}: {missing:?}", model.name);
        }
    }
}

/// What is missing under rules, of all orders and in bulk, in all storages, by one thread and by several at once. Then
/// urgent requests have the min mark to themselves: one of them brings pages of the reserve to a pageset, which are not for
/// ordinary ones either.
fn missed(model: Model) -> Vec<String> {
    let mut missed = Vec::new();
    for storage in STORAGES {
        for (mebibytes, threads) in [(64, 1), (64, 2), (64, CPUS as usize), (1024, 1), (1024, 2)] {
            // What one thread leaves is what the rules leave to one CPU. On others than the machine has there are no pagesets.
            let stays = threads == 1;
            missed.extend(on_a_thread(stays, || missed_by(model, storage, mebibytes, threads)));
        }
    }
    missed
}

/// Runs on a thread of its own, which stays on a CPU that the machine has, or is moved between all CPUs.
fn on_a_thread<T: Send>(stays: bool, run: impl FnOnce() -> T + Send) -> T {
    let run = || {
        if stays {
            let cpu = allowed_cpus().into_iter().find(|&cpu| cpu < CPUS as usize);
            run_on(&[cpu.expect("a CPU of the machine")]);
        }
        run()
    };
    thread::scope(|scope| scope.spawn(run).join().unwrap())
}

fn missed_by(model: Model, storage: Storage, mebibytes: u64, threads: usize) -> Vec<String> {
    let mut missed = Vec::new();
    let blocks = (0..=Order::MAX.0).map(|order| Ask::Block(Order(order)));
    for ask in blocks.chain([Ask::Bulk]) {
        let memory = memory(model, storage, mebibytes);
        let mut note = |missing: Missing, then: &str| {
            if missing != NOTHING {
                let who = format!("{mebibytes} MiB, {storage:?}, {threads} threads");
                missed.push(format!("{who}, {ask:?}{then}: {missing:?}"));
            }
        };
        note(take_all(&memory, ask, threads), "");
        let taken = u64::from(PAGE.of(&memory, Gfp::ATOMIC));
        take_all(&memory, PAGE, threads);
        memory.drain_all().unwrap();
        let left = missing(&memory, memory.watermarks(NODE).min.0);
        let at_the_end = left.saturating_sub(taken);
        note(Missing { at_the_end, ..NOTHING }, ", single pages after an urgent one");
    }
    missed
}

/// What leaves the zone is above the mark, looked at under the zone's lock.
#[test]
fn owners_of_pageblocks_leave_the_min_mark_whole() {
    let missed = missed(Model::NEARPAGE);
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// Refills of the rules before took what they wanted once the mark was passed, as Linux's do. Threads at once also passed the
/// mark together, before one of them had the zone's lock.
#[test]
fn the_rules_of_0_1_miss_the_min_mark_in_all_storages() {
    let missed = missed(Model::LINUX_6_18);
    println!("{}", missed.join("\n"));
    for storage in STORAGES {
        for ask in [PAGE, Ask::Block(Order(9)), Ask::Bulk] {
            let start = format!("64 MiB, {storage:?}, 1 threads, {ask:?}: ");
            let of_start = missed.iter().filter(|missed| missed.starts_with(&start));
            assert_eq!(of_start.count(), 1, "{start}");
        }
    }
}
