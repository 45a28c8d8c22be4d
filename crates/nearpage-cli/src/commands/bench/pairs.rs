//! `pairs`: a page is allocated and freed, again and again: what the fastest path costs.

use super::field::Context;
use super::measure::{Phase, SAMPLE_OPERATIONS, Stopwatch};
use super::rows::{Key, Sample, Work};
use super::source::{Blocks, Glibc, Mmap, Pair};
use super::step::{Step, StepError};

/// All pairs, at one CPU and at all.
pub fn steps<'a>(context: Context<'a>) -> Vec<Step<'a>> {
    let mut steps = Vec::new();
    for threads in context.thread_counts() {
        let key = |allocator| Key { work: Work::Pair, allocator, threads, n: 1 };
        if let Some(limit) = &context.field.limit {
            steps.push(step(context, key("rseq-limit"), limit));
        }
        for (name, memory) in context.field.memories() {
            steps.push(step(context, key(name), Blocks::<_, 0>(memory)));
        }
        steps.push(step(context, key("glibc"), Blocks::<_, 0>(&Glibc)));
        steps.push(step(context, key("mmap"), Blocks::<_, 0>(&Mmap)));
    }
    steps
}

/// Repeats a pair on as many threads as the key says.
pub fn step<'a>(context: Context<'a>, key: Key, pair: impl Pair + 'a) -> Step<'a> {
    let run = move || {
        let phases = context.cpus.run(key.threads, |_, gate| {
            sample(&pair)?;
            gate.wait();
            phase(context, &pair)
        })?;
        Ok(vec![Sample::of(key, phases)])
    };
    Step { allocator: key.allocator, run: Box::new(run) }
}

fn phase(context: Context<'_>, pair: &impl Pair) -> Result<Phase, StepError> {
    let mut watch = Stopwatch::start(context.clock);
    loop {
        sample(pair)?;
        if watch.lap(SAMPLE_OPERATIONS) >= context.effort.pair {
            return Ok(watch.stop());
        }
    }
}

#[inline(never)]
fn sample(pair: &impl Pair) -> Result<(), StepError> {
    for _ in 0..SAMPLE_OPERATIONS {
        if !pair.pair() {
            return Err(StepError::Exhausted);
        }
    }
    Ok(())
}
