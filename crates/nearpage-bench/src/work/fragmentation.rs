//! `fragmentation`: how many ranges of 512 pages stay free, or become free again, while threads hold pages at random.
//!
//! Each thread is pinned, and each has a generator of random numbers that begins with the seed plus the thread's number.
//!
//! ```text
//! fill      90 % of all pages, each thread its part; all pages are shuffled by one generator (the seed plus 1000), and
//!           each thread gets a run of them
//! half      each thread frees its last pages until 50 % are used
//! singles   7 rounds: as often as it holds pages, a thread frees a random one of its own and takes one: counted
//! fifths    60 rounds: a thread shuffles its pages, frees a fifth, and takes as many: counted after 1, 5, 20 and 60
//! tenth     a thread shuffles its pages and frees the last until 10 % are used
//! singles   20 rounds: counted
//! ```
//!
//! Nothing drains a pageset meanwhile, `min_free_kbytes` is 0, and nobody touches a page. What is whole is counted from
//! what the threads hold, not from what the allocator says. Requests of order 9 end an experiment, since they change what
//! follows: so it is done twice, up to 60 fifths and up to the last singles.
//!
//! With one thread, a seed always gives the same counts, unless rules look at the clock. Threads that run at once find other pages each time.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard};

use fastrand::Rng;
use nearpage::Pfn;
use nearpage_linux::FRAME_BYTES;
use serde::Serialize;

use crate::contender::{Contender, check_frees};
use crate::counts::{Counters, Moves};
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
const HALF_PERCENT: u64 = 50;
const TENTH_PERCENT: u64 = 10;
const SINGLES_ROUNDS: u32 = 7;
/// Ranges are counted after so many rounds of fifths.
const FIFTHS_ROUNDS: [u32; 4] = [1, 5, 20, 60];
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

/// What an experiment had come to, at one of the times at which it is counted.
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
    /// Rounds of single pages until then.
    pub singles_rounds: u32,
    /// Rounds of fifths until then.
    pub fifths_rounds: u32,
    /// Aligned ranges of 512 pages.
    pub ranges: u64,
    /// Ranges that would be free if the pages lay side by side.
    pub perfect: u64,
    /// Ranges of which no page is allocated.
    pub whole: u64,
    /// Requests of order 9 that then succeed; `None` where the experiment goes on.
    pub order9_requests: Option<u64>,
    /// What the allocator counted since the count before, or since as many pages were freed as the row says.
    #[serde(flatten)]
    pub moves: Option<Moves>,
}

/// How far an experiment goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// 60 rounds of fifths with half of all pages.
    Half,
    /// 20 more of singles with a tenth.
    Tenth,
}

impl Until {
    /// Both.
    pub const ALL: [Until; 2] = [Until::Half, Until::Tenth];
}

/// Does an experiment on a fresh memory, and tells what it came to: on the way and at the end with half of all pages, at the
/// end alone with a tenth.
///
/// # Errors
///
/// [`StepError`].
pub fn measure(
    cpus: &Cpus,
    contender: &impl Contender,
    shape: Shape,
    until: Until,
) -> Result<Vec<Fragmentation>, StepError> {
    let seats = Seats::new(cpus, shape.threads);
    let memory = contender.pages(seats, shape.ranges() * RANGE_BYTES)?;
    let mut experiment = Experiment::new(contender.name(), &memory, seats, shape);
    let mut counts = experiment.age_half()?;
    if until == Until::Tenth {
        counts = vec![experiment.age_tenth()?];
    }
    if let Some(last) = counts.last_mut() {
        last.order9_requests = Some(take_huge(&memory, seats)?);
    }
    check_frees(&memory).map(|()| counts)
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

/// An experiment under way.
struct Experiment<'a, S> {
    model: &'static str,
    memory: &'a S,
    seats: Seats<'a>,
    shape: Shape,
    threads: Vec<Mutex<Thread>>,
    /// Rounds until now.
    singles: u32,
    fifths: u32,
    /// At the last count.
    counters: Option<Counters>,
}

