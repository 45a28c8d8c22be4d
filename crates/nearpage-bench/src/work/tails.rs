//! `tails`: the slowest of many requests, one by one, while a memory is four fifths full.
//!
//! Two threads hold as many blocks each. Each of them, again and again, shuffles its blocks, frees a fifth, and takes as
//! many: enough for pagesets to run empty and to overflow. Each call is timed for itself.

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

/// The random orders are the same for all rules.
const SEED: u64 = 80;
/// Both at work all the time.
pub const THREADS: usize = 2;
const FULL_PERCENT: usize = 80;
/// A thread frees a part in so many at a time.
const PART: usize = 5;

/// How much is done, and where.
#[derive(Clone, Copy)]
pub struct Effort<'a> {
    /// The CPUs of this process: two or more.
    pub cpus: &'a Cpus,
    /// Bytes of each memory.
    pub bytes: u64,
    /// Calls of each thread in a round, at least.
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
    let threads = seats.run(|thread, gate| {
        let rng = Rng::with_seed(SEED + thread as u64);
        churn::<ORDER>(&memory, share, calls, rng, clock, gate)
    })?;
    if memory.misuses() > 0 {
        return Err(StepError::Refused(memory.misuses()));
    }
    let (mut allocs, mut frees) = (Vec::new(), Vec::new());
    for timed in threads {
        allocs.extend(timed.allocs_ns);
        frees.extend(timed.frees_ns);
    }
    let sample = |work, samples_ns: Vec<f64>| {
        let ns = samples_ns.iter().sum::<f64>() / samples_ns.len() as f64;
        Sample { key: Key { work, allocator, threads: THREADS, n: 1 }, ns, samples_ns }
    };
    Ok(vec![sample(Work::OrderAlloc(ORDER), allocs), sample(Work::OrderFree(ORDER), frees)])
}

/// Calls of one thread, one by one.
struct Calls {
    allocs_ns: Vec<f64>,
    frees_ns: Vec<f64>,
}

fn churn<const ORDER: u8>(
    source: &impl Source,
    share: usize,
    calls: usize,
    mut rng: Rng,
    clock: Clock,
    gate: &Gate,
) -> Result<Calls, StepError> {
    let mut held = Vec::with_capacity(share);
    for _ in 0..share {
        held.push(source.alloc::<ORDER>().ok_or(StepError::Exhausted)?);
    }
    let part = (share / PART).max(1);
    let room = calls / 2 + part;
    let mut timed =
        Calls { allocs_ns: Vec::with_capacity(room), frees_ns: Vec::with_capacity(room) };
    gate.wait();
    while timed.allocs_ns.len() + timed.frees_ns.len() < calls {
        rng.shuffle(&mut held);
        for block in held.drain(share - part..) {
            let start = Instant::now();
            // SAFETY: the block is the thread's own, and is no longer among those that it holds.
            unsafe { source.free::<ORDER>(block) };
            timed.frees_ns.push(clock.ns_without(1, start.elapsed()));
        }
        for _ in 0..part {
            let start = Instant::now();
            let block = source.alloc::<ORDER>();
            timed.allocs_ns.push(clock.ns_without(1, start.elapsed()));
            held.push(block.ok_or(StepError::Exhausted)?);
        }
    }
    Ok(timed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::counting::Counting;

    /// What a thread of so many blocks does on a source that has so many.
    fn timed(source: &Counting, share: usize, calls: usize) -> Result<Calls, StepError> {
        let clock = Clock::calibrate();
        let work =
            |_, gate: &Gate| churn::<0>(source, share, calls, Rng::with_seed(SEED), clock, gate);
        Ok(Cpus::allowed().unwrap().run(1, work)?.remove(0))
    }

    #[test]
    fn each_call_is_timed_and_the_share_is_held_again() {
        let source = Counting::new(160);
        let calls = timed(&source, 160, 1000).unwrap();
        // 32 blocks at a time.
        assert_eq!((calls.allocs_ns.len(), calls.frees_ns.len()), (512, 512));
        assert_eq!(source.held().len(), 160);
        assert!(!source.freed().is_sorted());
        let fewer = Counting::new(159);
        assert!(matches!(timed(&fewer, 160, 1000), Err(StepError::Exhausted)));
    }
}
