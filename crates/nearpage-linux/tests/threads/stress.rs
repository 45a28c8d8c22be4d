//! Stress: threads allocate and free while they are moved between CPUs, their sequences aborted by
//! signals, and pagesets drained by another thread. At the end every page must be where it was.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nearpage::testing::random::Random;
use nearpage::{CpuId, Model, NodeId, PageCount, Settings};
use nearpage_linux::{HostMachine, HostNode, Memory, MemoryBuilder};

use super::pages::Pages;
use super::shadow::{Block, Shadow};
use super::worker::{Shared, Tally, Worker};
use super::{affinity, alone, seed, signals};

/// How to stress.
#[derive(Clone, Debug)]
pub struct Plan {
    pub time: Duration,
    pub workers: u32,
    /// CPUs that threads are moved between.
    pub cpus: Vec<CpuId>,
    /// Pages that each thread may hold.
    pub pages_most: PageCount,
    pub seed: u64,
}

impl Plan {
    /// Eight threads that between them hold up to `share` percent of `pages`, for `seconds`, or for as long
    /// as `NEARPAGE_STRESS_SECONDS` says.
    pub fn new(pages: PageCount, share: u64, seconds: f64) -> Self {
        let told = std::env::var("NEARPAGE_STRESS_SECONDS");
        let seconds = told.map_or(seconds, |told| told.parse().expect("seconds are a number"));
        let workers = 8;
        Self {
            time: Duration::from_secs_f64(seconds),
            workers,
            cpus: affinity::allowed_cpus(),
            pages_most: PageCount(pages.0 * share / 100 / workers as u64),
            seed: seed().unwrap_or(1),
        }
    }
}

/// What happened in a stress.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    tally: Tally,
    seconds: f64,
    signals: u64,
    aborts: u64,
    moves: u64,
    drains: u64,
    drains_busy: u64,
    pages_drained: u64,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { operations, pages_allocated, refused, .. } = self.tally;
        write!(
            f,
            "{:.1} s: {operations} operations, {pages_allocated} pages allocated, {refused} requests refused; \
             {} signals, {} aborts ({:.0}/s); {} moves; {} drains from outside of {} pages, {} found the CPU busy",
            self.seconds,
            self.signals,
            self.aborts,
            self.aborts as f64 / self.seconds,
            self.moves,
            self.drains,
            self.pages_drained,
            self.drains_busy,
        )
    }
}

/// Runs a stress and looks at what is left.
///
/// # Errors
/// What was found wrong, in words.
pub fn stress<P: Pages>(pages: &P, plan: &Plan) -> Result<Figures, String> {
    let _alone = alone();
    let shadow = Shadow::new(pages.topology());
    let exchange = Mutex::new(Vec::new());
    let stop = AtomicBool::new(false);
    let pages_most = plan.pages_most;
    let shared = Shared { pages, shadow: &shadow, exchange: &exchange, pages_most, stop: &stop };
    let mut figures = run(&shared, plan)?;
    let left = std::mem::take(&mut *exchange.lock().unwrap());
    for block in left {
        free(&shared, block, &mut figures)?;
    }
    all_is_back(pages, &shadow, figures.tally)?;
    Ok(figures)
}

fn free<P: Pages>(
    shared: &Shared<'_, P>,
    block: Block,
    figures: &mut Figures,
) -> Result<(), String> {
    shared.shadow.give(shared.pages, block)?;
    figures.tally.pages_freed += block.order.pages().0;
    shared.pages.free(block.first, block.order).map_err(|error| format!("{block:x?}: {error}"))
}

/// Threads and those who disturb them.
fn run<P: Pages>(shared: &Shared<'_, P>, plan: &Plan) -> Result<Figures, String> {
    let disturbance = Disturbance::default();
    let threads = Mutex::new(Vec::new());
    let all_there = Barrier::new(plan.workers as usize + 1);
    let failed = AtomicBool::new(false);
    let (start, before) = (Instant::now(), signals::counts());
    let results: Vec<Result<Tally, String>> = thread::scope(|scope| {
        let (threads, all_there, failed) = (&threads, &all_there, &failed);
        let workers = (1..=plan.workers).map(|number| {
            scope.spawn(move || {
                threads.lock().unwrap().push((signals::this_thread(), affinity::this_thread()));
                all_there.wait();
                let worker = Worker::new(shared, number, plan.seed);
                let result = note_failure(failed, || worker.run());
                // Whoever sends signals to this thread must be done before it ends.
                while !shared.stop.load(Ordering::Relaxed) {
                    thread::yield_now();
                }
                result
            })
        });
        let workers: Vec<_> = workers.collect();
        all_there.wait();
        let threads = threads.lock().unwrap().clone();
        disturbance.during(shared.pages, plan, &threads, failed, || {
            while start.elapsed() < plan.time && !failed.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(5));
            }
        });
        shared.stop.store(true, Ordering::Relaxed);
        workers.into_iter().map(|worker| worker.join().expect("panics were caught")).collect()
    });
    let after = signals::counts();
    let mut figures = disturbance.figures();
    figures.seconds = start.elapsed().as_secs_f64();
    (figures.signals, figures.aborts) = (after.0 - before.0, after.1 - before.1);
    for result in results {
        figures.tally.add(result?);
    }
    if failed.into_inner() {
        Err("who drains or moves threads failed".to_owned())
    } else {
        Ok(figures)
    }
}

