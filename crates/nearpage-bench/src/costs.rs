//! A table of costs of this machine, for simulated ones.
//!
//! It has what a program without privileges can measure: hits in caches by chains of loads (each address is in the line
//! before), memory by such a chain far larger than the caches, an atomic operation, a line that two CPUs take from each
//! other, and clearing pages. Each figure is the best of a few rounds: other work on the machine only makes it slower.
//! Figures for other nodes are scaled by the machine's table of distances; their source says so.

use std::collections::BTreeMap;
use std::fs;
use std::hint::black_box;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use nearpage_machine::work::{Observer, Stopped};
use nearpage_sim::{Costs, Figure};

use crate::step::StepError;
use crate::threads::Cpus;

const LINE_BYTES: usize = 64;
/// Loads of a chain that are timed, and how often.
const LOADS: usize = 1 << 20;
const ROUNDS: usize = 5;
/// Figures that are measured: own hit, node hit, transfer, memory, atomic, clear.
const MEASURED: u64 = 6;

/// Why costs were not measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// This process does not learn where it may run.
    #[error(transparent)]
    Cpus(io::Error),
    /// Two threads could not run on CPUs of their own.
    #[error(transparent)]
    Step(#[from] StepError),
    /// The observer ended it.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Measures a table for this machine. It takes some seconds.
///
/// # Errors
///
/// [`MeasureError`].
pub fn measure(observer: &dyn Observer) -> Result<Costs, MeasureError> {
    let caches = Caches::read();
    let distances = Distances::read();
    let mut done = 0;
    let mut next = || {
        done += 1;
        observer.step(done - 1, MEASURED)
    };
    next()?;
    let own_ns = chain_ns((caches.private_kb as usize) << 9);
    next()?;
    let node_bytes = ((caches.private_kb as usize) << 12).min((caches.node_kb as usize) << 9);
    let node_ns = chain_ns(node_bytes);
    next()?;
    let (transfer_ns, transfer_source) = match ping_pong_ns()? {
        Some(ns) => (ns, "M two CPUs take a line from each other"),
        None => (node_ns, "D as a hit in the node's cache: there is one CPU only"),
    };
    next()?;
    // No larger than twice the cache that the kernel reports, which on a shared machine may be others' too.
    let memory_ns = chain_ns(((caches.node_kb as usize) << 11).clamp(64 << 20, 1 << 30));
    next()?;
    let atomic_ns = atomic_ns();
    next()?;
    let clear_ns = clear_ns();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(Costs {
        schema: 1,
        name: format!("this machine, {cpus} CPUs"),
        line_bytes: figure(LINE_BYTES as u32, "K"),
        frame_bytes: figure(64, "K struct page of Linux on 64 bits"),
        private_cache_kb: figure(caches.private_kb, caches.source),
        node_cache_kb: figure(caches.node_kb, caches.source),
        own_hit_ns: figure(tenths(own_ns), "M chain of loads over half of the private cache"),
        node_hit_ns: figure(
            tenths(node_ns),
            "M chain of loads over four private caches, at most half of the node's",
        ),
        transfer_ns: distances.figure(transfer_ns, transfer_source),
        memory_ns: distances
            .figure(memory_ns, "M chain of loads over twice the node's cache, 64 MB to 1 GB"),
        atomic_ns: figure(tenths(atomic_ns), "M fetch_add on a line of the CPU's own"),
        handoff_ns: Figure {
            value: distances.scaled(transfer_ns + atomic_ns),
            source: "D transfer and atomic".into(),
        },
        reread_ns: figure(0.0, "K queued locks"),
        home_service_ns: Figure::not_modelled(),
        load_slowdown: Figure::not_modelled(),
        page_clear_ns: distances.figure(clear_ns, "M zeroes over 64 MB, a page"),
        more: BTreeMap::new(),
    })
}

fn figure<T>(value: T, source: &str) -> Figure<T> {
    Figure { value, source: source.into() }
}

/// A tenth of a nanosecond is far below what repeats.
fn tenths(ns: f64) -> f64 {
    (ns * 10.0).round() / 10.0
}

/// What the kernel says of the first CPU's caches.
struct Caches {
    private_kb: u32,
    node_kb: u32,
    source: &'static str,
}

impl Caches {
    fn read() -> Self {
        let kb = |index: u32| {
            let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size");
            let text = fs::read_to_string(path).ok()?;
            text.trim().strip_suffix('K')?.parse::<u32>().ok().filter(|&kb| kb > 0)
        };
        match (kb(2), kb(3)) {
            (Some(private_kb), Some(node_kb)) => {
                Self { private_kb, node_kb, source: "M /sys/devices/system/cpu/cpu0/cache" }
            }
            _ => Self { private_kb: 1024, node_kb: 32768, source: "K the kernel does not say" },
        }
    }
}

/// The distinct distances of the machine, ascending.
struct Distances(Vec<u32>);

impl Distances {
    fn read() -> Self {
        let of_node = |entry: fs::DirEntry| fs::read_to_string(entry.path().join("distance")).ok();
        let folder = fs::read_dir("/sys/devices/system/node").into_iter().flatten().flatten();
        let texts: Vec<String> = folder.filter_map(of_node).collect();
        let mut all: Vec<u32> =
            texts.iter().flat_map(|text| text.split_whitespace()).flat_map(str::parse).collect();
        all.push(10);
        all.sort_unstable();
        all.dedup();
        Self(all)
    }

    fn figure(&self, own_ns: f64, source: &str) -> Figure<Vec<f64>> {
        let source = match self.0.len() {
            1 => source.to_owned(),
            _ => format!("{source}; other nodes D: times distance / 10"),
        };
        Figure { value: self.scaled(own_ns), source }
    }

    fn scaled(&self, own_ns: f64) -> Vec<f64> {
        let own = f64::from(self.0[0]);
        self.0.iter().map(|&distance| tenths(own_ns * f64::from(distance) / own)).collect()
    }
}

/// A load of a chain through as many bytes, in an order that nothing can guess.
fn chain_ns(bytes: usize) -> f64 {
    let lines = (bytes / LINE_BYTES).max(2);
    let mut order: Vec<u32> = (0..lines as u32).collect();
    let mut rng = fastrand::Rng::with_seed(1);
    // Sattolo's: one cycle through all.
    for at in (1..lines).rev() {
        order.swap(at, rng.usize(..at));
    }
    let stride = LINE_BYTES / size_of::<u32>();
    let mut chain = vec![0u32; lines * stride];
    for (from, to) in order.iter().enumerate() {
        chain[from * stride] = to * stride as u32;
    }
    let mut at = 0u32;
    best_ns(LOADS, || {
        for _ in 0..LOADS {
            at = chain[at as usize];
        }
        black_box(at);
    })
}

fn atomic_ns() -> f64 {
    let word = AtomicU64::new(0);
    best_ns(LOADS, || {
        for _ in 0..LOADS {
            black_box(&word).fetch_add(1, Ordering::Relaxed);
        }
    })
}

fn clear_ns() -> f64 {
    const PAGES: usize = 1 << 14;
    let mut memory = vec![1u8; PAGES << 12];
    best_ns(PAGES, || {
        memory.chunks_exact_mut(1 << 12).for_each(|page| black_box(page).fill(0));
    })
}

/// Nanoseconds of one of `count`, the best of a few rounds after one that does not count.
fn best_ns(count: usize, mut work: impl FnMut()) -> f64 {
    work();
    let mut round = || {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64() * 1e9 / count as f64
    };
    (0..ROUNDS).map(|_| round()).fold(f64::INFINITY, f64::min)
}

/// How long a line takes from one CPU to the other; `None` if there is one CPU only.
fn ping_pong_ns() -> Result<Option<f64>, MeasureError> {
    // Rounds are short: on a busy machine some of many pass while nobody takes a CPU away.
    const TURNS: u64 = 2000;
    const ROUNDS: usize = 40;
    let cpus = Cpus::allowed().map_err(MeasureError::Cpus)?;
    if cpus.count() < 2 {
        return Ok(None);
    }
    let turn = AtomicU64::new(0);
    let play = |me: usize| {
        let start = Instant::now();
        for mine in (me as u64..2 * TURNS).step_by(2) {
            while turn.load(Ordering::Acquire) != mine {
                std::hint::spin_loop();
            }
            turn.store(mine + 1, Ordering::Release);
        }
        start.elapsed().as_secs_f64() * 1e9 / (2 * TURNS) as f64
    };
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        turn.store(0, Ordering::Relaxed);
        let times = cpus.run(2, |number, _| Ok(play(number)))?;
        best = times.into_iter().fold(best, f64::min);
    }
    Ok(Some(best))
}
