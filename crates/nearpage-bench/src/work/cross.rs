//! `cross`: pages are allocated on one CPU and freed on another, without end.
//!
//! They travel through a bounded queue in batches, so that what the queue costs is shared by many pages.
//! At most a full queue and two batches are under way: an allocator that needs more keeps it in its caches.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use rtrb::{Consumer, Producer, RingBuffer};

use super::pairs;
use crate::field::Context;
use crate::measure::{Phase, Stopwatch};
use crate::rows::{Key, Sample, Work};
use crate::source::{Glibc, Mmap, Source};
use crate::step::{Step, StepError};

/// Pages that travel together.
const BATCH: usize = 64;
/// Full queues in a sample. Were it one, a sample that finds the queue full would be of frees alone.
pub const SAMPLE_QUEUES: usize = 8;
/// Who allocates, and who frees.
pub const THREADS: usize = 2;

/// All allocators.
pub fn steps<'a>(context: Context<'a>) -> Vec<Step<'a>> {
    let mut steps: Vec<_> =
        pairs::limit_step(context, [Work::Cross], THREADS).into_iter().collect();
    steps.extend(context.field.memories().map(|(name, memory)| step(context, name, memory)));
    steps.push(step(context, "glibc", Glibc));
    steps.push(step(context, "mmap", Mmap));
    steps
}

/// Objects of so many bytes instead of pages.
pub fn object_step<'a>(
    context: Context<'a>,
    allocator: &'static str,
    bytes: usize,
    source: impl Source + 'a,
) -> Step<'a> {
    step_of(context, Key { work: Work::ObjCross, allocator, threads: THREADS, n: bytes }, source)
}

fn step<'a>(context: Context<'a>, allocator: &'static str, source: impl Source + 'a) -> Step<'a> {
    step_of(context, Key { work: Work::Cross, allocator, threads: THREADS, n: 1 }, source)
}

fn step_of<'a>(context: Context<'a>, key: Key, source: impl Source + 'a) -> Step<'a> {
    let run = move || {
        let mut sample = Sample::of(context.clock, key, travel(context, &source)?);
        // Both threads were at work for the whole of the one phase that there is.
        let figures = sample.samples_ns.iter_mut().chain([&mut sample.ns]);
        figures.for_each(|ns| *ns *= THREADS as f64);
        Ok(vec![sample])
    };
    Step { allocator: key.allocator, run: Box::new(run) }
}

/// Pages in the queue at most: those of a sample of other works, which are fewer where pages are slow.
fn queue_pages<S: Source>() -> usize {
    S::sample_operations::<0>()
}

/// Lets pages travel for as long as it takes; the phase is that of the thread that frees.
fn travel<S: Source>(context: Context<'_>, source: &S) -> Result<Vec<Phase>, StepError> {
    let (producer, consumer) = RingBuffer::<S::Block>::new(queue_pages::<S>());
    let ends = Mutex::new((Some(producer), Some(consumer)));
    let stop = AtomicBool::new(false);
    let ends = || ends.lock().expect("nobody panics with the lock");
    let phases = context.cpus.run(THREADS, |thread, gate| {
        gate.wait();
        if thread == 0 {
            let producer = ends().0.take();
            allocate(source, producer.expect("each end is taken once"), &stop).map(|()| None)
        } else {
            let consumer = ends().1.take();
            free(context, source, consumer.expect("each end is taken once"), &stop).map(Some)
        }
    })?;
    Ok(phases.into_iter().flatten().collect())
}

/// Dropping its end of the queue tells the other thread that nothing more comes.
fn allocate<S: Source>(
    source: &S,
    mut queue: Producer<S::Block>,
    stop: &AtomicBool,
) -> Result<(), StepError> {
    let mut batch = [S::BLANK; BATCH];
    while !stop.load(Ordering::Relaxed) {
        for slot in &mut batch {
            // The pages of this batch are lost: the benchmark ends here.
            *slot = source.alloc::<0>().ok_or(StepError::Exhausted)?;
        }
        while queue.push_entire_slice(&batch).is_err() {
            std::hint::spin_loop();
        }
    }
    Ok(())
}

fn free<S: Source>(
    context: Context<'_>,
    source: &S,
    mut queue: Consumer<S::Block>,
    stop: &AtomicBool,
) -> Result<Phase, StepError> {
    let sample_pages = SAMPLE_QUEUES * queue_pages::<S>();
    let mut phase = |duration| {
        let mut watch = Stopwatch::start(context.clock);
        loop {
            for _ in 0..sample_pages / BATCH {
                free_batch(source, &mut queue)?;
            }
            if watch.lap(sample_pages) >= duration {
                return Ok(watch.stop());
            }
        }
    };
    // First the caches grow, and the two threads find their rhythm.
    let measured = phase(context.effort.cross / 2).and_then(|_| phase(context.effort.cross));
    stop.store(true, Ordering::Relaxed);
    // The other thread may wait for room.
    while free_batch(source, &mut queue).is_ok() {}
    measured
}

/// Waits for the next batch and frees it; an error if none will come.
#[inline]
fn free_batch<S: Source>(source: &S, queue: &mut Consumer<S::Block>) -> Result<(), StepError> {
    let mut batch = [S::BLANK; BATCH];
    while queue.pop_entire_slice(&mut batch).is_err() {
        // In this order: what was pushed before the end was dropped is seen.
        if queue.is_abandoned() && queue.is_empty() {
            return Err(StepError::Exhausted);
        }
        std::hint::spin_loop();
    }
    // SAFETY: the other thread allocated these pages and gave each away once, and only whole batches
    // are pushed and popped.
    batch.iter().for_each(|&page| unsafe { source.free::<0>(page) });
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::field::{Effort, Field};
    use crate::measure::Clock;
    use crate::source::counting::Counting;
    use crate::threads::Cpus;

    fn travel_from(source: &Counting) -> Option<Result<Vec<Phase>, StepError>> {
        let cpus = Cpus::allowed().unwrap();
        let field = Field::new(nearpage_linux::Memory::builder, 32 << 20, &cpus, &[]).unwrap();
        let effort = Effort { cross: Duration::from_micros(100), ..Effort::QUICK };
        let context = Context { field: &field, cpus: &cpus, effort, clock: Clock::calibrate() };
        (cpus.count() >= THREADS).then(|| travel(context, source))
    }

    #[test]
    fn what_one_thread_allocates_the_other_frees_in_order() {
        let source = Counting::new(queue_pages::<Counting>() + 2 * BATCH);
        let Some(phases) = travel_from(&source) else { return };
        assert_eq!(phases.unwrap().len(), 1);
        assert!(source.held().is_empty());
        let freed = source.freed();
        assert!(freed.len() >= 2 * SAMPLE_QUEUES * queue_pages::<Counting>());
        assert!(freed.is_sorted());
    }

    #[test]
    fn nobody_waits_for_an_allocator_that_has_no_more() {
        // Not even one batch.
        let source = Counting::new(BATCH - 1);
        let Some(phases) = travel_from(&source) else { return };
        assert!(matches!(phases, Err(StepError::Exhausted)));
    }
}
