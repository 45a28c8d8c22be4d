//! What a machine says of itself at one moment.

use serde::Serialize;

use crate::placement::Processes;

/// A machine at one moment. What its kernel does not tell is `None`.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Sample {
    /// Milliseconds since 1970.
    pub time_ms: u64,
    /// The kernel's release.
    pub kernel: Option<String>,
    /// `vm.zone_reclaim_mode`.
    pub zone_reclaim_mode: Option<u64>,
    /// Nodes, by id.
    pub nodes: Vec<NodeSample>,
    /// Zones that have memory, in the order of the kernel.
    pub zones: Vec<ZoneSample>,
    /// Counters of events since boot, those of [`EVENTS`] that the kernel has, in that order.
    pub events: Vec<(&'static str, u64)>,
    /// Files that could not be read, with the reason.
    pub unreadable: Vec<String>,
    /// Processes with memory, if they were asked for.
    pub processes: Processes,
}

/// A node, in KiB.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct NodeSample {
    /// Its id.
    pub node: u32,
    /// Memory.
    pub total: Option<u64>,
    /// Free.
    pub free: Option<u64>,
    /// Memory of files.
    pub file: Option<u64>,
    /// Anonymous memory.
    pub anon: Option<u64>,
    /// Slab.
    pub slab: Option<u64>,
    /// Shared memory and tmpfs.
    pub shmem: Option<u64>,
    /// Huge pages of the pool: all, and those free.
    pub hugetlb: Option<(u64, u64)>,
    /// Anonymous memory in transparent huge pages.
    pub anon_huge: Option<u64>,
    /// Distances to all nodes, in the order of ids.
    pub distances: Vec<u32>,
    /// CPUs, as the kernel lists them.
    pub cpus: String,
    /// Allocations by where they came from, since boot; [`NUMA`] has the names.
    pub numa: Vec<(&'static str, u64)>,
}

/// A zone, in pages.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct ZoneSample {
    /// The node.
    pub node: u32,
    /// The name.
    pub zone: String,
    /// Free.
    pub free: Option<u64>,
    /// The boost within the marks.
    pub boost: Option<u64>,
    /// The `min` mark.
    pub min: Option<u64>,
    /// The `low` mark.
    pub low: Option<u64>,
    /// The `high` mark.
    pub high: Option<u64>,
    /// The `promo` mark.
    pub promo: Option<u64>,
    /// Present.
    pub present: Option<u64>,
    /// Managed.
    pub managed: Option<u64>,
    /// Kept from requests that could use a higher zone, by the highest.
    pub protection: Vec<u64>,
    /// In pagesets.
    pub pageset_pages: Option<u64>,
    /// CPUs that have a pageset here.
    pub cpus: u32,
    /// Pagesets, if they were asked for.
    pub pagesets: Vec<PagesetSample>,
    /// Free blocks by order.
    pub blocks: Vec<u64>,
    /// Allocations that wanted this node and got it, since boot.
    pub numa_hit: Option<u64>,
    /// Allocations that wanted another node, since boot.
    pub numa_miss: Option<u64>,
    /// Allocations that wanted this node and got another, since boot.
    pub numa_foreign: Option<u64>,
}

/// A pageset, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct PagesetSample {
    /// The CPU.
    pub cpu: u32,
    /// In it.
    pub count: u64,
    /// Its limit.
    pub high: u64,
    /// Unit of refills and drains.
    pub batch: u64,
}

impl ZoneSample {
    /// The highest order of which a block is free.
    pub fn largest_order(&self) -> Option<usize> {
        self.blocks.iter().rposition(|&count| count > 0)
    }
}

/// Counters of `/proc/vmstat` that are read: what says that requests waited or failed, and what was done about it.
pub const EVENTS: [&str; 36] = [
    "allocstall_dma",
    "allocstall_dma32",
    "allocstall_normal",
    "allocstall_movable",
    "compact_stall",
    "compact_fail",
    "compact_success",
    "compact_daemon_wake",
    "kswapd_low_wmark_hit_quickly",
    "kswapd_high_wmark_hit_quickly",
    "pageoutrun",
    "pgscan_kswapd",
    "pgscan_direct",
    "pgsteal_kswapd",
    "pgsteal_direct",
    "pgscan_direct_throttle",
    "zone_reclaim_success",
    "zone_reclaim_failed",
    "oom_kill",
    "pgfault",
    "pgmajfault",
    "pgalloc_dma",
    "pgalloc_dma32",
    "pgalloc_normal",
    "pgalloc_movable",
    "pgfree",
    "pswpin",
    "pswpout",
    "numa_hit",
    "numa_miss",
    "numa_foreign",
    "numa_interleave",
    "numa_pages_migrated",
    "pgmigrate_fail",
    "thp_fault_alloc",
    "thp_fault_fallback",
];

/// Counters of a node's `numastat`.
pub const NUMA: [&str; 6] =
    ["numa_hit", "numa_miss", "numa_foreign", "interleave_hit", "local_node", "other_node"];

impl Sample {
    /// The counter of an event, if the kernel has it.
    pub fn event(&self, name: &str) -> Option<u64> {
        self.events.iter().find(|(other, _)| *other == name).map(|(_, count)| *count)
    }

    /// The size of a page: 4 KiB, unless the totals of a node and of its zones say another. A kernel counts both from the
    /// same pages.
    pub fn page_kib(&self) -> u64 {
        let Some(node) = self.nodes.iter().find(|node| node.total > Some(0)) else { return 4 };
        let managed = self.zones_of(node.node).filter_map(|zone| zone.managed);
        let pages = managed.fold(0, u64::saturating_add);
        match node.total.unwrap_or(0).checked_div(pages).unwrap_or(0) {
            12..24 => 16,
            48..96 => 64,
            _ => 4,
        }
    }

    /// The zones of a node.
    pub fn zones_of(&self, node: u32) -> impl Iterator<Item = &ZoneSample> {
        self.zones.iter().filter(move |zone| zone.node == node)
    }
}

/// How fast a counter went, in events a second; `None` if it went back, as after a restart or a hotplug, or if no time
/// passed.
pub fn rate(before: u64, after: u64, elapsed_ms: u64) -> Option<f64> {
    let events = after.checked_sub(before).filter(|_| elapsed_ms > 0)?;
    Some(events as f64 * 1000.0 / elapsed_ms as f64)
}
