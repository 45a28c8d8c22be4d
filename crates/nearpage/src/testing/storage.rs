//! The conformance suite of pageset storages: random operations beside the naive list.

use std_alloc::boxed::Box;
use std_alloc::format;
use std_alloc::string::String;
use std_alloc::vec;
use std_alloc::vec::Vec;

use super::naive_list::{Answer, NaiveList, Operation};
use super::random::Random;
use super::sections::Sections;
use crate::frame::ZoneFrames;
use crate::pcp::storage::ListCounts;
use crate::pcp::{ALL_LISTS, COLD, CountedList, Pop, Push, Storage, list_order};
use crate::sync::AtomicU32;
use crate::units::{CpuId, Order, Pfn, SECTION_FRAMES, ZoneIndex};

/// The lists of a pageset, with the one that only nearpage's own rules have.
/// Frames of the zone that the lists are of.
const FRAMES: usize = 2 * SECTION_FRAMES;
/// Blocks that all lists together may hold, so that finding one that no list holds stays quick.
const BLOCKS_MOST: usize = FRAMES * 3 / 4;
/// Operations between two looks at all that a list holds.
const OPERATIONS_BETWEEN_WALKS: u32 = 997;

/// What a run reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Coverage {
    /// Furthest that the hot end of a list got from where it began, in blocks pushed and not popped:
    /// below 0 (refills were popped) and above (drains took what was pushed).
    pub lowest: i64,
    /// As `lowest`.
    pub highest: i64,
    /// Pops that found nothing.
    pub empty: u64,
    /// Pushes that found the limit reached.
    pub full: u64,
}

/// The lists that one CPU has for one zone.
pub struct Lists<'a, S: Storage> {
    storage: &'a S,
    cpu: CpuId,
    per_cpu: S::PerCpu,
    lists: [S::List<'a>; ALL_LISTS],
    frames: ZoneFrames<'a>,
}

impl<S: Storage> core::fmt::Debug for Lists<'_, S> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Lists").field("cpu", &self.cpu).finish_non_exhaustive()
    }
}

impl<'a, S: Storage> Lists<'a, S> {
    /// Empty lists on `rings` of [`rings`].
    pub fn new(
        storage: &'a S,
        cpu: CpuId,
        rings: &'a [Box<[AtomicU32]>],
        frames: ZoneFrames<'a>,
    ) -> Self {
        let lists = core::array::from_fn(|index| S::list(cpu, &rings[index]));
        Self { storage, cpu, per_cpu: S::per_cpu(cpu), lists, frames }
    }

    /// The lists themselves.
    pub fn lists(&self) -> &[S::List<'a>; ALL_LISTS] {
        &self.lists
    }

    /// What list `index` holds, hottest first.
    pub fn blocks(&self, index: usize) -> Vec<u32> {
        let mut blocks = Vec::new();
        S::for_each(&self.lists[index], &self.frames, &mut |number| blocks.push(number));
        blocks
    }

    /// Does an operation on list `index`.
    ///
    /// # Panics
    /// If somebody else is at the lists.
    pub fn apply(&self, index: usize, operation: &Operation) -> Answer {
        let most = match operation {
            Operation::PopBatch(most) | Operation::PopCold(most) => *most,
            Operation::Drain => self.lists[index].counts().count as usize,
            _ => 0,
        };
        let mut out = vec![0; most];
        match self.apply_into(index, operation, &mut out) {
            Answer::Number(taken) if operation.takes() => {
                out.truncate(taken as usize);
                Answer::Taken(out)
            }
            answer => answer,
        }
    }

    /// As [`apply`](Self::apply), without the heap: what is taken goes to `out`, as far as that
    /// reaches, and the answer says how many.
    pub fn apply_into(&self, index: usize, operation: &Operation, out: &mut [u32]) -> Answer {
        match operation {
            Operation::SetLimit(blocks) => {
                let set = self.lists[index].set_limit(*blocks);
                assert_eq!(self.lists[index].limit(), set);
                Answer::Number(set)
            }
            Operation::Drain => Answer::Number(self.drain(index, out)),
            _ => {
                let on = self.storage.enter(self.cpu, &self.per_cpu).expect(BUSY);
                self.apply_on(&on, index, operation, out)
            }
        }
    }

