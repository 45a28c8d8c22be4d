//! `replace`: one of many pages that are held, chosen at random, is freed, and one is allocated in its place.
//!
//! The choice is made before the clock starts. As many pages as are held are replaced twice: only the second time is timed, since
//! the first pages lie side by side. Two threads hold half of the pages each.

use std::sync::Arc;

use fastrand::Rng;

use crate::sample::{Bench, Key, Sample};
use crate::source::{PAGE, PageSource};
use crate::timing::{Effort, Gate, Phase, ns_per_operation, phase};
use crate::work::{alloc_single, free_single};
use crate::workers::Workers;

/// Measures one turn on `threads` threads at once.
pub fn measure<S: PageSource>(
    source: &'static S,
    workers: &Workers,
    threads: usize,
    effort: &Effort,
) -> Vec<Sample> {
    let gate = Arc::new(Gate::new(threads));
    let pages = effort.fill_pages / threads;
    let phases = workers.on_each(threads, move |thread| turn(source, pages, &gate, thread as u64));
    let key = Key { bench: Bench::Replace, threads, n: pages * threads };
    vec![Sample { key, ns: ns_per_operation(&phases) }]
}

/// The choice depends on `seed` alone, so that all allocators replace the same.
fn turn<S: PageSource>(source: &S, pages: usize, gate: &Gate, seed: u64) -> Phase {
    let mut rng = Rng::with_seed(seed);
    let mut choose = || (0..pages).map(|_| rng.u32(..pages as u32)).collect();
    let (first, second): (Vec<u32>, Vec<u32>) = (choose(), choose());
    let mut held = vec![S::BLANK; pages];
    alloc_single(source, &mut held);
    replace(source, &mut held, &first);
    gate.wait();
    let timed = phase(pages, || replace(source, &mut held, &second));
    gate.wait();
    // SAFETY: the thread holds these pages, each once.
    unsafe { free_single(source, &held) };
    // The next user of this thread waits for no one: all must be done.
    gate.wait();
    timed
}

#[inline(never)]
fn replace<S: PageSource>(source: &S, held: &mut [S::Block], chosen: &[u32]) {
    for &at in chosen {
        let block = &mut held[at as usize];
        // SAFETY: the block is the thread's own, and another takes its place.
        unsafe { source.free(*block, PAGE) };
        *block = source.alloc(PAGE).expect("a page was just freed");
    }
}
