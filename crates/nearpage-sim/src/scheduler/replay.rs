//! Records what a scheduler decides, and repeats it.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use super::Scheduler;

/// What a scheduler decided: each CPU that it picked, and how many points that one ran over before it was stopped.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Decisions(pub Vec<(u32, u32)>);

/// A scheduler whose decisions are recorded.
pub struct Recorded<S> {
    inner: S,
    decisions: Rc<RefCell<Decisions>>,
}

impl<S> fmt::Debug for Recorded<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorded").finish_non_exhaustive()
    }
}

impl<S: Scheduler> Recorded<S> {
    /// Records into `decisions`.
    pub fn new(inner: S, decisions: Rc<RefCell<Decisions>>) -> Self {
        Self { inner, decisions }
    }
}

impl<S: Scheduler> Scheduler for Recorded<S> {
    fn ready(&mut self, cpu: usize, clock_ps: u64) {
        self.inner.ready(cpu, clock_ps);
    }

    fn next(&mut self) -> Option<usize> {
        let next = self.inner.next();
        self.decisions.borrow_mut().0.extend(next.map(|cpu| (cpu as u32, 0)));
        next
    }

    fn slice_end_ps(&self) -> u64 {
        self.inner.slice_end_ps()
    }

    fn goes_on(&mut self, cpu: usize, clock_ps: u64) -> bool {
        let goes_on = self.inner.goes_on(cpu, clock_ps);
        if let Some(last) = self.decisions.borrow_mut().0.last_mut().filter(|_| goes_on) {
            last.1 += 1;
        }
        goes_on
    }

    fn earliest_ps(&self) -> Option<u64> {
        self.inner.earliest_ps()
    }

    fn stops_at_touches(&self) -> bool {
        self.inner.stops_at_touches()
    }
}

/// Repeats recorded decisions; where they end, or do not fit the run, the lowest CPU runs on.
#[derive(Debug)]
pub struct Replay {
    decisions: Decisions,
    at: usize,
    points: u32,
    ready: Vec<u32>,
}

impl Replay {
    /// Of these decisions.
    pub fn new(decisions: Decisions) -> Self {
        Self { decisions, at: 0, points: 0, ready: Vec::new() }
    }
}

impl Scheduler for Replay {
    fn ready(&mut self, cpu: usize, _clock_ps: u64) {
        self.ready.push(cpu as u32);
    }

    fn next(&mut self) -> Option<usize> {
        let decided = self.decisions.0.get(self.at);
        let wanted = decided.and_then(|(cpu, _)| self.ready.iter().position(|ready| ready == cpu));
        let lowest = || (0..self.ready.len()).min_by_key(|&at| self.ready[at]);
        let at = wanted.or_else(lowest)?;
        self.points = decided.map_or(u32::MAX, |(_, points)| *points);
        self.at += 1;
        Some(self.ready.swap_remove(at) as usize)
    }

    fn slice_end_ps(&self) -> u64 {
        0
    }

    fn goes_on(&mut self, _cpu: usize, _clock_ps: u64) -> bool {
        let goes_on = self.points > 0 || self.ready.is_empty();
        self.points = self.points.saturating_sub(1);
        goes_on
    }

    fn earliest_ps(&self) -> Option<u64> {
        (!self.ready.is_empty()).then_some(0)
    }

    fn stops_at_touches(&self) -> bool {
        true
    }
}
