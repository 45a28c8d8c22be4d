//! The start state of a what-if: other rules on the recorded machine, or another machine with all memory free.

use nearpage::rules::pagesets::{Sizes, ZoneShare};
use nearpage::rules::watermarks;
use nearpage::rules::watermarks::{Watermarks, ZoneSize};
use nearpage::{CpuId, Model, NodeId, PageCount, PfnRange, Settings, ZoneKind};
use nearpage_machine::MachineDescription;
use nearpage_machine::plan::{Lists, Plan};

use super::wish::Wish;
use crate::error::ReplayError;
use crate::start::{Start, StartPageset, StartZone};
use crate::zones::ZoneMap;
use nearpage_machine::tunable::Tunable;

/// The start state: that of the recorded machine under other rules, or another machine with all memory free.
///
/// # Errors
///
/// There can be no such machine.
pub(crate) fn start_of(input: &str, recorded: &Start, wish: &Wish) -> Result<Start, ReplayError> {
    let mut model = wish.model.unwrap_or(recorded.model);
    wish.tunables.iter().for_each(|tunable| tunable.apply_to_model(&mut model));
    model.zonelist_cache = wish.zonelist_cache.unwrap_or(model.zonelist_cache);
    let kernel = wish.tunables.iter().filter_map(|tunable| match tunable {
        Tunable::Kernel(change) => Some(change),
        _ => None,
    });
    let change = |settings: &mut Settings| kernel.clone().for_each(|change| change.apply(settings));
    let mut start = match &wish.machine {
        Some(machine) => elsewhere(&machine.source, machine, model, change)?,
        None => here(input, recorded, model, change)?,
    };
    for zone in &mut start.zones {
        for pageset in &mut zone.pagesets {
            wish.tunables.iter().for_each(|tunable| tunable.apply_to_sizes(&mut pageset.sizes));
            pageset.high = pageset.high.max(pageset.sizes.high_min).min(pageset.sizes.high_max);
        }
    }
    Ok(start)
}

/// The recorded machine under other rules and settings.
fn here(
    input: &str,
    recorded: &Start,
    model: Model,
    change: impl FnOnce(&mut Settings),
) -> Result<Start, ReplayError> {
    let unchanged = recorded.settings.with(|changed| changed.movable_min = model.movable_min);
    let settings = unchanged.with(change);
    settings.check().map_err(|source| ReplayError::Settings { input: input.into(), source })?;
    let boost_factor = settings.watermark_boost_factor;
    let whole = Start { model, boost_factor, settings, ..recorded.clone() };
    let divided = whole.divided(model.zone_instances);
    // Zones of other sizes have sizes of their own.
    let recorded = divided.is_none().then_some(&unchanged);
    let mut start = divided.unwrap_or(whole);
    resize(&mut start, &settings, recorded);
    Ok(start)
}

fn refused(input: &str, what: String) -> ReplayError {
    ReplayError::incomplete(input, what, "a machine and settings that Linux accepts")
}

/// Watermarks, reserves and sizes of pagesets as they follow from the settings. What is the same by the recorded settings stays as it
/// was recorded: a kernel may have computed it from other figures, of an earlier moment of its boot.
fn resize(start: &mut Start, settings: &Settings, recorded: Option<&Settings>) {
    let sizes = start.zones.iter().map(|zone| ZoneSize { kind: zone.kind, managed: zone.managed });
    let sizes: Vec<ZoneSize> = sizes.collect();
    let page_shift = start.page_shift;
    let marks_by = |settings: &Settings| {
        let sizes = || sizes.iter().copied();
        let kbytes = watermarks::boot_min_free_kbytes(sizes(), settings, page_shift);
        Watermarks::new(sizes(), kbytes, settings, page_shift)
    };
    let (marks, marks_before) = (marks_by(settings), recorded.map(marks_by));
    let managed_of = |zones: &[StartZone], node: NodeId| {
        let mut managed = [PageCount(0); ZoneKind::COUNT];
        for zone in zones.iter().filter(|zone| zone.node == node) {
            managed[zone.kind.index()] += zone.managed;
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
        let low_before = zone.marks.low;
        let of_zone = marks.marks(size);
        if marks_before.as_ref().is_none_or(|before| before.marks(size) != of_zone) {
            zone.marks = of_zone;
        }
        let reserve_by =
            |settings: &Settings| watermarks::lowmem_reserve(size.kind, &managed, settings);
        let reserve = reserve_by(settings);
        if recorded.is_none_or(|before| reserve_by(before) != reserve) {
            zone.reserve = reserve;
        }
        let sizes_by = |settings: &Settings, low| {
            let share = ZoneShare { managed: size.managed, low, cpus };
            Sizes::new(share, settings.percpu_pagelist_high_fraction, page_shift)
        };
        let of_pagesets = sizes_by(settings, zone.marks.low);
        if recorded.is_none_or(|before| sizes_by(before, low_before) != of_pagesets) {
            zone.pagesets.iter_mut().for_each(|pageset| pageset.sizes = of_pagesets);
        }
    }
}

/// Another machine, all of whose memory is free.
pub(super) fn elsewhere(
    input: &str,
    machine: &MachineDescription,
    model: Model,
    change: impl FnOnce(&mut Settings),
) -> Result<Start, ReplayError> {
    let plan = Plan::with(machine, model, Lists::Boot, change)
        .map_err(|source| ReplayError::Settings { input: input.into(), source })?;
    if machine.topology.nodes.iter().all(|node| node.cpus.is_empty()) {
        return Err(refused(input, format!("{} has no CPUs", machine.source)));
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
                recorded: zones.len(),
                managed: extent.managed,
                is_all_free: true,
                marks: zone.marks,
                reserve: zone.protection,
                free: Default::default(),
                pageblocks: Default::default(),
                threshold: zone.stat_threshold.into(),
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
        boost_factor: plan.settings.watermark_boost_factor,
        settings: plan.settings.with(|known| known.min_free_kbytes = Some(plan.min_free_kbytes)),
        kernel: machine.machine.settings.clone(),
        cache_slices: Vec::new(),
        state: None,
    })
}
