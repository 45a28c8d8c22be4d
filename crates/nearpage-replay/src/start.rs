//! The start state of a replay: what `before` says of the machine.

use nearpage::frame::Migratetype;
use nearpage::model::Model;
use nearpage::pcp::sizes::{Sizes, ZoneShare};
use nearpage::topology::{AddressMap, NodeBuf, TopologyBuf};
use nearpage::units::{CpuId, NodeId, ORDERS, PageCount, PfnRange, ZoneKind};
use nearpage::watermark::{Marks, Settings};
use nearpage_machine::sysfs::TextFile;
use nearpage_machine::sysfs::zoneinfo::{PagesetRecord, ZoneRecord};

use super::error::ReplayError;
use super::layout::Blocks;
use super::source::Bundle;
use super::zones::ZoneMap;
use nearpage_bundle::{Capture, RecordedMachine, parse_buddyinfo, parse_pagetypeinfo};
use nearpage_machine::plan::settings_of;

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
    /// Each CPU's share of the last-level cache, in pages, as far as it is told.
    pub cache_slices: Vec<(CpuId, PageCount)>,
}

/// A zone at the moment of `before`.
#[derive(Clone, Debug)]
pub struct StartZone {
    /// Its node.
    pub node: NodeId,
    /// Its kind.
    pub kind: ZoneKind,
    /// Pages that its allocator was given.
    pub managed: PageCount,
    /// Whether all of them are free: a machine that was made up.
    pub is_all_free: bool,
    /// Watermarks.
    pub marks: Marks,
    /// Pages kept from requests by the highest kind of zone that they may use.
    pub reserve: [PageCount; ZoneKind::COUNT],
    /// Free blocks.
    pub free: Blocks,
    /// Pageblocks by type.
    pub pageblocks: [u64; Migratetype::COUNT],
    /// Each CPU's pageset.
    pub pagesets: Vec<StartPageset>,
}

/// A pageset at the moment of `before`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StartPageset {
    /// Whose it is.
    pub cpu: CpuId,
    /// Pages in it.
    pub count: PageCount,
    /// The limit, as printed.
    pub high: PageCount,
    /// Batch and bounds.
    pub sizes: Sizes,
}

impl StartZone {
    /// `node 0 zone DMA32`.
    pub fn name(&self) -> String {
        format!("node {} zone {}", self.node, self.kind.name())
    }

    /// A CPU's pageset.
    pub fn pageset(&self, cpu: CpuId) -> Option<&StartPageset> {
        self.pagesets.iter().find(|pageset| pageset.cpu == cpu)
    }

    /// Free pages.
    pub fn free_pages(&self) -> u64 {
        let pages = |blocks: &[u64; ORDERS]| -> u64 {
            blocks.iter().enumerate().map(|(order, count)| count << order).sum()
        };
        self.free.iter().map(pages).sum()
    }
}

impl Start {
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
        for record in &records {
            zones.push(zone(input, &machine, record, &free, page_shift)?);
        }
        if zones.is_empty() {
            let what = "no zone with memory".into();
            return Err(incomplete(input, what, "zones in before/zoneinfo"));
        }
        let topology = topology(input, &machine, &zones, &records, &map)?;
        let boost_factor = boost_factor(capture).unwrap_or(DEFAULT_BOOST_FACTOR);
        let cache_slices = cache_slices(&machine, page_shift);
        Ok(Start { model, topology, zones, map, page_shift, boost_factor, cache_slices })
    }
}

impl Start {
    /// The nodes in short form, with `cpus` CPUs dealt out over those that have any, and `times` as much memory.
    pub fn scaled_nodes(&self, cpus: u32, times: u32) -> Vec<String> {
        let nodes = &self.topology.nodes;
        let with_cpus = nodes.iter().filter(|node| !node.cpus.is_empty()).count().max(1) as u32;
        let (mut next, mut turn) = (0, 0);
        let node = |node: &NodeBuf| {
            let pages: u64 = node.memory.iter().map(|range| range.pages().0).sum();
            let kib = (pages << self.page_shift) / 1024 * u64::from(times);
            if node.cpus.is_empty() {
                return format!("{kib}K");
            }
            let count = cpus / with_cpus + u32::from(turn < cpus % with_cpus);
            turn += 1;
            let first = next;
            next += count;
            match count {
                0 => format!("{kib}K"),
                _ => format!("{kib}K,cpus={first}-{}", next - 1),
            }
        };
        nodes.iter().map(node).collect()
    }

    /// Distances in short form; nodes are numbered from 0.
    pub fn distances_in_short_form(&self) -> Vec<String> {
        let count = self.topology.nodes.len();
        let entry =
            |at: usize| format!("{},{}={}", at / count, at % count, self.topology.distances[at]);
        (0..count * count).filter(|at| at / count != at % count).map(entry).collect()
    }
}

/// More blocks than any zone has: what a text says beyond is damage, which the size of the zone shows.
const BLOCKS_MOST: u64 = 1 << 40;

