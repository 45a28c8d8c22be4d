//! `fragmentation`: how many ranges of 512 pages stay free, or become free again, while threads hold pages at random.
//!
//! Each thread is pinned, and each has a generator of random numbers that begins with the seed plus the thread's number.
//!
//! ```text
//! fill      90 % of all pages, each thread its part; all pages are shuffled by one generator (the seed plus 1000), and
//!           each thread gets a run of them
//! half      each thread frees its last pages until 50 % are used
//! singles   7 rounds: as often as it holds pages, a thread frees a random one of its own and takes one
//! fifths    60 rounds: a thread shuffles its pages, frees a fifth, and takes as many: the first row is counted
//! tenth     a thread shuffles its pages and frees the last until 10 % are used
//! singles   20 rounds: the second row is counted
//! ```
//!
//! Nothing drains a pageset meanwhile, `min_free_kbytes` is 0, and nobody touches a page. What is whole is counted from
//! what the threads hold, not from what the allocator says. Requests of order 9 end an experiment, since they change what
//! follows: each row is a run of its own.
//!
//! With one thread, a seed always gives the same counts. Threads that run at once find other pages each time.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard};

use fastrand::Rng;
use nearpage::{Model, Pfn};
use nearpage_linux::{FRAME_BYTES, MemoryBuilder};
use serde::Serialize;

use crate::seats::Seats;
use crate::source::Source;
use crate::step::StepError;
use crate::threads::{Cpus, Gate};

/// Pages of a range that is counted: a block of order 9.
const RANGE_PAGES: u64 = 512;
const HUGE: u8 = 9;
/// Bytes of a range.
pub const RANGE_BYTES: u64 = RANGE_PAGES * FRAME_BYTES;
/// The shuffle of all pages has a generator that is no thread's.
const SHUFFLE_SEED: u64 = 1000;
const FILLED_PERCENT: u64 = 90;
const SINGLES_ROUNDS: u32 = 7;
const FIFTHS_ROUNDS: u32 = 60;
const LAST_SINGLES_ROUNDS: u32 = 20;

/// How large an experiment is, and where its randomness begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Shape {
    /// Threads, each with a CPU of its own, as the allocator sees them.
    pub threads: usize,
    /// Bytes of memory: whole ranges of 2 MiB count.
    pub bytes: u64,
    /// What the generators of random numbers begin with.
    pub seed: u64,
}

impl Shape {
    /// Those whose figures are published for another allocator.
    pub const ALL: [Shape; 6] = [
        Shape::of(2, 4, 42),
        Shape::of(4, 4, 7),
        Shape::of(2, 2, 1),
        Shape::of(4, 1, 11),
        Shape::of(4, 1, 12),
        Shape::of(4, 1, 13),
    ];
    /// One that takes a second.
    pub const QUICK: Shape = Shape { threads: 2, bytes: 256 << 20, seed: 42 };

    const fn of(threads: usize, gibibytes: u64, seed: u64) -> Self {
        Self { threads, bytes: gibibytes << 30, seed }
    }

    fn ranges(self) -> u64 {
        self.bytes / RANGE_BYTES
    }

    /// Pages that each thread holds if so many percent of all are used.
    fn each(self, percent: u64) -> usize {
        (self.ranges() * RANGE_PAGES * percent / 100) as usize / self.threads
    }
}

/// What an experiment came to, at one of the two times at which it is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct Fragmentation {
    /// Whose rules.
    pub model: &'static str,
    /// The experiment.
    #[serde(flatten)]
    pub shape: Shape,
    /// CPUs of this machine that the threads ran on: fewer than threads if threads share them.
    pub cpus: usize,
    /// Percent of all pages that the threads hold.
    pub used_percent: u64,
    /// Aligned ranges of 512 pages.
    pub ranges: u64,
    /// Ranges that would be free if the pages lay side by side.
    pub perfect: u64,
    /// Ranges of which no page is allocated.
    pub whole: u64,
    /// Requests of order 9 that then succeed.
    pub order9_requests: u64,
}

/// When ranges are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Row {
    /// After 67 rounds with half of all pages.
    Half,
    /// After 20 more with a tenth.
    Tenth,
}

impl Row {
    /// Both.
    pub const ALL: [Row; 2] = [Row::Half, Row::Tenth];

