//! The benchmarks with objects.
//!
//! Each object that is allocated is written to once: who asks for one wants to put something there.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rtrb::{Consumer, Producer, RingBuffer};

use super::ObjectEffort;
use super::source::ObjectSource;
use crate::sample::{Bench, Key, Sample};
use crate::timing::{Gate, Phase, ns_per_operation, phase, repeat};
use crate::workers::Workers;

/// Time between two looks at the clock, about: a thousand times what a look costs.
const CHUNK_LASTS: Duration = Duration::from_micros(30);
/// The size of objects where there is one.
pub const OBJECT_BYTES: usize = 64;
/// Objects in the queue of `obj_cross` at most.
const QUEUE: usize = 1024;
/// Objects that travel together.
const BATCH: usize = 64;
/// Objects between two looks at the clock.
const CHUNK: usize = 16 * BATCH;

/// One piece of work; it gives one or more rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// Objects allocated and freed at once, of each size, by so many threads.
    Pair { threads: usize },
    /// A million objects held, and freed in random order.
    Fill,
    /// Objects allocated on one CPU and freed on another.
    Cross,
}

impl Work {
    /// All work on a machine where `cpus` threads can run side by side.
    pub fn all(cpus: usize) -> Vec<Work> {
        let mut all: Vec<Work> = (1..=cpus).map(|threads| Work::Pair { threads }).collect();
        all.push(Work::Fill);
        if cpus >= 2 {
            all.push(Work::Cross);
        }
        all
    }
}

/// An allocator that takes part.
pub trait Contestant {
    /// Does `work` once.
    fn measure(&self, work: Work, workers: &Workers, effort: &ObjectEffort) -> Vec<Sample>;
}

/// Makes a contestant of `source`, which then lives as long as the process.
pub fn enlist<S: ObjectSource>(source: S) -> Box<dyn Contestant> {
    Box::new(Enlisted(Box::leak(Box::new(source))))
}

