//! `random`: many pages held at once, freed in the best and in the worst order.
//!
//! A round is: fill (not timed), free LIFO, fill, free in random order. So the fill that is timed takes
//! pages from an allocator that got them back in order. Several threads hold equal shares.
//!
//! Ten times as many pages are held in memories of their own, which are larger: what lies in caches then is a small part.

use super::held::{self, Load, Round, fill};
use super::pairs;
use crate::contender::{Contender, Setting};
use crate::counts::{Counters, Moves};
use crate::field::Context;
use crate::measure::{Clock, Phase, Stopwatch};
use crate::rows::{Key, Sample, Work};
use crate::source::Source;
use crate::step::{Step, StepError};
use crate::threads::Gate;

/// The random order is the same for all allocators: it follows from this and the number of the thread.
const SEED: u64 = 2017;

/// So many times the pages are held in memories of their own.
pub const LARGE: usize = 10;

/// All that hold pages, at one CPU and at all.
pub fn steps<'a>(context: Context<'a>) -> Vec<Step<'a>> {
    let mut steps = Vec::new();
    for threads in context.cpus.one_and_all() {
        let works = [Work::Fill, Work::FreeLifo, Work::FreeRandom];
        steps.extend(pairs::limit_step(context, works, threads));
        steps.extend(held::steps(context, Cycles, threads));
    }
    steps
}

/// The same work in a fresh memory each time, at one CPU and at all.
pub fn fresh_steps<'a>(
    setting: Setting<'a>,
    contender: &'a impl Contender,
    pages: usize,
) -> Vec<Step<'a>> {
    held::fresh_steps(setting, contender, Cycles, pages)
}

/// A round: a cycle of each thread.
#[derive(Clone, Copy)]
struct Cycles;

impl Load for Cycles {
    fn round<S: Source>(self, round: Round<'_>, source: &S) -> Result<Vec<Sample>, StepError> {
        let Round { clock, seats, threads, allocator, pages } = round;
        let mut cycles = seats.run_on(threads, |thread, gate| {
            cycle(clock, source, vec![S::BLANK; pages], gate, thread)
        })?;
        let sample = |(at, work): (usize, Work)| {
            let key = Key { work, allocator, threads, n: pages * threads };
            let moves = cycles[0].moves(at);
            let phases = cycles.iter_mut().map(|cycle| cycle.phases.remove(0)).collect();
            Sample { moves, ..Sample::of(clock, key, phases) }
        };
        Ok(PHASES.into_iter().enumerate().map(sample).collect())
    }
}

/// Objects of so many bytes instead of pages, by one thread, and without the best order.
pub fn object_step<'a, S: Source + 'a>(
    context: Context<'a>,
    allocator: &'static str,
    bytes: usize,
    source: S,
) -> Step<'a> {
    let run = move || {
        let mut cycles = context.cpus.run(1, |thread, gate| {
            cycle(context.clock, &source, vec![S::BLANK; context.effort.objects], gate, thread)
        })?;
        let sample = |(work, phase)| {
            let key = Key { work, allocator, threads: 1, n: bytes };
            Sample::of(context.clock, key, vec![phase])
        };
        let phases = cycles.remove(0).phases.into_iter().skip(1);
        Ok([Work::ObjFill, Work::ObjFreeRandom].into_iter().zip(phases).map(sample).collect())
    };
    Step { allocator, run: Box::new(run) }
}

/// The phases of a cycle.
const PHASES: [Work; 3] = [Work::FreeLifo, Work::Fill, Work::FreeRandom];

/// What one thread did in a round.
struct Cycle {
    /// One for each of [`PHASES`].
    phases: Vec<Phase>,
    /// What the source had counted before the first phase and after each: of the first thread.
    counters: Vec<Option<Counters>>,
}

impl Cycle {
    /// What was counted in a phase.
    fn moves(&self, phase: usize) -> Option<Moves> {
        self.counters[phase + 1]?.since(self.counters[phase]?)
    }
}