/// What `work` returns; a panic is an error, and an error is noted.
fn note_failure<R>(
    failed: &AtomicBool,
    work: impl FnOnce() -> Result<R, String>,
) -> Result<R, String> {
    let result = catch_unwind(AssertUnwindSafe(work));
    let result = result.unwrap_or_else(|_| Err("a thread panicked".to_owned()));
    failed.fetch_or(result.is_err(), Ordering::Relaxed);
    result
}

/// Every page is free, and every counter says what happened.
fn all_is_back(pages: &impl Pages, shadow: &Shadow, tally: Tally) -> Result<(), String> {
    if shadow.held().0 > 0 {
        return Err(format!("{} pages were not freed", shadow.held().0));
    }
    pages.drain_all().map_err(|busy| busy.to_string())?;
    let checked = pages.check().map_err(|error| error.to_string())?;
    if checked.cached.0 + checked.allocated.0 > 0 {
        return Err(format!("pages were lost: {checked:?}"));
    }
    let (text, mut allocated, mut allocations) = (pages.vmstat(), 0, 0);
    for line in text.lines() {
        let (name, value) = line.split_once(' ').expect("a name and a number");
        let value = value.parse::<u64>().expect("a name and a number");
        allocated += if name.starts_with("pgalloc_") { value } else { 0 };
        allocations += if matches!(name, "numa_hit" | "numa_miss") { value } else { 0 };
        if name == "pgfree" && value != tally.pages_freed {
            return Err(format!("{} pages were freed, counted {value}", tally.pages_freed));
        }
    }
    if allocated != tally.pages_allocated {
        return Err(format!("{} pages were allocated, counted {allocated}", tally.pages_allocated));
    }
    if allocations != tally.allocations {
        return Err(format!("{} allocations, hits and misses {allocations}", tally.allocations));
    }
    Ok(())
}

impl Tally {
    fn add(&mut self, other: Tally) {
        self.operations += other.operations;
        self.allocations += other.allocations;
        self.pages_allocated += other.pages_allocated;
        self.pages_freed += other.pages_freed;
        self.refused += other.refused;
    }
}

/// Signals, moves and drains.
#[derive(Default)]
struct Disturbance {
    done: AtomicBool,
    moves: AtomicU64,
    drains: AtomicU64,
    drains_busy: AtomicU64,
    pages_drained: AtomicU64,
}

impl Disturbance {
    /// Disturbs `threads` until `wait` returns. They must not end before this does.
    fn during(
        &self,
        pages: &impl Pages,
        plan: &Plan,
        threads: &[(libc::pthread_t, libc::pid_t)],
        failed: &AtomicBool,
        wait: impl FnOnce(),
    ) {
        let to_signal: Vec<_> = threads.iter().map(|thread| thread.0).collect();
        thread::scope(|scope| {
            // SAFETY: the threads do not end before this scope does.
            scope.spawn(|| unsafe { signals::send_until(&self.done, &to_signal) });
            scope.spawn(|| {
                let moved = note_failure(failed, || self.move_threads(threads, plan));
                moved.inspect_err(|why| eprintln!("{why}"))
            });
            scope.spawn(|| note_failure(failed, || self.drain(pages, plan)));
            wait();
            self.done.store(true, Ordering::Relaxed);
        });
    }

    fn move_threads(
        &self,
        threads: &[(libc::pthread_t, libc::pid_t)],
        plan: &Plan,
    ) -> Result<(), String> {
        let mut random = Random(plan.seed);
        while !self.done.load(Ordering::Relaxed) {
            let (thread, cpu) = (random.one_of(threads).1, random.one_of(&plan.cpus));
            // A CPU may be off for a while.
            let moved = affinity::restrict(thread, &[cpu]);
            self.moves.fetch_add(u64::from(moved), Ordering::Relaxed);
            thread::sleep(Duration::from_micros(random.below(200)));
        }
        match self.moves.load(Ordering::Relaxed) {
            0 => Err("no thread was moved".to_owned()),
            _ => Ok(()),
        }
    }

