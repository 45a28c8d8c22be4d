//! Bursts of allocations and frees: the state of the pageset after each refill, each drain and each burst.

use nearpage::{Migratetype, Model, Order, PageCount, Pfn, ZoneKind};

use super::counter::{Counter, Leeway, Search};
use super::hold;
use super::near::Start;
use super::pageset::{is_old, state};
use super::target;
use super::{HERE, LARGE_BLOCKS};
use crate::lab::{self, CoreZone, Lab};
use crate::layout::Layout;
use crate::machine::{Machine, Zone};
use crate::recordings::Recording;
use crate::tally::Tally;
use crate::text::pcp::{
    Burst, BurstRecord, Ending, Event, Experiment, Record, State, Target, read,
};

/// Blocks that the module can keep.
const KEPT_MOST: usize = 40_000;
/// `ZONE_RECLAIM_ACTIVE` and `ZONE_BELOW_HIGH` in `zone->flags`.
const RECLAIM_ACTIVE: u64 = 1 << 1;
const BELOW_HIGH: u64 = 1 << 2;

/// Replays all experiments of a text, one after the other, on one machine; those near the high mark on one
/// of their own.
pub fn replay(
    recording: &Recording,
    text: &str,
    model: Model,
    tally: &mut Tally,
) -> Result<(), String> {
    let (target, experiments) = read(text)?;
    let machine = target::machine(recording, &target)?;
    let foreign = experiments.iter().find_map(|experiment| foreign_pages(experiment, &target));
    let large = experiments.iter().find_map(large_blocks);
    if large.is_some() {
        tally.unanswered(LARGE_BLOCKS);
    }
    let small = recording.small_blocks(target.zone);
    let bench = Bench { recording: &recording.name, machine, target, model, foreign, large, small };
    let (mut near, mut others) = (Vec::new(), Vec::new());
    for experiment in &experiments {
        match Start::of(experiment)? {
            Some(start) => {
                for _ in start.predictable..experiment.records.len() {
                    tally.unanswered("near the high mark: which pageblocks are of another type");
                }
                near.push((experiment, start));
            }
            None => others.push((experiment, experiment.records.len())),
        }
    }
    let before = tally.differences();
    let layout = bench.layout(bench.machine.zone(target.zone)?.free);
    bench.replay(&others, &layout, Trial::default(), tally)?;
    let rules_hold = tally.differences() == before;
    for (experiment, start) in near {
        bench.replay_near_mark(experiment, start, rules_hold, tally)?;
    }
    Ok(())
}

/// What the experiments of a text have in common.
struct Bench<'a> {
    recording: &'a str,
    machine: Machine,
    target: Target,
    model: Model,
    /// Pages of other types.
    foreign: Option<u64>,
    /// Pageblocks that were free as a whole.
    large: Option<u64>,
    /// Pages in smaller blocks, as a capture tells.
    small: Option<u64>,
}

const COUNTER: &str = "near the high mark: by how much the zone's counter was off";

/// An assumption under which experiments are replayed.
#[derive(Clone, Copy, Default)]
struct Trial {
    /// The zone's counter at the start.
    counter: Counter,
    /// Whether one difference is enough to drop it.
    ends_at_difference: bool,
    /// Free pages before the first burst near the high mark.
    left: u64,
}

