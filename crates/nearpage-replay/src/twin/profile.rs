//! A load in figures that do not depend on its length nor on its machine's size, and how far two loads are apart.

use std::collections::HashMap;

use nearpage::{CpuId, Order, Pfn};
use nearpage_machine::work::Observer;
use nearpage_trace::{Event, TraceEvent};
use serde::Serialize;

use crate::error::ReplayError;
use crate::replay::Replay;
use crate::survey::Window;

/// Bounds of lifetimes in nanoseconds: the last share is of those beyond, and of blocks that stayed.
pub const LIFETIMES_NS: [u64; 7] =
    [10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000, 10_000_000_000];
/// Lengths of the slices of time in which bursts are looked for, in nanoseconds.
pub const SLICES_NS: [u64; 3] = [1_000_000, 10_000_000, 100_000_000];

/// A load in figures.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct Profile {
    /// Seconds from the first event to the last.
    pub seconds: f64,
    /// CPUs that allocated or freed.
    pub cpus: u64,
    /// Blocks allocated, each second and CPU.
    pub allocs_per_cpu_second: f64,
    /// Blocks freed, each second and CPU.
    pub frees_per_cpu_second: f64,
    /// Shares of allocations by order.
    pub orders: [f64; Order::COUNT],
    /// Shares of allocations by migratetype: unmovable, movable, reclaimable, others.
    pub types: [f64; 4],
    /// Shares of allocations by how long the block lived: up to each of [`LIFETIMES_NS`], longer, and past the end.
    pub lifetimes: [f64; LIFETIMES_NS.len() + 2],
    /// Of the frees of blocks whose allocation was seen, the share on another CPU.
    pub freed_elsewhere: f64,
    /// Variance over mean of the allocations of a CPU in slices of [`SLICES_NS`]: 1 if they came independently.
    pub bursts: [f64; SLICES_NS.len()],
    /// Allocations of a CPU in a row, without a free between: the mean.
    pub alloc_run: f64,
    /// Frees of a CPU in a row: the mean.
    pub free_run: f64,
    /// Of the frees, the share of blocks whose allocation was not seen.
    pub frees_of_old: f64,
}

/// How far two profiles are apart, figure by figure; 0 is the same.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct Distance {
    /// Of rates of allocations and frees: the mean of the logarithms of ratios, without signs.
    pub rates: f64,
    /// Of orders: half the sum of differences of shares, from 0 to 1.
    pub orders: f64,
    /// The same of migratetypes.
    pub types: f64,
    /// The same of lifetimes.
    pub lifetimes: f64,
    /// Of the share that is freed on another CPU: the difference.
    pub freed_elsewhere: f64,
    /// Of bursts: the mean of the logarithms of ratios, without signs.
    pub bursts: f64,
    /// Of runs: the same.
    pub runs: f64,
    /// Of frees of blocks whose allocation was not seen: the difference.
    pub frees_of_old: f64,
}

impl Profile {
    /// Looks at the window of a bundle. The observer is told bytes of the packed trace.
    ///
    /// ```
    /// use nearpage_machine::work::Unwatched;
    /// use nearpage_replay::{Replay, twin::Profile};
    ///
    /// let profile = Profile::of(&Replay::shipped(), &Unwatched)?;
    /// assert!(profile.orders[0] > 0.9, "most blocks are single pages");
    /// assert_eq!(profile.distance(&profile).lifetimes, 0.0);
    /// # Ok::<(), nearpage_replay::ReplayError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The trace cannot be read; [`ReplayError::Stopped`].
    pub fn of(replay: &Replay, observer: &dyn Observer) -> Result<Profile, ReplayError> {
        let mut watched = Tally::default();
        // Without markers, all of the trace counts.
        let mut whole = Tally::default();
        let mut window = Window::of(replay.start());
        replay.bundle().events(observer, |event| {
            match window.admits(&event.event) {
                true => watched.note(event),
                false if watched.allocs == 0 => whole.note(event),
                false => {}
            }
            Ok(())
        })?;
        Ok(if watched.allocs > 0 { watched.finish() } else { whole.finish() })
    }

    /// How far another one is.
    pub fn distance(&self, other: &Profile) -> Distance {
        let logs = |pairs: &[(f64, f64)]| {
            let log = |&(one, other): &(f64, f64)| ((one + 1e-3) / (other + 1e-3)).ln().abs();
            pairs.iter().map(log).sum::<f64>() / pairs.len() as f64
        };
        let shares = |one: &[f64], other: &[f64]| {
            one.iter().zip(other).map(|(one, other)| (one - other).abs()).sum::<f64>() / 2.0
        };
        let bursts: Vec<(f64, f64)> = self.bursts.into_iter().zip(other.bursts).collect();
        Distance {
            rates: logs(&[
                (self.allocs_per_cpu_second, other.allocs_per_cpu_second),
                (self.frees_per_cpu_second, other.frees_per_cpu_second),
            ]),
            orders: shares(&self.orders, &other.orders),
            types: shares(&self.types, &other.types),
            lifetimes: shares(&self.lifetimes, &other.lifetimes),
            freed_elsewhere: (self.freed_elsewhere - other.freed_elsewhere).abs(),
            bursts: logs(&bursts),
            runs: logs(&[(self.alloc_run, other.alloc_run), (self.free_run, other.free_run)]),
            frees_of_old: (self.frees_of_old - other.frees_of_old).abs(),
        }
    }
}

