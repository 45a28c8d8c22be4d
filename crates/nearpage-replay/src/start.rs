//! The start state of a replay: what `before` says of the machine.

mod divided;
mod free_lists;
mod known;
mod memory;
mod scaled;
mod zone;

pub(crate) use free_lists::{free_lists, free_pages};
pub(crate) use known::known_state;
pub(crate) use zone::{StartPageset, StartZone};

use std::sync::Arc;

use nearpage::rules::pagesets::{Sizes, ZoneShare};
use nearpage::{CpuId, Marks, Model, PageCount, PfnRange, Settings, TopologyBuf, ZoneKind};
use nearpage_bundle::{Capture, RecordedMachine};
use nearpage_machine::plan::settings_of;
use nearpage_machine::sysfs::zoneinfo::{PagesetRecord, ZoneRecord};
use nearpage_machine::{Budget, InputError, KernelSettings, MachineDescription, MachineInput};

use crate::error::ReplayError;
use crate::kernel_state::KernelState;
use crate::zones::ZoneMap;
use free_lists::FreeLists;

/// A machine at the moment of `before`.
#[derive(Clone, Debug)]
pub struct Start {
    /// The rules of its kernel.
    pub model: Model,
    /// Nodes with the memory that the core is given, CPUs and distances.
    pub topology: TopologyBuf,
    /// Its zones with memory, by node and kind.
    pub zones: Vec<StartZone>,
    /// Which zone a recorded frame is of, by the position in `zones`.
    pub map: ZoneMap,
    /// Log2 of the bytes of a page.
    pub page_shift: u32,
    /// `vm.watermark_boost_factor`.
    pub boost_factor: u32,
    /// The settings of its kernel, and Linux's defaults where `before` does not tell.
    pub settings: Settings,
    /// What `before` tells of them.
    pub kernel: KernelSettings,
    /// Each CPU's share of the last-level cache, in pages, as far as it is told.
    pub cache_slices: Vec<(CpuId, PageCount)>,
    /// The kernel's own state, if it was recorded and can be used.
    pub(crate) state: Option<Arc<KernelState>>,
}

impl Start {
    /// Pages that the zones manage.
    pub(crate) fn managed(&self) -> PageCount {
        PageCount(self.zones.iter().map(|zone| zone.managed.0).sum())
    }

    /// Allocations of a zone that the kernel counted since `before`, and that came before the window.
    pub(crate) fn allocs_before(&self, zone: usize) -> i64 {
        let state = self.state.as_ref();
        state.and_then(|state| state.gap.allocs.get(zone).copied()).unwrap_or(0)
    }

    /// The same machine with `cpus` CPUs dealt out over the nodes that have any, and `times` as much memory. It keeps the
    /// settings that were recorded, but for `min_free_kbytes`, which boot computes from its memory.
    pub(crate) fn scaled(&self, cpus: u32, times: u32) -> Result<MachineDescription, InputError> {
        let input = MachineInput::ShortForm {
            nodes: scaled::nodes(&self.topology, self.page_shift, cpus, times),
            distances: scaled::distances(&self.topology),
        };
        let mut machine = MachineDescription::read(&input, &Budget::DEFAULT)?.machine;
        machine.page_bytes = 1 << self.page_shift;
        machine.settings = KernelSettings { min_free_kbytes: None, ..self.kernel.clone() };
        MachineDescription::new(format!("the recorded machine with {cpus} CPUs"), machine)
    }

    /// Reads the start state of a capture; `input` names it in messages.
    ///
    /// # Errors
    ///
    /// A file of the capture is damaged, or something is missing.
    pub fn read(
        input: &str,
        capture: &Capture,
        page_bytes: u64,
        model: Model,
    ) -> Result<Start, ReplayError> {
        let machine = capture.machine()?;
        let page_shift = page_bytes.trailing_zeros();
        let records = populated(&machine);
        let spans: Vec<PfnRange> = records.iter().map(|record| span(record)).collect();
        let map = ZoneMap::new(&spans);
        let free = FreeLists::read(input, capture)?;
        let mut zones = Vec::new();
        for (recorded, record) in records.iter().enumerate() {
            let zone = zone(input, &machine, record, &free, page_shift)?;
            zones.push(StartZone { recorded, ..zone });
        }
        if zones.is_empty() {
            let what = "no zone with memory".into();
            return Err(ReplayError::incomplete(input, what, "zones in before/zoneinfo"));
        }
        let topology = memory::topology(input, &machine, &zones, &records, &map)?;
        let boost_factor = boost_factor(capture).unwrap_or(DEFAULT_BOOST_FACTOR);
        let settings = settings_of(&machine.machine.settings, model);
        Ok(Start {
            model,
            topology,
            zones,
            map,
            page_shift,
            boost_factor,
            settings: settings.with(|changed| changed.watermark_boost_factor = boost_factor),
            kernel: machine.machine.settings.clone(),
            cache_slices: cache_slices(&machine, page_shift),
            state: None,
        })
    }
}

/// `vm.watermark_boost_factor` where nobody set it. `mm/page_alloc.c: watermark_boost_factor`, 6.12.
const DEFAULT_BOOST_FACTOR: u32 = 15_000;
/// The highest `vm stats threshold`. `mm/vmstat.c: calculate_normal_threshold`, 6.12.
const THRESHOLD_MOST: u64 = 125;

