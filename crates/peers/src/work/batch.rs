//! `single_*` and `bulk_*`: `n` pages are allocated, then freed, in turns.
//!
//! A turn holds `n` pages, or about [`TURN_PAGES`] in several calls if `n` is smaller: one call for one page
//! is far shorter than a look at the clock, and the pages of a turn fit the per-CPU caches of the
//! allocators that have some. What a look costs is measured once and taken off each.

use std::time::{Duration, Instant};

use crate::sample::{Bench, Key, Sample};
use crate::source::PageSource;
use crate::timing::{Effort, Gate, clock_cost};
use crate::work::{alloc_single, free_single};
use crate::workers::Workers;

/// Pages in a turn, at least or nearly.
const TURN_PAGES: usize = 256;

/// Measures `n` pages at a time, page by page.
pub fn measure_single<S: PageSource>(
    source: &'static S,
    workers: &Workers,
    n: usize,
    effort: &Effort,
) -> Vec<Sample> {
    let duration = effort.sample;
    // SAFETY: `turns` frees what it allocated, once.
    let free = |source: &S, blocks: &[S::Block]| unsafe { free_single(source, blocks) };
    let gate = Gate::new(1);
    let totals = workers.on_each(1, move |_| turns(source, n, &gate, duration, alloc_single, free));
    samples([Bench::SingleAlloc, Bench::SingleFree], n, &totals)
}

/// Measures `n` pages at a time by one call, on `threads` threads at once.
pub fn measure_bulk<S: PageSource>(
    source: &'static S,
    workers: &Workers,
    threads: usize,
    n: usize,
    effort: &Effort,
) -> Vec<Sample> {
    let duration = effort.sample;
    // SAFETY: `turns` frees what it allocated, once.
    let free = |source: &S, blocks: &[S::Block]| unsafe { source.free_bulk(blocks) };
    let gate = Gate::new(threads);
    let totals =
        workers.on_each(threads, move |_| turns(source, n, &gate, duration, alloc_bulk, free));
    samples([Bench::BulkAlloc, Bench::BulkFree], n, &totals)
}

/// A bulk request may be met in part; the rest is asked for again.
fn alloc_bulk<S: PageSource>(source: &S, blocks: &mut [S::Block]) {
    let mut done = 0;
    while done < blocks.len() {
        let got = source.alloc_bulk(&mut blocks[done..]);
        assert!(got > 0, "a page is free");
        done += got;
    }
}

/// What the turns of one thread came to.
#[derive(Default)]
struct Total {
    alloc: Duration,
    free: Duration,
    turns: u32,
}

fn turns<S: PageSource>(
    source: &S,
    n: usize,
    gate: &Gate,
    duration: Duration,
    alloc: impl Fn(&S, &mut [S::Block]),
    free: impl Fn(&S, &[S::Block]),
) -> Total {
    let mut blocks = vec![S::BLANK; turn_pages(n)];
    let look = clock_cost();
    let mut total = Total::default();
    gate.wait();
    while total.alloc.min(total.free) < duration {
        let start = Instant::now();
        blocks.chunks_exact_mut(n).for_each(|call| alloc(source, call));
        let between = Instant::now();
        blocks.chunks_exact(n).for_each(|call| free(source, call));
        let end = Instant::now();
        total.alloc += between - start;
        total.free += end - between;
        total.turns += 1;
    }
    total.alloc = total.alloc.saturating_sub(look * total.turns);
    total.free = total.free.saturating_sub(look * total.turns);
    total
}

fn turn_pages(n: usize) -> usize {
    n.max(TURN_PAGES / n * n)
}

/// Threads take turns at their own pace, one allocating while the other frees: wall time × threads is
/// the sum of their times.
fn samples(benches: [Bench; 2], n: usize, totals: &[Total]) -> Vec<Sample> {
    let pages: usize = totals.iter().map(|total| total.turns as usize * turn_pages(n)).sum();
    let alloc: Duration = totals.iter().map(|total| total.alloc).sum();
    let free: Duration = totals.iter().map(|total| total.free).sum();
    let sample = |(bench, time): (Bench, Duration)| Sample {
        key: Key { bench, threads: totals.len(), n },
        ns: time.as_nanos() as f64 / pages as f64,
    };
    benches.into_iter().zip([alloc, free]).map(sample).collect()
}
