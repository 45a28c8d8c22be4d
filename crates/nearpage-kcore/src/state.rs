//! What is read of a kernel.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The page allocator of a kernel at a moment. Of a running kernel it is several moments: what did not fit together after
/// three tries is told in [`told`](Self::told).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct State {
    /// As `uname -r` prints it.
    pub release: String,
    /// CPUs that are online.
    pub cpus: Vec<u32>,
    /// Nodes that are online.
    pub nodes: Vec<NodeState>,
    /// Names of the types of blocks, in the order of free lists.
    pub migratetypes: Vec<String>,
    /// Settings by their name below `/proc/sys/vm`.
    pub settings: Vec<(String, Vec<i64>)>,
    /// What could not be read or does not fit together, one sentence each.
    pub told: Vec<String>,
    /// Why reading ended before all was read, if it did ([`Limits`]): later lists are cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<String>,
}

/// How much may be read of lists. Of a machine of 1 TiB whose memory is in small pieces, free lists have millions of blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Blocks in all lists together.
    pub blocks: u64,
    /// The time that it takes.
    pub time: Duration,
}

impl Limits {
    /// None but those that lists have by themselves.
    pub const NONE: Limits = Limits { blocks: u64::MAX, time: Duration::MAX };
}

/// A node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeState {
    /// Its number.
    pub id: u32,
    /// Its CPUs that are online.
    pub cpus: Vec<u32>,
    /// Distances to the nodes that are online, in their order; empty if the kernel has no table.
    pub distances: Vec<u32>,
    /// Its zones, also those without memory.
    pub zones: Vec<ZoneState>,
}

/// A zone.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ZoneState {
    /// `DMA`, `DMA32`, `Normal`, `Movable`, `Device`.
    pub name: String,
    /// First frame.
    pub start_pfn: u64,
    /// Frames from first to last.
    pub spanned_pages: u64,
    /// Frames that are memory.
    pub present_pages: u64,
    /// Frames that the allocator manages.
    pub managed_pages: u64,
    /// Watermarks min, low, high and, as far as the kernel has it, promo, without the boost.
    pub watermarks: Vec<u64>,
    /// The boost.
    pub watermark_boost: u64,
    /// Pages reserved for allocations that must not wait.
    pub reserved_highatomic: Option<u64>,
    /// Of those, free ones.
    pub free_highatomic: Option<u64>,
    /// Pages kept from requests for higher zones.
    pub lowmem_reserve: Vec<i64>,
    /// The zone's own counters, by their names in the kernel (`NR_FREE_PAGES`), without what CPUs hold back.
    pub counters: Vec<(String, i64)>,
    /// Counters of NUMA events (`NUMA_HIT`), with those of all CPUs.
    pub numa_events: Vec<(String, i64)>,
    /// Names of the bits that are set (`ZONE_RECLAIM_ACTIVE`).
    #[serde(default)]
    pub flags: Vec<String>,
    /// Free blocks by order.
    pub free: Vec<FreeArea>,
    /// When reading the free lists of a running kernel began and ended, by `CLOCK_MONOTONIC`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_read_ns: Option<[u64; 2]>,
    /// Heads of blocks that a free could not put into a list, since another CPU had the lock: first came last. `None` if
    /// this kernel has no such list.
    pub trylock_free: Option<Vec<u64>>,
    /// Types of pageblocks, from that of the first frame on: positions in [`State::migratetypes`], `None` where no memory is.
    pub pageblocks: Vec<Option<u8>>,
    /// Of each CPU that is online.
    pub pagesets: Vec<PagesetState>,
}

/// Free blocks of an order.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FreeArea {
    /// How many the kernel counts.
    pub free_blocks: u64,
    /// First frames by type, in the order of the list: the next to be taken comes first.
    pub lists: Vec<Vec<u64>>,
}

/// A CPU's pageset of a zone. Fields that this kernel lacks are `None`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PagesetState {
    /// The CPU.
    pub cpu: u32,
    /// Pages in it.
    pub count: i64,
    /// Its limit.
    pub high: i64,
    /// The least that `high` may be.
    pub high_min: Option<i64>,
    /// The most.
    pub high_max: Option<i64>,
    /// Unit of refills and drains.
    pub batch: i64,
    /// How often refills have doubled.
    pub alloc_factor: Option<i64>,
    /// Pages freed one after the other.
    pub free_count: Option<i64>,
    /// `free_factor` of 6.1 to 6.6.
    pub free_factor: Option<i64>,
    /// Bits.
    pub flags: Option<i64>,
    /// Turns of the once-a-second work until a batch of a remote zone is given back.
    pub expire: Option<i64>,
    /// First frames of each list, in its order: the next to be handed out comes first.
    pub lists: Vec<Vec<u64>>,
    /// What the CPU holds back of the zone's counters, by name.
    pub differences: Vec<(String, i64)>,
    /// `vm stats threshold`.
    pub stat_threshold: Option<i64>,
    /// When reading it of a running kernel began and ended, by `CLOCK_MONOTONIC`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_ns: Option<[u64; 2]>,
}

impl PagesetState {
    /// The order of the blocks of a list, of so many lists: three types for each of the orders 0 to 3, then those of
    /// pageblocks.
    pub fn order_of_list(index: usize) -> u8 {
        const TYPES: usize = 3;
        const ORDERS: usize = 4;
        const PAGEBLOCK: u8 = 9;
        if index < TYPES * ORDERS { (index / TYPES) as u8 } else { PAGEBLOCK }
    }

    /// Pages in the lists.
    pub fn pages(&self) -> u64 {
        let pages =
            |(index, list): (usize, &Vec<u64>)| (list.len() as u64) << Self::order_of_list(index);
        self.lists.iter().enumerate().map(pages).sum()
    }
}

impl ZoneState {
    /// A counter, as the zone has it and as it is with what CPUs hold back.
    pub fn counter(&self, name: &str) -> Option<(i64, i64)> {
        let of = |counters: &[(String, i64)]| {
            counters.iter().find(|(own, _)| own == name).map(|(_, value)| *value)
        };
        let own = of(&self.counters)?;
        let held: i64 = self.pagesets.iter().filter_map(|pageset| of(&pageset.differences)).sum();
        Some((own, own.wrapping_add(held)))
    }

    /// Pages in the free lists.
    pub fn free_pages(&self) -> u64 {
        let blocks = |area: &FreeArea| area.lists.iter().map(Vec::len).sum::<usize>() as u64;
        self.free.iter().enumerate().map(|(order, area)| blocks(area) << order).sum()
    }
}
