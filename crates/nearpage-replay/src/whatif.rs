//! What if: the same allocations and frees under other rules, other tunables or on another machine.

use std::collections::HashMap;

use nearpage::gfp::Gfp;
use nearpage::model::Model;
use nearpage::pcp::sizes::{Sizes, ZoneShare};
use nearpage::topology::TopologyBuf;
use nearpage::units::{CpuId, NodeId, PageCount, Pfn, PfnRange, ZoneKind};
use nearpage::watermark::{self, Settings, Watermarks, ZoneSize};
use nearpage::zonelist::cache::CacheRule;

use super::cpus::{CpuMap, CpuRule};
use super::error::ReplayError;
use super::guess::Guess;
use super::machine::Memory;
use super::run::{Actor, Near, Run, RunCounts, Totals};
use super::session::{BULK_PAGES_MOST, is_of_blocks, with_type};
use super::setting::Setting;
use super::source::Bundle;
use super::start::{Start, StartPageset, StartZone};
use super::survey::{Survey, Window};
use super::zones::ZoneMap;
use nearpage_machine::MachineDescription;
use nearpage_machine::plan::{Lists, Plan};
use nearpage_trace::{Event, TraceEvent, read_trace};

/// What is to be different.
#[derive(Clone, Debug, Default)]
pub struct Wish {
    /// Whose rules; `None` for those of the recorded kernel.
    pub model: Option<Model>,
    /// Tunables.
    pub settings: Vec<Setting>,
    /// Whether scans of zonelists remember full zones.
    pub zonelist_cache: Option<CacheRule>,
    /// Another machine.
    pub machine: Option<MachineDescription>,
    /// How its CPUs are chosen.
    pub cpus: CpuRule,
    /// How many copies of the trace run at once, at least 1.
    pub repeat: u32,
}

impl Wish {
    /// Whether anything is to be different.
    pub fn is_empty(&self) -> bool {
        self.model.is_none()
            && self.settings.is_empty()
            && self.zonelist_cache.is_none()
            && self.machine.is_none()
            && self.repeat <= 1
    }
}

/// What it would have come to.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The totals.
    pub totals: Totals,
    /// What did not go as recorded.
    pub counts: RunCounts,
    /// The rules.
    pub model: Model,
    /// Which CPU plays which, in words; `None` on the recorded machine.
    pub cpus: Option<String>,
    /// The other machine, if it is another, and log2 of the bytes of its pages.
    pub machine: Option<(TopologyBuf, u32)>,
}

/// Replays a bundle as wished. `recorded` is its start state and `settings` are its kernel's.
///
/// # Errors
///
/// The trace cannot be read, or there can be no such machine.
pub fn ask(
    bundle: &Bundle,
    survey: &Survey,
    recorded: &Start,
    settings: Settings,
    wish: &Wish,
) -> Result<Answer, ReplayError> {
    let start = start_of(bundle, recorded, settings, wish)?;
    let (rule, repeat) = (wish.cpus, wish.repeat.max(1));
    let is_elsewhere = wish.machine.is_some();
    let map = CpuMap::new(rule, &recorded.topology, &start.topology);
    let input = bundle.name();
    let mut memory = Memory::new(&input, &start, 1)?;
    let Some((core, held)) = memory.cores(&input)?.pop() else {
        unreachable!("one core was asked for")
    };
    let run = Run::new(&start, survey, core, held, Guess::Likely);
    let with_memory = with_memory(&start.topology);
    let mut player = Player {
        recorded,
        survey,
        run,
        map: &map,
        is_elsewhere,
        with_memory,
        bulk: HashMap::new(),
    };
    let mut window = Window::new(survey.has_window);
    bundle.with_trace(|name, text| {
        read_trace::<ReplayError>(name, text, |event| {
            if window.admits(&event.event) {
                (0..repeat).for_each(|copy| player.note(event, copy));
            }
            Ok(())
        })
    })?;
    let mut run = player.run;
    run.finish();
    let (totals, counts) = (run.totals(), run.counts);
    let cpus = (is_elsewhere || repeat > 1).then(|| map.describe());
    let machine = is_elsewhere.then(|| (start.topology.clone(), start.page_shift));
    Ok(Answer { totals, counts, model: start.model, cpus, machine })
}

fn with_memory(topology: &TopologyBuf) -> Vec<NodeId> {
    topology.nodes.iter().filter(|node| !node.memory.is_empty()).map(|node| node.id).collect()
}

