//! A session: two passes over a trace. The first looks what there is, the second drives the runs.

use std::collections::{HashMap, HashSet};

use nearpage::{CpuId, Gfp, NodeIndex, Pfn, ZoneKind};

use super::error::ReplayError;
use super::explain::{Explainer, Scene, Subject};
use super::guess::Guess;
use super::machine::Memory;
use super::recorded::{Bursts, Flow};
use super::run::{Actor, Near, Run, RunCounts, Totals, ZoneChoice, preferred};
use super::source::Bundle;
use super::start::Start;
use super::strays::{is_of_one_node, reclaimed_node};
use super::survey::{Survey, Window};
use nearpage_trace::{Event, TraceCounts, TraceEvent, read_trace};

/// What the kernel's own log says, and what only the trace tells of placement.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    /// Refills and drains, by zone.
    pub flows: Vec<Flow>,
    /// The same, of pagesets whose state is known by then.
    pub known_flows: Vec<Flow>,
    /// Events of fallback to another type.
    pub extfrag: u64,
    /// Whether the trace has any event of the three kinds that are predicted.
    pub has_kernel_events: bool,
    /// Allocations from each zone, those in bulk that are told included.
    pub allocs: Vec<u64>,
    /// Pages from a zone that the request did not prefer, by zone.
    pub fallback_pages: Vec<u64>,
    /// Blocks outside of all zones.
    pub foreign_frames: u64,
    /// Events on CPUs that `before` does not have.
    pub foreign_cpus: u64,
    /// Pages allocated in bulk, as far as the trace tells.
    pub bulk_pages: u64,
    /// Pages from each zone, those in bulk that are told included.
    pub pages: Vec<u64>,
    /// Pages freed.
    pub freed_pages: u64,
    /// Pages from another node than the CPU's.
    pub remote_pages: u64,
}

/// Pagesets and zones at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// The number of the sample, or `None` for the end of the window.
    pub sample: Option<u32>,
    /// CPU, zone, pages, limit.
    pub pagesets: Vec<(CpuId, usize, u64, u64)>,
    /// Free pages, by zone.
    pub free_pages: Vec<u64>,
}

/// What a run came to.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Refills and drains, by zone.
    pub flows: Vec<Flow>,
    /// The same, of pagesets whose state is known by then.
    pub known_flows: Vec<Flow>,
    /// Pages from a zone that the request did not prefer, by zone.
    pub fallback_pages: Vec<u64>,
    /// Blocks that came from another type.
    pub extfrag: u64,
    /// The pagesets at each sample and at the end.
    pub snapshots: Vec<Snapshot>,
    /// Free pages at the end, by zone.
    pub free_pages: Vec<u64>,
    /// `numa_hit`, `numa_miss` and `numa_foreign`, by zone.
    pub numa: Vec<[u64; 3]>,
    /// Allocations in bulk whose frames are not told, by zone.
    pub untold_allocs: Vec<u64>,
    /// What it came to as a whole.
    pub totals: Totals,
    /// What did not go as recorded.
    pub counts: RunCounts,
    /// Free pages at the start for which there was no place.
    pub left_out_pages: u64,
}

/// A replay that was done.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// What was met in the trace.
    pub counts: TraceCounts,
    /// Begin and end of the window.
    pub survey: Survey,
    /// What the kernel logged.
    pub recorded: Recorded,
    /// The runs, in the order of [`Guess::ALL`].
    pub outcomes: Vec<Outcome>,
    /// What was to be explained, line by line.
    pub explained: Vec<String>,
}

