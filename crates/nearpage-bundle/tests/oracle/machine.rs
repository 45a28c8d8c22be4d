//! The machine of a recording: nodes, CPUs, distances; zones with their sizes and marks.

use nearpage::rules::pagesets::Sizes;
use nearpage::{
    AddressMap, CpuId, Marks, NodeBuf, NodeId, PageCount, PfnRange, TopologyBuf, ZoneKind,
};
use nearpage_machine::idlist;

use super::fields::{Line, lines};
use super::layout::Layout;
use super::recordings::Recording;

/// A machine as it was recorded.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Nodes, ascending.
    pub nodes: Vec<Node>,
    /// Populated zones.
    pub zones: Vec<Zone>,
    /// `vm.watermark_boost_factor` during the experiments.
    pub boost_factor: u32,
}

/// A node.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its number.
    pub id: u32,
    /// Its CPUs.
    pub cpus: Vec<CpuId>,
    /// Distances to all nodes.
    pub distances: Vec<u8>,
}

/// A populated zone.
#[derive(Clone, Copy, Debug)]
pub struct Zone {
    /// Node and kind.
    pub name: ZoneName,
    /// From the first to the last frame, holes included.
    pub span: PfnRange,
    /// Free pages at the time.
    pub free: u64,
    /// Watermarks.
    pub marks: Marks,
    /// Pages kept from requests by the highest kind that they may use.
    pub reserve: [PageCount; ZoneKind::COUNT],
    /// Sizes of its pagesets.
    pub sizes: Sizes,
    /// Pages that a CPU may take or give back before it adds them to the zone's counter.
    pub stat_threshold: u64,
}

/// A zone's node and kind: `0:DMA32`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ZoneName {
    /// Number of the node.
    pub node: u32,
    /// The kind.
    pub kind: ZoneKind,
}

impl ZoneName {
    /// From fields `node=` and `zone=`.
    pub fn of(line: Line<'_>) -> Result<Self, String> {
        Ok(Self { node: line.number("node")? as u32, kind: kind(line.text("zone")?)? })
    }

    /// From `0:DMA32`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (node, zone) = text.split_once(':').ok_or_else(|| format!("{text:?} is no zone"))?;
        Ok(Self { node: Line(text).parse(node)? as u32, kind: kind(zone)? })
    }
}

fn kind(name: &str) -> Result<ZoneKind, String> {
    let found = ZoneKind::ALL.into_iter().find(|kind| kind.name() == name);
    found.ok_or_else(|| format!("{name:?} is no kind of zone"))
}

impl Machine {
    /// The machine of a recording: zones by the module's own account of them, which has the sizes of
    /// pagesets, or by the kernel's first text.
    pub fn of(recording: &Recording) -> Result<Self, String> {
        let zones = match (recording.module.get("info"), recording.captures.get("boot")) {
            (Some(info), _) => zones_of_info(info)?,
            (None, Some(capture)) => zones_of_zoneinfo(&capture.zoneinfo)?,
            (None, None) => return Err("no text of its zones".into()),
        };
        let info = recording.module.get("info").map_or("", String::as_str);
        let nodes = recording.nodes.iter().map(|(&id, files)| {
            let cpus = cpus_of_info(info, id)?.map_or_else(|| idlist::parse(&files.cpulist), Ok);
            let cpus = cpus.map_err(|error| format!("CPUs of node {id}: {error}"))?;
            let distances = files.distance.split_whitespace().map(|s| Line(s).parse(s));
            let distances =
                distances.map(|distance| Ok(distance? as u8)).collect::<Result<_, String>>()?;
            Ok(Node { id, cpus: cpus.into_iter().map(CpuId).collect(), distances })
        });
        let boost_factor = boost_factor(recording)?;
        Ok(Self { nodes: nodes.collect::<Result<_, String>>()?, zones, boost_factor })
    }

    /// A zone of the machine.
    pub fn zone(&self, name: ZoneName) -> Result<&Zone, String> {
        let zone = self.zones.iter().find(|zone| zone.name == name);
        zone.ok_or_else(|| format!("the machine has no zone {name:?}"))
    }

    /// The machine with only some memory of each zone.
    pub fn topology(&self, layout: impl Fn(&Zone) -> Layout) -> Result<TopologyBuf, String> {
        let node = |node: &Node| {
            let zones = || self.zones.iter().filter(|zone| zone.name.node == node.id);
            let mut memory = Vec::new();
            for zone in zones() {
                memory.extend(layout(zone).ranges(zone.span)?);
            }
            memory.sort_by_key(|range: &PfnRange| range.start);
            let movable = zones().find(|zone| zone.name.kind == ZoneKind::Movable);
            let movable_from = movable.map(|zone| zone.span.start);
            Ok(NodeBuf { id: NodeId(node.id), memory, cpus: node.cpus.clone(), movable_from })
        };
        Ok(TopologyBuf {
            nodes: self.nodes.iter().map(node).collect::<Result<_, String>>()?,
            distances: self.nodes.iter().flat_map(|node| node.distances.clone()).collect(),
            address_map: AddressMap::X86,
        })
    }
}

