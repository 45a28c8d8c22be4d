//! Bursts of allocations and frees: the state of the pageset after each refill, each drain and each burst.

use nearpage::frame::Migratetype;
use nearpage::model::Model;
use nearpage::units::{Order, PageCount, Pfn, ZoneKind};
use nearpage::watermark::Marks;

use super::HERE;
use super::pageset::{is_old, set_target, state};
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
    let mut machine = Machine::of(recording)?;
    set_target(&mut machine, &target, ZoneKind::Movable.index())?;
    let foreign = experiments.iter().find_map(|experiment| foreign_pages(experiment, &target));
    let bench = Bench { recording: &recording.name, machine, target, model, foreign };
    let (near, others): (Vec<&Experiment>, _) = experiments.iter().partition(|e| is_bounded(e));
    let before = tally.differences();
    bench.replay(&others, 0, tally)?;
    let rules_hold = tally.differences() == before;
    for experiment in near {
        bench.replay_near_mark(experiment, rules_hold, tally)?;
    }
    Ok(())
}

/// Most pages by which a zone's counter differs from what is free, for what one CPU has not added up.
const LAG_MOST: i64 = 125;

/// What the experiments of a text have in common.
struct Bench<'a> {
    recording: &'a str,
    machine: Machine,
    target: Target,
    model: Model,
    /// Pages of other types.
    foreign: Option<u64>,
}

impl Bench<'_> {
    /// Replays experiments where the zone's counter shows `lag` pages less than are free: the same as marks
    /// that are higher.
    fn replay(
        &self,
        experiments: &[&Experiment],
        lag: i64,
        tally: &mut Tally,
    ) -> Result<(), String> {
        let target = Target { marks: raised(self.target.marks, lag), ..self.target };
        let mut machine = self.machine.clone();
        set_target(&mut machine, &target, ZoneKind::Movable.index())?;
        let layout = |zone: &Zone| match self.foreign {
            Some(pages) if zone.name == target.zone => Layout::with_fragments(zone.free, pages),
            _ => Layout::Whole(zone.free),
        };
        let topology = machine.topology(layout)?;
        lab::with(&machine, topology, self.model, target.cpu, |lab| {
            let zone = lab.zone(target.zone)?;
            if self.foreign.is_some() {
                let recorded = machine.zone(target.zone)?;
                let fragments = layout(recorded).fragments(recorded.span);
                lab.retype(zone, &fragments, Migratetype::Unmovable);
            }
            let mut run = Run { lab, zone, target: &target, kept: Vec::new(), bounded: false };
            for experiment in experiments {
                run.experiment(self.recording, experiment, tally)?;
            }
            Ok(())
        })
    }

    /// Near its high mark a few pages decide, and the kernel's checks read a counter that is a few pages off.
    /// The text tells what is free and not the counter: there must be one difference with which all of the
    /// experiment comes out as recorded. It is looked for only where all others did.
    fn replay_near_mark(
        &self,
        experiment: &Experiment,
        rules_hold: bool,
        tally: &mut Tally,
    ) -> Result<(), String> {
        let replay = |lag| -> Result<Tally, String> {
            let mut tally = Tally::default();
            self.replay(&[experiment], lag, &mut tally)?;
            Ok(tally)
        };
        let exact = replay(0)?;
        if exact.differences() > 0 && rules_hold {
            for lag in (1..=LAG_MOST).flat_map(|pages| [pages, -pages]) {
                let mut lagging = replay(lag)?;
                if lagging.differences() == 0 {
                    lagging
                        .unanswered("near the high mark: by how much the zone's counter was off");
                    tally.add(lagging);
                    return Ok(());
                }
            }
        }
        tally.add(exact);
        Ok(())
    }
}

fn raised(marks: Marks, pages: i64) -> Marks {
    let raise = |mark: PageCount| PageCount(mark.0.saturating_add_signed(pages));
    let Marks { min, low, high, promo } = marks;
    Marks { min: raise(min), low: raise(low), high: raise(high), promo: raise(promo) }
}