    fn used_percent(self) -> u64 {
        match self {
            Self::Half => 50,
            Self::Tenth => 10,
        }
    }
}

/// Does an experiment up to a row, on a fresh memory that begins as `begin` says.
///
/// # Errors
///
/// [`StepError`].
pub fn measure(
    begin: MemoryBuilder,
    cpus: &Cpus,
    model: Model,
    shape: Shape,
    row: Row,
) -> Result<Fragmentation, StepError> {
    let seats = Seats::new(cpus, shape.threads);
    let memory = seats.memory(begin, model, shape.ranges() * RANGE_BYTES)?;
    let held = age(&memory, seats, shape, row)?;
    let order9_requests = take_huge(&memory, seats)?;
    match memory.misuses() {
        0 => Ok(Fragmentation {
            model: model.name,
            shape,
            cpus: seats.cpus(),
            used_percent: row.used_percent(),
            ranges: shape.ranges(),
            perfect: shape.ranges() - (held.len() as u64).div_ceil(RANGE_PAGES),
            whole: shape.ranges() - used_ranges(&held),
            order9_requests,
        }),
        misuses => Err(StepError::Refused(misuses)),
    }
}

fn used_ranges(held: &[Pfn]) -> u64 {
    let ranges: HashSet<u64> = held.iter().map(|pfn| pfn.0 / RANGE_PAGES).collect();
    ranges.len() as u64
}

/// A thread's pages and its generator, between the parts of an experiment.
struct Thread {
    held: Vec<Pfn>,
    rng: Rng,
}

/// Does all that comes before a row, and returns the pages that are then held.
fn age(
    memory: &impl Source<Block = Pfn>,
    seats: Seats<'_>,
    shape: Shape,
    row: Row,
) -> Result<Vec<Pfn>, StepError> {
    let threads: Vec<Mutex<Thread>> = (0..shape.threads as u64)
        .map(|thread| Thread { held: Vec::new(), rng: Rng::with_seed(shape.seed + thread) })
        .map(Mutex::new)
        .collect();
    let each = |work: &(dyn Fn(&mut Thread, &Gate) -> Result<(), StepError> + Sync)| {
        seats.run(|thread, gate| work(&mut of(&threads[thread]), gate))
    };
    each(&|thread, _| thread.take(memory, shape.each(FILLED_PERCENT)))?;
    deal(&threads, shape.seed + SHUFFLE_SEED);
    each(&|thread, gate| {
        thread.free_down_to(memory, shape.each(Row::Half.used_percent()));
        thread.churn_singles(memory, SINGLES_ROUNDS, gate)?;
        thread.churn_fifths(memory, FIFTHS_ROUNDS, gate)
    })?;
    if row == Row::Tenth {
        each(&|thread, gate| {
            thread.rng.shuffle(&mut thread.held);
            thread.free_down_to(memory, shape.each(Row::Tenth.used_percent()));
            thread.churn_singles(memory, LAST_SINGLES_ROUNDS, gate)
        })?;
    }
    Ok(threads.iter().flat_map(|thread| of(thread).held.clone()).collect())
}

fn of(thread: &Mutex<Thread>) -> MutexGuard<'_, Thread> {
    thread.lock().expect("nobody panics with a thread's pages")
}

/// Shuffles all pages, and gives each thread a run of them.
fn deal(threads: &[Mutex<Thread>], seed: u64) {
    let mut all: Vec<Pfn> =
        threads.iter().flat_map(|thread| std::mem::take(&mut of(thread).held)).collect();
    Rng::with_seed(seed).shuffle(&mut all);
    let run = all.len() / threads.len();
    for (thread, run) in threads.iter().zip(all.chunks(run)) {
        of(thread).held = run.to_vec();
    }
}

impl Thread {
    fn take(&mut self, memory: &impl Source<Block = Pfn>, pages: usize) -> Result<(), StepError> {
        for _ in 0..pages {
            self.held.push(memory.alloc::<0>().ok_or(StepError::Exhausted)?);
        }
        Ok(())
    }

    fn free_down_to(&mut self, memory: &impl Source<Block = Pfn>, pages: usize) {
        // SAFETY: the thread's pages are its own, each once, and these are no longer among them.
        self.held.drain(pages..).rev().for_each(|page| unsafe { memory.free::<0>(page) });
    }

