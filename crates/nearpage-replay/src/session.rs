//! A session: a pass over the trace that drives four runs of the core side by side.

use std::collections::{HashMap, HashSet};

use nearpage::{CpuId, Gfp, NodeIndex, Pfn, ZoneKind};
use nearpage_trace::{Event, TraceCounts, TraceEvent, read_trace};

use crate::bundle::Bundle;
use crate::drawn::Draw;
use crate::error::ReplayError;
use crate::events::{Actor, BULK_PAGES_MOST, with_type};
use crate::explain::{Explainer, Scene, Subject};
use crate::guess::Guess;
use crate::kernel_state::{KernelState, Moment, Roll};
use crate::machine::Memory;
use crate::outcome::{Outcome, Snapshot};
use crate::recorded::Recorded;
use crate::run::{Near, Origin, Run, preferred};
use crate::start::Start;
use crate::state_end::StateEnd;
use crate::strays::{is_of_one_node, reclaimed_node};
use crate::survey::Survey;
use crate::watch::Watch;

/// Where the zone of an allocation comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ZoneChoice {
    /// The core's own: node of the CPU, flags, watermarks.
    #[default]
    Model,
    /// The recorded page's: for traces of tasks with memory policies, which are in no event.
    Recorded,
}

/// A trace that was replayed.
#[derive(Debug)]
pub(crate) struct Replayed {
    /// What was met in the trace.
    pub(crate) counts: TraceCounts,
    /// What the kernel logged.
    pub(crate) recorded: Recorded,
    /// The run from the likely start, then those of drawn ones.
    pub(crate) outcomes: Vec<Outcome>,
    /// What was to be explained, line by line.
    pub(crate) explained: Vec<String>,
    /// The lists at the end, if the kernel's are known.
    pub(crate) end: Option<StateEnd>,
}

/// Runs that go side by side: each has the memory of a core.
const SIDE_BY_SIDE: usize = 4;

/// Starts that are drawn in any case: they go beside the likely one.
const DRAWN: u32 = SIDE_BY_SIDE as u32 - 1;

/// Passes over the trace that so many more starts take.
pub(crate) fn passes(starts: u32) -> u64 {
    u64::from(starts).div_ceil(SIDE_BY_SIDE as u64)
}

/// Replays a bundle from `start` and from drawn starts, `more` than three, and explains what the first run does with `subject`.
///
/// # Errors
///
/// The trace cannot be read, or the core cannot be made for the machine; [`ReplayError::Stopped`].
pub(crate) fn replay(
    bundle: &Bundle,
    start: &Start,
    survey: &Survey,
    choice: ZoneChoice,
    more: u32,
    subject: Option<Subject>,
    watch: &Watch<'_>,
) -> Result<Replayed, ReplayError> {
    let drawn = match start.state {
        // Nothing is left open.
        Some(_) => 0,
        None => DRAWN.saturating_add(more),
    };
    let drawn = (1..=drawn).map(|number| Guess::Drawn(Draw::new(number.into())));
    let guesses: Vec<Guess> = [Guess::Likely].into_iter().chain(drawn).collect();
    let (first, more) = guesses.split_at(guesses.len().min(SIDE_BY_SIDE));
    let mut replayed = side_by_side(bundle, start, survey, choice, first, subject, watch)?;
    for guesses in more.chunks(SIDE_BY_SIDE) {
        let more = side_by_side(bundle, start, survey, choice, guesses, None, watch)?;
        replayed.outcomes.extend(more.outcomes);
    }
    Ok(replayed)
}

/// As [`replay`], from the likely start alone.
///
/// # Errors
///
/// As [`replay`].
pub(crate) fn replay_likely(
    bundle: &Bundle,
    start: &Start,
    survey: &Survey,
    watch: &Watch<'_>,
) -> Result<Replayed, ReplayError> {
    side_by_side(bundle, start, survey, ZoneChoice::Model, &[Guess::Likely], None, watch)
}

fn side_by_side(
    bundle: &Bundle,
    start: &Start,
    survey: &Survey,
    choice: ZoneChoice,
    guesses: &[Guess],
    subject: Option<Subject>,
    watch: &Watch<'_>,
) -> Result<Replayed, ReplayError> {
    let mut memory = Memory::new(bundle.name(), start, guesses.len())?;
    let draws: Vec<Option<Draw>> = guesses.iter().map(|guess| guess.draw()).collect();
    let cores = memory.cores(bundle.name(), &draws)?;
    let runs = cores.into_iter().zip(guesses).map(|((core, held), guess)| {
        let run = Run::new(start, survey, core, held, guess.draw(), |pageset, zone| {
            guess.pages(&survey.clues(pageset, zone))
        });
        (run, Vec::new())
    });
    let after = match start.state {
        Some(_) => after(bundle, start)?,
        None => None,
    };
    let mut session = Session {
        start,
        after,
        end: None,
        survey,
        choice,
        runs: runs.collect(),
        recorded: Recorded::new(start.zones.len()),
        known: HashSet::new(),
        bulk: HashMap::new(),
        explainer: subject.map(Explainer::new),
    };
    let mut window = survey.window();
    let counts = bundle.with_trace_text(watch, |name, text| {
        read_trace::<ReplayError>(name, text, |event| {
            if window.admits(&event.event) {
                session.hear(event);
            }
            Ok(())
        })
    })?;
    let explained = session.explainer.take().map(Explainer::lines).unwrap_or_default();
    let end = session.end.take();
    let (recorded, outcomes) = session.finish();
    Ok(Replayed { counts, recorded, outcomes, explained, end })
}