    fn apply_on(
        &self,
        on: &S::OnCpu<'_>,
        index: usize,
        operation: &Operation,
        out: &mut [u32],
    ) -> Answer {
        let (storage, list, frames) = (self.storage, &self.lists[index], &self.frames);
        match operation {
            Operation::Pop => Answer::Popped(storage.pop(on, list, frames)),
            Operation::Push(number) => Answer::Pushed(storage.push(on, list, frames, *number)),
            Operation::PopBatch(most) => {
                Answer::Number(storage.pop_batch(on, list, frames, &mut out[..*most]) as u32)
            }
            Operation::PushBatch(numbers) => {
                Answer::Number(storage.push_batch(on, list, frames, numbers) as u32)
            }
            Operation::AppendRun(first, blocks) => {
                let order = list_order(index);
                Answer::Number(storage.append_run(on, list, frames, *first, order, *blocks))
            }
            Operation::PopCold(most) => {
                Answer::Number(storage.pop_cold(on, list, frames, &mut out[..*most]) as u32)
            }
            Operation::SetLimit(_) | Operation::Drain => unreachable!("they need no proof"),
        }
    }

    /// Empties a list as another CPU does, in pieces.
    fn drain(&self, index: usize, out: &mut [u32]) -> u32 {
        const PIECE: usize = 100;
        let lists = |each: &mut dyn FnMut(&S::List<'a>)| self.lists.iter().for_each(each);
        let on = self.storage.stop(self.cpu, &self.per_cpu, &lists).expect(BUSY);
        let (list, mut drained) = (&self.lists[index], 0);
        while list.counts().count > 0 && drained < out.len() {
            let end = out.len().min(drained + PIECE);
            let got = self.storage.pop_cold(&on, list, &self.frames, &mut out[drained..end]);
            assert!(got > 0, "a stopped list that holds something gives it");
            drained += got;
        }
        self.storage.resume(on, &lists);
        drained as u32
    }
}

const BUSY: &str = "nobody else is at these lists";

/// Memory for the lists of a pageset of up to `high_max` pages.
pub fn rings<S: Storage>(high_max: u32) -> Vec<Box<[AtomicU32]>> {
    let ring = |index| {
        let entries = S::ring_entries(list_order(index), high_max);
        (0..entries).map(|_| AtomicU32::new(0)).collect()
    };
    (0..ALL_LISTS).map(ring).collect()
}

/// Compares the lists of `cpu`, which the calling thread stays on, with naive ones over `operations`
/// random operations: answers and counts after each, contents now and then. The seed decides sizes,
/// limits and the share of each kind of operation.
///
/// # Errors
/// The first difference, in words.
///
/// # Panics
/// If a storage refuses to enter or to stop a CPU that nobody else is at.
pub fn check_storage<S: Storage>(
    storage: &S,
    cpu: CpuId,
    seed: u64,
    operations: u32,
) -> Result<Coverage, String> {
    let mut random = Random(seed);
    let rings = rings::<S>(random.one_of(&[8, 9, 100, 3000, 50_000]));
    let sections = Sections::new(2, |_| false);
    let table = sections.table();
    let frames = table.frames(Pfn(0), ZoneIndex(0));
    let lists = Lists::new(storage, cpu, &rings, frames);
    let mut run = Run::new(lists, random);
    for step in 0..operations {
        run.step(step).map_err(|difference| format!("operation {step}: {difference}"))?;
    }
    (0..ALL_LISTS).try_for_each(|index| run.walk(index))?;
    Ok(run.coverage)
}

/// Checks that nobody gets at the lists of `cpu`, which the calling thread stays on, while they are stopped.
///
/// # Panics
/// If somebody does.
pub fn check_exclusion<S: Storage>(storage: &S, cpu: CpuId) {
    let rings = rings::<S>(8);
    let sections = Sections::new(1, |_| false);
    let table = sections.table();
    let frames = table.frames(Pfn(0), ZoneIndex(0));
    let lists = Lists::new(storage, cpu, &rings, frames);
    assert_eq!(lists.apply(0, &Operation::Push(5)), Answer::Pushed(Push::DONE));
    let each_list = |each: &mut dyn FnMut(&_)| lists.lists.iter().for_each(each);
    let stop = || storage.stop(cpu, &lists.per_cpu, &each_list);
    let stopped = stop().expect(BUSY);
    // Twice, since a refusal must not change anything.
    for _ in 0..2 {
        assert!(stop().is_none(), "stopped twice");
        if let Some(on) = storage.enter(cpu, &lists.per_cpu) {
            assert_eq!(storage.pop(&on, &lists.lists[0], &frames), Pop::MOVED);
            assert_eq!(storage.push(&on, &lists.lists[0], &frames, 6), Push::MOVED);
            assert_eq!(storage.pop_batch(&on, &lists.lists[0], &frames, &mut [0; 4]), 0);
            assert_eq!(storage.push_batch(&on, &lists.lists[0], &frames, &[6]), 0);
            assert_eq!(storage.append_run(&on, &lists.lists[0], &frames, 6, Order(0), 1), 0);
            assert_eq!(storage.pop_cold(&on, &lists.lists[0], &frames, &mut [0; 4]), 0);
        }
    }
    assert_eq!(lists.blocks(0), [5]);
    storage.resume(stopped, &each_list);
    assert_eq!(lists.apply(0, &Operation::Pop), Answer::Popped(Pop(5)));
}

struct Run<'a, S: Storage> {
    lists: Lists<'a, S>,
    naive: [NaiveList; ALL_LISTS],
    random: Random,
    shares: Shares,
    /// By frame number: whether a list holds the block.
    held: Vec<bool>,
    blocks: usize,
    coverage: Coverage,
}