/// `vm.watermark_boost_factor` where nobody set it. `mm/page_alloc.c: watermark_boost_factor`, 6.12.
const DEFAULT_BOOST_FACTOR: u32 = 15_000;

fn incomplete(input: &str, what: String, expected: &'static str) -> ReplayError {
    ReplayError::Incomplete { input: input.into(), what, expected }
}

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
        return Err(incomplete(input, format!("{name} has no watermarks"), "min, low and high"));
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
    let (node, (free, pageblocks)) = (record.node, free.of(input, record.node, kind)?);
    let is_all_free = false;
    let zone =
        StartZone { node, kind, managed, is_all_free, marks, reserve, free, pageblocks, pagesets };
    let spanned = record.spanned.unwrap_or(0);
    let in_pageblocks = zone.pageblocks.iter().sum::<u64>() * 512;
    // Pageblocks at its ends may reach out of a zone.
    if zone.free_pages() > spanned || in_pageblocks > spanned.saturating_add(2 * 512) {
        let what = format!(
            "{name} spans {spanned} pages, but has {} free ones and {in_pageblocks} in pageblocks",
            zone.free_pages()
        );
        return Err(incomplete(input, what, "captures of one machine"));
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
    Sizes::of(ZoneShare { managed, low, cpus }, fraction, page_shift)
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

/// The nodes with the memory of their zones: as many frames as are managed, from the bottom of each zone up.
fn topology(
    input: &str,
    machine: &RecordedMachine,
    zones: &[StartZone],
    records: &[&ZoneRecord],
    map: &ZoneMap,
) -> Result<TopologyBuf, ReplayError> {
    let mut nodes: Vec<NodeBuf> = Vec::new();
    for node in &machine.nodes {
        let mut buffer = NodeBuf { id: node.id, cpus: node.own_cpus.clone(), ..NodeBuf::default() };
        for (index, zone) in zones.iter().enumerate().filter(|(_, zone)| zone.node == node.id) {
            if zone.kind == ZoneKind::Movable {
                buffer.movable_from = records[index].start_pfn.map(nearpage::units::Pfn);
            }
            let memory = memory_of(zone, records[index], map.ranges(index));
            for range in &memory {
                check_place(input, zone, *range)?;
            }
            buffer.memory.extend(memory);
        }
        buffer.memory.sort_by_key(|range| range.start);
        nodes.push(buffer);
    }
    let distances = machine.machine.distances.clone();
    let topology = TopologyBuf { nodes, distances, address_map: AddressMap::X86 };
    topology.with(|_| ()).map_err(|error| ReplayError::Topology { input: input.into(), error })?;
    Ok(topology)
}

/// As many frames as the zone's pageblocks have, or as are present.
fn memory_of(
    zone: &StartZone,
    record: &ZoneRecord,
    ranges: impl Iterator<Item = PfnRange>,
) -> Vec<PfnRange> {
    let present = record.present.unwrap_or(0);
    let in_pageblocks: u64 = zone.pageblocks.iter().sum::<u64>() * 512;
    let mut left = present.max(in_pageblocks.min(record.spanned.unwrap_or(0)));
    let mut memory = Vec::new();
    for range in ranges {
        let pages = range.pages().0.min(left);
        left -= pages;
        if pages > 0 {
            memory.push(PfnRange::new(range.start.0, range.start.0 + pages));
        }
    }
    memory
}

/// The core divides addresses into zones as x86-64 does.
fn check_place(input: &str, zone: &StartZone, range: PfnRange) -> Result<(), ReplayError> {
    let limits = match zone.kind {
        ZoneKind::Dma => PfnRange::new(0, 1 << 12),
        ZoneKind::Dma32 => PfnRange::new(1 << 12, 1 << 20),
        ZoneKind::Normal => PfnRange::new(1 << 20, u64::MAX),
        ZoneKind::Movable | ZoneKind::Device => PfnRange::new(0, u64::MAX),
    };
    if range.intersection(limits) == range {
        return Ok(());
    }
    let what = format!("{} lies at frames {range}", zone.name());
    Err(incomplete(input, what, "zones where x86-64 has them: below 16 MiB, below 4 GiB, above"))
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

/// Free blocks and pageblocks of all zones.
struct FreeLists {
    free: Vec<(NodeId, ZoneKind, Blocks)>,
    pageblocks: Vec<(NodeId, ZoneKind, [u64; Migratetype::COUNT])>,
}

impl FreeLists {
    fn read(input: &str, capture: &Capture) -> Result<FreeLists, ReplayError> {
        let totals = require(input, capture, "proc/buddyinfo")?;
        let totals = parse_buddyinfo(&totals).map_err(nearpage_bundle::BundleError::from)?;
        let types = require(input, capture, "proc/pagetypeinfo")?;
        let types = parse_pagetypeinfo(&types).map_err(nearpage_bundle::BundleError::from)?;
        if types.pageblocks.is_empty() {
            let what = "before/pagetypeinfo tells of no pageblocks".into();
            return Err(incomplete(input, what, "/proc/pagetypeinfo as it is"));
        }
        let mut free = Vec::new();
        for zone in &totals {
            let mut blocks = Blocks::default();
            let of_zone = |node, kind| (node, kind) == (zone.node, zone.kind);
            for list in types.free.iter().filter(|list| of_zone(list.node, list.kind)) {
                let Some(migratetype) = by_name(&list.migratetype) else { continue };
                for (slot, &count) in blocks[migratetype.index()].iter_mut().zip(&list.blocks) {
                    *slot += count.min(BLOCKS_MOST);
                }
            }
            // The two texts are read one after the other, and the second one stops counting at 100000: the total
            // holds, and what differs is movable.
            for (order, &total) in zone.blocks.iter().enumerate().take(ORDERS) {
                settle(&mut blocks, order, total.min(BLOCKS_MOST));
            }
            free.push((zone.node, zone.kind, blocks));
        }
        let mut pageblocks = Vec::new();
        for zone in &types.pageblocks {
            let mut counts = [0; Migratetype::COUNT];
            for (name, count) in &zone.by_type {
                let of = by_name(name).unwrap_or(Migratetype::Movable);
                counts[of.index()] += (*count).min(BLOCKS_MOST);
            }
            pageblocks.push((zone.node, zone.kind, counts));
        }
        Ok(FreeLists { free, pageblocks })
    }

    fn of(
        &self,
        input: &str,
        node: NodeId,
        kind: ZoneKind,
    ) -> Result<(Blocks, [u64; Migratetype::COUNT]), ReplayError> {
        let blocks = self.free.iter().find(|entry| (entry.0, entry.1) == (node, kind));
        let Some((_, _, blocks)) = blocks else {
            let what = format!("node {node} zone {} has no free lists", kind.name());
            return Err(incomplete(input, what, "each populated zone in before/buddyinfo"));
        };
        let counts = self.pageblocks.iter().find(|entry| (entry.0, entry.1) == (node, kind));
        let Some((_, _, counts)) = counts else {
            let what = format!("node {node} zone {} has no pageblocks", kind.name());
            return Err(incomplete(input, what, "each populated zone in before/pagetypeinfo"));
        };
        Ok((*blocks, *counts))
    }
}

/// Free pages of each zone of `start` by the lists of a later capture; `None` if it has no lists, or not of all.
///
/// # Errors
///
/// The lists are damaged.
pub fn free_pages_after(
    capture: &Capture,
    start: &Start,
) -> Result<Option<Vec<u64>>, nearpage_bundle::BundleError> {
    let Ok(file) = require("", capture, "proc/buddyinfo") else { return Ok(None) };
    let zones = parse_buddyinfo(&file)?;
    let pages = |zone: &StartZone| {
        let found =
            zones.iter().find(|found| (found.node, found.kind) == (zone.node, zone.kind))?;
        Some(found.blocks.iter().enumerate().map(|(order, count)| count << order).sum())
    };
    Ok(start.zones.iter().map(pages).collect())
}

/// The settings of the recorded kernel, and Linux's defaults where `before` does not tell.
///
/// # Errors
///
/// `before` cannot be read.
pub fn settings(bundle: &Bundle, start: &Start) -> Result<Settings, ReplayError> {
    let machine = bundle.recording.capture(Some("before"))?.machine()?;
    let boost = start.boost_factor;
    Ok(Settings {
        watermark_boost_factor: boost,
        ..settings_of(&machine.machine.settings, start.model)
    })
}

/// Makes the blocks of an order `total` in all, by changing the movable ones first.
fn settle(blocks: &mut Blocks, order: usize, total: u64) {
    let sum: u64 = blocks.iter().map(|of| of[order]).sum();
    blocks[Migratetype::Movable.index()][order] += total.saturating_sub(sum);
    let mut excess = sum.saturating_sub(total);
    for migratetype in [1, 0, 2, 3, 4] {
        let less = excess.min(blocks[migratetype][order]);
        blocks[migratetype][order] -= less;
        excess -= less;
    }
}

fn by_name(name: &str) -> Option<Migratetype> {
    Migratetype::ALL.into_iter().find(|migratetype| migratetype.name() == name)
}

fn require(input: &str, capture: &Capture, path: &str) -> Result<TextFile, ReplayError> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let content = capture.tree.read(path).ok().flatten().filter(|content| !content.is_empty());
    let content = content.ok_or_else(|| {
        let what = format!("before/{name} is missing or empty");
        incomplete(input, what, "before/zoneinfo, before/buddyinfo and before/pagetypeinfo")
    })?;
    let text = String::from_utf8_lossy(&content).into_owned();
    Ok(TextFile { name: capture.tree.display(path), text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_hold_and_the_difference_is_movable() {
        let mut blocks = Blocks::default();
        (blocks[0][3], blocks[1][3]) = (5, 7);
        settle(&mut blocks, 3, 20);
        assert_eq!((blocks[0][3], blocks[1][3]), (5, 15));
        settle(&mut blocks, 3, 4);
        assert_eq!((blocks[0][3], blocks[1][3]), (4, 0));
    }
}
