//! `mixed`: single pages and blocks of order 9 come and go side by side, in a memory that is four fifths full, and each call is
//! timed for itself.
//!
//! Two pinned threads. Each takes its half of 60 % of all pages, one at a time, and of 20 %, in blocks of order 9; then it
//! shuffles its single pages, frees a fifth of them, and takes as many. From there on, again and again: one time in eight
//! it frees a block of order 9, chosen at random, or takes one; else it takes 1 to 64 single pages, or frees as many, each
//! chosen at random. Which of the two is a toss, unless the level would leave its bounds: what a thread holds in single pages
//! stays within 4000 pages of what it began with, and so does what it holds in blocks.

use fastrand::Rng;
use nearpage::Pfn;
use nearpage_linux::FRAME_BYTES;

use crate::contender::{Contender, Setting, check_frees};
use crate::counts::{Counters, Moves};
use crate::rows::{Key, Sample, Work};
use crate::seats::Seats;
use crate::source::Source;
use crate::step::{Step, StepError};
use crate::ticks::Ticks;

/// The random choices are the same for all rules.
const SEED: u64 = 60;
/// Both at work all the time.
pub const THREADS: usize = 2;
const HUGE: u8 = 9;
const HUGE_PAGES: usize = 1 << HUGE;
const SINGLES_PERCENT: usize = 60;
const BLOCKS_PERCENT: usize = 20;
/// One single page in so many is churned first.
const CHURNED: usize = 5;
/// One time in so many it is a block's turn.
const BLOCK_TURN: u8 = 8;
const BURST_MAX: usize = 64;
/// How far what a thread holds may be from what it began with; in small memories, a part of them.
const LEVEL_PAGES: usize = 4000;
const LEVEL_PART: usize = 128;

/// The step of a contender.
pub fn step<'a>(setting: Setting<'a>, ticks: Ticks, contender: &'a impl Contender) -> Step<'a> {
    let allocator = contender.name();
    Step { allocator, run: Box::new(move || measure(setting, ticks, contender)) }
}

fn measure(
    setting: Setting<'_>,
    ticks: Ticks,
    contender: &impl Contender,
) -> Result<Vec<Sample>, StepError> {
    let seats = Seats::new(setting.cpus, THREADS);
    let memory = contender.pages(seats, setting.bytes)?;
    let shares = Shares::of((setting.bytes / FRAME_BYTES) as usize);
    let threads = seats.run(|thread, gate| {
        let rng = Rng::with_seed(SEED + thread as u64);
        let mut holder = Holder::fill(&memory, shares, rng)?;
        let counters = || gate.all_wait_for_one(thread, || memory.counters());
        let before = counters();
        let calls = holder.work(&memory, setting.effort.mixed_calls, ticks)?;
        Ok(Worked { calls, before, after: counters() })
    })?;
    check_frees(&memory)?;
    let moves = threads[0].moves();
    let sample = |(kind, work): (usize, Work)| {
        let of_kind = |worked: &Worked| worked.calls.0[kind].clone();
        let samples_ns: Vec<f64> = threads.iter().flat_map(of_kind).collect();
        let ns = samples_ns.iter().sum::<f64>() / samples_ns.len() as f64;
        let key = Key { work, allocator: contender.name(), threads: THREADS, n: 1 };
        // A kind of which there was no call has no row.
        (!samples_ns.is_empty()).then_some(Sample { key, ns, samples_ns, moves })
    };
    Ok(KINDS.into_iter().enumerate().filter_map(sample).collect())
}

/// The four calls.
const KINDS: [Work; 4] =
    [Work::MixedAlloc(0), Work::MixedFree(0), Work::MixedAlloc(HUGE), Work::MixedFree(HUGE)];

/// What a thread begins with, and how far from it it may go.
#[derive(Clone, Copy, Debug)]
struct Shares {
    pages: usize,
    blocks: usize,
    level_pages: usize,
    level_blocks: usize,
}

impl Shares {
    /// Of a memory of so many pages.
    fn of(pages: usize) -> Self {
        let level_pages = LEVEL_PAGES.min(pages / LEVEL_PART);
        Self {
            pages: pages * SINGLES_PERCENT / 100 / THREADS,
            blocks: pages * BLOCKS_PERCENT / 100 / HUGE_PAGES / THREADS,
            level_pages,
            level_blocks: (level_pages / HUGE_PAGES).max(1),
        }
    }
}

/// Nanoseconds of each call, by its place in [`KINDS`].
#[derive(Default)]
struct Calls([Vec<f64>; 4]);

/// What a thread did.
struct Worked {
    calls: Calls,
    before: Option<Counters>,
    after: Option<Counters>,
}

impl Worked {
    fn moves(&self) -> Option<Moves> {
        self.after?.since(self.before?)
    }
}

/// What a thread holds.
struct Holder {
    pages: Vec<Pfn>,
    blocks: Vec<Pfn>,
    shares: Shares,
    rng: Rng,
}

impl Holder {
    fn fill(
        memory: &impl Source<Block = Pfn>,
        shares: Shares,
        mut rng: Rng,
    ) -> Result<Self, StepError> {
        let take = |pages: &mut Vec<Pfn>, count| {
            (0..count).try_for_each(|_| {
                pages.push(memory.alloc::<0>()?);
                Some(())
            })
        };
        let mut pages = Vec::with_capacity(shares.pages + shares.level_pages);
        take(&mut pages, shares.pages).ok_or(StepError::Exhausted)?;
        let blocks: Vec<Pfn> = (0..shares.blocks).map_while(|_| memory.alloc::<HUGE>()).collect();
        if blocks.len() < shares.blocks {
            return Err(StepError::Exhausted);
        }
        rng.shuffle(&mut pages);
        let churned = shares.pages / CHURNED;
        // SAFETY: the pages are the thread's own, each once, and these are no longer among them.
        pages.drain(shares.pages - churned..).for_each(|page| unsafe { memory.free::<0>(page) });
        take(&mut pages, churned).ok_or(StepError::Exhausted)?;
        Ok(Self { pages, blocks, shares, rng })
    }