struct Enlisted<S: ObjectSource>(&'static S);

impl<S: ObjectSource> Contestant for Enlisted<S> {
    fn measure(&self, work: Work, workers: &Workers, effort: &ObjectEffort) -> Vec<Sample> {
        let source = self.0;
        match work {
            Work::Pair { threads } => {
                let key = |n| Key { bench: Bench::ObjPair, threads, n };
                vec![
                    pair::<S, 64>(source, workers, key(64), effort),
                    pair::<S, 256>(source, workers, key(256), effort),
                    pair::<S, 1024>(source, workers, key(1024), effort),
                ]
            }
            Work::Fill => fill(source, workers, effort),
            Work::Cross => cross(source, workers, effort),
        }
    }
}

/// Measures pairs of objects of `SIZE` bytes on the threads of `key` at once.
pub fn pair<S: ObjectSource, const SIZE: usize>(
    source: &'static S,
    workers: &Workers,
    key: Key,
    effort: &ObjectEffort,
) -> Sample {
    let gate = Arc::new(Gate::new(key.threads));
    let duration = effort.common.sample;
    let phases = workers.on_each(key.threads, move |_| {
        let chunk = chunk(|count| pairs::<S, SIZE>(source, count));
        gate.wait();
        repeat(duration, chunk, || pairs::<S, SIZE>(source, chunk))
    });
    Sample { key, ns: ns_per_operation(&phases) }
}

/// How many pairs last long enough; finding out warms the caches.
fn chunk(pairs: impl Fn(usize)) -> usize {
    let lasts = |&count: &usize| {
        let start = Instant::now();
        pairs(count);
        start.elapsed() >= CHUNK_LASTS
    };
    (4..).map(|shift| 1 << shift).find(lasts).expect("the series has no end")
}

#[inline(never)]
fn pairs<S: ObjectSource, const SIZE: usize>(source: &S, count: usize) {
    for _ in 0..count {
        let object = allocate::<S, SIZE>(source);
        // SAFETY: the object was allocated above, and is freed once.
        unsafe { source.free::<SIZE>(object) };
    }
}

#[inline(always)]
fn allocate<S: ObjectSource, const SIZE: usize>(source: &S) -> *mut u8 {
    let object = source.alloc::<SIZE>();
    assert!(!object.is_null(), "there is memory");
    // SAFETY: the object is ours, of at least 8 bytes, and aligned to 8 by all allocators here.
    unsafe { object.cast::<u64>().write(SIZE as u64) };
    // A copy is shown to the optimizer's blind spot: passing the pointer itself through would add a
    // store and a load to what is measured.
    black_box(object);
    object
}

/// An object that may change threads.
#[derive(Clone, Copy)]
struct Held(*mut u8);

// SAFETY: these are objects of allocators that let any thread free what another one allocated.
unsafe impl Send for Held {}

/// One cycle: filled and freed in random order (not timed), filled, freed in random order.
fn fill<S: ObjectSource>(
    source: &'static S,
    workers: &Workers,
    effort: &ObjectEffort,
) -> Vec<Sample> {
    let objects = effort.objects;
    let phases = workers.on_each(1, move |_| {
        let mut held = vec![Held(std::ptr::null_mut()); objects];
        fill_and_free(source, &mut held, 1);
        fill_and_free(source, &mut held, 2)
    });
    let [fill, free] = phases[0];
    let sample = |bench, phase: Phase| Sample {
        key: Key { bench, threads: 1, n: OBJECT_BYTES },
        ns: ns_per_operation(&[phase]),
    };
    vec![sample(Bench::ObjFill, fill), sample(Bench::ObjFreeRandom, free)]
}

/// The shuffle depends on `seed` alone, so that all allocators free in the same order.
fn fill_and_free<S: ObjectSource>(source: &S, held: &mut [Held], seed: u64) -> [Phase; 2] {
    let fill = phase(held.len(), || {
        held.iter_mut().for_each(|place| *place = Held(allocate::<S, OBJECT_BYTES>(source)));
    });
    fastrand::Rng::with_seed(seed).shuffle(held);
    let free = phase(held.len(), || {
        for object in held.iter() {
            // SAFETY: allocated above, and freed once.
            unsafe { source.free::<OBJECT_BYTES>(object.0) };
        }
    });
    [fill, free]
}

/// The first thread allocates, the second frees, without end: the steady state, seen from the one that frees.
fn cross<S: ObjectSource>(
    source: &'static S,
    workers: &Workers,
    effort: &ObjectEffort,
) -> Vec<Sample> {
    let (producer, consumer) = RingBuffer::<Held>::new(QUEUE);
    let (producer, consumer) = (Mutex::new(Some(producer)), Mutex::new(Some(consumer)));
    let stop = Arc::new(AtomicBool::new(false));
    let duration = effort.common.cross;
    let phases = workers.on_each(2, move |thread| match thread {
        0 => {
            produce(source, take(&producer), &stop);
            None
        }
        _ => Some(consume(source, take(&consumer), &stop, duration)),
    });
    let freed: Vec<Phase> = phases.into_iter().flatten().collect();
    let key = Key { bench: Bench::ObjCross, threads: 2, n: OBJECT_BYTES };
    // Both threads were at work for the whole of the phase.
    vec![Sample { key, ns: ns_per_operation(&freed) * 2.0 }]
}

fn take<T>(end: &Mutex<Option<T>>) -> T {
    end.lock().expect("no one panics with the lock").take().expect("each end is taken once")
}

fn produce<S: ObjectSource>(source: &S, mut queue: Producer<Held>, stop: &AtomicBool) {
    let mut batch = [Held(std::ptr::null_mut()); BATCH];
    while !stop.load(Ordering::Relaxed) {
        batch.iter_mut().for_each(|place| *place = Held(allocate::<S, OBJECT_BYTES>(source)));
        while queue.push_entire_slice(&batch).is_err() {
            std::hint::spin_loop();
        }
    }
}

fn consume<S: ObjectSource>(
    source: &S,
    mut queue: Consumer<Held>,
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

fn free_chunk<S: ObjectSource>(source: &S, queue: &mut Consumer<Held>) {
    let mut freed = 0;
    while freed < CHUNK {
        freed += free_batch(source, queue);
    }
}

/// Frees the next batch, if there is one; returns how many objects that were.
fn free_batch<S: ObjectSource>(source: &S, queue: &mut Consumer<Held>) -> usize {
    let mut batch = [Held(std::ptr::null_mut()); BATCH];
    if queue.pop_entire_slice(&mut batch).is_err() {
        std::hint::spin_loop();
        return 0;
    }
    for object in &batch {
        // SAFETY: the other thread allocated it and gave it away once; only whole batches are pushed and popped.
        unsafe { source.free::<OBJECT_BYTES>(object.0) };
    }
    BATCH
}