/// One round of one thread: free LIFO, fill, free in random order.
fn cycle<S: Source>(
    clock: Clock,
    source: &S,
    mut held: Vec<S::Block>,
    gate: &Gate,
    thread: usize,
) -> Result<Cycle, StepError> {
    let counters = || gate.all_wait_for_one(thread, || source.counters());
    fill(source, &mut held)?;
    let filled = counters();
    let mut lifo = Stopwatch::start(clock);
    for sample in held.rchunks(S::sample_operations::<0>()) {
        // SAFETY: the fill above allocated each of these pages, and this frees each once.
        sample.iter().rev().for_each(|&page| unsafe { source.free::<0>(page) });
        lifo.lap(sample.len());
    }
    let freed = counters();
    let mut filling = Stopwatch::start(clock);
    for sample in held.chunks_mut(S::sample_operations::<0>()) {
        fill(source, sample)?;
        filling.lap(sample.len());
    }
    fastrand::Rng::with_seed(SEED + thread as u64).shuffle(&mut held);
    let filled_again = counters();
    let mut random = Stopwatch::start(clock);
    for sample in held.chunks(S::sample_operations::<0>()) {
        // SAFETY: the second fill allocated each of these pages, and this frees each once.
        sample.iter().for_each(|&page| unsafe { source.free::<0>(page) });
        random.lap(sample.len());
    }
    Ok(Cycle {
        phases: vec![lifo.stop(), filling.stop(), random.stop()],
        counters: vec![filled, freed, filled_again, counters()],
    })
}

#[cfg(test)]
mod tests {
    use nearpage::Model;
    use nearpage_linux::Memory;

    use super::*;
    use crate::contender::Rules;
    use crate::field::Effort;
    use crate::source::counting::Counting;
    use crate::threads::Cpus;

    fn cycle_of(source: &Counting, pages: usize) -> Result<Cycle, StepError> {
        let clock = Clock::calibrate();
        let cpus = Cpus::allowed().unwrap();
        let run = |thread, gate: &Gate| cycle(clock, source, vec![0; pages], gate, thread);
        Ok(cpus.run(1, run)?.remove(0))
    }

    #[test]
    fn a_cycle_frees_lifo_and_then_at_random() {
        let source = Counting::new(3000);
        let cycle = cycle_of(&source, 3000).unwrap();
        assert!(cycle.phases.iter().all(|phase| phase.samples_ns.len() == 3));
        assert!(source.held().is_empty());
        let freed = source.freed();
        let (lifo, random) = freed.split_at(3000);
        assert!(lifo.is_sorted_by(|a, b| a > b));
        assert!(!random.is_sorted() && !random.is_sorted_by(|a, b| a > b));
    }

    #[test]
    fn too_few_pages_are_an_error_and_none_is_kept() {
        let source = Counting::new(100);
        assert!(matches!(cycle_of(&source, 101), Err(StepError::Exhausted)));
        assert!(source.held().is_empty());
    }

    /// In a fresh memory each phase moves all pages once, and what moved is counted phase by phase.
    #[test]
    fn each_phase_counts_its_own_pages() {
        let cpus = Cpus::allowed().unwrap();
        let begin = || Memory::builder();
        let rules = Rules { name: "linux-6.18", model: Model::LINUX_6_18, begin: &begin };
        let (clock, effort, bytes) = (Clock::calibrate(), Effort::QUICK, 64 << 20);
        let setting = Setting { cpus: &cpus, clock, effort, bytes };
        let steps = fresh_steps(setting, &rules, 4000);
        assert_eq!(steps.len(), setting.cpus.one_and_all().count());
        for step in steps {
            let samples = (step.run)().unwrap();
            let works: Vec<Work> = samples.iter().map(|sample| sample.key.work).collect();
            assert_eq!(works, PHASES);
            for sample in samples {
                let moves = sample.moves.unwrap();
                assert_eq!((moves.pages, sample.key.n), (4000, 4000), "{sample:?}");
                assert!((1..4000).contains(&moves.zone_locks), "{sample:?}");
                assert!(sample.ns > 0.0);
            }
        }
    }
}
