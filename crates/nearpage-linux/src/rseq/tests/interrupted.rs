//! Each operation, interrupted after each of its instructions by others on the same list: the answers and
//! what the list holds are as if one had come before the other.

use std::cell::Cell;

use nearpage::platform::{CountedList, Storage, ZoneFrames};
use nearpage::rules::pagesets::list_order;
use nearpage::testing::naive_list::{Answer, NaiveList, Operation};
use nearpage::testing::sections::Sections;
use nearpage::testing::storage::{Lists, rings};
use nearpage::{Pfn, ZoneIndex};
use std::sync::atomic::{AtomicU32, AtomicU64};

use super::super::*;
use super::emulation::{Interruption, Rseq, in_steps};
use Operation::{AppendRun, Drain, Pop, PopBatch, PopCold, Push, PushBatch, SetLimit};

const HERE: CpuId = CpuId(3);
const ELSEWHERE: CpuId = CpuId(4);
/// Entries of the rings, and the most that an operation takes.
const ENTRIES: usize = 8;
/// No operation takes so many instructions.
const INSTRUCTIONS_MOST: u32 = 1000;

/// What comes between two instructions.
#[derive(Clone, Debug)]
enum Meanwhile {
    /// Other threads of this CPU, or another CPU, do this.
    Others(Vec<Operation>),
    /// This thread is moved to another CPU.
    Moved,
    /// A drain from outside begins.
    Stopped,
}

fn operations() -> Vec<Operation> {
    let batch = PushBatch(vec![40, 41, 42, 43, 44]);
    vec![Pop, Push(30), PopBatch(3), PopBatch(8), batch, AppendRun(50, 3), PopCold(2), PopCold(8)]
}

fn meanwhile() -> impl Iterator<Item = Meanwhile> {
    let others = [
        vec![],
        vec![Pop],
        vec![Push(60)],
        vec![Pop, Push(60)],
        vec![Push(60), Pop],
        vec![PopCold(3)],
        vec![AppendRun(70, 2)],
        vec![PopCold(3), AppendRun(70, 3)],
        vec![PopBatch(8), PushBatch(vec![61, 62, 63])],
        vec![Drain],
        vec![Drain, AppendRun(70, 5)],
        vec![SetLimit(2)],
    ];
    let others = others.into_iter().map(Meanwhile::Others);
    others.chain([Meanwhile::Moved, Meanwhile::Stopped])
}

/// Blocks on the list before, how far its ends have come by then, and whether the hottest is in the hot place.
const BEFORE: [(u32, i32, bool); 12] = [
    (0, 0, false),
    (1, -1, false),
    (1, 1, true),
    (3, 2, false),
    (3, -2, true),
    (5, 65_534, false),
    (5, -65_540, true),
    // The next pop ends half of a round.
    (4, -32_767, false),
    (4, -65_535, true),
    (7, 131_070, true),
    (8, -3, false),
    (8, 5, true),
];

/// A list beside its naive twin.
struct Twins<'a> {
    storage: &'a RingStorage,
    frames: ZoneFrames<'a>,
    lists: Lists<'a, RingStorage>,
    index: usize,
    naive: NaiveList,
}

impl<'a> Twins<'a> {
    fn new(
        storage: &'a RingStorage,
        index: usize,
        rings: &'a [Box<[AtomicU32]>],
        frames: ZoneFrames<'a>,
    ) -> Self {
        let naive = NaiveList::new(list_order(index), ENTRIES as u32);
        let lists = Lists::new(storage, HERE, rings, frames);
        Self { storage, frames, lists, index, naive }
    }

