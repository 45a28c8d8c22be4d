//! What the captures and the samples say of the kernel.

use nearpage_machine::sysfs::zoneinfo::{PagesetRecord, ZoneRecord};
use serde::Serialize;

use crate::bundle::Bundle;
use crate::error::ReplayError;
use crate::layout::Blocks;
use crate::outcome::PagesetAt;
use crate::samples::Sample;
use crate::start::{Start, StartZone, free_lists, free_pages};

/// The zones before and after, and at each sample.
#[derive(Debug)]
pub(crate) struct Truth {
    /// The zones of `before`.
    before: Vec<ZoneRecord>,
    /// Those of `after`, if there is an `after` that the trace reaches.
    pub(crate) after: Option<Vec<ZoneRecord>>,
    /// Free pages by the lists of `after`, in the order of the start's zones.
    pub(crate) free_after: Option<Vec<u64>>,
    /// The lists themselves, if `after` tells their types.
    pub(crate) free_lists_after: Option<Vec<Blocks>>,
    /// The samples.
    pub(crate) samples: Vec<Sample>,
}

/// A zone whose memory was not the same before and after: memory came or went, which no event of a trace tells.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct ChangedZone {
    /// `node N zone Z`.
    #[serde(rename = "where")]
    pub place: String,
    /// Pages that its allocator had before; 0 if there was no such zone.
    pub managed_before: u64,
    /// Pages that it has after.
    pub managed_after: u64,
}

impl Truth {
    /// Reads the captures of a bundle; `has_end` says whether the trace reaches `after`.
    ///
    /// # Errors
    ///
    /// A capture is damaged.
    pub(crate) fn read(
        bundle: &Bundle,
        start: &Start,
        samples: Vec<Sample>,
        has_end: bool,
    ) -> Result<Truth, ReplayError> {
        let recording = bundle.recording();
        let before = recording.capture(Some("before"))?.machine()?.zones;
        let after = recording.capture(Some("after")).ok().filter(|_| has_end);
        let zones = start.zones.iter().map(|zone| (zone.node, zone.kind));
        let free_lists_after = after.and_then(|after| free_lists(after, zones.clone()));
        let free_after = after.map(|after| free_pages(after, zones)).transpose()?.flatten();
        let after = after.map(|after| after.machine()).transpose()?.map(|machine| machine.zones);
        Ok(Truth { before, after, free_after, free_lists_after, samples })
    }

    /// Allocations between `before` and `after`, as the kernel counted them.
    pub(crate) fn allocs(&self) -> Option<u64> {
        let count = |zones: &[ZoneRecord]| -> Option<u64> {
            zones
                .iter()
                .filter(|zone| zone.is_populated())
                .map(|zone| Some(zone.numa_hit? + zone.numa_miss?))
                .sum()
        };
        Some(count(self.after.as_ref()?)?.saturating_sub(count(&self.before)?))
    }

    /// A pageset at a sample, or at the end.
    pub(crate) fn pageset(
        &self,
        start: &Start,
        sample: Option<u32>,
        of: &PagesetAt,
    ) -> Option<&PagesetRecord> {
        let zones = match sample {
            Some(number) => &*self.samples.iter().find(|sample| sample.number == number)?.zones,
            None => self.after.as_deref()?,
        };
        let zone = find(zones, &start.zones[of.zone])?;
        zone.pagesets.iter().find(|pageset| pageset.cpu == of.cpu)
    }

    /// By how much `numa_hit`, `numa_miss` and `numa_foreign` of a zone changed.
    pub(crate) fn numa_changes(&self, zone: &StartZone) -> [Option<u64>; 3] {
        let counters = |zones| {
            let zone = find(zones, zone)?;
            Some([zone.numa_hit, zone.numa_miss, zone.numa_foreign])
        };
        let before = counters(&self.before);
        let after = self.after.as_deref().and_then(counters);
        let change = |at: usize| Some(after?[at]?.saturating_sub(before?[at]?));
        [0, 1, 2].map(change)
    }

    /// Whether nothing tells the zones after the trace.
    pub(crate) fn lacks_after(&self) -> bool {
        self.after.as_ref().is_none_or(Vec::is_empty)
    }

    /// Zones that grew, shrank, came or went.
    pub(crate) fn changed_zones(&self) -> Vec<ChangedZone> {
        let Some(after) = self.after.as_ref().filter(|zones| !zones.is_empty()) else {
            return Vec::new();
        };
        let managed = |zones: &[ZoneRecord], wanted: &ZoneRecord| {
            let is_it = |zone: &&ZoneRecord| (zone.node, zone.kind) == (wanted.node, wanted.kind);
            zones.iter().find(is_it).and_then(|zone| zone.managed).unwrap_or(0)
        };
        let is_new = |zone: &&ZoneRecord| {
            !self.before.iter().any(|known| (known.node, known.kind) == (zone.node, zone.kind))
        };
        let all = self.before.iter().chain(after.iter().filter(is_new));
        let changes = all.filter_map(|zone| {
            let (before, after) = (managed(&self.before, zone), managed(after, zone));
            let kind = zone.kind.map_or("?", |kind| kind.name());
            let place = format!("node {} zone {kind}", zone.node);
            let changed = ChangedZone { place, managed_before: before, managed_after: after };
            (before != after).then_some(changed)
        });
        changes.collect()
    }
}

/// The record of a zone.
pub(crate) fn find<'z>(zones: &'z [ZoneRecord], wanted: &StartZone) -> Option<&'z ZoneRecord> {
    zones.iter().find(|record| (record.node, record.kind) == (wanted.node, Some(wanted.kind)))
}
