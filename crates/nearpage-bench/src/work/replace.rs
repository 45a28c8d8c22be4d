//! `replace`: one of many pages that are held, chosen at random, is freed, and one is allocated in its place, again and again.
//!
//! Each thread holds an equal share. It chooses its pages before the clock starts, and replaces as many as it holds twice: only
//! the second time is timed, since the first pages lie side by side.

use fastrand::Rng;

use super::held::{self, Load, Round, fill};
use crate::contender::{Contender, Setting};
use crate::counts::Counters;
use crate::field::Context;
use crate::measure::{Clock, Phase, Stopwatch};
use crate::rows::{Key, Sample, Work};
use crate::source::Source;
use crate::step::{Step, StepError};
use crate::threads::Gate;

/// The choice is the same for all allocators: it follows from this and the number of the thread.
const SEED: u64 = 44;

/// All that hold pages, at one CPU and at all.
pub fn steps<'a>(context: Context<'a>) -> Vec<Step<'a>> {
    context
        .cpus
        .one_and_all()
        .flat_map(|threads| held::steps(context, Replacing, threads))
        .collect()
}

/// The same work in a fresh memory each time, at one CPU and at all.
pub fn fresh_steps<'a>(setting: Setting<'a>, contender: &'a impl Contender) -> Vec<Step<'a>> {
    held::fresh_steps(setting, contender, Replacing, setting.effort.fill_pages)
}

#[derive(Clone, Copy)]
struct Replacing;

impl Load for Replacing {
    fn round<S: Source>(self, round: Round<'_>, source: &S) -> Result<Vec<Sample>, StepError> {
        let Round { clock, seats, threads, allocator, pages } = round;
        let all = seats.run_on(threads, |thread, gate| {
            replace(clock, source, vec![S::BLANK; pages], gate, thread)
        })?;
        let key = Key { work: Work::Replace, allocator, threads, n: pages * threads };
        let moves = all[0].before.zip(all[0].after).and_then(|(before, after)| after.since(before));
        let phases = all.into_iter().map(|replaced| replaced.phase).collect();
        Ok(vec![Sample { moves, ..Sample::of(clock, key, phases) }])
    }
}

/// What one thread did in a round, and what the source counted around it.
struct Replaced {
    phase: Phase,
    before: Option<Counters>,
    after: Option<Counters>,
}

fn replace<S: Source>(
    clock: Clock,
    source: &S,
    mut held: Vec<S::Block>,
    gate: &Gate,
    thread: usize,
) -> Result<Replaced, StepError> {
    let counters = || gate.all_wait_for_one(thread, || source.counters());
    let mut rng = Rng::with_seed(SEED + thread as u64);
    let mut choose = || (0..held.len()).map(|_| rng.u32(..held.len() as u32)).collect();
    let (first, second): (Vec<u32>, Vec<u32>) = (choose(), choose());
    fill(source, &mut held)?;
    replace_each(source, &mut held, &first)?;
    let before = counters();
    let mut watch = Stopwatch::start(clock);
    for sample in second.chunks(S::sample_operations::<0>()) {
        replace_each(source, &mut held, sample)?;
        watch.lap(sample.len());
    }
    let phase = watch.stop();
    let after = counters();
    // SAFETY: the thread holds these pages, each once.
    held.iter().for_each(|&page| unsafe { source.free::<0>(page) });
    Ok(Replaced { phase, before, after })
}

#[inline(never)]
fn replace_each<S: Source>(
    source: &S,
    held: &mut [S::Block],
    chosen: &[u32],
) -> Result<(), StepError> {
    for &at in chosen {
        let page = &mut held[at as usize];
        // SAFETY: the page is the thread's own, and another takes its place. If there is none, the benchmark ends here.
        unsafe { source.free::<0>(*page) };
        *page = source.alloc::<0>().ok_or(StepError::Exhausted)?;
    }
    Ok(())
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

    #[test]
    fn as_many_pages_as_are_held_are_replaced_twice_and_all_are_freed() {
        let source = Counting::new(3000);
        let cpus = Cpus::allowed().unwrap();
        let clock = Clock::calibrate();
        let work = |thread, gate: &Gate| replace(clock, &source, vec![0; 3000], gate, thread);
        let replaced = cpus.run(1, work).unwrap().remove(0);
        assert_eq!(replaced.phase.samples_ns.len(), 3);
        assert!(source.held().is_empty());
        let freed = source.freed();
        assert_eq!(freed.len(), 3 * 3000);
        assert!(!freed[..3000].is_sorted());
    }

    /// What moved in the timed part: a free and an allocation for each page that is held.
    #[test]
    fn counts_are_of_the_timed_part() {
        let cpus = Cpus::allowed().unwrap();
        let begin = || Memory::builder();
        let rules = Rules { name: "nearpage", model: Model::NEARPAGE, begin: &begin };
        let effort = Effort { fill_pages: 4000, ..Effort::QUICK };
        let setting = Setting { cpus: &cpus, clock: Clock::calibrate(), effort, bytes: 64 << 20 };
        for step in fresh_steps(setting, &rules) {
            let samples = (step.run)().unwrap();
            let [sample] = &samples[..] else { panic!("{samples:?}") };
            assert_eq!((sample.key.work, sample.key.n), (Work::Replace, 4000));
            assert_eq!(sample.moves.unwrap().pages, 2 * 4000);
            assert!(sample.ns > 0.0);
        }
    }
}