    fn list(&self) -> &RingList<'a> {
        &self.lists.lists()[self.index]
    }

    /// As [`Lists::apply_into`], in as few instructions as can be: each costs a signal.
    fn apply_in_steps(&self, operation: &Operation, out: &mut [u32; ENTRIES]) -> Answer {
        let (storage, frames, on) = (
            self.storage,
            &self.frames,
            &Here { area: self.storage.0.area.offset(), stopped: None },
        );
        let list = self.list();
        let number = |blocks: usize| Answer::Number(blocks as u32);
        match operation {
            Pop => Answer::Popped(in_steps(|| storage.pop(on, list, frames))),
            Push(block) => Answer::Pushed(in_steps(|| storage.push(on, list, frames, *block))),
            PopBatch(most) => {
                number(in_steps(|| storage.pop_batch(on, list, frames, &mut out[..*most])))
            }
            PushBatch(blocks) => number(in_steps(|| storage.push_batch(on, list, frames, blocks))),
            AppendRun(first, blocks) => {
                let order = list_order(self.index);
                Answer::Number(in_steps(|| {
                    storage.append_run(on, list, frames, *first, order, *blocks)
                }))
            }
            PopCold(most) => {
                number(in_steps(|| storage.pop_cold(on, list, frames, &mut out[..*most])))
            }
            SetLimit(_) | Drain => unreachable!("not among those to interrupt"),
        }
    }

    fn both(&mut self, operation: &Operation) {
        assert_eq!(self.lists.apply(self.index, operation), self.naive.apply(operation));
    }

    /// Moves both ends, up by pushes and drains or down by refills and pops, and pushes some blocks.
    fn prepare(&mut self, (blocks, distance, is_hot): (u32, i32, bool)) {
        let turn = if distance > 0 { [Push(0), PopCold(1)] } else { [AppendRun(0, 1), Pop] };
        for operation in turn.iter().cycle().take(2 * distance.unsigned_abs() as usize) {
            self.both(operation);
        }
        let in_ring = if is_hot { blocks - 1 } else { blocks };
        self.both(&PushBatch((1..=in_ring).collect()));
        if is_hot {
            self.both(&Push(blocks));
        }
    }
}

/// A list as it was.
struct Saved {
    cursor: u64,
    cold: u64,
    pops_seen: u64,
    entries: Vec<u32>,
    naive: NaiveList,
}

impl Saved {
    fn of(twins: &Twins<'_>, ring: &[AtomicU32]) -> Self {
        let now = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        let list = twins.list();
        Self {
            cursor: now(&list.cursor),
            cold: now(&list.cold),
            pops_seen: now(&list.pops_seen),
            entries: ring.iter().map(|entry| entry.load(Ordering::Relaxed)).collect(),
            naive: twins.naive.clone(),
        }
    }

    fn put_back(&self, twins: &mut Twins<'_>, ring: &[AtomicU32]) {
        let list = twins.list();
        list.cursor.store(self.cursor, Ordering::Relaxed);
        list.cold.store(self.cold, Ordering::Relaxed);
        list.pops_seen.store(self.pops_seen, Ordering::Relaxed);
        list.limit.store(ENTRIES as u16, Ordering::Relaxed);
        list.owner.store(HERE.0, Ordering::Relaxed);
        for (slot, entry) in ring.iter().zip(&self.entries) {
            slot.store(*entry, Ordering::Relaxed);
        }
        twins.naive = self.naive.clone();
    }
}

/// An answer, what was taken, and the list after.
type Outcome = (Answer, Vec<u32>, NaiveList);

/// What is right where the operation comes first, and where it comes last: on what the others left, or too
/// late because the list is not this thread's to use any more.
fn outcomes(list: &NaiveList, operation: &Operation, meanwhile: &Meanwhile) -> [Outcome; 2] {
    let undisturbed = |mut list: NaiveList| match list.apply(operation) {
        Answer::Taken(blocks) => (Answer::Number(blocks.len() as u32), blocks, list),
        answer => (answer, Vec::new(), list),
    };
    let Meanwhile::Others(others) = meanwhile else {
        return [undisturbed(list.clone()), (moved(operation), Vec::new(), list.clone())];
    };
    let apply_others = |mut list: NaiveList| {
        others.iter().for_each(|other| drop(list.apply(other)));
        list
    };
    let (answer, taken, first) = undisturbed(list.clone());
    [(answer, taken, apply_others(first)), undisturbed(apply_others(list.clone()))]
}

/// The answer where the list is not this thread's to use.
fn moved(operation: &Operation) -> Answer {
    match operation {
        Pop => Answer::Popped(nearpage::platform::Pop::MOVED),
        Push(_) => Answer::Pushed(nearpage::platform::Push::MOVED),
        _ => Answer::Number(0),
    }
}

/// What became of an interrupted operation.
struct Interrupted {
    answer: Answer,
    taken: Vec<u32>,
    /// Whether the list had changed by then, more than by moving an entry from the hot place to the ring.
    had_committed: bool,
}

