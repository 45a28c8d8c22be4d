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
        Some(machine) => elsewhere(input, machine, model, change)?,
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
    let is_sized = divided.is_some() || settings != unchanged;
    let mut start = divided.unwrap_or(whole);
    if is_sized {
        resize(&mut start, &settings);
    }
    Ok(start)
}

fn refused(input: &str, what: String) -> ReplayError {
    ReplayError::incomplete(input, what, "a machine and settings that Linux accepts")
}

/// Watermarks, reserves and sizes of pagesets as they follow from the settings.
fn resize(start: &mut Start, settings: &Settings) {
    let sizes = start.zones.iter().map(|zone| ZoneSize { kind: zone.kind, managed: zone.managed });
    let sizes: Vec<ZoneSize> = sizes.collect();
    let kbytes =
        watermarks::boot_min_free_kbytes(sizes.iter().copied(), settings, start.page_shift);
    let marks = Watermarks::new(sizes.iter().copied(), kbytes, settings, start.page_shift);
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
        zone.marks = marks.marks(size);
        zone.reserve = watermarks::lowmem_reserve(zone.kind, &managed, settings);
        let share = ZoneShare { managed: zone.managed, low: zone.marks.low, cpus };
        let of_pageset =
            Sizes::new(share, settings.percpu_pagelist_high_fraction, start.page_shift);
        zone.pagesets.iter_mut().for_each(|pageset| pageset.sizes = of_pageset);
    }
}

/// Another machine, all of whose memory is free.
fn elsewhere(
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
