//! `tails`: the slowest of many requests, one by one, while a memory is four fifths full.
//!
//! Two threads hold as many blocks each. Each of them, again and again, shuffles its blocks, frees a fifth, and takes as
//! many: enough for pagesets to run empty and to overflow. Each call is timed for itself.

use std::time::Instant;

use fastrand::Rng;
use nearpage_linux::FRAME_BYTES;

use crate::contender::{Contender, Setting, check_frees};
use crate::counts::Counters;
use crate::measure::Clock;
use crate::rows::{Key, Sample, Work};
use crate::seats::Seats;
use crate::source::Source;
use crate::step::{Step, StepError};
use crate::threads::Gate;

/// The random orders are the same for all rules.
const SEED: u64 = 80;
/// Both at work all the time.
pub const THREADS: usize = 2;
const FULL_PERCENT: usize = 80;
/// A thread frees a part in so many at a time.
const PART: usize = 5;

/// A step of a contender for each order.
pub fn steps<'a, C: Contender>(setting: Setting<'a>, contender: &'a C) -> Vec<Step<'a>> {
    type Measure<C> = fn(Setting<'_>, &C) -> Result<Vec<Sample>, StepError>;
    let orders: [Measure<C>; 2] = [measure::<C, 0>, measure::<C, 9>];
    let step = |measure: Measure<C>| Step {
        allocator: contender.name(),
        run: Box::new(move || measure(setting, contender)),
    };
    orders.into_iter().map(step).collect()
}

fn measure<C: Contender, const ORDER: u8>(
    setting: Setting<'_>,
    contender: &C,
) -> Result<Vec<Sample>, StepError> {
    let seats = Seats::new(setting.cpus, THREADS);
    let memory = contender.pages(seats, setting.bytes)?;
    let blocks = (setting.bytes / FRAME_BYTES) as usize >> ORDER;
    let share = blocks * FULL_PERCENT / 100 / THREADS;
    let calls = setting.effort.calls;
    let threads = seats
        .run(|thread, gate| churn::<ORDER>(&memory, share, calls, thread, setting.clock, gate))?;
    check_frees(&memory)?;
    let moves = threads[0].before.zip(threads[0].after).and_then(|(then, now)| now.since(then));
    let (mut allocs, mut frees) = (Vec::new(), Vec::new());
    for timed in threads {
        allocs.extend(timed.allocs_ns);
        frees.extend(timed.frees_ns);
    }
    let sample = |work, samples_ns: Vec<f64>| {
        let ns = samples_ns.iter().sum::<f64>() / samples_ns.len() as f64;
        let key = Key { work, allocator: contender.name(), threads: THREADS, n: 1 };
        Sample { key, ns, samples_ns, moves }
    };
    Ok(vec![sample(Work::OrderAlloc(ORDER), allocs), sample(Work::OrderFree(ORDER), frees)])
}

/// Calls of one thread, one by one, and what the source had counted before and after them.
struct Calls {
    allocs_ns: Vec<f64>,
    frees_ns: Vec<f64>,
    before: Option<Counters>,
    after: Option<Counters>,
}

fn churn<const ORDER: u8>(
    source: &impl Source,
    share: usize,
    calls: usize,
    thread: usize,
    clock: Clock,
    gate: &Gate,
) -> Result<Calls, StepError> {
    let counters = || gate.all_wait_for_one(thread, || source.counters());
    let mut rng = Rng::with_seed(SEED + thread as u64);
    let mut held = Vec::with_capacity(share);
    for _ in 0..share {
        held.push(source.alloc::<ORDER>().ok_or(StepError::Exhausted)?);
    }
    let part = (share / PART).max(1);
    let room = calls / 2 + part;
    let (allocs_ns, frees_ns) = (Vec::with_capacity(room), Vec::with_capacity(room));
    let mut timed = Calls { allocs_ns, frees_ns, before: counters(), after: None };
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
    timed.after = counters();
    Ok(timed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::counting::Counting;
    use crate::threads::Cpus;

    /// What a thread of so many blocks does on a source that has so many.
    fn timed(source: &Counting, share: usize, calls: usize) -> Result<Calls, StepError> {
        let clock = Clock::calibrate();
        let work = |thread, gate: &Gate| churn::<0>(source, share, calls, thread, clock, gate);
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
