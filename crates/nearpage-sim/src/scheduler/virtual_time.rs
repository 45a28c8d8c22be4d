//! Virtual time: the CPU whose clock is lowest runs.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Scheduler;

/// Lowest clock first; among equals the lowest CPU.
#[derive(Debug, Default)]
pub struct VirtualTime {
    ready: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Scheduler for VirtualTime {
    fn ready(&mut self, cpu: usize, clock_ps: u64) {
        self.ready.push(Reverse((clock_ps, cpu as u32)));
    }

    fn next(&mut self) -> Option<usize> {
        self.ready.pop().map(|Reverse((_, cpu))| cpu as usize)
    }

    fn slice_end_ps(&self) -> u64 {
        self.earliest_ps().unwrap_or(u64::MAX)
    }

    fn goes_on(&mut self, _cpu: usize, clock_ps: u64) -> bool {
        clock_ps <= self.slice_end_ps()
    }

    fn earliest_ps(&self) -> Option<u64> {
        self.ready.peek().map(|Reverse((clock, _))| *clock)
    }

    fn stops_at_touches(&self) -> bool {
        false
    }
}
