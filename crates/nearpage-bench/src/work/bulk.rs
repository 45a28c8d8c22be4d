//! `bulk`: the table of 2017: `n` pages are allocated, then freed, one at a time and by one call.
//!
//! A turn holds `n` pages, or [`TURN_PAGES`] in several batches if `n` is smaller: one call for one page
//! is far shorter than a look at the clock. A turn's pages fit the pageset of a CPU, so that small batches
//! never meet the zone, as in the original. Allocating all batches of a turn lies between two looks, freeing
//! them all between the next two; what a look costs is taken off each.
//!
//! The original's loop for single pages handles `n + 1` and divides by `n`; its loop for bulk is right.

use std::time::{Duration, Instant};

use nearpage::{Order, Pfn, Request};
use nearpage_linux::Memory;

use crate::field::Context;
use crate::rows::{Key, Sample, Work};
use crate::source::{GFP, Source};
use crate::step::{Step, StepError};

/// Pages in a turn at least.
const TURN_PAGES: usize = 512;
const REQUEST: Request = Request::new(Order(0), GFP);

/// Which loop handles single pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SingleLoop {
    /// `n` pages, divided by `n`.
    Exact,
    /// As the original's: `n + 1` pages, divided by `n`.
    Of2017,
}

impl SingleLoop {
    /// The name: `exact` or `2017`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Of2017 => "2017",
        }
    }

    /// What its allocations and its frees are called.
    pub fn works(self) -> [Work; 2] {
        match self {
            Self::Exact => [Work::SingleAlloc, Work::SingleFree],
            Self::Of2017 => [Work::SingleAlloc2017, Work::SingleFree2017],
        }
    }

    fn pages(self, n: usize) -> usize {
        match self {
            Self::Exact => n,
            Self::Of2017 => n + 1,
        }
    }
}

/// Sizes of batches: powers of two.
pub fn sizes(batch_max: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(1), |n| Some(n * 2)).take_while(move |&n| n <= batch_max)
}

/// Both columns, for all sizes.
pub fn steps<'a>(context: Context<'a>, single_loop: SingleLoop) -> Vec<Step<'a>> {
    let memory = &context.field.nearpage;
    let both = |n| {
        let single = Batch { n, pages: single_loop.pages(n), works: single_loop.works() };
        let bulk = Batch { n, pages: n, works: [Work::BulkAlloc, Work::BulkFree] };
        [
            single.step(context, memory, alloc_single, free_single),
            bulk.step(context, memory, alloc_bulk, free_bulk),
        ]
    };
    sizes(context.effort.batch_max).flat_map(both).collect()
}

/// A batch, and what is said of it.
#[derive(Clone, Copy)]
struct Batch {
    n: usize,
    /// Pages that are handled; the time is divided by `n`.
    pages: usize,
    works: [Work; 2],
}

/// Time that a thread spent allocating and freeing, looks at the clock included.
#[derive(Default)]
struct Spent {
    alloc: Duration,
    free: Duration,
    turns: u32,
}

impl Batch {
    fn step<'a>(
        self,
        context: Context<'a>,
        memory: &'a Memory,
        alloc: impl Fn(&Memory, &mut [Pfn]) -> Result<(), StepError> + Sync + 'a,
        free: impl Fn(&Memory, &[Pfn]) + Sync + 'a,
    ) -> Step<'a> {
        let allocator = "nearpage";
        let run = move || {
            let turns = |_, _: &_| self.turns(context, memory, &alloc, &free);
            let spent = context.cpus.run(1, turns)?;
            let sample = |(work, time): (Work, Duration)| {
                let key = Key { work, allocator, threads: 1, n: self.n };
                let time = time.saturating_sub(context.clock.look * spent[0].turns);
                let pages = spent[0].turns as usize * self.batches() * self.n;
                Sample {
                    key,
                    ns: time.as_nanos() as f64 / pages as f64,
                    samples_ns: Vec::new(),
                    moves: None,
                }
            };
            let times = [spent[0].alloc, spent[0].free];
            Ok(self.works.into_iter().zip(times).map(sample).collect())
        };
        Step { allocator, run: Box::new(run) }
    }

    /// Batches in a turn.
    fn batches(self) -> usize {
        TURN_PAGES.div_ceil(self.n)
    }

    fn turns(
        self,
        context: Context<'_>,
        memory: &Memory,
        alloc: impl Fn(&Memory, &mut [Pfn]) -> Result<(), StepError>,
        free: impl Fn(&Memory, &[Pfn]),
    ) -> Result<Spent, StepError> {
        let mut pages = vec![Pfn(0); self.batches() * self.pages];
        let mut spent = Spent::default();
        while spent.turns == 0 || spent.alloc.min(spent.free) < context.effort.batch {
            let start = Instant::now();
            pages.chunks_exact_mut(self.pages).try_for_each(|batch| alloc(memory, batch))?;
            let allocated = Instant::now();
            pages.chunks_exact(self.pages).for_each(|batch| free(memory, batch));
            let freed = Instant::now();
            spent.alloc += allocated - start;
            spent.free += freed - allocated;
            spent.turns += 1;
        }
        Ok(spent)
    }
}