impl<'a, S: Storage> Run<'a, S> {
    fn new(lists: Lists<'a, S>, mut random: Random) -> Self {
        let naive = core::array::from_fn(|index| {
            NaiveList::new(list_order(index), lists.lists[index].capacity())
        });
        let shares = Shares::new(&mut random);
        let held = vec![false; FRAMES];
        Self { lists, naive, random, shares, held, blocks: 0, coverage: Coverage::default() }
    }

    fn step(&mut self, step: u32) -> Result<(), String> {
        let index = self.shares.list(&mut self.random);
        let operation = self.operation(index);
        let answer = self.lists.apply(index, &operation);
        let expected = self.naive[index].apply(&operation);
        if answer != expected {
            return Err(format!("{operation:?} on list {index}: {answer:?} and not {expected:?}"));
        }
        self.note(index, &operation, &answer);
        let (counts, expected) = (self.lists.lists[index].counts(), self.naive[index].counts());
        if counts != expected {
            return Err(format!("{operation:?} on list {index}: {counts:?} and not {expected:?}"));
        }
        self.coverage.cover(counts, &answer);
        if step.is_multiple_of(OPERATIONS_BETWEEN_WALKS) { self.walk(index) } else { Ok(()) }
    }

    fn walk(&self, index: usize) -> Result<(), String> {
        let (found, expected) = (self.lists.blocks(index), &self.naive[index]);
        if !expected.blocks().eq(found.iter().copied()) {
            return Err(format!("list {index} holds {found:?} and not {expected:?}"));
        }
        Ok(())
    }

    fn operation(&mut self, index: usize) -> Operation {
        let most = self.shares.batch(&mut self.random);
        let kind = self.shares.kind(&mut self.random);
        let kind = match kind {
            Kind::Push | Kind::PushBatch | Kind::AppendRun if self.blocks + most > BLOCKS_MOST => {
                Kind::PopCold
            }
            kind => kind,
        };
        match kind {
            Kind::Pop => Operation::Pop,
            Kind::Push => Operation::Push(self.unheld_batch(1)[0]),
            Kind::PopBatch => Operation::PopBatch(most),
            Kind::PushBatch => Operation::PushBatch(self.unheld_batch(most)),
            Kind::AppendRun => {
                let (first, blocks) = self.unheld_run(list_order(index), most);
                Operation::AppendRun(first, blocks)
            }
            Kind::PopCold => Operation::PopCold(most),
            Kind::SetLimit => {
                let capacity = self.lists.lists[index].capacity().min(100_000) as u64;
                Operation::SetLimit(self.random.below(capacity * 2) as u32)
            }
            Kind::Drain => Operation::Drain,
        }
    }

