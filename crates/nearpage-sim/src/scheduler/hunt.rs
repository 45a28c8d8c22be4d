//! Schedulers that look for bugs in interleavings. Each choice comes from one seed.

use fastrand::Rng;

use super::Scheduler;

/// Any CPU that has work, at each point anew.
#[derive(Debug)]
pub struct Random {
    rng: Rng,
    ready: Vec<u32>,
}

impl Random {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self { rng: Rng::with_seed(seed), ready: Vec::new() }
    }
}

impl Scheduler for Random {
    fn ready(&mut self, cpu: usize, _clock_ps: u64) {
        self.ready.push(cpu as u32);
    }

    fn next(&mut self) -> Option<usize> {
        if self.ready.is_empty() {
            return None;
        }
        let cpu = self.ready.swap_remove(self.rng.usize(..self.ready.len()));
        Some(cpu as usize)
    }

    fn slice_end_ps(&self) -> u64 {
        0
    }

    fn goes_on(&mut self, _cpu: usize, _clock_ps: u64) -> bool {
        self.ready.is_empty() || self.rng.u8(..) < 128
    }

    fn earliest_ps(&self) -> Option<u64> {
        (!self.ready.is_empty()).then_some(0)
    }

    fn stops_at_touches(&self) -> bool {
        true
    }
}

/// Probabilistic concurrency testing: each CPU has a random priority, the highest runs, and at a few random points
/// the running one falls below all others. Finds a bug that needs `depth` ordering constraints with a probability
/// of at least `1 / (cpus * points^(depth - 1))` a schedule (Burckhardt and others, ASPLOS 2010).
#[derive(Debug)]
pub struct Pct {
    rng: Rng,
    /// By CPU; assigned when first seen.
    priorities: Vec<u64>,
    ready: Vec<u32>,
    /// Points after which the running CPU falls, ascending.
    changes: Vec<u64>,
    points: u64,
}

/// Priorities given at the start lie above those given at changes.
const FIRST: u64 = 1 << 32;

impl Pct {
    /// From a seed, for runs of about `points` points, with `depth - 1` changes of priority.
    pub fn new(seed: u64, points: u64, depth: u32) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut changes: Vec<u64> = (1..depth).map(|_| rng.u64(..points.max(1))).collect();
        changes.sort_unstable();
        let (priorities, ready) = (Vec::new(), Vec::new());
        Self { rng, priorities, ready, changes, points: 0 }
    }

    fn priority(&self, cpu: u32) -> u64 {
        self.priorities[cpu as usize]
    }

    fn highest(&self) -> Option<usize> {
        (0..self.ready.len()).max_by_key(|&at| self.priority(self.ready[at]))
    }
}

impl Scheduler for Pct {
    fn ready(&mut self, cpu: usize, _clock_ps: u64) {
        while self.priorities.len() <= cpu {
            // The low bits tell CPUs apart.
            let priority = (FIRST + u64::from(self.rng.u32(..))) << 16;
            self.priorities.push(priority | self.priorities.len() as u64);
        }
        self.ready.push(cpu as u32);
    }

    fn next(&mut self) -> Option<usize> {
        let at = self.highest()?;
        let cpu = self.ready.swap_remove(at);
        Some(cpu as usize)
    }

    fn slice_end_ps(&self) -> u64 {
        0
    }

    fn goes_on(&mut self, cpu: usize, _clock_ps: u64) -> bool {
        self.points += 1;
        if self.changes.first().is_some_and(|&change| change <= self.points) {
            self.changes.remove(0);
            self.priorities[cpu] = (self.changes.len() as u64) << 16 | cpu as u64;
        }
        let highest = self.highest().map(|at| self.priority(self.ready[at]));
        highest.is_none_or(|priority| self.priorities[cpu] > priority)
    }

    fn earliest_ps(&self) -> Option<u64> {
        (!self.ready.is_empty()).then_some(0)
    }

    fn stops_at_touches(&self) -> bool {
        true
    }
}
