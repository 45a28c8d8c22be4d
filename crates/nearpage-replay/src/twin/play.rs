//! The twin's load, event by event: each group of CPUs plays stretches of the recording, one after the other, drawn at random.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{self, Write};
use std::ops::ControlFlow;

use nearpage::{Gfp, Order};
use nearpage_machine::work::Observer;

use super::frames::Frames;
use super::machine::TwinMachine;
use super::source::{Act, Birth, End, Source, What};
use crate::start::Start;

/// Where page descriptors lie in the twin.
const DESCRIPTORS: u64 = 0xffff_ea00_0000_0000;
/// Bytes of a page descriptor.
const DESCRIPTOR_BYTES: u64 = 64;
/// Task numbers of the next group are so much higher.
const PIDS_OF_GROUP: u32 = 1 << 22;
/// Events between two looks at the observer.
const EVENTS_OF_STEP: u64 = 1 << 12;

/// What was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
#[non_exhaustive]
pub struct Played {
    /// Blocks allocated.
    pub allocs: u64,
    /// Blocks freed.
    pub frees: u64,
    /// Pages allocated in bulk.
    pub bulk_pages: u64,
    /// Of the frees, those of blocks that stayed in the recording, and had to go since the twin's memory was full.
    pub reclaimed: u64,
    /// Allocations that were left out, since there was nothing to reclaim either.
    pub left_out: u64,
    /// Lines.
    pub events: u64,
}

/// How the recording is cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Course {
    pub(super) begin_ns: u64,
    pub(super) span_ns: u64,
    /// The length of a stretch, of which the recording is a multiple.
    pub(super) stretch_ns: u64,
    pub(super) seed: u64,
}

/// Writes the trace of a twin.
///
/// # Errors
///
/// What `out` says; an interruption, if the observer asks for the end.
pub(super) fn play(
    source: &Source,
    machine: &TwinMachine,
    start: &Start,
    course: Course,
    out: &mut dyn Write,
    observer: &dyn Observer,
) -> io::Result<Played> {
    let mut player = Player::new(source, machine, start, course, out);
    player.marker(0, "before begin")?;
    player.marker(0, "before end")?;
    player.marker(0, "cmd begin")?;
    (0..machine.groups).for_each(|group| player.go_on(group));
    let mut next_look = 0;
    while let Some(Reverse(due)) = player.due.pop() {
        if due.at_ns >= course.span_ns {
            break;
        }
        if player.played.events >= next_look {
            next_look = player.played.events + EVENTS_OF_STEP;
            if let ControlFlow::Break(()) = observer.progress(due.at_ns, course.span_ns) {
                return Err(io::Error::other("stopped"));
            }
        }
        match due.what {
            Due::Act(group) => player.act(group, due.at_ns)?,
            Due::Free(block, by) => player.free(due.at_ns, block, by)?,
        }
    }
    player.marker(course.span_ns, "cmd end rc=0")?;
    player.marker(course.span_ns, "after begin")?;
    Ok(player.played)
}

