//! What follows from the machine, its sizes and its settings.

use std_alloc::collections::BTreeMap;
use std_alloc::vec;
use std_alloc::vec::Vec;

use super::pieces::pieces_for;
use super::refusals::Refusals;
use super::{HostCalls, NaiveAllocator, NaiveCpu, NaiveNode, NaivePageset, NaiveZone, Pageblocks};
use crate::alloc::{Config, Fallbacks, HotplugCounts, ScanCounts};
use crate::error::OnlineError;
use crate::model::{Model, PageblockOwners};
use crate::pcp::LISTS;
use crate::pcp::sizes::{Sizes, ZoneShare};
use crate::pcp::tuning::Tuning;
use crate::topology::{Topology, ZoneInstances};
use crate::units::{CpuId, NodeIndex, PageCount, PfnRange, ZoneKind};
use crate::watermark::SettingError;
use crate::watermark::{self, Settings, Watermarks, ZoneSize};
use crate::zonelist::CpuTerm;

/// Memory, ascending, with the number of its zone.
type Memory = Vec<(PfnRange, usize)>;

/// The zones that have memory, by node and kind, and the memory.
pub(super) fn zones_of(topology: &Topology<'_>, model: &Model) -> (Vec<NaiveZone>, Memory) {
    let (mut zones, mut memory) = (Vec::new(), Vec::new());
    for node in topology.indexes() {
        for kind in ZoneKind::ALL {
            let ranges: Vec<PfnRange> = topology.ranges(node, kind).collect();
            if ranges.is_empty() {
                continue;
            }
            let parts = match kind {
                ZoneKind::Normal => instances(topology.span(node, kind), &ranges, model),
                _ => vec![topology.span(node, kind)],
            };
            let cut = |part: PfnRange| ranges.iter().map(move |range| range.intersection(part));
            let has_memory = |part: &PfnRange| cut(*part).any(|range| !range.is_empty());
            let parts: Vec<PfnRange> = parts.into_iter().filter(has_memory).collect();
            for (at, &part) in parts.iter().enumerate() {
                let number = zones.len();
                let own = cut(part).filter(|range| !range.is_empty());
                memory.extend(own.map(|range| (range, number)));
                let mut zone = NaiveZone::new(node, kind, part, model);
                zone.place = (at, parts.len());
                zones.push(zone);
            }
        }
    }
    memory.sort();
    (zones, memory)
}

/// A Normal zone cut into as many parts as the model says: at whole blocks of the largest order.
fn instances(span: PfnRange, ranges: &[PfnRange], model: &Model) -> Vec<PfnRange> {
    let pages: u64 = ranges.iter().map(|range| range.end.0 - range.start.0).sum();
    let count = match model.zone_instances {
        ZoneInstances::Count(count) => u128::from(count.max(1)),
        ZoneInstances::OfPages(size) => u128::from((2 * pages + size.0) / (2 * size.0)).max(1),
    };
    let (start, length) = (span.start.0, u128::from(span.end.0 - span.start.0));
    let cut = |at: u128| match at {
        0 => start,
        at => ((start + (length * at / count) as u64).div_ceil(1024) * 1024).min(span.end.0),
    };
    (0..count)
        .map(|at| (cut(at), if at + 1 == count { span.end.0 } else { cut(at + 1) }))
        .map(|(start, end)| PfnRange::new(start, end))
        .collect()
}

/// The CPUs, their pagesets empty.
pub(super) fn cpus_of(
    topology: &Topology<'_>,
    zones: &[NaiveZone],
    owners: PageblockOwners,
) -> BTreeMap<CpuId, NaiveCpu> {
    let pageset = |cpu| NaivePageset {
        cpu,
        lists: vec![Default::default(); LISTS],
        pieces: pieces_for(owners),
        count: PageCount(0),
        tuning: Tuning::BOOT,
        refills: (0, 0),
        drains: (0, 0),
    };
    let cpu = |node, id| {
        let pagesets = zones.iter().map(|_| pageset(id)).collect();
        NaiveCpu { node, is_on: true, pagesets }
    };
    let of_node =
        |node: NodeIndex| topology.node(node).cpus.iter().map(move |&id| (id, cpu(node, id)));
    topology.indexes().flat_map(of_node).collect()
}

