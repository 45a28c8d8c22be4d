//! What an event may change, and how it stands.

use nearpage::{CpuId, Fallbacks, Order, Pfn};
use nearpage_trace::{Event, TraceEvent};

use crate::run::Run;

/// What an event may change, of one CPU.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    pub(super) zones: Vec<ZoneScene>,
    pub(super) reasons: Fallbacks,
    pub(super) other_types: u64,
    pub(super) refused: u64,
    /// The zone of the core's block that stands for the block of the event.
    pub(super) block: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ZoneScene {
    pub(super) free: u64,
    pub(super) below_high: bool,
    pub(super) reclaim: bool,
    pub(super) count: u64,
    pub(super) high: u64,
    pub(super) alloc_factor: u8,
    pub(super) free_count: u64,
    /// Trips, and their pages.
    pub(super) refilled: [u64; 2],
    /// The same, back to the zone.
    pub(super) drained: [u64; 2],
}

impl Scene {
    /// How things stand.
    pub(crate) fn of(run: &Run<'_>, event: &TraceEvent<'_>) -> Scene {
        let pfn = block_of(&event.event).map(|(pfn, _)| pfn);
        Scene {
            zones: (0..run.core.zones().len())
                .filter_map(|zone| zone_scene(run, event.cpu, zone))
                .collect(),
            reasons: run.reasons(),
            other_types: run.extfrag(),
            refused: run.counts.refused_allocs,
            block: pfn.and_then(|pfn| run.zone_of_block(pfn)),
        }
    }
}

fn zone_scene(run: &Run<'_>, cpu: CpuId, zone: usize) -> Option<ZoneScene> {
    let pageset = &run.core.pagesets(cpu)?[zone];
    let (zone, tuning, counts) = (run.core.zones()[zone], pageset.tuning(), pageset.counts());
    let view = zone.view();
    Some(ZoneScene {
        free: zone.free_pages().0,
        below_high: view.below_high,
        reclaim: view.reclaim_active,
        count: pageset.count().0,
        high: tuning.high.0,
        alloc_factor: tuning.alloc_factor,
        free_count: tuning.free_count.0,
        refilled: [counts.refills, counts.refilled_pages.0],
        drained: [counts.drains, counts.drained_pages.0],
    })
}

/// The block that an event is about.
pub(super) fn block_of(event: &Event<'_>) -> Option<(Pfn, Order)> {
    match *event {
        Event::Alloc { pfn: Some(pfn), order, .. }
        | Event::Free { pfn, order }
        | Event::ZoneLocked { pfn, order, .. }
        | Event::PcpuDrain { pfn, order }
        | Event::Extfrag { pfn, order } => Some((pfn, order)),
        _ => None,
    }
}