struct Player<'a, 'm> {
    recorded: &'a Start,
    survey: &'a Survey,
    run: Run<'m>,
    map: &'a CpuMap,
    is_elsewhere: bool,
    /// Nodes with memory.
    with_memory: Vec<NodeId>,
    bulk: HashMap<u32, (Gfp, Option<u32>)>,
}

/// Frames of the copies of a trace are this far apart: more than any machine has.
const COPY_FRAMES: u64 = 1 << 41;

impl Player<'_, '_> {
    fn note(&mut self, event: &TraceEvent<'_>, copy: u32) {
        let cpu = self.cpu(event.cpu, event.pid, copy);
        let actor = Actor { cpu, pid: event.pid, now_ns: event.time_ns };
        if is_of_blocks(&event.event) {
            self.run.note_running(actor);
        }
        let of_copy = |pfn: Pfn| Pfn(pfn.0 + u64::from(copy) * COPY_FRAMES);
        match event.event {
            Event::Alloc { pfn: Some(pfn), order, migratetype, gfp, .. } => {
                let near = self.near(pfn, gfp);
                self.run.alloc(actor, of_copy(pfn), order, with_type(gfp, migratetype), near);
            }
            Event::Free { pfn, order } => {
                let of = self.survey.type_of(pfn);
                let zone = self.recorded.map.zone_of(pfn).filter(|_| !self.is_elsewhere);
                self.run.free(actor, of_copy(pfn), order, zone, of);
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
                let node = node.filter(|_| !self.is_elsewhere);
                self.run.alloc_bulk(actor, gfp, node, &frames, untold);
            }
            _ => {}
        }
    }

    fn cpu(&self, cpu: CpuId, pid: u32, copy: u32) -> CpuId {
        if self.is_elsewhere { self.map.cpu(cpu, pid, copy) } else { cpu }
    }

    /// A page that had to be of one node has to be of the node that stands for it.
    fn near(&self, pfn: Pfn, gfp: Gfp) -> Near {
        let zone = self.recorded.map.zone_of(pfn).filter(|_| gfp.has(Gfp::THISNODE));
        let Some(zone) = zone else { return Near::Cpu };
        let node = self.recorded.zones[zone].node;
        if !self.is_elsewhere {
            return Near::Node(node);
        }
        let recorded = with_memory(&self.recorded.topology);
        let at = recorded.iter().position(|&of| of == node).unwrap_or(0);
        Near::Node(self.with_memory[at % self.with_memory.len()])
    }
}

/// The start state: that of the recorded machine under other rules, or another machine with all memory free.
///
/// # Errors
///
/// There can be no such machine.
pub fn start_of(
    bundle: &Bundle,
    recorded: &Start,
    settings: Settings,
    wish: &Wish,
) -> Result<Start, ReplayError> {
    let mut model = wish.model.unwrap_or(recorded.model);
    wish.settings.iter().for_each(|setting| setting.apply_to_model(&mut model));
    model.zonelist_cache = wish.zonelist_cache.unwrap_or(model.zonelist_cache);
    let mut settings = Settings { movable_min: model.movable_min, ..settings };
    let mut is_sized = false;
    for setting in &wish.settings {
        if let Setting::Kernel(change) = setting {
            change.apply(&mut settings);
            is_sized = true;
        }
    }
    settings.check().map_err(|error| incomplete(bundle, format!("--set: {error}")))?;
    let mut start = match &wish.machine {
        Some(machine) => elsewhere(bundle, machine, model, settings)?,
        None => Start { model, boost_factor: settings.watermark_boost_factor, ..recorded.clone() },
    };
    if is_sized && wish.machine.is_none() {
        resize(&mut start, &settings);
    }
    for zone in &mut start.zones {
        for pageset in &mut zone.pagesets {
            wish.settings.iter().for_each(|setting| setting.apply_to_sizes(&mut pageset.sizes));
            pageset.high = pageset.high.max(pageset.sizes.high_min).min(pageset.sizes.high_max);
        }
    }
    Ok(start)
}

fn incomplete(bundle: &Bundle, what: String) -> ReplayError {
    let expected = "a machine and settings that Linux accepts";
    ReplayError::Incomplete { input: bundle.name(), what, expected }
}

