//! Virtual time: the CPU whose clock is lowest runs.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Scheduler;

/// A CPU and the time (ps) from which on it has work, which comes first: so they are compared.
type Ready = Reverse<(u64, u32)>;

/// Lowest clock first; among equals the lowest CPU.
#[derive(Debug, Default)]
pub struct VirtualTime {
    ready: BinaryHeap<Ready>,
    /// The last one that had work, outside of the heap: mostly who just stopped, whose way in and the next one's
    /// way out are then a single move within it.
    last: Option<Ready>,
}

impl Scheduler for VirtualTime {
    fn ready(&mut self, cpu: usize, clock_ps: u64) {
        let before = self.last.replace(Reverse((clock_ps, cpu as u32)));
        self.ready.extend(before);
    }

    fn next(&mut self) -> Option<usize> {
        let Some(last) = self.last.take() else {
            return self.ready.pop().map(|Reverse((_, cpu))| cpu as usize);
        };
        let Reverse((_, cpu)) = match self.ready.peek_mut() {
            // The greatest of what is reversed is the earliest.
            Some(mut first) if *first > last => std::mem::replace(&mut *first, last),
            _ => last,
        };
        Some(cpu as usize)
    }

    fn slice_end_ps(&self) -> u64 {
        self.earliest_ps().unwrap_or(u64::MAX)
    }

    fn goes_on(&mut self, _cpu: usize, clock_ps: u64) -> bool {
        clock_ps <= self.slice_end_ps()
    }

    fn earliest_ps(&self) -> Option<u64> {
        let first = self.ready.peek().into_iter().chain(&self.last).max();
        first.map(|Reverse((clock, _))| *clock)
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
