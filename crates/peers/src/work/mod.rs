//! The benchmarks: what is done, how often, and between which looks at the clock.
//!
//! All of them work on blocks that they do not touch: what an allocator itself reads and writes in a
//! free block is its own cost, and is in its time.

mod batch;
mod cross;
mod fill;
mod pair;
mod replace;

use crate::sample::Sample;
use crate::source::{HUGE_PAGE, PAGE, PageSource, alloc_each};
use crate::task::Work;
use crate::timing::Effort;
use crate::workers::Workers;

/// Does a piece of work once on `source`.
///
/// # Panics
///
/// If `source` runs out of memory; that it has enough was shown before (`footprint`).
pub fn measure<S: PageSource>(
    work: Work,
    source: &'static S,
    workers: &Workers,
    effort: &Effort,
) -> Vec<Sample> {
    match work {
        Work::Pair { threads } => pair::measure::<S, { PAGE.0 }>(source, workers, threads, effort),
        Work::HugePair => pair::measure::<S, { HUGE_PAGE.0 }>(source, workers, 1, effort),
        Work::Fill { threads } => fill::measure(source, workers, threads, effort.fill_pages),
        Work::LargeFill { threads } => fill::measure(source, workers, threads, effort.large_pages),
        Work::Replace { threads } => replace::measure(source, workers, threads, effort),
        Work::Cross => cross::measure(source, workers, effort),
        Work::Single { n } => batch::measure_single(source, workers, n, effort),
        Work::Bulk { threads, n } => batch::measure_bulk(source, workers, threads, n, effort),
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
