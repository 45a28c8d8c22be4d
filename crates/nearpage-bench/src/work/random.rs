//! `random`: many pages held at once, freed in the best and in the worst order.
//!
//! A round is: fill (not timed), free LIFO, fill, free in random order. So the fill that is timed takes
//! pages from an allocator that got them back in order. Several threads hold equal shares.

use super::pairs;
use crate::field::Context;
use crate::measure::{Clock, Phase, Stopwatch};
use crate::rows::{Key, Sample, Work};
use crate::source::{Glibc, Mmap, Source};
use crate::step::{Step, StepError};
use crate::threads::Gate;

/// The random order is the same for all allocators: it follows from this and the number of the thread.
const SEED: u64 = 2017;

/// A mapping costs hundreds of times what a page costs: so many times fewer are held.
const MMAP_SHARE: usize = 100;
/// A block of glibc's has a header beside it, which brings memory in: so many times fewer are held.
const GLIBC_SHARE: usize = 10;

/// All that hold pages, at one CPU and at all.
pub fn steps<'a>(context: Context<'a>) -> Vec<Step<'a>> {
    let mut steps = Vec::new();
    let pages = context.effort.fill_pages;
    for threads in context.thread_counts() {
        let works = [Work::Fill, Work::FreeLifo, Work::FreeRandom];
        steps.extend(pairs::limit_step(context, works, threads));
        for (name, memory) in context.field.memories() {
            steps.push(step(context, name, threads, pages, memory));
        }
        steps.push(step(context, "glibc", threads, pages / GLIBC_SHARE, Glibc));
        steps.push(step(context, "mmap", threads, pages / MMAP_SHARE, Mmap));
    }
    steps
}

/// `pages` are of all threads together.
fn step<'a, S: Source + 'a>(
    context: Context<'a>,
    allocator: &'static str,
    threads: usize,
    pages: usize,
    source: S,
) -> Step<'a> {
    let pages = pages / threads;
    let key = move |work| Key { work, allocator, threads, n: pages * threads };
    let run = move || {
        let cycles = context.cpus.run(threads, |thread, gate| {
            cycle(context.clock, &source, vec![S::BLANK; pages], gate, SEED + thread as u64)
        })?;
        let (mut lifo, mut fill, mut random) = (Vec::new(), Vec::new(), Vec::new());
        for [thread_lifo, thread_fill, thread_random] in cycles {
            lifo.push(thread_lifo);
            fill.push(thread_fill);
            random.push(thread_random);
        }
        let phases = [(Work::Fill, fill), (Work::FreeLifo, lifo), (Work::FreeRandom, random)];
        let sample = |(work, phases)| Sample::of(context.clock, key(work), phases);
        Ok(phases.into_iter().map(sample).collect())
    };
    Step { allocator, run: Box::new(run) }
}

/// Objects of so many bytes instead of pages, by one thread, and without the best order.
pub fn object_step<'a, S: Source + 'a>(
    context: Context<'a>,
    allocator: &'static str,
    bytes: usize,
    source: S,
) -> Step<'a> {
    let run = move || {
        let cycles = context.cpus.run(1, |_, gate| {
            cycle(context.clock, &source, vec![S::BLANK; context.effort.objects], gate, SEED)
        })?;
        let (mut fill, mut random) = (Vec::new(), Vec::new());
        for [_, thread_fill, thread_random] in cycles {
            fill.push(thread_fill);
            random.push(thread_random);
        }
        let key = |work| Key { work, allocator, threads: 1, n: bytes };
        let phases = [(Work::ObjFill, fill), (Work::ObjFreeRandom, random)];
        let sample = |(work, phases)| Sample::of(context.clock, key(work), phases);
        Ok(phases.into_iter().map(sample).collect())
    };
    Step { allocator, run: Box::new(run) }
}

/// One round of one thread: free LIFO, fill, free in random order.
fn cycle<S: Source>(
    clock: Clock,
    source: &S,
    mut held: Vec<S::Block>,
    gate: &Gate,
    seed: u64,
) -> Result<[Phase; 3], StepError> {
    fill(source, &mut held)?;
    gate.wait();
    let mut lifo = Stopwatch::start(clock);
    for sample in held.rchunks(S::sample_operations::<0>()) {
        // SAFETY: the fill above allocated each of these pages, and this frees each once.
        sample.iter().rev().for_each(|&page| unsafe { source.free::<0>(page) });
        lifo.lap(sample.len());
    }
    gate.wait();
    let mut filling = Stopwatch::start(clock);
    for sample in held.chunks_mut(S::sample_operations::<0>()) {
        fill(source, sample)?;
        filling.lap(sample.len());
    }
    fastrand::Rng::with_seed(seed).shuffle(&mut held);
    gate.wait();
    let mut random = Stopwatch::start(clock);
    for sample in held.chunks(S::sample_operations::<0>()) {
        // SAFETY: the second fill allocated each of these pages, and this frees each once.
        sample.iter().for_each(|&page| unsafe { source.free::<0>(page) });
        random.lap(sample.len());
    }
    Ok([lifo.stop(), filling.stop(), random.stop()])
}

/// Allocates a page into each of `slots`, or none.
fn fill<S: Source>(source: &S, slots: &mut [S::Block]) -> Result<(), StepError> {
    for at in 0..slots.len() {
        let Some(page) = source.alloc::<0>() else {
            // SAFETY: these were just allocated, and nobody gets them.
            slots[..at].iter().for_each(|&page| unsafe { source.free::<0>(page) });
            return Err(StepError::Exhausted);
        };
        slots[at] = page;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::counting::Counting;
    use crate::threads::Cpus;

    fn cycle_of(source: &Counting, pages: usize) -> Result<[Phase; 3], StepError> {
        let clock = Clock::calibrate();
        let cpus = Cpus::allowed().unwrap();
        let run = |_, gate: &Gate| cycle(clock, source, vec![0; pages], gate, SEED);
        Ok(cpus.run(1, run)?.remove(0))
    }

    #[test]
    fn a_cycle_frees_lifo_and_then_at_random() {
        let source = Counting::new(3000);
        let phases = cycle_of(&source, 3000).unwrap();
        assert!(phases.iter().all(|phase| phase.samples_ns.len() == 3));
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
}