/// As it was after the experiments; 0 where it was not captured: the module asks for no boosts.
fn boost_factor(recording: &Recording) -> Result<u32, String> {
    let after = recording.captures.get("after_module");
    match after.and_then(|capture| capture.sysctl_vm.get("watermark_boost_factor")) {
        Some(factor) => factor.parse().map_err(|_| format!("watermark_boost_factor is {factor:?}")),
        None => Ok(0),
    }
}

/// CPUs of a node. The `cpulist` of nodes that the kernel only pretends to have (`numa=fake`) is no answer:
/// each has all CPUs.
fn cpus_of_info(info: &str, node: u32) -> Result<Option<Vec<u32>>, String> {
    let mut cpus = None;
    for line in lines(info).filter(|line| line.word() == "CPU") {
        let cpus = cpus.get_or_insert_with(Vec::new);
        if line.number("numa_node")? == u64::from(node) {
            cpus.push(line.number("cpu")? as u32);
        }
    }
    Ok(cpus)
}

fn zones_of_info(info: &str) -> Result<Vec<Zone>, String> {
    let is_populated = |line: &Line<'_>| line.word() == "ZONE" && line.find("present") != Some("0");
    let mut zones =
        lines(info).filter(is_populated).map(zone_of_info).collect::<Result<Vec<_>, _>>()?;
    for line in lines(info).filter(|line| line.word() == "PCP") {
        let (name, threshold) = (ZoneName::of(line)?, line.number("stat_threshold")?);
        for zone in zones.iter_mut().filter(|zone| zone.name == name) {
            zone.stat_threshold = zone.stat_threshold.max(threshold);
        }
    }
    Ok(zones)
}

fn zone_of_info(line: Line<'_>) -> Result<Zone, String> {
    let pages = |key| line.number(key).map(PageCount);
    let start = line.number("start")?;
    let reserve = line.numbers("reserve")?.into_iter().map(PageCount).collect::<Vec<_>>();
    // 6.1 has one size for both bounds, and no promo mark.
    let high =
        if line.find("pageset_high").is_some() { "pageset_high" } else { "pageset_high_min" };
    let high_max = if high == "pageset_high" { high } else { "pageset_high_max" };
    Ok(Zone {
        name: ZoneName::of(line)?,
        span: PfnRange::new(start, start + line.number("spanned")?),
        free: line.counter("free")?,
        marks: Marks {
            min: pages("min")?,
            low: pages("low")?,
            high: pages("high")?,
            promo: pages("promo").or_else(|_| pages("high"))?,
        },
        reserve: reserve.try_into().map_err(|_| format!("not five kinds of zones: {}", line.0))?,
        sizes: Sizes {
            batch: pages("pageset_batch")?,
            high_min: pages(high)?,
            high_max: pages(high_max)?,
        },
        stat_threshold: 0,
    })
}

/// The zones of `/proc/zoneinfo` that have memory: names and spans; the rest is left at nothing.
fn zones_of_zoneinfo(text: &str) -> Result<Vec<Zone>, String> {
    let mut zones = Vec::new();
    let (mut name, mut spanned, mut present) = (None, 0, 0);
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["Node", node, "zone", zone] => {
                let node = Line(line).parse(node.trim_end_matches(','))? as u32;
                // Device zones have no memory of their own.
                name = kind(zone).ok().map(|kind| ZoneName { node, kind });
            }
            ["spanned", pages] => spanned = Line(line).parse(pages)?,
            ["present", pages] => present = Line(line).parse(pages)?,
            ["start_pfn:", start] if present > 0 => {
                let start = Line(line).parse(start)?;
                let name = name.ok_or_else(|| format!("a zone without a name: {line}"))?;
                zones.push(bare_zone(name, PfnRange::new(start, start + spanned)));
            }
            _ => {}
        }
    }
    Ok(zones)
}

fn bare_zone(name: ZoneName, span: PfnRange) -> Zone {
    let (marks, reserve) = (Marks::default(), [PageCount(0); ZoneKind::COUNT]);
    let sizes = Sizes::default();
    Zone { name, span, free: 0, marks, reserve, sizes, stat_threshold: 0 }
}
