//! Time: looks at the clock, samples, rounds, and what is said of them.
//!
//! A look at the clock costs as much as ten allocations. So many operations are done between two looks,
//! and what a look costs is measured once and taken off. A *sample* is [`SAMPLE_OPERATIONS`] operations
//! of one thread, if nothing else is said; a *phase* is a run of samples; a *round* does every step of a
//! benchmark once, so that what drifts (the CPU's clock, other load) hits all allocators alike. Median, min and
//! max are over the rounds: some samples have a drain in them and some have none, and a median of samples would
//! be of those without. Only the 99th percentile is over samples.

use std::time::{Duration, Instant};

/// Operations between two looks at the clock.
pub const SAMPLE_OPERATIONS: usize = 1024;
/// Samples of one phase that are kept; memory for them is there before the clock starts.
const SAMPLES_KEPT: usize = 1 << 14;

/// The clock, and what a look at it costs.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// What a look adds to the time between two looks.
    pub look: Duration,
}

impl Clock {
    /// Takes the median of many pairs of looks.
    pub fn calibrate() -> Self {
        let mut looks: Vec<Duration> = (0..10_001).map(|_| Instant::now().elapsed()).collect();
        looks.sort_unstable();
        Self { look: looks[looks.len() / 2] }
    }

    /// Time between two looks with `looks` looks in it, the last one included.
    pub fn ns_without(self, looks: u32, time: Duration) -> f64 {
        time.saturating_sub(self.look * looks).as_nanos() as f64
    }
}

/// What one thread did, and when.
#[derive(Clone, Debug)]
pub struct Phase {
    start: Instant,
    end: Instant,
    looks: u32,
    operations: usize,
    /// Nanoseconds per operation, sample by sample.
    pub samples_ns: Vec<f64>,
}

/// Takes the time of a phase.
pub struct Stopwatch {
    clock: Clock,
    phase: Phase,
}

impl Stopwatch {
    /// Starts a phase now.
    pub fn start(clock: Clock) -> Self {
        let samples_ns = Vec::with_capacity(SAMPLES_KEPT);
        let now = Instant::now();
        Self { clock, phase: Phase { start: now, end: now, looks: 0, operations: 0, samples_ns } }
    }

    /// Ends a sample, in which `operations` were done; returns how long the phase has lasted.
    #[inline]
    pub fn lap(&mut self, operations: usize) -> Duration {
        let phase = &mut self.phase;
        let now = Instant::now();
        if phase.samples_ns.len() < SAMPLES_KEPT {
            let ns = self.clock.ns_without(1, now - phase.end);
            phase.samples_ns.push(ns / operations as f64);
        }
        phase.end = now;
        phase.looks += 1;
        phase.operations += operations;
        now - phase.start
    }

    /// Ends the phase with its last sample.
    pub fn stop(self) -> Phase {
        self.phase
    }
}

/// Nanoseconds per operation of threads that worked side by side: wall time x threads / operations.
pub fn ns_per_operation(clock: Clock, phases: &[Phase]) -> f64 {
    let operations: usize = phases.iter().map(|phase| phase.operations).sum();
    let looks = phases.iter().map(|phase| phase.looks).min().unwrap_or(0);
    let start = phases.iter().map(|phase| phase.start).min();
    let end = phases.iter().map(|phase| phase.end).max();
    let wall = end.zip(start).map_or(Duration::ZERO, |(end, start)| end - start);
    clock.ns_without(looks, wall) * phases.len() as f64 / operations as f64
}

/// What is said of the rounds of one thing.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Summary {
    /// The middle one; of an even number, the mean of the two in the middle.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// The arithmetic mean.
    pub mean: f64,
}

impl Summary {
    /// Summarizes `values`; `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let sorted = sorted(values);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let median = (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2]) / 2.0;
        Some(Self { median, min, max, mean: values.iter().sum::<f64>() / values.len() as f64 })
    }
}

/// The smallest values that so many of 10 000 among `values` do not exceed; `None` if there are no values.
pub fn percentiles<const N: usize>(values: &[f64], of_10_000: [usize; N]) -> Option<[f64; N]> {
    let sorted = sorted(values);
    let rank = |share: usize| (sorted.len() * share).div_ceil(10_000);
    let last = sorted.len().checked_sub(1)?;
    Some(of_10_000.map(|share| sorted[rank(share).saturating_sub(1).min(last)]))
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_has_the_middle_and_both_ends() {
        let odd = Summary::of(&[9.0, 1.0, 5.0]).unwrap();
        assert_eq!(odd, Summary { median: 5.0, min: 1.0, max: 9.0, mean: 5.0 });
        let even = Summary::of(&[4.0, 2.0, 100.0, 8.0]).unwrap();
        assert_eq!(even, Summary { median: 6.0, min: 2.0, max: 100.0, mean: 28.5 });
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn one_in_a_hundred_is_above_the_percentile() {
        let values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(percentiles(&values, [9900]), Some([99.0]));
        assert_eq!(percentiles(&values, [9900, 9990, 5000]), Some([99.0, 100.0, 50.0]));
        assert_eq!(percentiles(&values[..99], [9900]), Some([100.0]));
        assert_eq!(percentiles(&[7.0], [9900, 9999]), Some([7.0, 7.0]));
        assert_eq!(percentiles(&[], [9900]), None);
    }

    fn phase(start: Instant, from_us: u64, to_us: u64, looks: u32) -> Phase {
        let at = |us| start + Duration::from_micros(us);
        let (start, end) = (at(from_us), at(to_us));
        Phase { start, end, looks, operations: 1000, samples_ns: Vec::new() }
    }

    #[test]
    fn threads_share_the_wall_time_from_the_first_start_to_the_last_end() {
        let now = Instant::now();
        let phases = [phase(now, 0, 80, 1), phase(now, 20, 100, 2)];
        let free = Clock { look: Duration::ZERO };
        assert_eq!(ns_per_operation(free, &phases), 100.0);
        assert_eq!(ns_per_operation(free, &phases[..1]), 80.0);
        let dear = Clock { look: Duration::from_micros(10) };
        assert_eq!(ns_per_operation(dear, &phases), 90.0);
        assert_eq!(ns_per_operation(dear, &phases[..1]), 70.0);
    }

    #[test]
    fn samples_are_per_operation_and_without_the_look() {
        let clock = Clock { look: Duration::from_micros(100) };
        let mut watch = Stopwatch::start(clock);
        std::thread::sleep(Duration::from_millis(2));
        let lasted = watch.lap(10);
        let phase = watch.stop();
        assert_eq!(phase.operations, 10);
        assert_eq!(phase.samples_ns, [(lasted.as_nanos() as f64 - 100_000.0) / 10.0]);
    }
}