impl Bench<'_> {
    /// Replays experiments, so many records of each, one after the other, on one machine.
    fn replay(
        &self,
        experiments: &[(&Experiment, usize)],
        layout: &Layout,
        trial: Trial,
        tally: &mut Tally,
    ) -> Result<Leeway, String> {
        let Self { machine, target, .. } = self;
        let topology = machine.topology(|zone| match zone.name == target.zone {
            true => layout.clone(),
            false => Layout::Whole(zone.free),
        })?;
        lab::with(machine, topology, self.model, target.cpu, |lab| {
            let (zone, recorded) = (lab.zone(target.zone)?, machine.zone(target.zone)?);
            if self.foreign.is_some() {
                let fragments = layout.fragments(recorded.span);
                lab.retype(zone, &fragments, Migratetype::Unmovable);
            }
            let (kept, held) = (Vec::new(), None);
            let leeway = Leeway::ALL;
            let mut run = Run { lab, zone, recorded, target, kept, held, trial, leeway };
            for &(experiment, records) in experiments {
                run.experiment(self.recording, experiment, records, tally);
            }
            Ok(run.leeway)
        })
    }

    fn layout(&self, pages: u64) -> Layout {
        if self.foreign.or(self.large).is_none() {
            return Layout::Whole(pages);
        }
        let fragments = self.foreign.unwrap_or(0);
        let others = pages.saturating_sub(fragments);
        let large = self.large.map(|blocks| blocks << Order::PAGEBLOCK.0);
        let whole = large.map_or(others, |pages| pages.min(others));
        Layout::Fragmented { whole, fragments, rest: others - whole, limit: Order::PAGEBLOCK }
    }

    /// Near its high mark a few pages decide, and the kernel's checks read a counter that is a few pages off.
    /// The text tells what is free, and neither the counter nor how much of it is in large blocks: there must be one
    /// start from which all of the experiment comes out as recorded. It is looked for only where all others did.
    fn replay_near_mark(
        &self,
        experiment: &Experiment,
        start: Start,
        rules_hold: bool,
        tally: &mut Tally,
    ) -> Result<(), String> {
        let threshold = self.machine.zone(self.target.zone)?.stat_threshold;
        let near = [(experiment, start.predictable)];
        let exact = Counter::new(threshold, is_old(&self.model));
        let layouts = self.layouts_near_mark(start)?;
        let cpus: usize = self.machine.nodes.iter().map(|node| node.cpus.len()).sum();
        let most = exact.most_of_others(cpus.saturating_sub(1));
        let mut told = Tally::default();
        let trial = Trial { counter: exact, ends_at_difference: false, left: start.left };
        self.replay(&near, &layouts[0], trial, &mut told)?;
        if told.differences() == 0 || !rules_hold {
            tally.add(told);
            return Ok(());
        }
        for (counter, layout) in
            exact.starts().flat_map(|counter| layouts.iter().map(move |layout| (counter, layout)))
        {
            let mut search = Search::up_to(most);
            while let Some(others) = search.next() {
                let mut found = Tally::default();
                let counter = counter.with_others(others);
                let trial = Trial { counter, ends_at_difference: true, left: start.left };
                let leeway = self.replay(&near, layout, trial, &mut found)?;
                if found.differences() == 0 {
                    if counter != exact {
                        found.unanswered(COUNTER);
                    }
                    if *layout != layouts[0] {
                        found.unanswered(LARGE_BLOCKS);
                    }
                    tally.add(found);
                    return Ok(());
                }
                search.failed(others, leeway);
            }
        }
        tally.add(told);
        Ok(())
    }

    /// What may have been in large blocks: as another experiment or a capture tells, too little for what the module
    /// takes, or all.
    fn layouts_near_mark(&self, start: Start) -> Result<Vec<Layout>, String> {
        let zone = self.machine.zone(self.target.zone)?;
        let foreign = self.foreign.unwrap_or(0);
        let not_large = |blocks: u64| start.pages.saturating_sub(blocks << Order::PAGEBLOCK.0);
        let told = self.large.map(not_large).or(self.small);
        let small = told.into_iter().chain([hold::shortage(start.goal), 0]);
        Ok(small.map(|small| hold::layout(zone, start.pages, foreign, small)).collect())
    }
}