/// Interrupts `operation` after so many of its instructions; `None` if it did not take so many.
fn interrupt(
    rseq: &Rseq,
    twins: &Twins<'_>,
    operation: &Operation,
    meanwhile: &Meanwhile,
    instructions: u32,
) -> Option<Interrupted> {
    let (lists, index, list) = (&twins.lists, twins.index, twins.list());
    let (before, had_committed) = (list.counts(), Cell::new(false));
    let interruption = Interruption {
        rseq,
        signals_before: Cell::new(instructions),
        meanwhile: &|| {
            had_committed.set(list.counts() != before);
            match meanwhile {
                Meanwhile::Others(others) => {
                    let mut out = [0; ENTRIES];
                    others.iter().for_each(|other| drop(lists.apply_into(index, other, &mut out)));
                }
                Meanwhile::Moved => rseq.move_to(ELSEWHERE),
                Meanwhile::Stopped => list.owner.store(STOPPED, Ordering::Relaxed),
            }
        },
        interrupted: Cell::new(0),
        aborted: Cell::new(0),
    };
    let mut out = [0; ENTRIES];
    let answer = interruption.during(libc::SIGTRAP, || twins.apply_in_steps(operation, &mut out));
    rseq.move_to(HERE);
    let taken = match answer {
        Answer::Number(blocks) if operation.takes() => out[..blocks as usize].to_vec(),
        _ => Vec::new(),
    };
    let had_committed = had_committed.get();
    (interruption.interrupted.get() > 0).then_some(Interrupted { answer, taken, had_committed })
}

/// Interrupts `operation` everywhere; returns how many places that were.
fn interrupt_everywhere(
    rseq: &Rseq,
    twins: &mut Twins<'_>,
    saved: &Saved,
    ring: &[AtomicU32],
    operation: &Operation,
    meanwhile: &Meanwhile,
) -> u32 {
    let [first, last] = outcomes(&saved.naive, operation, meanwhile);
    let mut undisturbed = saved.naive.clone();
    undisturbed.apply(operation);
    let commits = undisturbed != saved.naive;
    for instructions in 0..INSTRUCTIONS_MOST {
        saved.put_back(twins, ring);
        let got = interrupt(rseq, twins, operation, meanwhile, instructions);
        let Some(Interrupted { answer, taken, had_committed }) = got else { return instructions };
        let (blocks, counts) = (twins.lists.blocks(twins.index), twins.list().counts());
        let is = |outcome: &Outcome| {
            (&answer, &taken) == (&outcome.0, &outcome.1)
                && outcome.2.blocks().eq(blocks.iter().copied())
                && outcome.2.counts() == counts
        };
        // Nothing tells first from last where the operation leaves the list as it is.
        let right = if had_committed { &first } else { &last };
        let is_right = is(right) || !commits && is(&first);
        assert!(
            is_right,
            "{operation:?} interrupted after {instructions} instructions by {meanwhile:?}: {answer:?} \
             {taken:?}, list {blocks:?} {counts:?}; before: {:?}; right would be {right:?}",
            saved.naive,
        );
    }
    panic!("{operation:?} does not end");
}

#[test]
fn an_interrupted_operation_happens_as_a_whole() {
    let rseq = Rseq::new(HERE);
    let storage = rseq.storage();
    let sections = Sections::new(1, |_| false);
    let table = sections.table();
    let frames = table.frames(Pfn(0), ZoneIndex(0));
    let mut interruptions = 0;
    let lists = std::env::var("NEARPAGE_SEEDS").map_or(1, |seeds| seeds.parse().expect("a number"));
    let apart = BEFORE.len() / BEFORE.len().min(lists).max(1);
    for (which, (before, index)) in
        BEFORE.into_iter().zip([0, 1, 2, 5].into_iter().cycle()).enumerate()
    {
        let rings = rings::<RingStorage>(ENTRIES as u32);
        let mut twins = Twins::new(&storage, index, &rings, frames);
        twins.prepare(before);
        let saved = Saved::of(&twins, &rings[index]);
        let pairs = operations()
            .into_iter()
            .flat_map(|operation| meanwhile().map(move |meanwhile| (operation.clone(), meanwhile)));
        // A step takes microseconds, so each pair meets one of the lists, or `NEARPAGE_SEEDS` of them.
        let mine = pairs.enumerate().filter(|(pair, _)| pair % apart == which % apart);
        for (_, (operation, meanwhile)) in mine {
            interruptions += interrupt_everywhere(
                &rseq,
                &mut twins,
                &saved,
                &rings[index],
                &operation,
                &meanwhile,
            );
        }
    }
    // Every sequence has at least a dozen instructions.
    assert!(interruptions > 12 * 8 * 14, "{interruptions} interruptions");
}