/// Replays a bundle from `start`, and explains what the first run does with `subject`.
///
/// # Errors
///
/// The trace cannot be read, or the core cannot be made for the machine.
pub fn replay(
    bundle: &Bundle,
    start: &Start,
    choice: ZoneChoice,
    subject: Option<Subject>,
) -> Result<Replayed, ReplayError> {
    let survey = Survey::of(bundle, start)?;
    let input = bundle.name();
    let mut memory = Memory::new(&input, start, Guess::ALL.len())?;
    let cores = memory.cores(&input)?;
    let runs = cores.into_iter().zip(Guess::ALL).map(|((core, held), guess)| {
        let run = Run::new(start, &survey, core, held, guess);
        (run, Outcome::default())
    });
    let zones = start.zones.len();
    let mut session = Session {
        start,
        survey: &survey,
        choice,
        runs: runs.collect(),
        recorded: Recorded {
            flows: vec![Flow::default(); zones],
            known_flows: vec![Flow::default(); zones],
            allocs: vec![0; zones],
            pages: vec![0; zones],
            fallback_pages: vec![0; zones],
            ..Recorded::default()
        },
        bursts: Bursts::default(),
        known_bursts: Bursts::default(),
        known: HashSet::new(),
        bulk: HashMap::new(),
        explainer: subject.map(Explainer::new),
    };
    let mut window = Window::new(survey.has_window);
    let counts = bundle.with_trace(|name, text| {
        read_trace::<ReplayError>(name, text, |event| {
            if window.admits(&event.event) {
                session.hear(event);
            }
            Ok(())
        })
    })?;
    let explained = session.explainer.take().map(Explainer::lines).unwrap_or_default();
    let (recorded, outcomes) = session.finish();
    Ok(Replayed { counts, survey, recorded, outcomes, explained })
}

struct Session<'a, 'm> {
    start: &'a Start,
    survey: &'a Survey,
    choice: ZoneChoice,
    runs: Vec<(Run<'m>, Outcome)>,
    recorded: Recorded,
    bursts: Bursts,
    known_bursts: Bursts,
    /// Pagesets, by CPU and zone, whose state no longer depends on the start.
    known: HashSet<(CpuId, usize)>,
    /// Bulk allocations under way, by task: flags and node.
    bulk: HashMap<u32, (Gfp, Option<u32>)>,
    explainer: Option<Explainer>,
}

impl Session<'_, '_> {
    /// Takes an event up, and explains it if that is asked for.
    fn hear(&mut self, event: &TraceEvent<'_>) {
        let Some(mut explainer) = self.explainer.take_if(|explainer| explainer.wants(event)) else {
            self.note_running(event);
            self.note(event);
            return;
        };
        let before = Scene::of(&self.runs[0].0, event);
        self.note_running(event);
        let ticked = Scene::of(&self.runs[0].0, event);
        self.note(event);
        let after = Scene::of(&self.runs[0].0, event);
        explainer.tell(event, [&before, &ticked, &after], self.start);
        self.explainer = Some(explainer);
    }

    /// A CPU is seen to run.
    fn note_running(&mut self, event: &TraceEvent<'_>) {
        if is_of_blocks(&event.event) && self.node_of(event.cpu).is_some() {
            let actor = actor(event);
            self.runs.iter_mut().for_each(|(run, _)| run.note_running(actor));
        }
    }

