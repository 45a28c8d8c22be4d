//! A machine and its plan as a document for programs. New keys may be added; a change of meaning gets a new `schema`.

use nearpage::rules::zonelists::ZoneRef;
use nearpage::{AddressMap, NodeIndex, PageCount};
use serde::{Serialize, Serializer};

use crate::input::{Addresses, MachineDescription};
use crate::plan::{Lists, Plan, PlannedNode, PlannedZone};

const SCHEMA: u32 = 1;

/// A machine and what an allocator makes of it, to be serialized. Counts are of pages unless a name says otherwise.
#[derive(Debug, Serialize)]
pub struct MachineDocument<'a> {
    schema: u32,
    source: &'a str,
    model: &'a str,
    lists: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    storage: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    binding: Option<String>,
    page_bytes: u64,
    address_map: &'a str,
    addresses: &'a str,
    settings: Settings,
    nodes: Nodes<'a>,
    distances: Vec<&'a [u8]>,
    warnings: &'a [String],
}

#[derive(Debug, Serialize)]
struct Settings {
    min_free_kbytes: u64,
    watermark_scale_factor: u32,
    lowmem_reserve_ratio: Vec<u32>,
    percpu_pagelist_high_fraction: u32,
    transparent_hugepage: bool,
}

/// Makes each node when it is written: the zonelists of a thousand nodes have a million entries.
#[derive(Debug)]
struct Nodes<'a> {
    description: &'a MachineDescription,
    plan: &'a Plan,
}

impl Serialize for Nodes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((0..self.plan.nodes.len()).map(|index| self.node(index)))
    }
}

#[derive(Debug, Serialize)]
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

#[derive(Debug, Serialize)]
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

#[derive(Debug, Serialize)]
struct Watermarks {
    min: u64,
    low: u64,
    high: u64,
    promo: u64,
}

#[derive(Debug, Serialize)]
struct Pageset {
    batch: u64,
    high_min: u64,
    high_max: u64,
}

/// An entry of a zonelist.
#[derive(Debug, Serialize)]
struct ZoneName {
    node: u32,
    zone: &'static str,
}

impl<'a> MachineDocument<'a> {
    /// The document of a described machine and its plan.
    pub fn new(description: &'a MachineDescription, plan: &'a Plan) -> MachineDocument<'a> {
        let machine = &description.machine;
        MachineDocument {
            schema: SCHEMA,
            source: &description.source,
            model: plan.model.name,
            lists: match plan.lists {
                Lists::Boot => "boot",
                Lists::Rebuilt => "rebuilt",
            },
            storage: None,
            binding: None,
            page_bytes: machine.page_bytes,
            address_map: match description.topology.address_map {
                AddressMap::Flat => "flat",
                AddressMap::X86 => "x86",
                AddressMap::Divided { .. } => "divided",
            },
            addresses: match description.addresses {
                Addresses::Recorded => "recorded",
                Addresses::Assumed => "assumed",
            },
            settings: settings(plan),
            nodes: Nodes { description, plan },
            distances: machine.distances.chunks(machine.nodes.len()).collect(),
            warnings: &description.warnings,
        }
    }

    /// Adds which storage of pagesets a process uses there, and how it binds memory.
    pub fn in_process(self, storage: impl ToString, binding: impl ToString) -> MachineDocument<'a> {
        let (storage, binding) = (Some(storage.to_string()), Some(binding.to_string()));
        MachineDocument { storage, binding, ..self }
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

impl Nodes<'_> {
    fn node(&self, index: usize) -> Node {
        let PlannedNode { id, cpus, zones, fallback, effective, zonelist, zonelist_this_node } =
            &self.plan.nodes[index];
        let machine = &self.description.machine.nodes[index];
        let id_of = |node: &NodeIndex| self.plan.nodes[node.0 as usize].id.0;
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