    /// Notes which blocks lists hold now.
    fn note(&mut self, index: usize, operation: &Operation, answer: &Answer) {
        let order = list_order(index).0;
        match (operation, answer) {
            (_, Answer::Popped(popped)) => {
                popped.frame().into_iter().for_each(|number| self.hold(number, false));
            }
            (_, Answer::Taken(numbers)) => {
                numbers.iter().for_each(|&number| self.hold(number, false));
            }
            (Operation::Push(number), Answer::Pushed(Push::DONE)) => self.hold(*number, true),
            (Operation::PushBatch(numbers), Answer::Number(pushed)) => {
                numbers[..*pushed as usize].iter().for_each(|&number| self.hold(number, true));
            }
            (Operation::AppendRun(first, _), Answer::Number(appended)) => {
                (0..*appended).for_each(|block| self.hold(first + (block << order), true));
            }
            _ => {}
        }
    }

    fn hold(&mut self, number: u32, held: bool) {
        self.held[number as usize] = held;
        self.blocks = if held { self.blocks + 1 } else { self.blocks - 1 };
    }

    /// Up to `blocks` blocks that no list holds.
    fn unheld_batch(&mut self, blocks: usize) -> Vec<u32> {
        let first = self.random.below(FRAMES as u64) as usize;
        let from_there = (first..FRAMES).chain(0..first);
        let unheld = from_there.filter(|&number| !self.held[number]);
        unheld.take(blocks).map(|number| number as u32).collect()
    }

    /// Up to `blocks` adjoining blocks that no list holds.
    fn unheld_run(&mut self, order: Order, blocks: usize) -> (u32, u32) {
        let all = FRAMES >> order.0;
        let start = self.random.below(all as u64) as usize;
        let is_held = |block: &usize| self.held[block << order.0];
        let first = (start..all).chain(0..start).find(|block| !is_held(block)).unwrap_or(all);
        let run = (first..all).take(blocks).take_while(|block| !is_held(block)).count();
        ((first << order.0) as u32, run as u32)
    }
}

impl Coverage {
    fn cover(&mut self, counts: ListCounts, answer: &Answer) {
        let position = counts.pushes.wrapping_sub(counts.pops) as i64;
        self.lowest = self.lowest.min(position);
        self.highest = self.highest.max(position);
        self.empty += u64::from(*answer == Answer::Popped(Pop::EMPTY));
        self.full += u64::from(*answer == Answer::Pushed(Push::FULL));
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Pop,
    Push,
    PopBatch,
    PushBatch,
    AppendRun,
    PopCold,
    SetLimit,
    Drain,
}

/// How often what is done in a run.
#[derive(Debug)]
struct Shares {
    /// Kinds, each as often as it is to be done.
    kinds: Vec<Kind>,
    batch_most: u64,
}

impl Shares {
    /// Some kinds are left out of a run, so that the ends of lists wander far.
    fn new(random: &mut Random) -> Self {
        let mut kinds = Vec::new();
        let mut add = |kind, shares: &[usize]| {
            kinds.extend(core::iter::repeat_n(kind, random.one_of(shares)));
        };
        add(Kind::Pop, &[0, 10, 100, 200]);
        add(Kind::Push, &[0, 10, 100, 200]);
        add(Kind::PopBatch, &[0, 10, 100]);
        add(Kind::PushBatch, &[0, 10, 100]);
        add(Kind::AppendRun, &[0, 10, 100]);
        add(Kind::PopCold, &[1, 10, 100]);
        add(Kind::SetLimit, &[0, 1]);
        add(Kind::Drain, &[0, 1]);
        Self { kinds, batch_most: random.one_of(&[2, 20, 300]) }
    }

    fn kind(&self, random: &mut Random) -> Kind {
        random.one_of(&self.kinds)
    }

    fn batch(&self, random: &mut Random) -> usize {
        random.below(self.batch_most) as usize
    }

    /// The lists that have code of their own in some storage, the first one most often; one of the
    /// others, and one of huge pages; and the one that only some rules have.
    fn list(&self, random: &mut Random) -> usize {
        match random.below(2) {
            0 => 0,
            _ => random.one_of(&[1, 2, 4, 13, COLD, COLD]),
        }
    }
}
