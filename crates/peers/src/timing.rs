//! Time of one piece of work, on one thread or several.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How much work is done to measure something.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Rounds that count; one more comes before them.
    pub rounds: usize,
    /// How long one measurement of a repeated operation lasts at least.
    pub sample: Duration,
    /// How long `cross` lasts at least, after it has settled.
    pub cross: Duration,
    /// Pages held in `fill`, `free_*` and `replace`, by all threads together.
    pub fill_pages: usize,
    /// Pages held in `fill` and `free_*` by allocators that never touch their pages, in memories of their own.
    pub large_pages: usize,
    /// The largest number of pages per call; the series are the powers of two up to it, and 3.
    pub batch_max: usize,
}

impl Effort {
    /// What `pages` does.
    pub const FULL: Effort = Effort {
        rounds: 7,
        sample: Duration::from_millis(2),
        cross: Duration::from_millis(20),
        fill_pages: 200_000,
        large_pages: 2_000_000,
        batch_max: 16_384,
    };
}

/// What one thread did between two looks at the clock.
#[derive(Clone, Copy, Debug)]
pub struct Phase {
    /// When it began.
    pub start: Instant,
    /// When it ended.
    pub end: Instant,
    /// Operations in between.
    pub operations: usize,
}

/// Runs `work`, which does `operations` of them.
pub fn phase(operations: usize, work: impl FnOnce()) -> Phase {
    let start = Instant::now();
    work();
    Phase { start, end: Instant::now(), operations }
}

/// Repeats `work`, which does `operations` of them, until `duration` has passed.
///
/// One repetition must be long against a look at the clock.
pub fn repeat(duration: Duration, operations: usize, mut work: impl FnMut()) -> Phase {
    let start = Instant::now();
    let mut done = 0;
    loop {
        work();
        done += operations;
        let end = Instant::now();
        if end - start >= duration {
            return Phase { start, end, operations: done };
        }
    }
}

/// Wall time × threads / operations of phases that ran side by side.
pub fn ns_per_operation(phases: &[Phase]) -> f64 {
    let start = phases.iter().map(|phase| phase.start).min();
    let end = phases.iter().map(|phase| phase.end).max();
    let operations: usize = phases.iter().map(|phase| phase.operations).sum();
    match (start, end) {
        (Some(start), Some(end)) => {
            (end - start).as_nanos() as f64 * phases.len() as f64 / operations as f64
        }
        _ => f64::NAN,
    }
}

/// What a look at the clock adds to the time between two of them: the median of many.
pub fn clock_cost() -> Duration {
    let mut costs: Vec<Duration> = (0..1001)
        .map(|_| {
            let start = Instant::now();
            start.elapsed()
        })
        .collect();
    costs.sort();
    costs[costs.len() / 2]
}

/// Lets threads that run on CPUs of their own start at the same time.
///
/// It spins: a thread that sleeps would start tens of microseconds after the one that wakes it.
pub struct Gate {
    threads: usize,
    arrived: AtomicUsize,
}

impl Gate {
    /// A gate for `threads` threads.
    pub fn new(threads: usize) -> Gate {
        Gate { threads, arrived: AtomicUsize::new(0) }
    }

    /// Waits until all threads have come here as often as this one has.
    pub fn wait(&self) {
        // AcqRel and Acquire: what a thread did before the gate is done for those behind it.
        let arrived = self.arrived.fetch_add(1, Ordering::AcqRel);
        let open = (arrived / self.threads + 1) * self.threads;
        while self.arrived.load(Ordering::Acquire) < open {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_the_wall_time_from_the_first_start_to_the_last_end() {
        let start = Instant::now();
        let at = |us| start + Duration::from_micros(us);
        let phases = [
            Phase { start: at(0), end: at(80), operations: 1000 },
            Phase { start: at(20), end: at(100), operations: 1000 },
        ];
        assert_eq!(ns_per_operation(&phases), 100.0);
        assert_eq!(ns_per_operation(&phases[..1]), 80.0);
    }

    #[test]
    fn repeat_goes_on_until_the_time_has_passed() {
        let mut calls = 0;
        let phase = repeat(Duration::from_millis(1), 10, || calls += 1);
        assert!(phase.end - phase.start >= Duration::from_millis(1));
        assert_eq!(phase.operations, calls * 10);
    }

    #[test]
    fn gate_holds_threads_together_time_after_time() {
        let gate = Gate::new(2);
        let steps = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for turn in 0..1000 {
                        gate.wait();
                        let seen = steps.fetch_add(1, Ordering::Relaxed);
                        assert!((2 * turn..2 * turn + 2).contains(&seen));
                        gate.wait();
                    }
                });
            }
        });
    }
}