    fn note(&mut self, event: &TraceEvent<'_>) {
        let actor = actor(event);
        if self.node_of(actor.cpu).is_none() {
            self.recorded.foreign_cpus += 1;
            return;
        }
        match event.event {
            Event::Alloc { pfn: Some(pfn), order, migratetype, gfp, .. } => {
                let gfp = with_type(gfp, migratetype);
                let zone = self.zone_of(pfn);
                self.note_alloc(actor, zone, order.pages().0, gfp);
                let near = self.near(zone, gfp);
                for (run, _) in &mut self.runs {
                    run.alloc(actor, pfn, order, gfp, near);
                    run.note_place(pfn, zone);
                }
            }
            Event::Free { pfn, order } => {
                self.recorded.freed_pages += order.pages().0;
                let (zone, of) = (self.zone_of(pfn), self.survey.type_of(pfn));
                let is_of_one_node = is_of_one_node(event.comm);
                let pass = reclaimed_node(event.comm)
                    .and_then(|node| Some((node, self.survey.end_of_pass(node, actor.now_ns)?)));
                for (run, _) in &mut self.runs {
                    if let Some((node, end_ns)) = pass {
                        run.note_reclaimer(node, end_ns);
                    }
                    if is_of_one_node {
                        run.bring_home(pfn, order, &self.start.map);
                    }
                    run.free(actor, pfn, order, zone, of);
                }
            }
            Event::Bulk { gfp, node, .. } => {
                self.bulk.insert(actor.pid, (gfp, node));
            }
            Event::BulkDone { got, pages } => self.note_bulk(actor, got, &pages),
            Event::Marker(text) => self.note_marker(text),
            _ => self.note_log(actor, &event.event),
        }
        if matches!(event.event, Event::Alloc { .. } | Event::Free { .. } | Event::BulkDone { .. })
        {
            self.note_known(actor.cpu);
        }
    }

