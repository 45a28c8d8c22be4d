//! Rounds in which all locks take turns.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::contestants::{Contestant, Work};
use crate::stats::Summary;
use crate::timing::{Effort, Gate, ns_per_operation, repeat};
use crate::workers::Workers;

/// What is measured, by the names that the JSON has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bench {
    /// One thread.
    LockPair,
    /// Two threads on one lock.
    LockContended,
}

impl Bench {
    /// Both.
    pub const ALL: [Bench; 2] = [Bench::LockPair, Bench::LockContended];

    /// Threads at work, each on a CPU of its own.
    pub fn threads(self) -> usize {
        match self {
            Bench::LockPair => 1,
            Bench::LockContended => 2,
        }
    }

    fn duration(self, effort: &Effort) -> Duration {
        match self {
            Bench::LockPair => effort.sample,
            // Long enough for sleeps and wake-ups.
            Bench::LockContended => effort.cross,
        }
    }

    fn work(self, lock: &(dyn Work + Sync), count: usize) {
        match self {
            Bench::LockPair => lock.pairs(count),
            Bench::LockContended => lock.additions(count),
        }
    }
}

/// The measurements of all rounds of one lock.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub bench: Bench,
    /// Whose lock.
    pub allocator: &'static str,
    pub threads: usize,
    /// Nothing that is counted: 0.
    pub n: usize,
    pub ns_median: f64,
    pub ns_min: f64,
    pub ns_max: f64,
}

/// Measures all locks in turns; the rows are by benchmark, then in the order of `locks`.
pub fn compete(locks: &[Contestant], workers: &Workers, effort: &Effort) -> Vec<Row> {
    let benches = Bench::ALL.into_iter().filter(|bench| bench.threads() <= workers.count());
    let mut rows = Vec::new();
    for bench in benches {
        let mut ns = vec![Vec::new(); locks.len()];
        for round in 0..=effort.rounds {
            for turn in 0..locks.len() {
                let at = (round + turn) % locks.len();
                let measured = measure(bench, locks[at], workers, effort);
                // The first round warms the caches.
                if round > 0 {
                    ns[at].push(measured);
                }
            }
        }
        rows.extend(locks.iter().zip(&ns).filter_map(|(lock, ns)| row(bench, lock.name, ns)));
    }
    rows
}

fn row(bench: Bench, allocator: &'static str, ns: &[f64]) -> Option<Row> {
    // A picosecond is far below what repeats.
    let round = |ns: f64| (ns * 1000.0).round() / 1000.0;
    let Summary { median, min, max } = Summary::of(ns)?;
    let (ns_median, ns_min, ns_max) = (round(median), round(min), round(max));
    Some(Row { bench, allocator, threads: bench.threads(), n: 0, ns_median, ns_min, ns_max })
}

/// Nanoseconds per lock and unlock.
///
/// # Panics
///
/// If two threads had the lock at once.
fn measure(bench: Bench, lock: Contestant, workers: &Workers, effort: &Effort) -> f64 {
    let threads = bench.threads();
    let (gate, duration) = (Arc::new(Gate::new(threads)), bench.duration(effort));
    let before = lock.work.sum();
    let phases = workers.on_each(threads, move |_| {
        let chunk = chunk(|count| lock.work.pairs(count));
        gate.wait();
        repeat(duration, chunk, || bench.work(lock.work, chunk))
    });
    let done: usize = phases.iter().map(|phase| phase.operations).sum();
    let added = if bench == Bench::LockContended { done as u64 } else { 0 };
    assert_eq!(lock.work.sum() - before, added, "{}: two threads had the lock at once", lock.name);
    ns_per_operation(&phases)
}

/// How many pairs last long against a look at the clock.
fn chunk(pairs: impl Fn(usize)) -> usize {
    let lasts = |&count: &usize| {
        let start = Instant::now();
        pairs(count);
        start.elapsed() >= Duration::from_micros(30)
    };
    (4..).map(|shift| 1 << shift).find(lasts).expect("the series has no end")
}

#[cfg(test)]
mod tests {
    use super::super::contestants;
    use super::*;

    #[test]
    fn all_locks_have_rows_and_keep_their_sums() {
        let workers = Workers::start().expect("pinned threads");
        let (sample, cross) = (Duration::from_micros(100), Duration::from_millis(1));
        let effort = Effort { rounds: 1, sample, cross, ..Effort::FULL };
        let locks = contestants::all().expect("memory for pages");
        let rows = compete(&locks, &workers, &effort);
        let benches = Bench::ALL.iter().filter(|bench| bench.threads() <= workers.count()).count();
        assert_eq!(rows.len(), benches * locks.len());
        assert!(rows.iter().all(|row| row.ns_median > 0.0 && row.ns_median.is_finite()));
        let json = serde_json::to_value(&rows[0]).expect("a row");
        assert_eq!((json["bench"].as_str(), json["n"].as_u64()), (Some("lock_pair"), Some(0)));
    }
}
