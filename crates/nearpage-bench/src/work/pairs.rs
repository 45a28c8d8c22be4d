//! `pairs`: a page is allocated and freed, again and again: what the fastest path costs.

use crate::field::Context;
use crate::measure::{Phase, Stopwatch};
use crate::rows::{Key, Sample, Work};
use crate::source::{Blocks, Glibc, Mmap, Pair};
use crate::step::{Step, StepError};

/// All pairs, at one CPU and at all.
pub fn steps<'a>(context: Context<'a>) -> Vec<Step<'a>> {
    let mut steps = Vec::new();
    for threads in context.cpus.one_and_all() {
        let key = |allocator| Key { work: Work::Pair, allocator, threads, n: 1 };
        if let Some(limit) = &context.field.limit {
            steps.push(step(context, key("rseq-limit"), limit));
        }
        for (name, memory) in context.field.memories() {
            steps.push(step(context, key(name), Blocks::<_, 0>(memory)));
        }
        steps.push(step(context, key("glibc"), Blocks::<_, 0>(Glibc)));
        steps.push(step(context, key("mmap"), Blocks::<_, 0>(Mmap)));
    }
    steps
}

/// Repeats a pair on as many threads as the key says.
pub fn step<'a>(context: Context<'a>, key: Key, pair: impl Pair + 'a) -> Step<'a> {
    let run = move || {
        let phases = phases(context, key.threads, &pair)?;
        Ok(vec![Sample::of(context.clock, key, phases)])
    };
    Step { allocator: key.allocator, run: Box::new(run) }
}

/// The limit beside works that its lists of numbers cannot do: they fill no zone, know no orders, and a number stays on
/// its CPU. Its pair, measured once a round, is a row of each of `works`. `None` without restartable sequences.
pub fn limit_step<'a>(
    context: Context<'a>,
    works: impl IntoIterator<Item = Work>,
    threads: usize,
) -> Option<Step<'a>> {
    let limit = context.field.limit.as_ref()?;
    let allocator = "rseq-limit-pair";
    let key = |work| Key { work, allocator, threads, n: 1 };
    let keys: Vec<Key> = works.into_iter().map(key).collect();
    let run = move || {
        let phases = phases(context, threads, &limit)?;
        Ok(keys.iter().map(|&key| Sample::of(context.clock, key, phases.clone())).collect())
    };
    Some(Step { allocator, run: Box::new(run) })
}

fn phases(context: Context<'_>, threads: usize, pair: &impl Pair) -> Result<Vec<Phase>, StepError> {
    context.cpus.run(threads, |_, gate| {
        sample(pair)?;
        gate.wait();
        phase(context, pair)
    })
}

fn phase<P: Pair>(context: Context<'_>, pair: &P) -> Result<Phase, StepError> {
    let mut watch = Stopwatch::start(context.clock);
    loop {
        sample(pair)?;
        if watch.lap(P::sample_operations()) >= context.effort.pair {
            return Ok(watch.stop());
        }
    }
}

#[inline(never)]
fn sample<P: Pair>(pair: &P) -> Result<(), StepError> {
    for _ in 0..P::sample_operations() {
        if !pair.pair() {
            return Err(StepError::Exhausted);
        }
    }
    Ok(())
}