/// Somebody who does something.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Actor {
    group: usize,
    cpu: u32,
    task: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Block {
    zone: usize,
    frame: u64,
    order: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Due {
    Act(usize),
    Free(Block, Actor),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct DueAt {
    at_ns: u64,
    /// Of events at the same time, the one that was known first comes first.
    number: u64,
    what: Due,
}

/// A group of CPUs in the recording.
struct Group {
    draws: Draws,
    /// Where the stretches begin that are left of this round.
    deck: Vec<u64>,
    /// The next act.
    next: usize,
    /// When the stretch began, in the twin and in the recording, and when it ends in the twin.
    began_ns: u64,
    from_ns: u64,
    ends_ns: u64,
}

impl Group {
    /// Where the next stretch begins. All of the recording is played before any of it comes again, in another order and cut elsewhere each
    /// time: so a twin as long as the recording has as much of everything.
    fn draw(&mut self, span_ns: u64, stretch_ns: u64) -> u64 {
        if self.deck.is_empty() {
            let shift = self.draws.below(span_ns);
            let begins =
                (0..span_ns.div_ceil(stretch_ns)).map(|at| (shift + at * stretch_ns) % span_ns);
            self.deck = begins.collect();
            for last in (1..self.deck.len()).rev() {
                self.deck.swap(last, self.draws.below(last as u64 + 1) as usize);
            }
        }
        self.deck.pop().expect("a recording has a stretch")
    }
}

/// A zone's names, its blocks that stay, and how many pages may still be taken.
struct Zone {
    frames: Frames,
    stays: [VecDeque<(u64, u64)>; Order::COUNT],
    room: i64,
}

struct Player<'p> {
    source: &'p Source,
    machine: &'p TwinMachine,
    start: &'p Start,
    course: Course,
    out: &'p mut dyn Write,
    groups: Vec<Group>,
    zones: Vec<Zone>,
    due: BinaryHeap<Reverse<DueAt>>,
    number: u64,
    played: Played,
}

impl<'p> Player<'p> {
    fn new(
        source: &'p Source,
        machine: &'p TwinMachine,
        start: &'p Start,
        course: Course,
        out: &'p mut dyn Write,
    ) -> Player<'p> {
        let group = |group: usize| {
            let draws = Draws(course.seed ^ (group as u64 + 1).wrapping_mul(0xd134_2543_de82_ef95));
            Group { draws, deck: Vec::new(), next: 0, began_ns: 0, from_ns: 0, ends_ns: 0 }
        };
        let zone = |zone: &super::machine::TwinZone| Zone {
            frames: Frames::new(zone.first, zone.pages),
            stays: Default::default(),
            room: zone.room as i64,
        };
        Player {
            source,
            machine,
            start,
            course,
            out,
            groups: (0..machine.groups).map(group).collect(),
            zones: machine.zones.iter().map(zone).collect(),
            due: BinaryHeap::new(),
            number: 0,
            played: Played::default(),
        }
    }

    fn push(&mut self, at_ns: u64, what: Due) {
        self.number += 1;
        self.due.push(Reverse(DueAt { at_ns, number: self.number, what }));
    }

    /// Finds the next act of a group: in its stretch, or in another one.
    fn go_on(&mut self, group: usize) {
        let (acts, course) = (&self.source.acts, self.course);
        let of = &mut self.groups[group];
        let at_ns = loop {
            let found = acts.get(of.next).map(|act| of.began_ns + (act.at_ns - of.from_ns));
            match found {
                Some(at_ns) if at_ns < of.ends_ns => break at_ns,
                // The recording goes round.
                None if of.began_ns + (self.source.span_ns - of.from_ns) < of.ends_ns => {
                    of.began_ns += self.source.span_ns - of.from_ns;
                    (of.from_ns, of.next) = (0, 0);
                }
                _ if of.ends_ns >= course.span_ns => return,
                _ => {
                    of.began_ns = of.ends_ns;
                    of.from_ns = of.draw(self.source.span_ns, course.stretch_ns);
                    of.ends_ns = of.began_ns + course.stretch_ns;
                    of.next = acts.partition_point(|act| act.at_ns < of.from_ns);
                }
            }
        };
        self.push(at_ns, Due::Act(group));
    }

    fn act(&mut self, group: usize, at_ns: u64) -> io::Result<()> {
        let Act { cpu, task, what, .. } = self.source.acts[self.groups[group].next];
        self.groups[group].next += 1;
        let of = self.source.cpus.len();
        if self.machine.has_cpu(group, cpu as usize, of) {
            let by = Actor { group, cpu, task };
            match what {
                What::Alloc { birth } => {
                    let birth = self.source.births[birth as usize];
                    match self.named(group, birth.zone, birth.order, at_ns)? {
                        Some(block) => self.alloc(at_ns, by, block, birth)?,
                        None => self.played.left_out += 1,
                    }
                }
                What::Bulk { gfp, node, wanted, got, first, told } => {
                    let births = first as usize..(first + told) as usize;
                    self.bulk(at_ns, by, (gfp, node, wanted, got), births)?;
                }
                What::FreeOld { zone, order } => self.free_old(at_ns, by, zone, order)?,
            }
        }
        self.go_on(group);
        Ok(())
    }

    /// A name for a block in a zone of the group's copy, or in another zone of it if that is full. If all are, what stayed longest goes.
    fn named(
        &mut self,
        group: usize,
        zone: usize,
        order: Order,
        at_ns: u64,
    ) -> io::Result<Option<Block>> {
        let own = self.machine.zone(group, zone);
        let count = self.start.zones.len();
        let first = self.machine.zone(group, 0);
        let pages = order.pages().0 as i64;
        let others = (first..first + count).filter(|&other| other != own);
        for zone in std::iter::once(own).chain(others) {
            if let Some(block) = self.take(zone, order, pages) {
                return Ok(Some(block));
            }
        }
        while let Some(block) = self.longest(own) {
            let task = self.source.acts.first().map_or(0, |act| act.task);
            self.played.reclaimed += 1;
            self.free(at_ns, block, Actor { group, cpu: 0, task })?;
            if let Some(block) = self.take(own, order, pages) {
                return Ok(Some(block));
            }
        }
        Ok(None)
    }

    fn take(&mut self, zone: usize, order: Order, pages: i64) -> Option<Block> {
        let of = &mut self.zones[zone];
        if of.room < pages {
            return None;
        }
        let frame = of.frames.take(order)?;
        of.room -= pages;
        Some(Block { zone, frame, order: order.0 })
    }

    /// Of the blocks that stay, the one that has stayed longest.
    fn longest(&mut self, zone: usize) -> Option<Block> {
        let stays = &mut self.zones[zone].stays;
        let heads = stays.iter().enumerate().filter_map(|(order, of)| Some((of.front()?.0, order)));
        let (_, order) = heads.min()?;
        let (_, frame) = stays[order].pop_front()?;
        Some(Block { zone, frame, order: order as u8 })
    }

    fn alloc(&mut self, at_ns: u64, by: Actor, block: Block, birth: Birth) -> io::Result<()> {
        self.head(at_ns, by)?;
        self.played.allocs += 1;
        writeln!(
            self.out,
            "mm_page_alloc: page={:x} pfn={:#x} order={} migratetype={} gfp_flags={}",
            descriptor(block.frame),
            block.frame,
            block.order,
            birth.migratetype,
            birth.gfp
        )?;
        self.live(at_ns, by, block, birth.end);
        Ok(())
    }

    /// A block lives as long as the recorded one.
    fn live(&mut self, at_ns: u64, by: Actor, block: Block, end: Option<End>) {
        match end {
            Some(End { after_ns, cpu, task }) => {
                self.push(at_ns + after_ns, Due::Free(block, Actor { cpu, task, ..by }));
            }
            None => {
                let stays = &mut self.zones[block.zone].stays[usize::from(block.order)];
                stays.push_back((self.number, block.frame));
                self.number += 1;
            }
        }
    }

    fn bulk(
        &mut self,
        at_ns: u64,
        by: Actor,
        (gfp, node, wanted, got): (Gfp, Option<u32>, u64, u64),
        births: std::ops::Range<usize>,
    ) -> io::Result<()> {
        let node = node.map_or(-1, |node| {
            let recorded = self.machine.recorded_node(self.start, nearpage::NodeId(node));
            self.machine.node(by.group, recorded) as i64
        });
        self.head(at_ns, by)?;
        writeln!(
            self.out,
            "nearpage_bulk: (bulk+0x0/0x0) gfp={:#x} nid={node} nr={wanted}",
            gfp.0
        )?;
        let mut blocks = Vec::new();
        for birth in &self.source.births[births] {
            if let Some(block) = self.named(by.group, birth.zone, birth.order, at_ns)? {
                blocks.push((block, birth.end));
            }
        }
        self.head(at_ns, by)?;
        self.played.bulk_pages += got;
        write!(self.out, "nearpage_bulk_done: (bulk+0x0/0x0 <- bulk) n={got}")?;
        for (at, (block, _)) in blocks.iter().enumerate() {
            write!(self.out, " p{at}={:#x}", descriptor(block.frame))?;
        }
        writeln!(self.out)?;
        for (block, end) in blocks {
            self.live(at_ns, by, block, end);
        }
        Ok(())
    }

    /// A block that had been there before: one that stayed, or, as in the recording, one that nobody saw being allocated.
    fn free_old(&mut self, at_ns: u64, by: Actor, zone: usize, order: Order) -> io::Result<()> {
        let zone = self.machine.zone(by.group, zone);
        let of = &mut self.zones[zone];
        if let Some((_, frame)) = of.stays[usize::from(order.0)].pop_front() {
            return self.free(at_ns, Block { zone, frame, order: order.0 }, by);
        }
        match of.frames.take(order) {
            Some(frame) => self.free(at_ns, Block { zone, frame, order: order.0 }, by),
            None => Ok(()),
        }
    }

    fn free(&mut self, at_ns: u64, block: Block, by: Actor) -> io::Result<()> {
        self.head(at_ns, by)?;
        self.played.frees += 1;
        writeln!(
            self.out,
            "mm_page_free: page={:x} pfn={:#x} order={}",
            descriptor(block.frame),
            block.frame,
            block.order
        )?;
        let (zone, order) = (&mut self.zones[block.zone], Order(block.order));
        zone.room += order.pages().0 as i64;
        zone.frames.give(block.frame, order);
        Ok(())
    }

    fn head(&mut self, at_ns: u64, by: Actor) -> io::Result<()> {
        self.played.events += 1;
        let task = &self.source.tasks[by.task as usize];
        let cpu = self.machine.cpu(by.group, by.cpu as usize, self.source.cpus.len());
        let pid = match task.pid {
            0 => 0,
            pid => pid.wrapping_add(by.group as u32 * PIDS_OF_GROUP),
        };
        let micros = (self.course.begin_ns + at_ns) / 1000;
        self.out.write_all(b" ")?;
        match task.reclaims {
            Some(node) => {
                let recorded = self.machine.recorded_node(self.start, node);
                write!(self.out, "kswapd{}", self.machine.node(by.group, recorded))?;
            }
            None => self.out.write_all(&task.comm)?,
        }
        write!(
            self.out,
            "-{pid} [{cpu:03}] ..... {}.{:06}: ",
            micros / 1_000_000,
            micros % 1_000_000
        )
    }

    fn marker(&mut self, at_ns: u64, text: &str) -> io::Result<()> {
        self.played.events += 1;
        let micros = (self.course.begin_ns + at_ns) / 1000;
        let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
        writeln!(
            self.out,
            " twin-1 [000] ..... {seconds}.{micros:06}: tracing_mark_write: nearpage: {text}"
        )
    }
}

fn descriptor(frame: u64) -> u64 {
    DESCRIPTORS + frame * DESCRIPTOR_BYTES
}

/// Random numbers of a seed (SplitMix64: Steele, Lea, Flood 2014).
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// From 0 to below a bound.
    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}