/// Watermarks, reserves and sizes of pagesets as they follow from the settings.
fn resize(start: &mut Start, settings: &Settings) {
    let sizes = start.zones.iter().map(|zone| ZoneSize { kind: zone.kind, managed: zone.managed });
    let sizes: Vec<ZoneSize> = sizes.collect();
    let kbytes = watermark::boot_min_free_kbytes(sizes.iter().copied(), settings, start.page_shift);
    let marks = Watermarks::new(sizes.iter().copied(), kbytes, settings, start.page_shift);
    let managed_of = |zones: &[StartZone], node: NodeId| {
        let mut managed = [PageCount(0); ZoneKind::COUNT];
        for zone in zones.iter().filter(|zone| zone.node == node) {
            managed[zone.kind.index()] = zone.managed;
        }
        managed
    };
    let all_cpus = start.topology.nodes.iter().map(|node| node.cpus.len()).sum::<usize>();
    for (index, &size) in sizes.iter().enumerate() {
        let zone = &start.zones[index];
        let managed = managed_of(&start.zones, zone.node);
        let near = start.topology.nodes.iter().find(|node| node.id == zone.node);
        let near = near.map_or(0, |node| node.cpus.len());
        let cpus = if near > 0 { near } else { all_cpus } as u32;
        let zone = &mut start.zones[index];
        zone.marks = marks.marks(size);
        zone.reserve = watermark::lowmem_reserve(zone.kind, &managed, settings);
        let share = ZoneShare { managed: zone.managed, low: zone.marks.low, cpus };
        let of_pageset = Sizes::of(share, settings.percpu_pagelist_high_fraction, start.page_shift);
        zone.pagesets.iter_mut().for_each(|pageset| pageset.sizes = of_pageset);
    }
}

/// Another machine, all of whose memory is free.
fn elsewhere(
    bundle: &Bundle,
    machine: &MachineDescription,
    model: Model,
    settings: Settings,
) -> Result<Start, ReplayError> {
    let plan = Plan::new(machine, model, Lists::Boot)
        .map_err(|error| incomplete(bundle, error.to_string()))?;
    if machine.topology.nodes.iter().all(|node| node.cpus.is_empty()) {
        return Err(incomplete(bundle, format!("{} has no CPUs", machine.source)));
    }
    let mut zones = Vec::new();
    let mut spans = Vec::new();
    for node in &plan.nodes {
        for zone in node.zones.iter().filter(|zone| zone.extent.managed.0 > 0) {
            let pageset = |&cpu: &CpuId| StartPageset {
                cpu,
                count: PageCount(0),
                high: zone.pageset.high_min,
                sizes: zone.pageset,
            };
            let extent = &zone.extent;
            spans.push(PfnRange::new(extent.start.0, extent.start.0 + extent.spanned.0));
            zones.push(StartZone {
                node: node.id,
                kind: extent.kind,
                managed: extent.managed,
                is_all_free: true,
                marks: zone.marks,
                reserve: zone.protection,
                free: Default::default(),
                pageblocks: Default::default(),
                pagesets: plan.cpus.iter().map(pageset).collect(),
            });
        }
    }
    Ok(Start {
        model,
        topology: machine.topology.clone(),
        zones,
        map: ZoneMap::new(&spans),
        page_shift: machine.machine.page_bytes.trailing_zeros(),
        boost_factor: settings.watermark_boost_factor,
        cache_slices: Vec::new(),
    })
}

/// What operations cost, in nanoseconds: a table with a name.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Costs {
    /// Its name.
    pub name: &'static str,
    /// A block allocated or freed.
    pub operation_ns: f64,
    /// A zone's lock taken and given back.
    pub hold_ns: f64,
    /// A page taken from a zone in a hold.
    pub refill_page_ns: f64,
    /// A page given to a zone in a hold.
    pub drain_page_ns: f64,
}

impl Costs {
    /// From the recorded run of the benchmark `peers`, `bench/pages.txt`: half a hot pair; a locked pair more than a hot
    /// one; filling and freeing in order, per page, less the operation.
    pub const BENCH: Costs = Costs {
        name: "bench/pages.txt",
        operation_ns: 2.7,
        hold_ns: 33.2,
        refill_page_ns: 0.7,
        drain_page_ns: 2.7,
    };

    /// Model time of what was done, in milliseconds, if one CPU did it all. Waiting is not in it.
    pub fn milliseconds(&self, totals: &Totals) -> f64 {
        let ns = totals.operations as f64 * self.operation_ns
            + totals.lock_acquisitions.unwrap_or(0) as f64 * self.hold_ns
            + totals.refill_pages as f64 * self.refill_page_ns
            + totals.drain_pages as f64 * self.drain_page_ns;
        ns / 1e6
    }
}