impl<'a, S: Source<Block = Pfn>> Experiment<'a, S> {
    fn new(model: &'static str, memory: &'a S, seats: Seats<'a>, shape: Shape) -> Self {
        let thread = |thread| Thread { held: Vec::new(), rng: Rng::with_seed(shape.seed + thread) };
        let threads = (0..shape.threads as u64).map(thread).map(Mutex::new).collect();
        Self { model, memory, seats, shape, threads, singles: 0, fifths: 0, counters: None }
    }

    /// Ages a fresh memory until half of it was used for long; a count for each time.
    fn age_half(&mut self) -> Result<Vec<Fragmentation>, StepError> {
        let (memory, shape) = (self.memory, self.shape);
        self.each(|thread, _| thread.take(memory, shape.each(FILLED_PERCENT)))?;
        deal(&self.threads, shape.seed + SHUFFLE_SEED);
        self.each(|thread, _| {
            thread.free_down_to(memory, shape.each(HALF_PERCENT));
            Ok(())
        })?;
        self.counters = memory.counters();
        self.churn_singles(SINGLES_ROUNDS)?;
        let mut counts = vec![self.count(HALF_PERCENT)];
        for rounds in FIFTHS_ROUNDS {
            self.churn_fifths(rounds - self.fifths)?;
            counts.push(self.count(HALF_PERCENT));
        }
        Ok(counts)
    }

    /// Goes on from there with a tenth.
    fn age_tenth(&mut self) -> Result<Fragmentation, StepError> {
        let (memory, shape) = (self.memory, self.shape);
        self.each(|thread, _| {
            thread.rng.shuffle(&mut thread.held);
            thread.free_down_to(memory, shape.each(TENTH_PERCENT));
            Ok(())
        })?;
        self.counters = memory.counters();
        self.churn_singles(LAST_SINGLES_ROUNDS)?;
        Ok(self.count(TENTH_PERCENT))
    }

    fn churn_singles(&mut self, rounds: u32) -> Result<(), StepError> {
        let memory = self.memory;
        self.singles += rounds;
        self.each(|thread, gate| thread.churn_singles(memory, rounds, gate))
    }

    fn churn_fifths(&mut self, rounds: u32) -> Result<(), StepError> {
        let memory = self.memory;
        self.fifths += rounds;
        self.each(|thread, gate| thread.churn_fifths(memory, rounds, gate))
    }

    /// Does `work` on all threads at once.
    fn each(
        &self,
        work: impl Fn(&mut Thread, &Gate) -> Result<(), StepError> + Sync,
    ) -> Result<(), StepError> {
        let done = self.seats.run(|thread, gate| work(&mut of(&self.threads[thread]), gate));
        done.map(drop)
    }

    fn count(&mut self, used_percent: u64) -> Fragmentation {
        let held = self.held();
        let now = self.memory.counters();
        let moves = now.zip(self.counters).and_then(|(now, then)| now.since(then));
        self.counters = now;
        Fragmentation {
            model: self.model,
            shape: self.shape,
            cpus: self.seats.cpus(),
            used_percent,
            singles_rounds: self.singles,
            fifths_rounds: self.fifths,
            ranges: self.shape.ranges(),
            perfect: self.shape.ranges() - (held.len() as u64).div_ceil(RANGE_PAGES),
            whole: self.shape.ranges() - used_ranges(&held),
            order9_requests: None,
            moves,
        }
    }

    /// The pages of all threads.
    fn held(&self) -> Vec<Pfn> {
        self.threads.iter().flat_map(|thread| of(thread).held.clone()).collect()
    }
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
    use nearpage::Model;
    use nearpage_linux::Memory;

    use super::*;
    use crate::contender::Rules;

    const SMALL: Shape = Shape { threads: 1, bytes: 64 << 20, seed: 5 };

