//! `tails`: the slowest of many requests, one by one, while a memory is four fifths full.
//!
//! Two threads hold as many blocks each. Each of them then frees a random block of its own or takes one, by the toss of a
//! coin, but never strays far from where it began: pagesets grow, run empty and overflow at their own pace. Each call is
//! timed for itself.

use std::time::Instant;

use fastrand::Rng;
use nearpage::Model;
use nearpage_linux::{FRAME_BYTES, MemoryBuilder};

use crate::measure::Clock;
use crate::rows::{Key, Sample, Work};
use crate::seats::Seats;
use crate::source::Source;
use crate::step::{Step, StepError};
use crate::threads::{Cpus, Gate};

/// The coin is the same for all rules.
const SEED: u64 = 80;
/// Both at work all the time.
pub const THREADS: usize = 2;
const FULL_PERCENT: usize = 80;
/// A thread strays from its share by a part in so many.
const STRAY: usize = 16;

/// How much is done, and where.
#[derive(Clone, Copy)]
pub struct Effort<'a> {
    /// The CPUs of this process: two or more.
    pub cpus: &'a Cpus,
    /// Bytes of each memory.
    pub bytes: u64,
    /// Calls of each thread in a round.
    pub calls: usize,
    /// By which clock.
    pub clock: Clock,
}

/// Steps for each order and each of `variants`: a name, its rules, and how its memories begin.
pub fn steps<'a>(
    effort: Effort<'a>,
    variants: &'a [(&'static str, Model, &'a dyn Fn() -> MemoryBuilder)],
) -> Vec<Step<'a>> {
    let step = |measure: Measure, (allocator, model, begin): Variant<'a>| {
        let run = move || measure(effort, begin(), allocator, model);
        Step { allocator, run: Box::new(run) }
    };
    let orders: [Measure; 2] = [measure::<0>, measure::<9>];
    orders.iter().flat_map(|&of| variants.iter().map(move |&variant| step(of, variant))).collect()
}

type Variant<'a> = (&'static str, Model, &'a dyn Fn() -> MemoryBuilder);
type Measure = fn(Effort<'_>, MemoryBuilder, &'static str, Model) -> Result<Vec<Sample>, StepError>;

fn measure<const ORDER: u8>(
    effort: Effort<'_>,
    begin: MemoryBuilder,
    allocator: &'static str,
    model: Model,
) -> Result<Vec<Sample>, StepError> {
    let Effort { cpus, bytes, calls, clock } = effort;
    let seats = Seats::new(cpus, THREADS);
    let memory = seats.memory(begin, model, bytes)?;
    let blocks = (bytes / FRAME_BYTES) as usize >> ORDER;
    let share = blocks * FULL_PERCENT / 100 / THREADS;
    let walks = seats.run(|thread, gate| {
        let rng = Rng::with_seed(SEED + thread as u64);
        walk::<ORDER>(&memory, share, calls, rng, clock, gate)
    })?;
    if memory.misuses() > 0 {
        return Err(StepError::Refused(memory.misuses()));
    }
    let (mut allocs, mut frees) = (Vec::new(), Vec::new());
    for walk in walks {
        allocs.extend(walk.allocs_ns);
        frees.extend(walk.frees_ns);
    }
    let sample = |work, samples_ns: Vec<f64>| {
        let ns = samples_ns.iter().sum::<f64>() / samples_ns.len() as f64;
        Sample { key: Key { work, allocator, threads: THREADS, n: 1 }, ns, samples_ns }
    };
    Ok(vec![sample(Work::OrderAlloc(ORDER), allocs), sample(Work::OrderFree(ORDER), frees)])
}

/// Calls of one thread, one by one.
struct Walk {
    allocs_ns: Vec<f64>,
    frees_ns: Vec<f64>,
}

fn walk<const ORDER: u8>(
    source: &impl Source,
    share: usize,
    calls: usize,
    mut rng: Rng,
    clock: Clock,
    gate: &Gate,
) -> Result<Walk, StepError> {
    let mut held = Vec::with_capacity(2 * share);
    for _ in 0..share {
        held.push(source.alloc::<ORDER>().ok_or(StepError::Exhausted)?);
    }
    let stray = (share / STRAY).max(1);
    let (fewest, most) = (share - stray, share + stray);
    let mut walk =
        Walk { allocs_ns: Vec::with_capacity(calls), frees_ns: Vec::with_capacity(calls) };
    gate.wait();
    for _ in 0..calls {
        if held.len() == fewest || held.len() < most && rng.bool() {
            let start = Instant::now();
            let block = source.alloc::<ORDER>();
            walk.allocs_ns.push(clock.ns_without(1, start.elapsed()));
            held.push(block.ok_or(StepError::Exhausted)?);
        } else {
            let block = held.swap_remove(rng.usize(..held.len()));
            let start = Instant::now();
            // SAFETY: the block is the thread's own, and is no longer among those that it holds.
            unsafe { source.free::<ORDER>(block) };
            walk.frees_ns.push(clock.ns_without(1, start.elapsed()));
        }
    }
    Ok(walk)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::counting::Counting;

    #[test]
    fn a_thread_stays_near_its_share_and_each_call_is_timed() {
        let cpus = Cpus::allowed().unwrap();
        let clock = Clock::calibrate();
        let (share, calls) = (160, 10_000);
        // One block more would be too many.
        let source = Counting::new(share + share / STRAY);
        let walks = cpus
            .run(1, |_, gate| walk::<0>(&source, share, calls, Rng::with_seed(SEED), clock, gate));
        let walk = walks.unwrap().remove(0);
        assert_eq!(walk.allocs_ns.len() + walk.frees_ns.len(), calls);
        let held = source.held().len();
        assert_eq!(held, share + walk.allocs_ns.len() - walk.frees_ns.len());
        assert!(held >= share - share / STRAY);
        let fewer = Counting::new(share - 1);
        let result = cpus.run(1, |_, gate| walk_of(&fewer, share, clock, gate));
        assert!(matches!(result, Err(StepError::Exhausted)));
    }

    fn walk_of(
        source: &Counting,
        share: usize,
        clock: Clock,
        gate: &Gate,
    ) -> Result<Walk, StepError> {
        walk::<0>(source, share, 1, Rng::with_seed(SEED), clock, gate)
    }
}