/// Pages of the zone that no movable request gets, because they are of other types in blocks too small to
/// be claimed while another zone can give (`ALLOC_NOFRAGMENT`, of Normal zones only). They show where a burst went on in
/// another zone with an empty pageset, and free pages above the mark.
fn foreign_pages(experiment: &Experiment, target: &Target) -> Option<u64> {
    if target.zone.kind != ZoneKind::Normal {
        return None;
    }
    let mark = target.marks.low.0 + target.reserve.0;
    experiment.records.iter().find_map(|record| match record {
        Record::Burst(burst)
            if matches!(burst.ending, Ending::OtherZone(_)) && burst.order == Order(0) =>
        {
            (burst.after.count == 0 && burst.zone_free > mark).then_some(burst.zone_free)
        }
        _ => None,
    })
}

/// Pageblocks that were free as a whole, where an experiment took one after the other until there was none.
fn large_blocks(experiment: &Experiment) -> Option<u64> {
    let mut blocks = 0;
    let bursts = experiment.records.iter().filter_map(|record| match record {
        Record::Burst(burst) => Some(burst),
        _ => None,
    });
    for burst in bursts {
        let is_one = burst.operations == 1 && burst.order == Order::PAGEBLOCK;
        match (is_one && burst.burst == Burst::Alloc, burst.ending) {
            (true, Ending::Complete) => blocks += 1,
            (true, _) if burst.after.count == 0 => return Some(blocks),
            _ => return None,
        }
    }
    None
}

struct Run<'a, 'm> {
    lab: &'a Lab<'a, 'm>,
    zone: &'m CoreZone<'m>,
    recorded: &'a Zone,
    target: &'a Target,
    /// Blocks that the module has, oldest first.
    kept: Vec<(Pfn, Order)>,
    /// Blocks that the module took to bring the zone near its high mark.
    held: Option<Vec<(Pfn, Order)>>,
    trial: Trial,
    leeway: Leeway,
}

impl Run<'_, '_> {
    fn experiment(
        &mut self,
        recording: &str,
        experiment: &Experiment,
        records: usize,
        tally: &mut Tally,
    ) {
        // What is left of the last experiment goes back first.
        for (pfn, order) in self.kept.drain(..).rev() {
            self.lab.free(pfn, order);
        }
        for (number, record) in experiment.records[..records].iter().enumerate() {
            tally.at(format!("{recording}: {}, record {number}", experiment.name));
            match record {
                Record::Reset(after) => {
                    self.lab.reset(self.zone, after.free_high_batch());
                    tally.compare("reset", *after, self.state());
                    if let Some(held) = &mut self.held {
                        self.lab.leave(self.zone, self.trial.left, held);
                    }
                }
                Record::Held(held) => {
                    self.held = Some(hold::take(self.lab, self.zone, held.goal));
                }
                Record::Decay { again, before, after } => {
                    self.decay(*again, *before, *after, tally);
                }
                Record::Burst(burst) => self.burst(&experiment.name, burst, tally),
            }
            if self.trial.ends_at_difference && tally.differences() > 0 {
                break;
            }
        }
    }

    fn state(&self) -> State {
        state(self.lab, self.zone)
    }

    fn decay(&self, again: bool, before: [u64; 2], after: State, tally: &mut Tally) {
        let now = self.state();
        tally.compare("decay, before", before, [now.high, now.count]);
        let drained = self.lab.core.decay_cpu(self.target.cpu).expect("nobody else drains");
        let tuning = self.lab.pageset(self.zone).tuning();
        let todo = drained.0 > 0 || tuning.high > tuning.high_min;
        tally.compare("decay, after", (again, after), (todo, self.state()));
    }