/// Whether an experiment holds most of the zone's pages.
fn is_bounded(experiment: &Experiment) -> bool {
    experiment.records.iter().any(|record| matches!(record, Record::Held))
}

/// Pages of the zone that no movable request gets, because they are of other types in blocks too small to
/// be claimed while another zone can give (`ALLOC_NOFRAGMENT`). They show where a burst went on in
/// another zone with an empty pageset, and free pages above the mark.
fn foreign_pages(experiment: &Experiment, target: &Target) -> Option<u64> {
    let mark = target.marks.low.0 + target.reserve.0;
    experiment.records.iter().find_map(|record| match record {
        Record::Burst(burst) if burst.ending == Ending::OtherZone => {
            (burst.after.count == 0 && burst.zone_free > mark).then_some(burst.zone_free)
        }
        _ => None,
    })
}

struct Run<'a, 'm> {
    lab: &'a Lab<'a, 'm>,
    zone: &'m CoreZone<'m>,
    target: &'a Target,
    /// Blocks that the module has, oldest first.
    kept: Vec<(Pfn, Order)>,
    /// The experiment holds all but some pages of the zone, and says how many.
    bounded: bool,
}

impl Run<'_, '_> {
    fn experiment(
        &mut self,
        recording: &str,
        experiment: &Experiment,
        tally: &mut Tally,
    ) -> Result<(), String> {
        // What is left of the last experiment goes back first.
        for (pfn, order) in self.kept.drain(..).rev() {
            self.lab.free(pfn, order);
        }
        if self.bounded {
            self.lab.give_back(self.zone);
            self.bounded = false;
        }
        let mut records = experiment.records.iter().enumerate().peekable();
        while let Some((number, record)) = records.next() {
            tally.at(format!("{recording}: {}, record {number}", experiment.name));
            match record {
                Record::Reset(after) => {
                    self.lab.reset(self.zone, after.free_high_batch());
                    tally.compare("reset", *after, self.state());
                }
                Record::Held => self.bounded = true,
                Record::Decay { again, before, after } => {
                    self.decay(*again, *before, *after, tally);
                }
                Record::Burst(burst) => self.burst(&experiment.name, burst, tally),
            }
            let next = records.peek().map(|(_, next)| *next);
            if self.bounded
                && !matches!(record, Record::Burst(_))
                && let Some(Record::Burst(next)) = next
            {
                self.hold_all_but(next)?;
            }
        }
        Ok(())
    }

    fn state(&self) -> State {
        state(self.lab, self.zone)
    }

    /// Leaves the zone the pages that it must have had before its first burst: those that it, the pageset
    /// and the module have after it.
    fn hold_all_but(&self, first: &BurstRecord) -> Result<(), String> {
        if first.burst != Burst::Alloc || first.ending != Ending::Complete {
            return Err(
                "the first burst near the watermark does not tell the pages before it".into()
            );
        }
        let allocated = first.operations << first.order.0;
        let free = first.zone_free + first.after.count + allocated;
        self.lab.hold_all_but(self.zone, free);
        Ok(())
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
        self.zone.set_reclaim_active(record.zone_flags & RECLAIM_ACTIVE != 0);
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
        if self.bounded {
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
            let Some(pfn) = self.lab.alloc(record.order, HERE, node) else {
                return (events, Ending::Failure);
            };
            if !self.zone.span().contains(pfn) {
                self.lab.free(pfn, record.order);
                return (events, Ending::OtherZone);
            }
            self.kept.push((pfn, record.order));
            if self.count() + record.order.pages().0 != before {
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
            self.lab.free(pfn, order);
            if self.count() != before + order.pages().0 {
                events.push(self.event(operation as u64));
            }
        }
        (events, Ending::Complete)
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
