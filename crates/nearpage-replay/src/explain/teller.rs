//! An event and what it changed, in words.

use nearpage::{CpuId, Migratetype, Order, PageCount, Pfn, Reason};
use nearpage_trace::{Event, TraceEvent};

use super::scene::Scene;
use crate::start::Start;

/// Tells what an event of a CPU did.
pub(super) struct Teller<'a> {
    pub(super) start: &'a Start,
    pub(super) cpu: CpuId,
}

impl Teller<'_> {
    fn zone(&self, zone: Option<usize>) -> String {
        zone.map_or("no zone".into(), |zone| self.start.zones[zone].name())
    }

    pub(super) fn heading(&self, event: &TraceEvent<'_>) -> String {
        let what = match event.event {
            Event::Alloc { pfn: Some(pfn), order, migratetype, .. } => {
                let of = Migratetype::ALL.get(usize::from(migratetype)).map_or("", |of| of.name());
                format!("allocates {} ({of})", block(pfn, order))
            }
            Event::Free { pfn, order } => format!("frees {}", block(pfn, order)),
            Event::BulkDone { got, .. } => format!("allocates {got} pages in bulk"),
            Event::Marker(text) => format!("marker: {}", String::from_utf8_lossy(text)),
            _ => "other".into(),
        };
        format!("{}: {what}", who(event))
    }

    pub(super) fn alloc(&self, pfn: Pfn, before: &Scene, after: &Scene, lines: &mut Vec<String>) {
        let recorded = self.zone(self.start.map.zone_of(pfn));
        if after.refused > before.refused {
            lines.push(format!(
                "    recorded: {recorded}; model: refused, no zone passes its mark [get_page_from_freelist]"
            ));
            return;
        }
        let reason = Reason::ALL
            .into_iter()
            .find(|&reason| after.reasons.pages(reason) > before.reasons.pages(reason));
        let why = match reason {
            Some(reason) => format!("not the nearest zone, because of: {}", reason.name()),
            None => "the nearest zone that is allowed".into(),
        };
        lines.push(format!(
            "    recorded: {recorded}; model: {}, {why} [get_page_from_freelist]",
            self.zone(after.block)
        ));
        self.changes(before, after, "nr_pcp_alloc", lines);
        if let Some(zone) = after.block.filter(|&zone| is_quiet(before, after, zone)) {
            lines.push(self.without_trip(zone, before, after, "rmqueue"));
        }
    }

    pub(super) fn free(
        &self,
        order: Order,
        before: &Scene,
        after: &Scene,
        lines: &mut Vec<String>,
    ) {
        match before.block {
            Some(zone) => {
                lines.push(format!("    model: it stands for a block of {}", self.zone(Some(zone))))
            }
            None => lines.push(format!(
                "    model: a block of order {} that was allocated before the window stands for it",
                order.0
            )),
        }
        self.changes(before, after, "nr_pcp_high, nr_pcp_free", lines);
        if let Some(zone) = before.block.filter(|&zone| is_quiet(before, after, zone)) {
            lines.push(self.without_trip(zone, before, after, "free_unref_page"));
        }
    }

    /// What happened without a trip of the pageset to its zone.
    fn without_trip(&self, zone: usize, before: &Scene, after: &Scene, rule: &str) -> String {
        let (Some(was), Some(is)) = (before.zones.get(zone), after.zones.get(zone)) else {
            return String::new();
        };
        if was.count == is.count {
            let free = is.free;
            return format!("    past the pageset, free pages of the zone {free} [{rule}_buddy]");
        }
        format!(
            "    by the pageset alone: {} -> {} pages, limit {} [{rule}]",
            was.count, is.count, is.high
        )
    }

    /// The once-a-second work of the CPU, if it was due.
    pub(super) fn turn(&self, before: &Scene, after: &Scene, lines: &mut Vec<String>) {
        let first = lines.len();
        self.changes(before, after, "decay_pcp_high", lines);
        if lines.len() > first {
            let title = format!("cpu {}: once-a-second work [refresh_cpu_vm_stats]", self.cpu);
            lines.insert(first, title);
        }
    }

    /// Trips of pagesets to their zones, moved limits and marks that were crossed.
    pub(super) fn changes(
        &self,
        before: &Scene,
        after: &Scene,
        rule: &str,
        lines: &mut Vec<String>,
    ) {
        for (index, (was, is)) in before.zones.iter().zip(&after.zones).enumerate() {
            let zone = self.zone(Some(index));
            let trips = |is: [u64; 2], was: [u64; 2]| (is[0] - was[0], is[1] - was[1]);
            let (refills, pages) = trips(is.refilled, was.refilled);
            if refills > 0 {
                lines.push(format!(
                    "    {zone}: its list was empty: {pages} pages from the zone in {refills} hold(s), factor {} -> {}, {} free left [{rule}, rmqueue_bulk]",
                    was.alloc_factor, is.alloc_factor, is.free
                ));
            }
            let (drains, pages) = trips(is.drained, was.drained);
            if drains > 0 {
                lines.push(format!(
                    "    {zone}: {pages} pages back to the zone in {drains} hold(s), coldest first; {} freed in a row; pageset {} -> {} [{rule}, free_pcppages_bulk]",
                    was.free_count, was.count, is.count
                ));
            }
            if was.high != is.high {
                lines.push(format!("    {zone}: limit {} -> {} [{rule}]", was.high, is.high));
            }
            if was.below_high != is.below_high {
                let side = if is.below_high { "below" } else { "above" };
                lines.push(format!("    {zone}: now {side} its high mark [ZONE_BELOW_HIGH]"));
            }
            if was.reclaim != is.reclaim {
                let what = if is.reclaim { "begins" } else { "ends" };
                lines.push(format!("    {zone}: background reclaim {what} [ZONE_RECLAIM_ACTIVE]"));
            }
        }
        if after.other_types > before.other_types {
            let count = after.other_types - before.other_types;
            lines.push(format!(
                "    {count} block(s) of another type taken [__rmqueue_claim, __rmqueue_steal]"
            ));
        }
    }
}

/// When, where and who.
pub(super) fn who(event: &TraceEvent<'_>) -> String {
    let comm = String::from_utf8_lossy(event.comm);
    format!("{}  cpu {} {comm}-{}", seconds(event.time_ns), event.cpu, event.pid)
}

fn is_quiet(before: &Scene, after: &Scene, zone: usize) -> bool {
    before
        .zones
        .get(zone)
        .zip(after.zones.get(zone))
        .is_some_and(|(was, is)| (was.refilled, was.drained) == (is.refilled, is.drained))
}

/// A block by its first recorded frame.
pub(super) fn block(pfn: Pfn, order: Order) -> String {
    match order.pages() {
        PageCount(1) => format!("page {:#x}", pfn.0),
        PageCount(pages) => format!("{pages} pages from {:#x}", pfn.0),
    }
}

/// A time of the trace.
pub(super) fn seconds(ns: u64) -> String {
    format!("{}.{:06}", ns / 1_000_000_000, ns % 1_000_000_000 / 1000)
}