    fn counts(model: Model, shape: Shape, until: Until) -> Vec<Fragmentation> {
        let rules = Rules { name: model.name, model, begin: &|| Memory::builder() };
        measure(&Cpus::allowed().unwrap(), &rules, shape, until).unwrap()
    }

    /// The figures are counts, so that two programs can be compared by one run each.
    #[test]
    fn one_thread_always_has_the_same_counts() {
        for model in [Model::LINUX_6_12, Model::LINUX_6_18] {
            for until in Until::ALL {
                let once = counts(model, SMALL, until);
                assert_eq!(counts(model, SMALL, until), once);
                for count in once {
                    assert_eq!((count.ranges, count.model), (32, model.name));
                    assert!(count.whole <= count.perfect, "{count:?}");
                }
            }
        }
    }

    #[test]
    fn ranges_are_counted_along_the_way() {
        let times = |until| {
            let counts = counts(Model::LINUX_6_18, SMALL, until);
            let time = |it: &Fragmentation| {
                (it.used_percent, it.singles_rounds, it.fifths_rounds, it.order9_requests.is_some())
            };
            counts.iter().map(time).collect::<Vec<_>>()
        };
        let on_the_way =
            [(50, 7, 0, false), (50, 7, 1, false), (50, 7, 5, false), (50, 7, 20, false)];
        assert_eq!(times(Until::Half), [&on_the_way[..], &[(50, 7, 60, true)]].concat());
        assert_eq!(times(Until::Tenth), [(10, 27, 60, true)]);
    }

    /// Each count has the pages that moved since the one before.
    #[test]
    fn pages_that_moved_are_counted() {
        let held = SMALL.each(HALF_PERCENT) as u64;
        let moved = |until| {
            let moves = counts(Model::NEARPAGE, SMALL, until);
            moves.iter().map(|it| it.moves.unwrap().pages).collect::<Vec<_>>()
        };
        let expected = [7 * held, held / 5, 4 * (held / 5), 15 * (held / 5), 40 * (held / 5)];
        assert_eq!(moved(Until::Half), expected.map(|pages| 2 * pages));
        assert_eq!(moved(Until::Tenth), [2 * 20 * SMALL.each(TENTH_PERCENT) as u64]);
    }

    #[test]
    fn as_many_pages_are_held_as_each_row_says() {
        let cpus = Cpus::allowed().unwrap();
        for (threads, seed) in [(1, 1), (3, 2)] {
            let shape = Shape { threads, seed, ..SMALL };
            let seats = Seats::new(&cpus, threads);
            let memory = seats.memory(Memory::builder(), Model::NEARPAGE, shape.bytes).unwrap();
            let mut experiment = Experiment::new("nearpage", &memory, seats, shape);
            let check = |count: Fragmentation, held: Vec<Pfn>, perfect| {
                let distinct: HashSet<Pfn> = held.iter().copied().collect();
                assert_eq!(distinct.len(), threads * shape.each(count.used_percent));
                assert_eq!(held.len(), distinct.len());
                assert_eq!(memory.check().unwrap().allocated.0, held.len() as u64);
                assert_eq!(count.perfect, perfect);
            };
            let half = experiment.age_half().unwrap();
            check(half[4], experiment.held(), 16);
            let tenth = experiment.age_tenth().unwrap();
            check(tenth, experiment.held(), 28);
        }
    }

    /// What is whole is what the allocator itself can give out whole, once its caches are empty.
    #[test]
    fn whole_ranges_are_those_that_a_drained_zone_gives_out() {
        let cpus = Cpus::allowed().unwrap();
        let seats = Seats::new(&cpus, SMALL.threads);
        let memory = seats.memory(Memory::builder(), Model::LINUX_6_18, SMALL.bytes).unwrap();
        let mut experiment = Experiment::new("linux-6.18", &memory, seats, SMALL);
        experiment.age_half().unwrap();
        let whole = experiment.age_tenth().unwrap().whole;
        memory.drain_all().unwrap();
        assert!(whole > 0);
        assert_eq!(take_huge(&memory, seats).unwrap(), whole);
    }
}
