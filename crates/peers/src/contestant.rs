//! A [`PageSource`] of any type, as the list of allocators holds it.
//!
//! The dynamic call is made once per piece of work; below it, all is specific to the source.

use crate::footprint::{self, Footprint};
use crate::sample::Sample;
use crate::source::PageSource;
use crate::task::Work;
use crate::timing::Effort;
use crate::work;
use crate::workers::Workers;

/// An allocator that takes part.
pub trait Contestant {
    /// Makes the source known to the benchmark threads.
    fn enter(&self, workers: &Workers);

    /// Does `work` once; no samples if this allocator cannot do it.
    fn measure(&self, work: Work, workers: &Workers, effort: &Effort) -> Vec<Sample>;

    /// Fills the allocator, looks at the pages that it gave and at the memory that it took, and empties it.
    ///
    /// # Errors
    ///
    /// What is wrong with the pages: too few, misaligned, or one given twice.
    fn footprint(&self, workers: &Workers, before: u64, pages: usize) -> Result<Footprint, String>;
}

/// Makes a contestant of `source`, which then lives as long as the process.
pub fn enlist<S: PageSource>(source: S) -> Box<dyn Contestant> {
    Box::new(Enlisted(Box::leak(Box::new(source))))
}

struct Enlisted<S: PageSource>(&'static S);

impl<S: PageSource> Contestant for Enlisted<S> {
    fn enter(&self, workers: &Workers) {
        let source = self.0;
        workers.on_each(workers.count(), move |_| source.enter_thread());
    }

    fn measure(&self, work: Work, workers: &Workers, effort: &Effort) -> Vec<Sample> {
        match self.0.runs(work) {
            true => work::measure(work, self.0, workers, effort),
            false => Vec::new(),
        }
    }

    fn footprint(&self, workers: &Workers, before: u64, pages: usize) -> Result<Footprint, String> {
        footprint::of(self.0, workers, before, pages)
    }
}
