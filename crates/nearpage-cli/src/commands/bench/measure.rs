//! Time: looks at the clock, samples, rounds, and what is said of them.
//!
//! A look at the clock costs as much as ten allocations. So many operations are done between two looks,
//! and what a look costs is measured once and taken off. A *sample* is [`SAMPLE_OPERATIONS`] operations
//! of one thread, if nothing else is said; a *phase* is a run of samples; a *round* does every step of a
//! benchmark once, so that what drifts (the CPU's clock, other load) hits all allocators alike. Median, min and
//! max are over the rounds, each the mean of its samples: some samples have a drain in them and some have none, and
//! a median of samples would be of those without. Only the 99th percentile is over samples.

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
}

/// What one thread did.
#[derive(Clone, Debug)]
pub struct Phase {
    /// Nanoseconds per operation, sample by sample.
    pub samples_ns: Vec<f64>,
}

/// Takes the time of a phase.
pub struct Stopwatch {
    clock: Clock,
    start: Instant,
    /// When the last sample ended.
    end: Instant,
    samples_ns: Vec<f64>,
}

impl Stopwatch {
    /// Starts a phase now.
    pub fn start(clock: Clock) -> Self {
        let samples_ns = Vec::with_capacity(SAMPLES_KEPT);
        let now = Instant::now();
        Self { clock, start: now, end: now, samples_ns }
    }

    /// Ends a sample, in which `operations` were done; returns how long the phase has lasted.
    #[inline]
    pub fn lap(&mut self, operations: usize) -> Duration {
        let now = Instant::now();
        if self.samples_ns.len() < SAMPLES_KEPT {
            let time = (now - self.end).saturating_sub(self.clock.look);
            self.samples_ns.push(time.as_nanos() as f64 / operations as f64);
        }
        self.end = now;
        now - self.start
    }

    /// Ends the phase with its last sample.
    pub fn stop(self) -> Phase {
        Phase { samples_ns: self.samples_ns }
    }
}

/// What is said of one thing.
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
        let count = sorted.len();
        Some(Self {
            median: (sorted[(count - 1) / 2] + sorted[count / 2]) / 2.0,
            min,
            max,
            mean: values.iter().sum::<f64>() / count as f64,
        })
    }
}

/// The smallest value that 99 % do not exceed; `None` if there are none.
pub fn percentile_99(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values);
    sorted.get((sorted.len() * 99).div_ceil(100).checked_sub(1)?).copied()
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
        assert_eq!(percentile_99(&values), Some(99.0));
        assert_eq!(percentile_99(&values[..99]), Some(100.0));
        assert_eq!(percentile_99(&[7.0]), Some(7.0));
        assert_eq!(percentile_99(&[]), None);
    }

    #[test]
    fn samples_are_per_operation_and_without_the_look() {
        let clock = Clock { look: Duration::from_micros(100) };
        let mut watch = Stopwatch::start(clock);
        std::thread::sleep(Duration::from_millis(2));
        let lasted = watch.lap(10);
        let phase = watch.stop();
        assert_eq!(phase.samples_ns, [(lasted.as_nanos() as f64 - 100_000.0) / 10.0]);
    }
}