impl NaiveAllocator {
    /// A machine none of whose memory is online. `config` is one that an allocator accepts.
    pub fn new(topology: &Topology<'_>, config: Config) -> Self {
        let (zones, memory) = zones_of(topology, &config.model);
        let node = |node: &crate::topology::Node<'_>| NaiveNode {
            id: node.id,
            is_private: false,
            cpus: node.cpus.to_vec(),
            fallback: Vec::new(),
            own: Vec::new(),
            full: BTreeMap::new(),
            scans: ScanCounts::default(),
            fallbacks: BTreeMap::new(),
        };
        let pairs = topology.indexes().flat_map(|a| topology.indexes().map(move |b| (a, b)));
        Self {
            model: config.model,
            settings: Settings { movable_min: config.model.movable_min, ..config.settings },
            page_shift: config.page_shift,
            booted: false,
            nodes: topology.nodes().iter().map(node).collect(),
            distances: pairs.map(|(from, to)| topology.distance(from, to)).collect(),
            cpus: cpus_of(topology, &zones, config.model.owners),
            zones,
            pageblocks: Pageblocks::new(&memory),
            memory,
            node_memory: topology
                .nodes()
                .iter()
                .map(|node| node.memory.iter().map(|range| range.start).collect())
                .collect(),
            online: Vec::new(),
            limits: BTreeMap::new(),
            plugged: HotplugCounts::default(),
            all_fallbacks: Fallbacks::default(),
            calls: HostCalls::default(),
            now_ns: 0,
        }
    }

    /// Memory comes online.
    pub fn online(&mut self, range: PfnRange) -> Result<PageCount, OnlineError> {
        if range.is_empty() {
            return Err(OnlineError::Empty { range });
        }
        let parts: Memory = self
            .memory
            .iter()
            .map(|&(memory, zone)| (memory.intersection(range), zone))
            .filter(|(part, _)| !part.is_empty())
            .collect();
        if parts.iter().map(|(part, _)| part.pages().0).sum::<u64>() != range.pages().0 {
            return Err(OnlineError::NotInTopology { range });
        }
        if self.online.iter().any(|online| !online.intersection(range).is_empty()) {
            return Err(OnlineError::AlreadyOnline { range });
        }
        self.online.push(range);
        let zones_before = self.zones_with_memory();
        for (part, zone) in parts {
            self.zones[zone].online(part, &mut self.pageblocks);
        }
        self.resize();
        self.memory_changed(&zones_before);
        self.plugged.memory_onlines += 1;
        self.plugged.onlined_pages.0 += range.pages().0;
        Ok(range.pages())
    }

    /// Changes settings.
    pub fn set_settings(&mut self, settings: Settings) -> Result<(), SettingError> {
        settings.check()?;
        self.settings = Settings { movable_min: self.model.movable_min, ..settings };
        self.resize();
        Ok(())
    }

    /// The settings in force.
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// The `min_free_kbytes` in force.
    pub fn min_free_kbytes(&self) -> u64 {
        let sizes = self.sizes();
        watermark::boot_min_free_kbytes(sizes.into_iter(), &self.settings, self.page_shift)
    }

    /// Which zones have pages, by number.
    pub(super) fn zones_with_memory(&self) -> Vec<usize> {
        (0..self.zones.len()).filter(|&zone| self.zones[zone].managed.0 > 0).collect()
    }

    /// Linux builds zonelists when it boots, and again whenever a zone becomes populated or empty. This
    /// is a boot as long as nobody has asked a zone for pages.
    pub(super) fn memory_changed(&mut self, zones_before: &[usize]) {
        let is_in_use = self.zones.iter().any(|zone| zone.holds.acquisitions > 0);
        if is_in_use && self.zones_with_memory() != zones_before {
            self.booted = true;
        }
        self.build_zonelists();
    }

    /// Rebuilds zonelists at run time.
    pub fn rebuild_zonelists(&mut self) {
        self.booted = true;
        self.build_zonelists();
    }

    /// Says whether background reclaim works on a zone.
    pub fn set_reclaim_active(&mut self, zone: usize, active: bool) {
        self.zones[zone].view.reclaim_active = active;
    }

    /// Background reclaim has balanced a zone.
    pub fn lower_boost(&mut self, zone: usize, pages: PageCount) {
        let boost = &mut self.zones[zone].boost.0;
        *boost -= pages.0.min(*boost);
    }

    fn sizes(&self) -> Vec<ZoneSize> {
        let size = |zone: &NaiveZone| ZoneSize { kind: zone.kind, managed: zone.managed };
        self.zones.iter().map(size).collect()
    }

    /// Watermarks, reserves, sizes of pagesets.
    pub(super) fn resize(&mut self) {
        let sizes = self.sizes();
        let kbytes = self.min_free_kbytes();
        let watermarks =
            Watermarks::new(sizes.iter().copied(), kbytes, &self.settings, self.page_shift);
        let mut managed = vec![[PageCount(0); ZoneKind::COUNT]; self.nodes.len()];
        for zone in &self.zones {
            managed[zone.node.0 as usize][zone.kind.index()].0 += zone.managed.0;
        }
        for (number, zone) in self.zones.iter_mut().enumerate() {
            let node = zone.node.0 as usize;
            zone.raw_marks = watermarks.marks(sizes[number]);
            zone.boost = PageCount(0);
            zone.boost_factor = self.settings.watermark_boost_factor;
            zone.reserve = watermark::lowmem_reserve(zone.kind, &managed[node], &self.settings);
        }
        self.resize_pagesets();
    }

    pub(super) fn resize_pagesets(&mut self) {
        let sizes: Vec<Sizes> = self.zones.iter().map(|zone| self.sizes_of(zone)).collect();
        let budget = self.settings.pageset_budget(self.page_shift);
        let most = |sizes: &Sizes| sizes.high_max.0 + 14 * sizes.batch.0;
        let cpus_on = self.cpus.values().filter(|cpu| cpu.is_on).count() as u64;
        let wanted = cpus_on * sizes.iter().map(most).sum::<u64>();
        for cpu in self.cpus.values_mut() {
            for (pageset, sizes) in cpu.pagesets.iter_mut().zip(&sizes) {
                let mut part = *sizes;
                if let Some(budget) = budget {
                    part = sizes.within(budget, PageCount(wanted));
                }
                let Sizes { high_min, high_max, batch } = part;
                pageset.tuning.resize(&self.model.pcp, high_min, high_max, batch);
                if budget.is_some() {
                    pageset.tuning.apply_bounds();
                }
            }
        }
    }

    fn sizes_of(&self, zone: &NaiveZone) -> Sizes {
        let near = self.cpus_on_node(zone.node.0 as usize);
        let all = self.cpus.values().filter(|cpu| cpu.is_on).count();
        let cpus = if near > 0 { near } else { all } as u32;
        let share = ZoneShare { managed: zone.managed, low: zone.marks().low, cpus };
        let fraction = self.settings.percpu_pagelist_high_fraction;
        Sizes::new(share, fraction, self.page_shift)
    }

    /// All zonelists: for each node, ascending, the node with the best score again and again.
    pub(super) fn build_zonelists(&mut self) {
        let mut loads = vec![0; self.nodes.len()];
        for local in 0..self.nodes.len() {
            let order = self.node_order(local, &mut loads);
            self.nodes[local].fallback =
                order.into_iter().flat_map(|node| self.populated_zones(node)).collect();
            self.nodes[local].own = self.populated_zones(local);
            self.nodes[local].full.values_mut().for_each(Refusals::forget);
        }
        self.choose_who_avoids_fragmentation();
    }

    /// Who prefers a Normal zone avoids to mix pageblocks if there is only this node, or if the node has a
    /// DMA32 zone too.
    fn choose_who_avoids_fragmentation(&mut self) {
        let is_online =
            |node: &usize| !self.populated_zones(*node).is_empty() || self.cpus_on_node(*node) > 0;
        let online = (0..self.nodes.len()).filter(is_online).count();
        for number in 0..self.zones.len() {
            let kinds = self.populated_zones(self.zones[number].node.0 as usize);
            let has_dma32 = kinds.iter().any(|&zone| self.zones[zone].kind == ZoneKind::Dma32);
            self.zones[number].avoids_fragmentation =
                self.zones[number].kind == ZoneKind::Normal && (online == 1 || has_dma32);
        }
    }

    fn node_order(&self, local: usize, loads: &mut [u64]) -> Vec<usize> {
        let mut left: Vec<usize> =
            (0..self.nodes.len()).filter(|&node| !self.populated_zones(node).is_empty()).collect();
        let (mut order, mut previous) = (Vec::new(), local);
        while let Some(pick) = self.best_of(&left, local, loads) {
            left.retain(|&node| node != pick);
            if self.distance(local, pick) != self.distance(local, previous) {
                loads[pick] += 1;
            }
            order.push(pick);
            previous = pick;
        }
        order
    }

    /// The local node if it is left, or the first of those with the lowest score.
    fn best_of(&self, left: &[usize], local: usize, loads: &[u64]) -> Option<usize> {
        /// Outweighs any load.
        const WEIGHT: u64 = 1 << 20;
        if left.contains(&local) {
            return Some(local);
        }
        let cpus_count = self.booted || self.model.cpu_term_at_boot == CpuTerm::Counted;
        let score = |&node: &usize| {
            let has_cpus = cpus_count && self.cpus_on_node(node) > 0;
            let terms = u64::from(node < local) + u64::from(has_cpus);
            (self.distance(local, node) + terms) * WEIGHT + loads[node]
        };
        left.iter().copied().min_by_key(score)
    }

    fn distance(&self, from: usize, to: usize) -> u64 {
        u64::from(self.distances[from * self.nodes.len() + to])
    }

    /// With which instance of a zone a CPU begins, before it is known how many the zone has.
    pub(super) fn turn_of(&self, cpu: CpuId) -> usize {
        let most = self.zones.iter().map(|zone| zone.place.1).max().unwrap_or(1);
        if self.cpus.contains_key(&cpu) { cpu.0 as usize % most } else { 0 }
    }

    /// A list of zones as a CPU walks it: the instances of a zone from its own on.
    pub(super) fn turned(&self, list: &[usize], cpu: CpuId) -> Vec<usize> {
        let (mut list, turn) = (list.to_vec(), self.turn_of(cpu));
        let key = |zone: usize| (self.zones[zone].node, self.zones[zone].kind);
        for instances in list.chunk_by_mut(|&one, &other| key(one) == key(other)) {
            instances.sort_by_key(|&zone| {
                let (at, count) = self.zones[zone].place;
                (at + count - turn % count) % count
            });
        }
        list
    }

    /// The zones of a node that have memory online, highest kind first.
    fn populated_zones(&self, node: usize) -> Vec<usize> {
        let is_its = |zone: &NaiveZone| zone.node.0 as usize == node && zone.managed.0 > 0;
        (0..self.zones.len()).rev().filter(|&number| is_its(&self.zones[number])).collect()
    }
}
