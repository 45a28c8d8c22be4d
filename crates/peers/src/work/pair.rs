//! `pair` and `order9_pair`: a block is allocated and freed at once, always the same way.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nearpage::Order;

use crate::sample::{Bench, Key, Sample};
use crate::source::{PAGE, PageSource};
use crate::timing::{Effort, Gate, ns_per_operation, repeat};
use crate::workers::Workers;

/// Time between two looks at the clock, about: a thousand times what a look costs.
const CHUNK_LASTS: Duration = Duration::from_micros(30);

/// Measures pairs of order `ORDER` on `threads` threads at once.
pub fn measure<S: PageSource, const ORDER: u8>(
    source: &'static S,
    workers: &Workers,
    threads: usize,
    effort: &Effort,
) -> Vec<Sample> {
    let gate = Arc::new(Gate::new(threads));
    let duration = effort.sample;
    let phases = workers.on_each(threads, move |_| {
        let chunk = chunk(|count| pairs::<S, ORDER>(source, count));
        gate.wait();
        repeat(duration, chunk, || pairs::<S, ORDER>(source, chunk))
    });
    let bench = if ORDER == PAGE.0 { Bench::Pair } else { Bench::Order9Pair };
    vec![Sample { key: Key { bench, threads, n: 1 }, ns: ns_per_operation(&phases) }]
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
fn pairs<S: PageSource, const ORDER: u8>(source: &S, count: usize) {
    for _ in 0..count {
        let block = source.alloc(Order(ORDER)).expect("a block is free");
        // A copy is shown to the optimizer's blind spot: passing the block itself through would add
        // a store and a load to what is measured.
        black_box(block);
        // SAFETY: the block was allocated above with this order, and is freed once.
        unsafe { source.free(block, Order(ORDER)) };
    }
}