/// The kernel's own state after the load, as it was read.
fn after<'a>(bundle: &Bundle, start: &'a Start) -> Result<Option<Roll<'a>>, ReplayError> {
    let zones: Vec<_> = start.zones.iter().map(|zone| (zone.node, zone.kind)).collect();
    let read = bundle.state(Moment::After)?;
    let state = read.and_then(|read| KernelState::of(&read, &zones, &start.map).ok());
    Ok(state.map(|state| Roll::new(Moment::After, state, &start.map)))
}

struct Session<'a, 'm> {
    start: &'a Start,
    survey: &'a Survey,
    choice: ZoneChoice,
    runs: Vec<(Run<'m>, Vec<Snapshot>)>,
    recorded: Recorded,
    /// Pagesets, by CPU and zone, whose state no longer depends on the start.
    known: HashSet<(CpuId, usize)>,
    /// Bulk allocations under way, by task: flags and node.
    bulk: HashMap<u32, (Gfp, Option<u32>)>,
    explainer: Option<Explainer>,
    /// The kernel's own state after the load, until it is of the moment at which it is compared.
    after: Option<Roll<'a>>,
    end: Option<StateEnd>,
}

impl Session<'_, '_> {
    /// Takes an event up, and explains it if that is asked for.
    fn hear(&mut self, event: &TraceEvent<'_>) {
        self.hear_alone(event);
        let after = self.after.as_mut().and_then(|after| after.note(event));
        if let (Some(before), Some(after)) = (&self.start.state, after) {
            self.end = Some(StateEnd::of(&self.runs[0].0.core, &self.start.zones, before, &after));
        }
    }

    fn hear_alone(&mut self, event: &TraceEvent<'_>) {
        let Some(mut explainer) = self.explainer.take_if(|explainer| explainer.wants(event)) else {
            self.note_time(event);
            self.note(event);
            return;
        };
        let before = Scene::of(&self.runs[0].0, event);
        self.note_time(event);
        let ticked = Scene::of(&self.runs[0].0, event);
        self.note(event);
        let after = Scene::of(&self.runs[0].0, event);
        explainer.tell(event, [&before, &ticked, &after], self.start);
        self.explainer = Some(explainer);
    }