fn alloc_single(memory: &Memory, batch: &mut [Pfn]) -> Result<(), StepError> {
    for page in batch {
        *page = Source::alloc::<0>(memory).ok_or(StepError::Exhausted)?;
    }
    Ok(())
}

fn free_single(memory: &Memory, batch: &[Pfn]) {
    // SAFETY: a turn frees what it allocated, once.
    batch.iter().for_each(|&page| unsafe { memory.free::<0>(page) });
}

/// A bulk request may be met in part: the rest is asked for again.
fn alloc_bulk(memory: &Memory, batch: &mut [Pfn]) -> Result<(), StepError> {
    let mut got = 0;
    while got < batch.len() {
        let more = memory.alloc_frames_bulk(REQUEST, &mut batch[got..]);
        got += more.map_err(|_| StepError::Exhausted)?;
    }
    Ok(())
}

fn free_bulk(memory: &Memory, batch: &[Pfn]) {
    // SAFETY: a turn frees what it allocated, once. Refusals are counted (`Memory::misuses`), and make
    // the benchmark fail at its end.
    let _ = unsafe { memory.free_frames_bulk(batch) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::{Effort, Field};
    use crate::measure::Clock;
    use crate::threads::Cpus;

    /// Does every step once on a memory of so many bytes.
    fn run(bytes: u64, single_loop: SingleLoop) -> Result<Vec<Key>, StepError> {
        let cpus = Cpus::allowed().unwrap();
        let field = Field::new(Memory::builder, bytes, &cpus, &[]).unwrap();
        let effort = Effort { batch: Duration::ZERO, batch_max: 2048, ..Effort::QUICK };
        let context = Context { field: &field, cpus: &cpus, effort, clock: Clock::calibrate() };
        let mut keys = Vec::new();
        for step in steps(context, single_loop) {
            keys.extend((step.run)()?.iter().map(|sample| sample.key));
        }
        assert_eq!(field.nearpage.misuses(), 0);
        Ok(keys)
    }

    #[test]
    fn each_size_has_both_columns_of_both_operations() {
        let keys = run(64 << 20, SingleLoop::Exact).unwrap();
        let of_size = |n| keys.iter().filter(move |key| key.n == n).map(|key| key.work);
        for n in sizes(2048) {
            let works: Vec<Work> = of_size(n).collect();
            let expected = [Work::SingleAlloc, Work::SingleFree, Work::BulkAlloc, Work::BulkFree];
            assert_eq!(works, expected, "{n}");
        }
        assert_eq!(keys.len(), 4 * 12);
    }

    #[test]
    fn the_loop_of_2017_is_told_apart() {
        let keys = run(64 << 20, SingleLoop::Of2017).unwrap();
        assert!(keys.iter().all(|key| key.work != Work::SingleAlloc));
        assert!(keys.iter().any(|key| key.work == Work::SingleAlloc2017 && key.n == 1));
        assert_eq!((SingleLoop::Of2017.pages(8), SingleLoop::Exact.pages(8)), (9, 8));
    }

    #[test]
    fn too_little_memory_is_an_error() {
        // 1024 pages, of which the watermarks keep some.
        assert!(matches!(run(4 << 20, SingleLoop::Exact), Err(StepError::Exhausted)));
    }
}
