//! The machine as JSON. Keys only ever get more; a change of meaning gets a new `schema`.

use nearpage::rules::zonelists::ZoneRef;
use nearpage::{AddressMap, NodeIndex, PageCount};
use serde::{Serialize, Serializer};

use super::Report;
use nearpage_machine::plan::{Lists, Plan, PlannedNode, PlannedZone};
use nearpage_machine::topology::Addresses;

const SCHEMA: u32 = 1;

#[derive(Serialize)]
pub(super) struct Document<'a> {
    schema: u32,
    source: &'a str,
    model: &'a str,
    lists: &'a str,
    storage: String,
    binding: String,
    page_bytes: u64,
    address_map: &'a str,
    addresses: &'a str,
    settings: Settings,
    nodes: Nodes<'a>,
    distances: Vec<&'a [u8]>,
    warnings: &'a [String],
}

#[derive(Serialize)]
struct Settings {
    min_free_kbytes: u64,
    watermark_scale_factor: u32,
    lowmem_reserve_ratio: Vec<u32>,
    percpu_pagelist_high_fraction: u32,
    transparent_hugepage: bool,
}

/// Each node is made when it is written: a thousand of them have a million entries in their zonelists.
struct Nodes<'a>(&'a Report);

impl Serialize for Nodes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((0..self.0.plan.nodes.len()).map(|index| node(self.0, index)))
    }
}

#[derive(Serialize)]
struct Node {
    id: u32,
    cpus: Vec<u32>,
    memory_bytes: Option<u64>,
    free_bytes: Option<u64>,
    effective_node: Option<u32>,
    zones: Vec<Zone>,
    fallback: Vec<u32>,
    zonelist: Vec<ZoneName>,
    zonelist_this_node: Vec<ZoneName>,
}

#[derive(Serialize)]
struct Zone {
    name: &'static str,
    start_pfn: u64,
    spanned: u64,
    present: u64,
    managed: u64,
    watermarks: Watermarks,
    protection: Vec<u64>,
    pageset: Pageset,
    stat_threshold: u32,
}

#[derive(Serialize)]
struct Watermarks {
    min: u64,
    low: u64,
    high: u64,
    promo: u64,
}

#[derive(Serialize)]
struct Pageset {
    batch: u64,
    high_min: u64,
    high_max: u64,
}

/// An entry of a zonelist.
#[derive(Serialize)]
struct ZoneName {
    node: u32,
    zone: &'static str,
}

/// The whole document.
pub(super) fn document(report: &Report) -> Document<'_> {
    let Report { description, plan, storage, binding } = report;
    let machine = &description.machine;
    Document {
        schema: SCHEMA,
        source: &description.source,
        model: plan.model.name,
        lists: match plan.lists {
            Lists::Boot => "boot",
            Lists::Rebuilt => "rebuilt",
        },
        storage: storage.to_string(),
        binding: binding.clone(),
        page_bytes: machine.page_bytes,
        address_map: match description.topology.address_map {
            AddressMap::Flat => "flat",
            AddressMap::X86 => "x86",
        },
        addresses: match description.addresses {
            Addresses::Recorded => "recorded",
            Addresses::Assumed => "assumed",
        },
        settings: settings(plan),
        nodes: Nodes(report),
        distances: machine.distances.chunks(machine.nodes.len()).collect(),
        warnings: &description.warnings,
    }
}

fn settings(plan: &Plan) -> Settings {
    Settings {
        min_free_kbytes: plan.min_free_kbytes,
        watermark_scale_factor: plan.settings.watermark_scale_factor,
        lowmem_reserve_ratio: plan.settings.lowmem_reserve_ratio.to_vec(),
        percpu_pagelist_high_fraction: plan.settings.percpu_pagelist_high_fraction,
        transparent_hugepage: plan.settings.transparent_hugepage,
    }
}

fn node(report: &Report, index: usize) -> Node {
    let PlannedNode { id, cpus, zones, fallback, effective, zonelist, zonelist_this_node } =
        &report.plan.nodes[index];
    let machine = &report.description.machine.nodes[index];
    let id_of = |node: &NodeIndex| report.plan.nodes[node.0 as usize].id.0;
    let name = |zone: &ZoneRef| ZoneName { node: id_of(&zone.node), zone: zone.kind.name() };
    Node {
        id: id.0,
        cpus: cpus.iter().map(|cpu| cpu.0).collect(),
        memory_bytes: machine.memory_bytes,
        free_bytes: machine.free_bytes,
        effective_node: effective.as_ref().map(id_of),
        zones: zones.iter().filter(|zone| zone.is_populated()).map(zone).collect(),
        fallback: fallback.iter().map(id_of).collect(),
        zonelist: zonelist.iter().map(name).collect(),
        zonelist_this_node: zonelist_this_node.iter().map(name).collect(),
    }
}

fn zone(zone: &PlannedZone) -> Zone {
    let pages = |count: PageCount| count.0;
    Zone {
        name: zone.extent.kind.name(),
        start_pfn: zone.extent.start.0,
        spanned: pages(zone.extent.spanned),
        present: pages(zone.extent.present),
        managed: pages(zone.extent.managed),
        watermarks: Watermarks {
            min: pages(zone.marks.min),
            low: pages(zone.marks.low),
            high: pages(zone.marks.high),
            promo: pages(zone.marks.promo),
        },
        protection: zone.protection.map(pages).to_vec(),
        pageset: Pageset {
            batch: pages(zone.pageset.batch),
            high_min: pages(zone.pageset.high_min),
            high_max: pages(zone.pageset.high_max),
        },
        stat_threshold: zone.stat_threshold,
    }
}