/// What is counted of a CPU.
#[derive(Default)]
struct OfCpu {
    /// Allocations in the slice that is under way, by length; which slice it is; sums of counts and of their squares.
    slices: [Slice; SLICES_NS.len()],
    was_alloc: Option<bool>,
}

#[derive(Clone, Copy, Default)]
struct Slice {
    number: u64,
    count: u64,
    sum: u64,
    squares: u64,
}

#[derive(Default)]
struct Tally {
    first_ns: Option<u64>,
    last_ns: u64,
    allocs: u64,
    frees: u64,
    orders: [u64; Order::COUNT],
    types: [u64; 4],
    lifetimes: [u64; LIFETIMES_NS.len() + 2],
    seen: u64,
    elsewhere: u64,
    runs: [u64; 2],
    live: HashMap<Pfn, (u64, CpuId)>,
    cpus: HashMap<CpuId, OfCpu>,
}

impl Tally {
    fn note(&mut self, event: &TraceEvent<'_>) {
        let first_ns = *self.first_ns.get_or_insert(event.time_ns);
        self.last_ns = self.last_ns.max(event.time_ns);
        let is_alloc = match event.event {
            Event::Alloc { pfn: Some(pfn), order, migratetype, .. } => {
                self.allocs += 1;
                self.orders[usize::from(order.0)] += 1;
                self.types[usize::from(migratetype).min(3)] += 1;
                self.live.insert(pfn, (event.time_ns, event.cpu));
                true
            }
            Event::Free { pfn, .. } => {
                self.frees += 1;
                if let Some((born_ns, cpu)) = self.live.remove(&pfn) {
                    let age_ns = event.time_ns.saturating_sub(born_ns);
                    self.lifetimes[LIFETIMES_NS.partition_point(|&bound| bound < age_ns)] += 1;
                    self.seen += 1;
                    self.elsewhere += u64::from(cpu != event.cpu);
                }
                false
            }
            _ => return,
        };
        let of = self.cpus.entry(event.cpu).or_default();
        self.runs[usize::from(is_alloc)] += u64::from(of.was_alloc != Some(is_alloc));
        of.was_alloc = Some(is_alloc);
        for (slice, length) in of.slices.iter_mut().zip(SLICES_NS) {
            slice.go_to(event.time_ns.saturating_sub(first_ns) / length);
            slice.count += u64::from(is_alloc);
        }
    }

    fn finish(mut self) -> Profile {
        let span_ns = (self.last_ns - self.first_ns.unwrap_or(0)).max(1);
        let (seconds, cpus) = (span_ns as f64 / 1e9, self.cpus.len().max(1) as f64);
        *self.lifetimes.last_mut().expect("it has a place") =
            self.allocs - self.lifetimes.iter().sum::<u64>();
        let all = self.allocs.max(1) as f64;
        let mut bursts = [0.0; SLICES_NS.len()];
        for (at, length) in SLICES_NS.into_iter().enumerate() {
            let slices = span_ns / length + 1;
            let (mut over, mut mean_sum) = (0.0, 0.0);
            for of in self.cpus.values_mut() {
                let slice = &mut of.slices[at];
                slice.go_to(slices);
                let mean = slice.sum as f64 / slices as f64;
                over += slice.squares as f64 / slices as f64 - mean * mean;
                mean_sum += mean;
            }
            bursts[at] = if mean_sum > 0.0 { over / mean_sum } else { 0.0 };
        }
        let [free_runs, alloc_runs] = self.runs.map(|runs| runs.max(1) as f64);
        Profile {
            seconds,
            cpus: self.cpus.len() as u64,
            allocs_per_cpu_second: self.allocs as f64 / seconds / cpus,
            frees_per_cpu_second: self.frees as f64 / seconds / cpus,
            orders: self.orders.map(|count| count as f64 / all),
            types: self.types.map(|count| count as f64 / all),
            lifetimes: self.lifetimes.map(|count| count as f64 / all),
            freed_elsewhere: self.elsewhere as f64 / self.seen.max(1) as f64,
            bursts,
            alloc_run: self.allocs as f64 / alloc_runs,
            free_run: self.frees as f64 / free_runs,
            frees_of_old: (self.frees - self.seen) as f64 / self.frees.max(1) as f64,
        }
    }
}

impl Slice {
    fn go_to(&mut self, number: u64) {
        if number > self.number {
            self.sum += self.count;
            self.squares += self.count * self.count;
            (self.number, self.count) = (number, 0);
        }
    }
}