    fn churn_singles(
        &mut self,
        memory: &impl Source<Block = Pfn>,
        rounds: u32,
        gate: &Gate,
    ) -> Result<(), StepError> {
        for _ in 0..rounds {
            gate.wait();
            for _ in 0..self.held.len() {
                let at = self.rng.usize(..self.held.len());
                let page = &mut self.held[at];
                // SAFETY: the page is the thread's own, and another takes its place.
                unsafe { memory.free::<0>(*page) };
                *page = memory.alloc::<0>().ok_or(StepError::Exhausted)?;
            }
        }
        Ok(())
    }

    fn churn_fifths(
        &mut self,
        memory: &impl Source<Block = Pfn>,
        rounds: u32,
        gate: &Gate,
    ) -> Result<(), StepError> {
        let fifth = self.held.len() / 5;
        for _ in 0..rounds {
            gate.wait();
            self.rng.shuffle(&mut self.held);
            self.free_down_to(memory, self.held.len() - fifth);
            self.take(memory, fifth)?;
        }
        Ok(())
    }
}

/// Requests of order 9 that the first thread's CPU gets; they are freed again.
fn take_huge(memory: &impl Source<Block = Pfn>, seats: Seats<'_>) -> Result<u64, StepError> {
    let taken = seats.run(|thread, _| {
        let next = || (thread == 0).then(|| memory.alloc::<HUGE>()).flatten();
        let blocks: Vec<Pfn> = std::iter::from_fn(next).collect();
        // SAFETY: just allocated, and nobody else knows them.
        blocks.iter().for_each(|&block| unsafe { memory.free::<HUGE>(block) });
        Ok(blocks.len() as u64)
    })?;
    Ok(taken.into_iter().sum())
}

#[cfg(test)]
mod tests {
    use nearpage_linux::Memory;

    use super::*;

    const SMALL: Shape = Shape { threads: 1, bytes: 64 << 20, seed: 5 };

    fn counts(model: Model, shape: Shape, row: Row) -> Fragmentation {
        measure(Memory::builder(), &Cpus::allowed().unwrap(), model, shape, row).unwrap()
    }

    /// The figures are counts, so that two programs can be compared by one run each.
    #[test]
    fn one_thread_always_has_the_same_counts() {
        for model in [Model::NEARPAGE, Model::LINUX_6_18] {
            for row in Row::ALL {
                let once = counts(model, SMALL, row);
                assert_eq!(counts(model, SMALL, row), once);
                assert_eq!((once.ranges, once.model), (32, model.name));
                assert!(once.whole <= once.perfect, "{once:?}");
            }
        }
    }

    #[test]
    fn as_many_pages_are_held_as_each_row_says() {
        let cpus = Cpus::allowed().unwrap();
        for (threads, seed) in [(1, 1), (3, 2)] {
            let shape = Shape { threads, seed, ..SMALL };
            for (row, perfect) in [(Row::Half, 16), (Row::Tenth, 28)] {
                let seats = Seats::new(&cpus, threads);
                let memory = seats.memory(Memory::builder(), Model::NEARPAGE, shape.bytes).unwrap();
                let held = age(&memory, seats, shape, row).unwrap();
                let distinct: HashSet<Pfn> = held.iter().copied().collect();
                assert_eq!(distinct.len(), threads * shape.each(row.used_percent()));
                assert_eq!(held.len(), distinct.len());
                assert_eq!(memory.check().unwrap().allocated.0, held.len() as u64);
                assert_eq!(counts(Model::NEARPAGE, shape, row).perfect, perfect);
            }
        }
    }

    /// What is whole is what the allocator itself can give out whole, once its caches are empty.
    #[test]
    fn whole_ranges_are_those_that_a_drained_zone_gives_out() {
        let cpus = Cpus::allowed().unwrap();
        let seats = Seats::new(&cpus, SMALL.threads);
        let memory = seats.memory(Memory::builder(), Model::LINUX_6_18, SMALL.bytes).unwrap();
        let held = age(&memory, seats, SMALL, Row::Tenth).unwrap();
        memory.drain_all().unwrap();
        let whole = SMALL.ranges() - used_ranges(&held);
        assert!(whole > 0);
        assert_eq!(take_huge(&memory, seats).unwrap(), whole);
    }
}
