//! The trace, played on another machine or under other rules.

use std::collections::HashMap;

use nearpage::{CpuId, Gfp, NodeId, Pfn};
use nearpage_trace::{Event, TraceEvent};

use super::homes::Homes;
use crate::cpus::CpuMap;
use crate::events::{Actor, BULK_PAGES_MOST, with_type};
use crate::run::{Near, Origin, Run};
use crate::start::Start;
use crate::survey::Survey;

/// Drives a run by the events of a trace that was recorded elsewhere.
pub(crate) struct Player<'a, 'm> {
    recorded: &'a Start,
    start: &'a Start,
    survey: &'a Survey,
    pub(crate) run: Run<'m>,
    /// Later than in the trace, in nanoseconds.
    pub(crate) shift_ns: u64,
    map: &'a CpuMap,
    /// Whether the machine is another one than the recorded.
    is_elsewhere: bool,
    homes: Homes,
    /// CPUs of the recorded machine, ascending.
    recorded_cpus: Vec<CpuId>,
    bulk: HashMap<u32, (Gfp, Option<u32>)>,
}

/// Frames of the copies of a trace are this far apart: more than any machine has.
const COPY_FRAMES: u64 = 1 << 41;

impl<'a, 'm> Player<'a, 'm> {
    /// A player of `run`, which began as `start`. `map` says which CPU plays which, if the machine is another one.
    pub(crate) fn new(
        recorded: &'a Start,
        survey: &'a Survey,
        run: Run<'m>,
        start: &'a Start,
        map: &'a CpuMap,
        is_elsewhere: bool,
    ) -> Player<'a, 'm> {
        let homes = Homes::new(&recorded.topology, &start.topology);
        let nodes = recorded.topology.nodes.iter();
        let mut recorded_cpus: Vec<CpuId> = nodes.flat_map(|node| &node.cpus).copied().collect();
        recorded_cpus.sort_unstable();
        let bulk = HashMap::new();
        let shift_ns = 0;
        Player {
            recorded,
            start,
            survey,
            run,
            shift_ns,
            map,
            is_elsewhere,
            homes,
            recorded_cpus,
            bulk,
        }
    }

    /// Lets time pass until an event, and says who acts then; `None` for a CPU that the recorded machine does not have.
    pub(crate) fn pass_time(&mut self, event: &TraceEvent<'_>, copy: u32) -> Option<Actor> {
        self.recorded_cpus.binary_search(&event.cpu).ok()?;
        let cpu = self.cpu(event.cpu, event.pid, copy);
        let now_ns = event.time_ns.saturating_add(self.shift_ns);
        self.run.note_time(event, cpu, now_ns);
        Some(Actor { cpu, pid: event.pid, now_ns })
    }

    /// Plays an event, in one of the copies of the trace. Those on CPUs that the recorded machine does not have are left out,
    /// as in the comparison with the kernel.
    pub(crate) fn note(&mut self, event: &TraceEvent<'_>, copy: u32) {
        let Some(actor) = self.pass_time(event, copy) else { return };
        let cpu = actor.cpu;
        let of_copy = |pfn: Pfn| Pfn(pfn.0 + u64::from(copy) * COPY_FRAMES);
        match event.event {
            Event::Alloc { pfn: Some(pfn), order, migratetype, gfp, .. } => {
                let near = self.near(event, cpu, pfn, gfp);
                self.run.alloc(actor, of_copy(pfn), order, with_type(gfp, migratetype), near);
            }
            Event::Free { pfn, order } => {
                let migratetype = self.survey.type_of(pfn);
                // Nothing tells where older blocks of a trace without captures are: they are near who frees them.
                let zone = match self.recorded.zones.is_empty() {
                    true => self.run.home(cpu),
                    false => self.start.map.zone_of(pfn).filter(|_| !self.is_elsewhere),
                };
                self.run.free(actor, of_copy(pfn), order, Origin { zone, migratetype });
            }
            Event::Bulk { gfp, node, .. } => {
                self.bulk.insert(event.pid, (gfp, node));
            }
            Event::BulkDone { got, pages } => {
                let (gfp, node) = self.bulk.get(&event.pid).copied().unwrap_or((Gfp::KERNEL, None));
                let told = got.min(pages.len() as u64) as usize;
                let frames = pages[..told].iter().filter_map(|&page| self.survey.frame_of(page));
                let frames: Vec<Pfn> = frames.map(of_copy).collect();
                let untold = got.saturating_sub(frames.len() as u64).min(BULK_PAGES_MOST);
                let node = node.map(|node| self.stand_in(NodeId(node), event.cpu, cpu).0);
                self.run.alloc_bulk(actor, gfp, node, &frames, untold);
            }
            _ => {}
        }
    }

    fn cpu(&self, cpu: CpuId, pid: u32, copy: u32) -> CpuId {
        if self.is_elsewhere { self.map.cpu(cpu, pid, copy) } else { cpu }
    }

    /// A page that was asked for on a node is asked for on the one that stands for it.
    fn near(&self, event: &TraceEvent<'_>, cpu: CpuId, pfn: Pfn, gfp: Gfp) -> Near {
        let is_placed = self.survey.is_placed(event.pid, gfp);
        let zone = self.recorded.map.zone_of(pfn).filter(|_| is_placed);
        let Some(zone) = zone else { return Near::Cpu };
        Near::Node(self.stand_in(self.recorded.zones[zone].node, event.cpu, cpu))
    }

    fn stand_in(&self, node: NodeId, recorded: CpuId, plays: CpuId) -> NodeId {
        match self.is_elsewhere {
            true => self.homes.stand_in(node, recorded, plays),
            false => node,
        }
    }
}
