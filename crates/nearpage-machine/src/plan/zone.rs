//! The rules for one zone: watermarks, reserves, sizes of pagesets, counter thresholds.

use nearpage::rules::pagesets::{Sizes as PagesetSizes, ZoneShare};
use nearpage::rules::watermarks::Watermarks;
use nearpage::rules::{pagesets, watermarks};
use nearpage::{Marks, Model, PageCount, ZoneKind};

use super::sizes::{Extent, NodeSizes, Sizes};

/// A zone of a plan: its sizes, and what the rules compute from them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlannedZone {
    /// Its addresses and pages.
    pub extent: Extent,
    /// Watermarks, without the boost.
    pub marks: Marks,
    /// Pages that it keeps from requests, by the highest kind of zone that a request may use.
    pub protection: [PageCount; ZoneKind::COUNT],
    /// Sizes of every CPU's pageset.
    pub pageset: PagesetSizes,
    /// How far a CPU's counters may lag behind.
    pub stat_threshold: u32,
}

impl PlannedZone {
    /// Whether the zone has memory.
    pub fn is_populated(&self) -> bool {
        self.extent.present > PageCount(0)
    }
}

/// The part of the rules that all zones of a machine share.
pub(super) struct Rules<'a> {
    sizes: &'a Sizes,
    model: &'a Model,
    /// `vm.min_free_kbytes` as written, or as boot leaves it.
    pub(super) min_free_kbytes: u64,
    watermarks: Watermarks,
}

impl<'a> Rules<'a> {
    pub(super) fn new(sizes: &'a Sizes, model: &'a Model) -> Self {
        let written = sizes.settings.min_free_kbytes;
        let min_free_kbytes = written.unwrap_or_else(|| sizes.boot_min_free().kbytes);
        let zones = sizes.zones().map(Extent::size);
        let watermarks = Watermarks::new(zones, min_free_kbytes, &sizes.settings, sizes.page_shift);
        Self { sizes, model, min_free_kbytes, watermarks }
    }

    pub(super) fn zone(&self, zone: &Extent, node: &NodeSizes) -> PlannedZone {
        let marks = self.watermarks.marks(zone.size());
        let mut managed = [PageCount(0); ZoneKind::COUNT];
        for other in &node.zones {
            managed[other.kind.index()] += other.managed;
        }
        let cpus_online = self.sizes.cpus.len() as u32;
        let counted = match self.sizes.has_reclaimed {
            true => zone.managed,
            false => zone.size_at_boot().managed,
        };
        PlannedZone {
            extent: *zone,
            marks,
            protection: watermarks::lowmem_reserve(zone.kind, &managed, &self.sizes.settings),
            pageset: self.pageset(zone, marks, node.cpus.len() as u32),
            stat_threshold: pagesets::stat_threshold(counted, cpus_online, self.sizes.page_shift),
        }
    }

    fn pageset(&self, zone: &Extent, marks: Marks, cpus_of_node: u32) -> PagesetSizes {
        let cpus = if cpus_of_node == 0 { self.sizes.cpus.len() as u32 } else { cpus_of_node };
        // Marks and pagesets are computed together, at a moment when no zone is boosted.
        let share = ZoneShare { managed: zone.managed, low: marks.low, cpus };
        let fraction = self.sizes.settings.percpu_pagelist_high_fraction;
        let sizes = PagesetSizes::new(share, fraction, self.sizes.page_shift);
        // Before the tuning of 6.7 the limit is fixed.
        let high_max = if self.model.pcp.tunes_high { sizes.high_max } else { sizes.high_min };
        PagesetSizes { high_max, ..sizes }
    }
}
