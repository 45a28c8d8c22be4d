//! The benchmarks: what is done, how often, and between which looks at the clock.
//!
//! All of them work on blocks that they do not touch: what an allocator itself reads and writes in a
//! free block is its own cost, and is in its time.

mod batch;
mod cross;
mod fill;
mod pair;

use crate::sample::Sample;
use crate::source::{HUGE_PAGE, PAGE, PageSource, alloc_each};
use crate::timing::Effort;
use crate::workers::Workers;

/// One piece of work; it gives one or more rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// Pages allocated and freed at once, by so many threads.
    Pair { threads: usize },
    /// 2 MiB blocks allocated and freed at once.
    HugePair,
    /// Many pages held, and freed in both orders.
    Fill { threads: usize },
    /// Pages allocated on one CPU and freed on another.
    Cross,
    /// `n` pages at a time, page by page.
    Single { n: usize },
    /// `n` pages at a time by one call, by so many threads.
    Bulk { threads: usize, n: usize },
}

impl Work {
    /// All work on a machine where `cpus` threads can run side by side.
    pub fn all(cpus: usize, effort: &Effort) -> Vec<Work> {
        let series = || (0..).map(|shift| 1 << shift).take_while(|&n| n <= effort.batch_max);
        let mut all = vec![Work::HugePair];
        for threads in 1..=cpus {
            all.extend([Work::Pair { threads }, Work::Fill { threads }]);
            all.extend(series().map(|n| Work::Bulk { threads, n }));
        }
        all.extend(series().map(|n| Work::Single { n }));
        if cpus >= 2 {
            all.push(Work::Cross);
        }
        all
    }

    /// Does this work once on `source`.
    ///
    /// # Panics
    ///
    /// If `source` runs out of memory; that it has enough was shown before (`footprint`).
    pub fn measure<S: PageSource>(
        self,
        source: &'static S,
        workers: &Workers,
        effort: &Effort,
    ) -> Vec<Sample> {
        match self {
            Work::Pair { threads } => {
                pair::measure::<S, { PAGE.0 }>(source, workers, threads, effort)
            }
            Work::HugePair => pair::measure::<S, { HUGE_PAGE.0 }>(source, workers, 1, effort),
            Work::Fill { threads } => fill::measure(source, workers, threads, effort),
            Work::Cross => cross::measure(source, workers, effort),
            Work::Single { n } => batch::measure_single(source, workers, n, effort),
            Work::Bulk { threads, n } => batch::measure_bulk(source, workers, threads, n, effort),
        }
    }
}

/// Allocates pages into all of `blocks`, one at a time.
fn alloc_single<S: PageSource>(source: &S, blocks: &mut [S::Block]) {
    let count = alloc_each(source, blocks);
    assert_eq!(count, blocks.len(), "pages are free");
}

/// Frees `blocks` one at a time.
///
/// # Safety
///
/// As [`PageSource::free_bulk`].
unsafe fn free_single<S: PageSource>(source: &S, blocks: &[S::Block]) {
    for &block in blocks {
        // SAFETY: passed on from the caller, block by block.
        unsafe { source.free(block, PAGE) };
    }
}
