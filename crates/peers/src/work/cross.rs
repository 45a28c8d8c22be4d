//! `cross`: the first thread allocates, the second frees, without end.
//!
//! The pages travel through a bounded queue in batches, so that what the queue costs is shared by
//! many pages; `harness-floor` shows what it still costs. At most [`QUEUE`] pages and two batches are
//! held at any time: an allocator that needs more memory than that keeps it in its caches.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rtrb::{Consumer, Producer, RingBuffer};

use crate::sample::{Bench, Key, Sample};
use crate::source::PageSource;
use crate::timing::{Effort, Phase, repeat};
use crate::work::{alloc_single, free_single};
use crate::workers::Workers;

/// Pages in the queue at most.
const QUEUE: usize = 1024;
/// Pages that travel together.
const BATCH: usize = 64;
/// Pages between two looks at the clock.
const CHUNK: usize = 16 * BATCH;
/// The allocating thread and the freeing one.
const THREADS: usize = 2;

/// Measures the steady state, seen from the thread that frees.
pub fn measure<S: PageSource>(
    source: &'static S,
    workers: &Workers,
    effort: &Effort,
) -> Vec<Sample> {
    let (producer, consumer) = RingBuffer::<S::Block>::new(QUEUE);
    let (producer, consumer) = (Mutex::new(Some(producer)), Mutex::new(Some(consumer)));
    let stop = Arc::new(AtomicBool::new(false));
    let duration = effort.cross;
    let phases = workers.on_each(THREADS, move |thread| match thread {
        0 => {
            allocate(source, take(&producer), &stop);
            None
        }
        _ => Some(free(source, take(&consumer), &stop, duration)),
    });
    let freed: Vec<Phase> = phases.into_iter().flatten().collect();
    let key = Key { bench: Bench::Cross, threads: THREADS, n: 1 };
    // Both threads were at work for the whole of the phase.
    let ns = crate::timing::ns_per_operation(&freed) * THREADS as f64;
    vec![Sample { key, ns }]
}

fn take<T>(end: &Mutex<Option<T>>) -> T {
    end.lock().expect("no one panics with the lock").take().expect("each end is taken once")
}

fn allocate<S: PageSource>(source: &S, mut queue: Producer<S::Block>, stop: &AtomicBool) {
    let mut batch = [S::BLANK; BATCH];
    while !stop.load(Ordering::Relaxed) {
        alloc_single(source, &mut batch);
        while queue.push_entire_slice(&batch).is_err() {
            std::hint::spin_loop();
        }
    }
}

fn free<S: PageSource>(
    source: &S,
    mut queue: Consumer<S::Block>,
    stop: &AtomicBool,
    duration: Duration,
) -> Phase {
    // Caches grow, and the two threads find their rhythm.
    repeat(duration / 2, CHUNK, || free_chunk(source, &mut queue));
    let phase = repeat(duration, CHUNK, || free_chunk(source, &mut queue));
    stop.store(true, Ordering::Relaxed);
    // The other end is dropped when its thread has pushed its last batch.
    while !(queue.is_abandoned() && queue.is_empty()) {
        free_batch(source, &mut queue);
    }
    phase
}

fn free_chunk<S: PageSource>(source: &S, queue: &mut Consumer<S::Block>) {
    let mut freed = 0;
    while freed < CHUNK {
        freed += free_batch(source, queue);
    }
}

/// Frees the next batch, if there is one; returns how many pages that were.
fn free_batch<S: PageSource>(source: &S, queue: &mut Consumer<S::Block>) -> usize {
    let mut batch = [S::BLANK; BATCH];
    if queue.pop_entire_slice(&mut batch).is_err() {
        std::hint::spin_loop();
        return 0;
    }
    // SAFETY: the other thread allocated these pages and gave each away once, and only whole
    // batches are pushed and popped.
    unsafe { free_single(source, &batch) };
    BATCH
}