    /// Works until so many calls are done.
    fn work(
        &mut self,
        memory: &impl Source<Block = Pfn>,
        calls: usize,
        ticks: Ticks,
    ) -> Result<Calls, StepError> {
        let mut timed = Calls::default();
        timed.0.iter_mut().for_each(|times| times.reserve(calls + BURST_MAX));
        let mut done = 0;
        while done < calls {
            done += match self.rng.u8(..BLOCK_TURN) {
                0 => self.turn::<HUGE>(memory, 1, &mut timed, ticks)?,
                _ => {
                    let burst = self.rng.usize(1..=BURST_MAX);
                    self.turn::<0>(memory, burst, &mut timed, ticks)?
                }
            };
        }
        Ok(timed)
    }

    /// Takes so many blocks of an order, or frees them; returns how many.
    fn turn<const ORDER: u8>(
        &mut self,
        memory: &impl Source<Block = Pfn>,
        count: usize,
        timed: &mut Calls,
        ticks: Ticks,
    ) -> Result<usize, StepError> {
        let Shares { pages, blocks, level_pages, level_blocks } = self.shares;
        let (held, share, level, kinds) = match ORDER {
            0 => (&mut self.pages, pages, level_pages, &mut timed.0[..2]),
            _ => (&mut self.blocks, blocks, level_blocks, &mut timed.0[2..]),
        };
        let [allocs, frees] = kinds else { unreachable!("two kinds of calls an order") };
        let is_free = match held.len() {
            held if held + count > share + level => true,
            held if held < share.saturating_sub(level) + count => false,
            _ => self.rng.bool(),
        };
        for _ in 0..count {
            if is_free {
                let block = held.swap_remove(self.rng.usize(..held.len()));
                let start = ticks.now();
                // SAFETY: the block is the thread's own, and is no longer among those that it holds.
                unsafe { memory.free::<ORDER>(block) };
                frees.push(ticks.ns(start, ticks.now()));
            } else {
                let start = ticks.now();
                let block = memory.alloc::<ORDER>();
                allocs.push(ticks.ns(start, ticks.now()));
                held.push(block.ok_or(StepError::Exhausted)?);
            }
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use nearpage::Model;
    use nearpage_linux::Memory;

    use super::*;
    use crate::contender::Rules;
    use crate::field::Effort;
    use crate::measure::Clock;
    use crate::threads::{Cpus, Gate};

    const BYTES: u64 = 256 << 20;

    #[test]
    fn what_is_held_stays_near_what_a_thread_began_with() {
        let cpus = Cpus::allowed().unwrap();
        let seats = Seats::new(&cpus, 1);
        let ticks = Ticks::calibrate();
        let shares = Shares::of((BYTES / FRAME_BYTES) as usize);
        assert_eq!((shares.pages, shares.blocks), (19_660, 12));
        assert_eq!((shares.level_pages, shares.level_blocks), (512, 1));
        let memory = seats.memory(Memory::builder(), Model::NEARPAGE, BYTES).unwrap();
        let held = seats.run(|_, _: &Gate| {
            let mut holder = Holder::fill(&memory, shares, Rng::with_seed(SEED))?;
            for _ in 0..200 {
                let calls = holder.work(&memory, 100, ticks)?;
                let done: usize = calls.0.iter().map(Vec::len).sum();
                assert!((100..100 + BURST_MAX).contains(&done));
                assert!(holder.pages.len().abs_diff(shares.pages) <= shares.level_pages);
                assert!(holder.blocks.len().abs_diff(shares.blocks) <= shares.level_blocks);
            }
            Ok((holder.pages, holder.blocks))
        });
        let (pages, blocks) = held.unwrap().remove(0);
        let of_blocks = blocks.iter().flat_map(|block| block.0..block.0 + HUGE_PAGES as u64);
        let all: Vec<u64> = pages.iter().map(|page| page.0).chain(of_blocks).collect();
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len(), "each page once");
        assert_eq!(memory.check().unwrap().allocated.0, all.len() as u64);
    }

    #[test]
    fn all_four_calls_are_timed_one_by_one() {
        let cpus = Cpus::allowed().unwrap();
        if cpus.count() < THREADS {
            return;
        }
        let effort = Effort { mixed_calls: 20_000, ..Effort::QUICK };
        let setting = Setting { cpus: &cpus, clock: Clock::calibrate(), effort, bytes: BYTES };
        let begin = || Memory::builder();
        for model in [Model::NEARPAGE, Model::LINUX_6_18] {
            let rules = Rules { name: model.name, model, begin: &begin };
            let samples = (step(setting, Ticks::calibrate(), &rules).run)().unwrap();
            let works: Vec<Work> = samples.iter().map(|sample| sample.key.work).collect();
            assert_eq!(works, KINDS);
            let calls: usize = samples.iter().map(|sample| sample.samples_ns.len()).sum();
            assert!((40_000..40_000 + 2 * BURST_MAX).contains(&calls), "{calls}");
            let blocks: usize = samples[2..].iter().map(|it| it.samples_ns.len()).sum();
            let moved = (calls - blocks + blocks * HUGE_PAGES) as u64;
            assert!(samples.iter().all(|it| it.moves.unwrap().pages == moved), "{moved}");
        }
    }
}