/// The zones that pages can come from, by node and kind.
fn populated(machine: &RecordedMachine) -> Vec<&ZoneRecord> {
    let has_pages = |zone: &&ZoneRecord| {
        zone.managed.unwrap_or(0) > 0 && zone.kind.is_some_and(|kind| kind != ZoneKind::Device)
    };
    let mut zones: Vec<&ZoneRecord> = machine.zones.iter().filter(has_pages).collect();
    zones.sort_by_key(|zone| (zone.node, zone.kind));
    zones
}

fn span(zone: &ZoneRecord) -> PfnRange {
    let start = zone.start_pfn.unwrap_or(0);
    PfnRange::new(start, start.saturating_add(zone.spanned.unwrap_or(0)))
}

fn zone(
    input: &str,
    machine: &RecordedMachine,
    record: &ZoneRecord,
    free: &FreeLists,
    page_shift: u32,
) -> Result<StartZone, ReplayError> {
    let kind = record.kind.unwrap_or(ZoneKind::Normal);
    let name = format!("zone {} of node {}", kind.name(), record.node);
    let boost = record.boost.unwrap_or(0);
    let mark = |mark: Option<u64>| PageCount(mark.unwrap_or(0).saturating_sub(boost));
    let (Some(_), Some(_), Some(_)) = (record.min, record.low, record.high) else {
        return Err(ReplayError::incomplete(
            input,
            format!("{name} has no watermarks"),
            "min, low and high",
        ));
    };
    let marks = Marks {
        min: mark(record.min),
        low: mark(record.low),
        high: mark(record.high),
        promo: mark(record.promo.or(record.high)),
    };
    let mut reserve = [PageCount(0); ZoneKind::COUNT];
    for (slot, &pages) in reserve.iter_mut().zip(record.protection.iter().flatten()) {
        *slot = PageCount(pages);
    }
    let managed = PageCount(record.managed.unwrap_or(0));
    let sizes = derived_sizes(machine, record, managed, marks.low, page_shift);
    let pagesets = record.pagesets.iter().map(|pageset| start_pageset(pageset, sizes)).collect();
    let told = record.pagesets.iter().find_map(|pageset| pageset.stat_threshold);
    let threshold = told.unwrap_or(0).min(THRESHOLD_MOST);
    let (node, (free, pageblocks)) = (record.node, free.of(input, record.node, kind)?);
    let is_all_free = false;
    let recorded = 0;
    let zone = StartZone {
        node,
        kind,
        recorded,
        managed,
        is_all_free,
        marks,
        reserve,
        free,
        pageblocks,
        threshold,
        pagesets,
    };
    let spanned = record.spanned.unwrap_or(0);
    let in_pageblocks = zone.pageblocks.iter().sum::<u64>() * 512;
    // Pageblocks at its ends may reach out of a zone.
    if zone.free_pages() > spanned || in_pageblocks > spanned.saturating_add(2 * 512) {
        let what = format!(
            "{name} spans {spanned} pages, but has {} free ones and {in_pageblocks} in pageblocks",
            zone.free_pages()
        );
        return Err(ReplayError::incomplete(input, what, "captures of one machine"));
    }
    Ok(zone)
}

/// What follows from the sizes of the zone, for kernels that do not print it.
fn derived_sizes(
    machine: &RecordedMachine,
    record: &ZoneRecord,
    managed: PageCount,
    low: PageCount,
    page_shift: u32,
) -> Sizes {
    let own = machine.nodes.iter().find(|node| node.id == record.node);
    let near = own.map_or(0, |node| node.listed_cpus.len());
    let cpus = if near > 0 { near } else { machine.cpus.len() } as u32;
    let fraction = machine.machine.settings.percpu_pagelist_high_fraction.unwrap_or(0);
    Sizes::new(ZoneShare { managed, low, cpus }, fraction, page_shift)
}

fn start_pageset(record: &PagesetRecord, derived: Sizes) -> StartPageset {
    let pages = |told: Option<u64>, derived: PageCount| told.map_or(derived, PageCount);
    let sizes = Sizes {
        batch: pages(record.batch, derived.batch),
        high_min: pages(record.high_min, derived.high_min),
        high_max: pages(record.high_max, derived.high_max),
    };
    let count = PageCount(record.count.unwrap_or(0));
    StartPageset { cpu: record.cpu, count, high: pages(record.high, sizes.high_min), sizes }
}

fn cache_slices(machine: &RecordedMachine, page_shift: u32) -> Vec<(CpuId, PageCount)> {
    let mut slices = Vec::new();
    for cache in &machine.machine.last_level_caches {
        let pages = (cache.bytes >> page_shift) / cache.cpus.len().max(1) as u64;
        slices.extend(cache.cpus.iter().map(|&cpu| (cpu, PageCount(pages))));
    }
    slices
}

fn boost_factor(capture: &Capture) -> Option<u32> {
    let content = capture.tree.read("proc/sys/vm/watermark_boost_factor").ok()??;
    String::from_utf8(content).ok()?.trim().parse().ok()
}