    fn drain(&self, pages: &impl Pages, plan: &Plan) -> Result<(), String> {
        let mut random = Random(plan.seed);
        let cpus: Vec<CpuId> =
            pages.topology().nodes().iter().flat_map(|node| node.cpus).copied().collect();
        while !self.done.load(Ordering::Relaxed) {
            let drained = match random.below(4) {
                0 => pages.drain_all(),
                1 => pages.decay(),
                _ => pages.drain_cpu(random.one_of(&cpus)),
            };
            self.drains.fetch_add(1, Ordering::Relaxed);
            match drained {
                Ok(pages) => self.pages_drained.fetch_add(pages.0, Ordering::Relaxed),
                Err(_) => self.drains_busy.fetch_add(1, Ordering::Relaxed),
            };
            thread::sleep(Duration::from_micros(random.below(500)));
        }
        Ok(())
    }

    fn figures(&self) -> Figures {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Figures {
            moves: get(&self.moves),
            drains: get(&self.drains),
            drains_busy: get(&self.drains_busy),
            pages_drained: get(&self.pages_drained),
            ..Figures::default()
        }
    }
}

/// Stresses a memory; `share` as in [`Plan::new`].
pub fn stress_memory(test: &str, builder: MemoryBuilder, share: u64, seconds: f64) {
    let memory = builder.build().unwrap();
    let pages = memory.topology().nodes().iter().flat_map(|node| node.memory);
    let pages = PageCount(pages.map(|range| range.pages().0).sum());
    let plan = Plan::new(pages, share, seconds);
    match stress(&memory, &plan) {
        Ok(figures) => println!("{test}, {}: {figures}", memory.storage()),
        Err(wrong) => panic!(
            "{}: {wrong}\nagain: NEARPAGE_SEED={} NEARPAGE_STRESS_SECONDS=60 cargo test -p nearpage-linux \
             --test threads {test}",
            memory.storage(),
            plan.seed
        ),
    }
}

/// One node with all CPUs that this process may use.
fn one_node() -> MemoryBuilder {
    let node = HostNode { id: NodeId(0), cpus: affinity::allowed_cpus(), has_memory: true };
    let machine = HostMachine { nodes: vec![node], distances: vec![10], emulated: true };
    Memory::builder().machine(machine).bytes_per_node(64 << 20)
}

#[test]
fn rings() {
    stress_memory("rings", one_node().use_rseq(true), 70, 1.5);
}

/// Nearly all memory is asked for: zones fall below their watermarks, and requests drain pagesets.
#[test]
fn rings_short_of_memory() {
    stress_memory("rings_short_of_memory", one_node().use_rseq(true).hardened(true), 130, 1.0);
}

#[test]
fn locks() {
    stress_memory("locks", one_node().use_rseq(false), 70, 1.5);
}

#[test]
fn locks_short_of_memory() {
    stress_memory("locks_short_of_memory", one_node().use_rseq(false).hardened(true), 130, 1.0);
}

/// Linux's rules: drains of other sizes, and bulk requests by refills.
#[test]
fn linux_rules() {
    let builder = |model| one_node().model(model);
    stress_memory("linux_rules", builder(Model::LINUX_6_12).use_rseq(true), 70, 0.5);
    stress_memory("linux_rules", builder(Model::LINUX_6_12).use_rseq(false), 70, 0.5);
    stress_memory("linux_rules", builder(Model::LINUX_6_1).use_rseq(true), 70, 0.5);
}

/// CPUs own pageblocks, and threads free into the pagesets of others.
#[test]
fn owned_pageblocks() {
    let mut settings = Settings::default();
    settings.percpu_pagelist_high_fraction = 8;
    let builder = || one_node().model(Model::RFC_2026_OWNED).settings(settings).use_rseq(false);
    stress_memory("owned_pageblocks", builder(), 70, 1.0);
    stress_memory("owned_pageblocks", builder().hardened(true), 130, 1.0);
}

/// CPUs own pageblocks with maps, and what threads free of others' goes home in chains.
#[test]
fn owned_pageblocks_with_maps() {
    let builder = |rseq| one_node().model(Model::NEARPAGE).use_rseq(rseq);
    for rseq in [true, false] {
        stress_memory("owned_pageblocks_with_maps", builder(rseq), 70, 0.7);
        stress_memory("owned_pageblocks_with_maps", builder(rseq).hardened(true), 130, 0.7);
    }
}
