//! The sizes of a described machine: its zones where they were recorded, else those of its topology.

use nearpage::rules::watermarks::{HUGEPAGE_BYTES_MIN, HugePages};
use nearpage::{Model, NodeIndex, PageCount, PfnRange, Settings, Topology, ZoneKind};

use super::sizes::{Extent, NodeSizes, Sizes};
use crate::input::MachineDescription;
use crate::machine::KernelSettings;

pub(super) fn sizes(description: &MachineDescription, model: Model) -> Sizes {
    let nodes: Vec<NodeSizes> = description
        .topology
        .with(|topology| {
            let topology = &topology.with_instances(model.zone_instances);
            topology.indexes().map(|node| sizes_of(description, topology, node)).collect()
        })
        .expect("a description's topology is valid");
    let (settings, huge_pages) = settings(description, model, &nodes);
    let mut cpus: Vec<_> = nodes.iter().flat_map(|node| node.cpus.iter().copied()).collect();
    cpus.sort_unstable();
    Sizes {
        cpus,
        settings,
        huge_pages,
        has_reclaimed: true,
        distances: description.machine.distances.clone(),
        page_shift: description.machine.page_bytes.trailing_zeros(),
        nodes,
    }
}

fn sizes_of(
    description: &MachineDescription,
    topology: &Topology<'_>,
    index: NodeIndex,
) -> NodeSizes {
    let node = topology.node(index);
    let recorded = &description.machine.nodes[index.0 as usize].zones;
    let whole = |kind| match recorded.iter().find(|zone| zone.kind == kind) {
        Some(zone) => Extent {
            start: zone.start,
            spanned: zone.spanned,
            present: zone.present,
            managed: zone.managed,
            ..Extent::empty(kind)
        },
        None => {
            let span = topology.span(index, kind);
            let present = topology.present(index, kind);
            let (start, spanned) = (span.start, span.pages());
            Extent { start, spanned, present, managed: present, ..Extent::empty(kind) }
        }
    };
    let extents = |kind| {
        let spans: Vec<PfnRange> = topology.zone_spans(index, kind).collect();
        if spans.len() < 2 {
            return vec![whole(kind)];
        }
        let part = |span: &PfnRange| part(&whole(kind), *span, topology.ranges_in(index, *span));
        spans.iter().map(part).collect()
    };
    let zones = ZoneKind::ALL.into_iter().flat_map(extents).collect();
    NodeSizes { id: node.id, cpus: node.cpus.to_vec(), zones }
}

/// An instance of a zone: as much of its pages is managed as of the whole zone.
fn part(whole: &Extent, span: PfnRange, ranges: impl Iterator<Item = PfnRange>) -> Extent {
    let present: PageCount = ranges.map(PfnRange::pages).sum();
    let share = u128::from(present.0) * u128::from(whole.managed.0);
    let managed = PageCount((share / u128::from(whole.present.0.max(1))) as u64);
    Extent { start: span.start, spanned: span.pages(), present, managed, ..*whole }
}

/// The machine's settings, and Linux's defaults where they are unknown.
fn settings(
    description: &MachineDescription,
    model: Model,
    nodes: &[NodeSizes],
) -> (Settings, HugePages) {
    let known = &description.machine.settings;
    let pages = nodes.iter().flat_map(|node| &node.zones).map(|zone| zone.managed.0).sum();
    // The sum is of addressable memory: it fits.
    let bytes = PageCount(pages).to_bytes(description.machine.page_bytes.trailing_zeros());
    let huge_pages = huge_pages(known.transparent_hugepages, bytes);
    let settings = settings_of(known, model);
    (
        settings.with(|changed| changed.transparent_hugepage = huge_pages == HugePages::Enabled),
        huge_pages,
    )
}

/// Whether a machine with this much memory has huge pages. An unknown setting is taken as `always`.
pub fn huge_pages(setting: Option<bool>, bytes: u64) -> HugePages {
    match setting {
        // A small machine has them off after boot, and they may have been enabled since.
        Some(true) => HugePages::Enabled,
        _ if bytes < HUGEPAGE_BYTES_MIN => HugePages::Unavailable,
        Some(false) => HugePages::Disabled,
        None => HugePages::Enabled,
    }
}

/// Settings that do not depend on sizes.
pub fn settings_of(known: &KernelSettings, model: Model) -> Settings {
    let defaults = Settings::default();
    // A kernel that is built without a kind of zone lacks its ratio, and a shorter list does not say which.
    let ratios =
        known.lowmem_reserve_ratio.as_ref().and_then(|list| list.as_slice().try_into().ok());
    defaults.with(|changed| {
        changed.min_free_kbytes = known.min_free_kbytes;
        changed.watermark_scale_factor =
            known.watermark_scale_factor.unwrap_or(defaults.watermark_scale_factor);
        changed.lowmem_reserve_ratio = ratios.unwrap_or(defaults.lowmem_reserve_ratio);
        changed.percpu_pagelist_high_fraction = known.percpu_pagelist_high_fraction.unwrap_or(0);
        changed.movable_min = model.movable_min;
    })
}