    fn each_run(&mut self, mut each: impl FnMut(&mut Run<'_>)) {
        self.runs.iter_mut().for_each(|(run, _)| each(run));
    }

    fn note_time(&mut self, event: &TraceEvent<'_>) {
        self.each_run(|run| run.note_time(event, event.cpu, event.time_ns));
    }

    fn note(&mut self, event: &TraceEvent<'_>) {
        let actor = Actor::of(event);
        if self.node_of(actor.cpu).is_none() {
            self.recorded.foreign_cpus += 1;
            return;
        }
        match event.event {
            Event::Alloc { pfn: Some(pfn), order, migratetype, gfp, .. } => {
                let gfp = with_type(gfp, migratetype);
                let zone = self.zone_of(pfn);
                self.note_alloc(actor, zone, order.pages().0, gfp);
                let near = self.near(actor, zone, gfp);
                self.each_run(|run| {
                    run.alloc(actor, pfn, order, gfp, near);
                    run.note_place(pfn, zone);
                });
            }
            Event::Free { pfn, order } => {
                self.recorded.freed_pages += order.pages().0;
                let origin =
                    Origin { zone: self.zone_of(pfn), migratetype: self.survey.type_of(pfn) };
                let is_of_one_node = is_of_one_node(event.comm);
                let pass = reclaimed_node(event.comm)
                    .and_then(|node| Some((node, self.survey.end_of_pass(node, actor.now_ns)?)));
                let places = &self.start.map;
                self.each_run(|run| {
                    if let Some((node, end_ns)) = pass {
                        run.note_reclaimer(node, actor.now_ns, end_ns);
                    }
                    if is_of_one_node {
                        run.bring_home(pfn, order, places);
                    }
                    run.free(actor, pfn, order, origin);
                });
            }
            Event::Bulk { gfp, node, .. } => {
                self.bulk.insert(actor.pid, (gfp, node));
            }
            Event::BulkDone { got, pages } => self.note_bulk(actor, got, &pages),
            Event::Marker(text) => self.note_marker(text, actor.now_ns),
            Event::ZoneLocked { pfn, .. } | Event::PcpuDrain { pfn, .. } => {
                let zone = self.zone_of(pfn);
                let is_known = zone.is_some_and(|zone| self.known.contains(&(actor.cpu, zone)));
                self.recorded.note_log(actor, &event.event, zone, is_known);
            }
            _ => self.recorded.note_log(actor, &event.event, None, false),
        }
        if matches!(event.event, Event::Alloc { .. } | Event::Free { .. } | Event::BulkDone { .. })
        {
            self.note_known(actor.cpu);
        }
    }

    /// The state of a pageset is known once nothing is left of the start in the lists that are much used, in any run.
    fn note_known(&mut self, cpu: CpuId) {
        for zone in 0..self.start.zones.len() {
            let is_old = |(run, _): &(Run<'_>, _)| run.has_old_lists(cpu, zone);
            if !self.known.contains(&(cpu, zone)) && !self.runs.iter().any(is_old) {
                self.known.insert((cpu, zone));
                self.each_run(|run| run.set_known(cpu, zone));
            }
        }
    }

    fn node_of(&self, cpu: CpuId) -> Option<NodeIndex> {
        self.runs[0].0.core.topology().node_of_cpu(cpu)
    }

    /// A page that was asked for on a node tells which.
    fn near(&self, actor: Actor, zone: Option<usize>, gfp: Gfp) -> Near {
        match (self.choice, zone) {
            (ZoneChoice::Recorded, Some(zone)) => Near::Zone(zone),
            (_, Some(zone)) if self.survey.is_placed(actor.pid, gfp) => {
                Near::Node(self.start.zones[zone].node)
            }
            _ => Near::Cpu,
        }
    }

    fn zone_of(&mut self, pfn: Pfn) -> Option<usize> {
        let zone = self.start.map.zone_of(pfn);
        self.recorded.foreign_frames += u64::from(zone.is_none());
        zone
    }

    /// Notes where the kernel took a block.
    fn note_alloc(&mut self, actor: Actor, zone: Option<usize>, pages: u64, gfp: Gfp) {
        self.recorded.note_alloc(actor);
        let Some(zone) = zone else { return };
        let core = &self.runs[0].0.core;
        let (own, home) = (core.topology().node_of_cpu(actor.cpu), core.zones()[zone].node());
        let kind = gfp.zone_kind().unwrap_or(ZoneKind::Normal);
        let is_placed = self.survey.is_placed(actor.pid, gfp);
        let node = if is_placed { Some(home) } else { own };
        let first = node.and_then(|node| preferred(core, node, kind));
        self.recorded.allocs[zone] += 1;
        self.recorded.pages[zone] += pages;
        if own != Some(home) {
            self.recorded.remote_pages += pages;
        }
        if first.is_some_and(|first| first != zone) {
            self.recorded.fallback_pages[zone] += pages;
        }
    }

    fn note_bulk(&mut self, actor: Actor, got: u64, descriptors: &[u64]) {
        let (gfp, node) = self.bulk.remove(&actor.pid).unwrap_or((Gfp::KERNEL, None));
        let got = got.min(BULK_PAGES_MOST);
        let told = got.min(descriptors.len() as u64) as usize;
        let pfns: Vec<Pfn> =
            descriptors[..told].iter().filter_map(|&page| self.survey.frame_of(page)).collect();
        self.recorded.bulk_pages += got;
        for &pfn in &pfns {
            if let Some(zone) = self.zone_of(pfn) {
                self.recorded.allocs[zone] += 1;
                self.recorded.pages[zone] += 1;
            }
        }
        let untold = got.saturating_sub(pfns.len() as u64);
        self.each_run(|run| run.alloc_bulk(actor, gfp, node, &pfns, untold));
    }

    fn note_marker(&mut self, text: &[u8], now_ns: u64) {
        let text = String::from_utf8_lossy(text);
        let Some(rest) = text.strip_prefix("nearpage: sample ") else { return };
        if let Some(number) = rest.strip_suffix(" begin").and_then(|number| number.parse().ok()) {
            self.snapshot(Some(number), now_ns);
        }
    }

    fn snapshot(&mut self, sample: Option<u32>, now_ns: u64) {
        for (run, snapshots) in &mut self.runs {
            snapshots.push(Snapshot::of(run, &self.start.zones, sample, now_ns));
        }
    }

    fn finish(mut self) -> (Recorded, Vec<Outcome>) {
        self.snapshot(None, self.survey.end_ns);
        self.recorded.finish();
        let outcomes = self.runs.into_iter().map(|(run, snapshots)| Outcome::of(run, snapshots));
        (self.recorded, outcomes.collect())
    }
}
