//! Virtual time: the CPU whose clock is lowest runs.

use std::collections::VecDeque;

use super::Scheduler;

/// A CPU that has work, and since when (ps). As one number, which is compared without a branch: the time above the CPU.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Ready(u128);

impl Ready {
    #[inline]
    fn new(clock_ps: u64, cpu: usize) -> Self {
        Self(u128::from(clock_ps) << 64 | cpu as u128)
    }

    #[inline]
    fn clock_ps(self) -> u64 {
        (self.0 >> 64) as u64
    }

    #[inline]
    fn cpu(self) -> usize {
        self.0 as u64 as usize
    }
}

/// Lowest clock first; among equals the lowest CPU.
///
/// CPUs stand in order, not in a heap: who stops is mostly later than all others, so that next to nothing moves.
#[derive(Debug, Default)]
pub struct VirtualTime {
    ready: VecDeque<Ready>,
}

impl Scheduler for VirtualTime {
    fn ready(&mut self, cpu: usize, clock_ps: u64) {
        let new = Ready::new(clock_ps, cpu);
        if self.ready.back().is_none_or(|last| *last < new) {
            return self.ready.push_back(new);
        }
        let at = self.ready.partition_point(|other| *other < new);
        self.ready.insert(at, new);
    }

    fn next(&mut self) -> Option<usize> {
        self.ready.pop_front().map(Ready::cpu)
    }

    fn slice_end_ps(&self) -> u64 {
        self.earliest_ps().unwrap_or(u64::MAX)
    }

    fn goes_on(&mut self, _cpu: usize, clock_ps: u64) -> bool {
        clock_ps <= self.slice_end_ps()
    }

    fn earliest_ps(&self) -> Option<u64> {
        self.ready.front().map(|first| first.clock_ps())
    }

    fn stops_at_touches(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_goes_first_and_of_equals_the_lowest() {
        let (mut rng, mut scheduler) = (fastrand::Rng::with_seed(1), VirtualTime::default());
        let mut waiting = Vec::new();
        for step in 0..10_000 {
            if rng.bool() || waiting.is_empty() {
                let (clock, cpu) = (rng.u64(..50), step);
                scheduler.ready(cpu, clock);
                waiting.push((clock, cpu));
            } else {
                let first = *waiting.iter().min().expect("somebody waits");
                assert_eq!(scheduler.earliest_ps(), Some(first.0));
                assert_eq!(scheduler.next(), Some(first.1));
                waiting.retain(|other| *other != first);
            }
        }
        while scheduler.next().is_some() {
            waiting.pop();
        }
        assert!(waiting.is_empty());
    }
}
