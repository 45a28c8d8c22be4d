//! `lab costs`: tables of costs that come along, and one measured on the machine at hand.
//!
//! Measured are what a program without privileges can: hits in caches by chains of loads (each address is in the line
//! before), memory by such a chain far larger than the caches, an atomic operation, a line that two CPUs take from each
//! other, and clearing pages. Each is the best of a few rounds: others on the machine only make it slower. Distances beyond
//! the own node are scaled by the machine's table of distances, and say so.

use std::fmt::Write;
use std::fs;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::super::CommandError;
use super::super::bench::{Cpus, StepError};
use nearpage_lab::catalog;

const LINE_BYTES: usize = 64;
/// Loads of a chain that are timed, and how often.
const LOADS: usize = 1 << 20;
const ROUNDS: usize = 5;

/// A table of a name or in a file, as text; without one, the names.
pub(super) fn show(name: Option<&str>) -> Result<String, CommandError> {
    let Some(name) = name else {
        let names: Vec<&str> = catalog::cost_names().collect();
        return Ok(format!(
            "Tables of costs (`nearpage lab costs NAME`): {}\nMeasure one here: `nearpage lab costs --measure`\n",
            names.join(", ")
        ));
    };
    let text = catalog::costs_text(name).map_err(super::LabFailure::from)?;
    Ok(text)
}

/// A table for this machine.
pub(super) fn measure() -> Result<String, CommandError> {
    let caches = Caches::read();
    let mut text = format!(
        "# Measured by `nearpage lab costs --measure`.\nschema = 1\nname = \"this machine, {} CPUs\"\n",
        std::thread::available_parallelism().map_or(1, usize::from)
    );
    let mut line = |key: &str, value: String, source: &str| {
        let _ = writeln!(text, "{key} = {{ value = {value}, source = \"{source}\" }}");
    };
    line("line_bytes", LINE_BYTES.to_string(), "K");
    line("frame_bytes", "64".into(), "K struct page of Linux on 64 bits");
    line("private_cache_kb", caches.private_kb.to_string(), caches.source);
    line("node_cache_kb", caches.node_kb.to_string(), caches.source);
    let own_ns = chain_ns((caches.private_kb as usize) << 9);
    line("own_hit_ns", format!("{own_ns:.1}"), "M chain of loads over half of the private cache");
    let node_bytes = ((caches.private_kb as usize) << 12).min((caches.node_kb as usize) << 9);
    let node_ns = chain_ns(node_bytes);
    line(
        "node_hit_ns",
        format!("{node_ns:.1}"),
        "M chain of loads over four private caches, at most half of the node's",
    );
    let (transfer_ns, transfer_source) = match ping_pong_ns()? {
        Some(ns) => (ns, "M two CPUs take a line from each other"),
        None => (node_ns, "D as a hit in the node's cache: there is one CPU only"),
    };
    let classes = Distances::read();
    line("transfer_ns", classes.scaled(transfer_ns), &classes.source(transfer_source));
    // No larger than twice the cache that the kernel reports, which on a shared machine may be others' too.
    let memory_ns = chain_ns(((caches.node_kb as usize) << 11).clamp(64 << 20, 1 << 30));
    line(
        "memory_ns",
        classes.scaled(memory_ns),
        &classes.source("M chain of loads over twice the node's cache, 64 MB to 1 GB"),
    );
    let atomic_ns = atomic_ns();
    line("atomic_ns", format!("{atomic_ns:.1}"), "M fetch_add on a line of the CPU's own");
    line("handoff_ns", classes.scaled(transfer_ns + atomic_ns), "D transfer and atomic");
    line("reread_ns", "0.0".into(), "K queued locks");
    line(
        "page_clear_ns",
        classes.scaled(clear_ns()),
        &classes.source("M zeroes over 64 MB, a page"),
    );
    Ok(text)
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

    fn scaled(&self, ns: f64) -> String {
        let own = f64::from(self.0[0]);
        let all = self.0.iter().map(|&distance| format!("{:.1}", ns * f64::from(distance) / own));
        format!("[{}]", all.collect::<Vec<_>>().join(", "))
    }

    fn source(&self, of_own: &str) -> String {
        match self.0.len() {
            1 => of_own.to_owned(),
            _ => format!("{of_own}; other nodes D: times distance / 10"),
        }
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
fn ping_pong_ns() -> Result<Option<f64>, CommandError> {
    // Rounds are short: on a busy machine some of many pass while nobody takes a CPU away.
    const TURNS: u64 = 2000;
    const ROUNDS: usize = 40;
    let cpus = Cpus::allowed().map_err(StepError::from).map_err(unmeasured)?;
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
        let times = cpus.run(2, |number, _| Ok(play(number))).map_err(unmeasured)?;
        best = times.into_iter().fold(best, f64::min);
    }
    Ok(Some(best))
}

fn unmeasured(error: StepError) -> CommandError {
    CommandError::Usage(format!("costs cannot be measured: {error}"))
}
