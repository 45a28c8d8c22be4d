//! What a run of the core came to.

use nearpage::{CpuId, Migratetype, Order};

use crate::flow::{Flow, Lengths};
use crate::layout::Blocks;
use crate::run::{Run, RunCounts};
use crate::start::StartZone;
use crate::totals::Totals;

/// Pagesets and zones at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Snapshot {
    /// The number of the sample, or `None` for the end of the window.
    pub(crate) sample: Option<u32>,
    /// When, in nanoseconds of the trace.
    pub(crate) at_ns: u64,
    /// Zone by zone, CPU by CPU.
    pub(crate) pagesets: Vec<PagesetAt>,
    /// Free pages, by zone.
    pub(crate) free_pages: Vec<u64>,
}

/// A pageset at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PagesetAt {
    pub(crate) cpu: CpuId,
    /// The zone, by its position.
    pub(crate) zone: usize,
    /// Pages in it.
    pub(crate) count: u64,
    /// The limit.
    pub(crate) high: u64,
}

impl Snapshot {
    /// How a run stands.
    pub(crate) fn of(
        run: &Run<'_>,
        zones: &[StartZone],
        sample: Option<u32>,
        at_ns: u64,
    ) -> Snapshot {
        let mut pagesets = Vec::new();
        for (zone, recorded) in zones.iter().enumerate() {
            for cpu in recorded.pagesets.iter().map(|pageset| pageset.cpu) {
                if let Some((count, high)) = run.pageset(cpu, zone) {
                    pagesets.push(PagesetAt { cpu, zone, count: count.0, high: high.0 });
                }
            }
        }
        let free_pages = run.core.zones().iter().map(|zone| zone.free_pages().0).collect();
        Snapshot { sample, at_ns, pagesets, free_pages }
    }
}

/// What a run came to.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// Refills and drains, by zone.
    pub(crate) flows: Vec<Flow>,
    /// The same, of pagesets whose state is known by then.
    pub(crate) known_flows: Vec<Flow>,
    /// How long the runs of refills and drains are.
    pub(crate) lengths: Lengths,
    /// Pages from a zone that the request did not prefer, by zone.
    pub(crate) fallback_pages: Vec<u64>,
    /// Blocks that came from another type.
    pub(crate) extfrag: u64,
    /// The pagesets at each sample and at the end.
    pub(crate) snapshots: Vec<Snapshot>,
    /// Free pages at the end, by zone.
    pub(crate) free_pages: Vec<u64>,
    /// Free lists at the end, by zone.
    pub(crate) free_lists: Vec<Blocks>,
    /// `numa_hit`, `numa_miss` and `numa_foreign`, by zone.
    pub(crate) numa: Vec<[u64; 3]>,
    /// Allocations in bulk whose frames are not told, by zone.
    pub(crate) untold_allocs: Vec<u64>,
    /// What it came to as a whole.
    pub(crate) totals: Totals,
    /// What did not go as recorded.
    pub(crate) counts: RunCounts,
    /// Free pages at the start for which there was no place.
    pub(crate) left_out_pages: u64,
}

impl Outcome {
    /// Ends a run; `snapshots` were taken on the way.
    pub(crate) fn of(mut run: Run<'_>, snapshots: Vec<Snapshot>) -> Outcome {
        run.finish();
        let zones = run.core.zones();
        let numa = zones.iter().map(|zone| {
            let stats = run.core.zone_stats(zone);
            [stats.numa_hit, stats.numa_miss, stats.numa_foreign]
        });
        let blocks = zones.iter().map(|zone| {
            let blocks = |of, order| zone.free_blocks(Order(order as u8), of).into();
            Migratetype::ALL.map(|of| std::array::from_fn(|order| blocks(of, order)))
        });
        Outcome {
            lengths: run.lengths().clone(),
            free_lists: blocks.collect(),
            flows: run.flows().to_vec(),
            known_flows: run.known_flows().to_vec(),
            extfrag: run.extfrag(),
            snapshots,
            free_pages: zones.iter().map(|zone| zone.free_pages().0).collect(),
            numa: numa.collect(),
            untold_allocs: run.untold_allocs().to_vec(),
            totals: run.totals(),
            counts: run.counts,
            left_out_pages: run.left_out_pages(),
            fallback_pages: run.fallback_pages,
        }
    }
}
