//! `fill`, `free_lifo`, `free_random`: many pages held at once.
//!
//! One cycle is: fill (not timed), free LIFO, fill, free in random order. The timed fill thus takes
//! pages from an allocator that got them back in order, which is the kinder case for those that keep
//! free pages in the order in which they came. Two threads hold half of the pages each.

use std::sync::Arc;

use crate::sample::{Bench, Key, Sample};
use crate::source::{PAGE, PageSource};
use crate::timing::{Gate, Phase, ns_per_operation, phase};
use crate::work::{alloc_single, free_single};
use crate::workers::Workers;

/// The timed phases of a cycle, in their order.
const PHASES: [Bench; 3] = [Bench::FreeLifo, Bench::Fill, Bench::FreeRandom];

/// Measures one cycle on `threads` threads at once.
pub fn measure<S: PageSource>(
    source: &'static S,
    workers: &Workers,
    threads: usize,
    pages: usize,
) -> Vec<Sample> {
    let gate = Arc::new(Gate::new(threads));
    let pages = pages / threads;
    let cycles = workers.on_each(threads, move |thread| cycle(source, pages, &gate, thread as u64));
    let sample = |(at, &bench): (usize, &Bench)| {
        let phases: Vec<Phase> = cycles.iter().map(|cycle| cycle[at]).collect();
        let key = Key { bench, threads, n: pages * threads };
        Sample { key, ns: ns_per_operation(&phases) }
    };
    PHASES.iter().enumerate().map(sample).collect()
}

/// The shuffle depends on `seed` alone, so that all allocators free in the same order.
fn cycle<S: PageSource>(source: &S, pages: usize, gate: &Gate, seed: u64) -> [Phase; 3] {
    let mut held = vec![S::BLANK; pages];
    alloc_single(source, &mut held);
    gate.wait();
    let lifo = phase(pages, || {
        for &block in held.iter().rev() {
            // SAFETY: the fill above allocated each of these pages, and this frees each once.
            unsafe { source.free(block, PAGE) };
        }
    });
    gate.wait();
    let fill = phase(pages, || alloc_single(source, &mut held));
    fastrand::Rng::with_seed(seed).shuffle(&mut held);
    gate.wait();
    // SAFETY: the second fill allocated each of these pages, and this frees each once.
    let random = phase(pages, || unsafe { free_single(source, &held) });
    // The next user of this thread waits for no one: all must be done.
    gate.wait();
    [lifo, fill, random]
}