    fn burst(&mut self, experiment: &str, record: &BurstRecord, tally: &mut Tally) {
        let active = record.zone_flags & RECLAIM_ACTIVE != 0;
        self.lab.core.set_reclaim_active(self.zone.index(), active);
        let (events, ending) = match record.burst {
            Burst::Alloc => self.allocate(record),
            Burst::Free | Burst::FreeInOrder => self.give_back(record),
        };
        if logs_events(experiment, record.burst) {
            for number in 0..events.len().max(record.events.len()) {
                let (kernel, core) = (record.events.get(number), events.get(number));
                tally.compare("refill or drain", kernel, core);
            }
        }
        tally.compare("burst", (record.after, record.ending), (self.state(), ending));
        if self.held.is_some() {
            let below = self.zone.view().below_high && !is_old(self.lab.core.model());
            let core = (self.zone.free_pages().0, below);
            let kernel = (record.zone_free, record.zone_flags & BELOW_HIGH != 0);
            tally.compare("zone near its high mark: free pages, flag", kernel, core);
        }
    }

    fn allocate(&mut self, record: &BurstRecord) -> (Vec<Event>, Ending) {
        let mut events = Vec::new();
        let node = self.target.zone.node;
        for operation in 0..record.operations {
            let before = self.count();
            if self.kept.len() >= KEPT_MOST {
                return (events, Ending::Failure);
            }
            self.show_counter(self.trial.counter, self.zone.free_pages().0);
            let Some(pfn) = self.lab.alloc(record.order, HERE, node) else {
                return (events, Ending::Failure);
            };
            if !self.zone.span().contains(pfn) {
                self.lab.free(pfn, record.order);
                return (events, Ending::OtherZone(operation));
            }
            self.kept.push((pfn, record.order));
            let taken = self.count() + record.order.pages().0 - before;
            if taken != 0 {
                self.trial.counter.refill(taken);
                events.push(self.event(operation));
            }
        }
        (events, Ending::Complete)
    }

    fn give_back(&mut self, record: &BurstRecord) -> (Vec<Event>, Ending) {
        let mut events = Vec::new();
        let blocks = self.kept.len().min(record.operations as usize);
        let mut freed = self.kept.split_off(self.kept.len() - blocks);
        if record.burst == Burst::Free {
            freed.reverse();
        }
        for (operation, (pfn, order)) in freed.into_iter().enumerate() {
            let before = self.count();
            // The flag is looked at after the drain.
            let (mut counter, drained) = (self.trial.counter, self.drain_of_next_free(order));
            counter.drain(drained);
            self.show_counter(counter, self.zone.free_pages().0 + drained);
            self.lab.free(pfn, order);
            let given = before + order.pages().0 - self.count();
            if given != 0 {
                self.trial.counter.drain(given);
                events.push(self.event(operation as u64));
            }
        }
        let is_whole = blocks as u64 == record.operations;
        (events, if is_whole { Ending::Complete } else { Ending::Failure })
    }

    /// Sets the marks against which the kernel would have compared its counter of so many free pages.
    fn show_counter(&mut self, counter: Counter, free: u64) {
        let marks = counter.marks(self.target.marks);
        self.leeway.check(free, marks, self.target.reserve);
        if self.held.is_some() && self.zone.marks() != marks {
            self.lab.core.set_marks(self.zone.index(), marks, self.recorded.reserve, 0);
        }
    }

    /// Pages that the next free will drain.
    fn drain_of_next_free(&self, order: Order) -> u64 {
        let mut tuning = self.lab.pageset(self.zone).tuning();
        let count = PageCount(self.count() + order.pages().0);
        let pages = tuning.after_free(self.lab.rules(), order, count, self.zone.view());
        pages.map_or(0, |pages| pages.0)
    }

    fn count(&self) -> u64 {
        self.lab.pageset(self.zone).count().0
    }

    fn event(&self, operation: u64) -> Event {
        Event { operation, state: State { flags: None, ..self.state() } }
    }
}

/// The module logged no refills of the bursts that only prepare frees without allocations.
fn logs_events(experiment: &str, burst: Burst) -> bool {
    let prepares =
        ["c4_free_only", "c4b_free_only"].iter().any(|name| experiment.starts_with(name));
    !(prepares && burst == Burst::Alloc)
}