    /// The state of a pageset is known once nothing is left of the start in the lists that are much used, in any run.
    fn note_known(&mut self, cpu: CpuId) {
        for zone in 0..self.start.zones.len() {
            let is_old = |(run, _): &(Run<'_>, Outcome)| run.has_old_lists(cpu, zone);
            if !self.known.contains(&(cpu, zone)) && !self.runs.iter().any(is_old) {
                self.known.insert((cpu, zone));
                self.runs.iter_mut().for_each(|(run, _)| run.set_known(cpu, zone));
            }
        }
    }

    fn node_of(&self, cpu: CpuId) -> Option<NodeIndex> {
        self.runs[0].0.core.topology().node_of_cpu(cpu)
    }

    /// A page that had to be of one node tells which.
    fn near(&self, zone: Option<usize>, gfp: Gfp) -> Near {
        match (self.choice, zone) {
            (ZoneChoice::Recorded, Some(zone)) => Near::Zone(zone),
            (_, Some(zone)) if gfp.contains(Gfp::THISNODE) => {
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
        self.bursts.close(actor.cpu, &mut self.recorded.flows);
        self.known_bursts.close(actor.cpu, &mut self.recorded.known_flows);
        let Some(zone) = zone else { return };
        self.recorded.allocs[zone] += 1;
        self.recorded.pages[zone] += pages;
        if self.node_of(actor.cpu) != Some(self.runs[0].0.core.zones()[zone].node()) {
            self.recorded.remote_pages += pages;
        }
        let kind = gfp.zone_kind().unwrap_or(ZoneKind::Normal);
        let core = &self.runs[0].0.core;
        let node = match gfp.contains(Gfp::THISNODE) {
            true => Some(core.zones()[zone].node()),
            false => self.node_of(actor.cpu),
        };
        if node.and_then(|node| preferred(core, node, kind)).is_some_and(|first| first != zone) {
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
        for (run, _) in &mut self.runs {
            run.alloc_bulk(actor, gfp, node, &pfns, untold);
        }
    }

    fn note_log(&mut self, actor: Actor, event: &Event<'_>) {
        let who = (actor.cpu, actor.pid);
        let flows = |recorded: &mut Recorded| {
            recorded.has_kernel_events = true;
        };
        match *event {
            Event::ZoneLocked { pfn, order, percpu_refill, .. } => {
                flows(&mut self.recorded);
                let Some(zone) = self.zone_of(pfn) else { return };
                let (flows, pages) = (&mut self.recorded.flows, order.pages().0);
                let known_flows = &mut self.recorded.known_flows;
                if !percpu_refill {
                    self.bursts.close(actor.cpu, flows);
                    self.known_bursts.close(actor.cpu, known_flows);
                    return;
                }
                self.bursts.refill(who, order, zone, pages, flows);
                if self.known.contains(&(actor.cpu, zone)) {
                    self.known_bursts.refill(who, order, zone, pages, known_flows);
                }
            }
            Event::PcpuDrain { pfn, order } => {
                flows(&mut self.recorded);
                let Some(zone) = self.zone_of(pfn) else { return };
                let pages = order.pages().0;
                self.bursts.drain(who, zone, pages, &mut self.recorded.flows);
                if self.known.contains(&(actor.cpu, zone)) {
                    self.known_bursts.drain(who, zone, pages, &mut self.recorded.known_flows);
                }
            }
            Event::Extfrag { .. } => {
                flows(&mut self.recorded);
                self.recorded.extfrag += 1;
            }
            _ => {}
        }
    }

    fn note_marker(&mut self, text: &[u8]) {
        let text = String::from_utf8_lossy(text);
        let Some(rest) = text.strip_prefix("nearpage: sample ") else { return };
        let Some(number) = rest.strip_suffix(" begin").and_then(|number| number.parse().ok())
        else {
            return;
        };
        self.snapshot(Some(number));
    }

    fn snapshot(&mut self, sample: Option<u32>) {
        for (run, outcome) in &mut self.runs {
            let mut pagesets = Vec::new();
            for (zone, recorded) in self.start.zones.iter().enumerate() {
                for pageset in &recorded.pagesets {
                    if let Some((count, high)) = run.pageset(pageset.cpu, zone) {
                        pagesets.push((pageset.cpu, zone, count.0, high.0));
                    }
                }
            }
            let free_pages = run.core.zones().iter().map(|zone| zone.free_pages().0).collect();
            outcome.snapshots.push(Snapshot { sample, pagesets, free_pages });
        }
    }

    fn finish(mut self) -> (Recorded, Vec<Outcome>) {
        self.snapshot(None);
        self.bursts.close_all(&mut self.recorded.flows);
        self.known_bursts.close_all(&mut self.recorded.known_flows);
        let outcomes = self.runs.into_iter().map(|(mut run, mut outcome)| {
            run.finish();
            for zone in run.core.zones() {
                let stats = run.core.zone_stats(zone);
                outcome.numa.push([stats.numa_hit, stats.numa_miss, stats.numa_foreign]);
                outcome.free_pages.push(zone.free_pages().0);
            }
            outcome.extfrag = run.extfrag();
            outcome.totals = run.totals();
            outcome.left_out_pages = run.left_out_pages();
            outcome.flows = run.flows;
            outcome.known_flows = run.known_flows;
            outcome.fallback_pages = run.fallback_pages;
            outcome.untold_allocs = run.untold_allocs;
            outcome.counts = run.counts;
            outcome
        });
        let outcomes = outcomes.collect();
        (self.recorded, outcomes)
    }
}

/// Whether an event is of those that a prediction comes from: who allocated and freed. That a CPU is seen to run counts
/// with these alone, or a bundle with events of locks or objects would be predicted in another way.
pub(super) fn is_of_blocks(event: &Event<'_>) -> bool {
    use Event::{Alloc, Bulk, BulkDone, Free};
    matches!(event, Alloc { .. } | Free { .. } | Bulk { .. } | BulkDone { .. })
}

fn actor(event: &TraceEvent<'_>) -> Actor {
    Actor { cpu: event.cpu, pid: event.pid, now_ns: event.time_ns }
}

/// Pages of one bulk allocation that are believed.
pub(super) const BULK_PAGES_MOST: u64 = 1 << 16;

/// The flags with the migratetype of the event: a name that is not known may have told it.
pub(super) fn with_type(gfp: Gfp, migratetype: u8) -> Gfp {
    let of = match migratetype {
        1 => Gfp::MOVABLE,
        2 => Gfp::RECLAIMABLE,
        _ => Gfp(0),
    };
    gfp.difference(Gfp::MOVABLE.union(Gfp::RECLAIMABLE)).union(of)
}
