//! A machine as plain data, wherever it was read.

mod note;
mod split;

use nearpage::{CpuId, NodeId, PageCount, Pfn, Topology, ZoneKind};

pub use note::Note;

/// Bytes of a page where the input does not say: x86 and most other processors.
pub(crate) const PAGE_BYTES_DEFAULT: u64 = 4096;
/// The most nodes that a machine may have: `MAX_NUMNODES` of Linux with the largest `CONFIG_NODES_SHIFT`, 10.
/// The core accepts more, but no machine has more, and distances and fallback orders grow with the square.
pub const NODES_MAX: usize = 1024;
/// The distance between two nodes where the input has none. `include/linux/topology.h: REMOTE_DISTANCE`.
const REMOTE_DISTANCE: u8 = 20;

/// A machine, as /sys and /proc or a text describe it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Machine {
    /// The online nodes, ascending by id.
    pub nodes: Vec<MachineNode>,
    /// Distances between them, row by row in the order of `nodes`.
    pub distances: Vec<u8>,
    /// The nodes that may come online, ascending.
    pub possible_nodes: Vec<NodeId>,
    /// The CPUs that may come online, ascending.
    pub possible_cpus: Vec<CpuId>,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// The kernel's settings, as far as they can be read.
    pub settings: KernelSettings,
    /// Last-level caches, as far as they can be read.
    pub last_level_caches: Vec<LastLevelCache>,
    /// What had to be assumed.
    pub notes: Vec<Note>,
}

impl Machine {
    /// A machine with these nodes, all of them and their CPUs online. Settings and caches are unknown.
    pub fn new(nodes: Vec<MachineNode>, distances: Vec<u8>, page_bytes: u64) -> Machine {
        let mut possible_cpus: Vec<CpuId> =
            nodes.iter().flat_map(|node| node.cpus.iter().copied()).collect();
        possible_cpus.sort_unstable();
        Machine {
            possible_nodes: nodes.iter().map(|node| node.id).collect(),
            possible_cpus,
            nodes,
            distances,
            page_bytes,
            settings: KernelSettings::default(),
            last_level_caches: Vec::new(),
            notes: Vec::new(),
        }
    }
}

/// A node of a [`Machine`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MachineNode {
    /// The node's id.
    pub id: NodeId,
    /// Its online CPUs, ascending.
    pub cpus: Vec<CpuId>,
    /// Its memory in bytes (`MemTotal`), without what the kernel reserves at boot. `None` if unknown.
    pub memory_bytes: Option<u64>,
    /// Free bytes of it, when it was read. `None` if unknown.
    pub free_bytes: Option<u64>,
    /// Its populated zones; empty for a memoryless node and where zones are unknown.
    pub zones: Vec<ZoneExtent>,
}

impl MachineNode {
    /// A node without known zones. `cpus` must ascend.
    pub fn new(
        id: NodeId,
        cpus: Vec<CpuId>,
        memory_bytes: Option<u64>,
        free_bytes: Option<u64>,
    ) -> MachineNode {
        MachineNode { id, cpus, memory_bytes, free_bytes, zones: Vec::new() }
    }

    /// Whether a CPU is on this node.
    pub fn has_cpu(&self, cpu: CpuId) -> bool {
        self.cpus.binary_search(&cpu).is_ok()
    }
}

/// A populated zone as the kernel prints it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneExtent {
    /// The node that has the zone.
    pub node: NodeId,
    /// The kind of zone.
    pub kind: ZoneKind,
    /// First frame (`start_pfn`).
    pub start: Pfn,
    /// Frames from first to last, holes included.
    pub spanned: PageCount,
    /// Frames that are memory of this node.
    pub present: PageCount,
    /// Frames that the allocator manages.
    pub managed: PageCount,
    /// Frames free when it was read.
    pub free: PageCount,
}

/// A last-level cache that holds data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LastLevelCache {
    /// Its size.
    pub bytes: u64,
    /// The online CPUs that share it, ascending.
    pub cpus: Vec<CpuId>,
}

/// Settings of the kernel; `None` where unknown.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KernelSettings {
    /// `vm.min_free_kbytes`.
    pub min_free_kbytes: Option<u64>,
    /// `vm.watermark_scale_factor`, in fractions of 10 000.
    pub watermark_scale_factor: Option<u32>,
    /// `vm.lowmem_reserve_ratio`, one entry a kind of zone that the kernel is built with.
    pub lowmem_reserve_ratio: Option<Vec<u32>>,
    /// `vm.percpu_pagelist_high_fraction`; with 0 pagesets tune themselves.
    pub percpu_pagelist_high_fraction: Option<u32>,
    /// Whether transparent huge pages are `always` or `madvise`, which raises `min_free_kbytes`.
    pub transparent_hugepages: Option<bool>,
}

/// The distance that the kernel assumes between two nodes, by their positions, without firmware's table.
pub(crate) fn default_distance(row: usize, column: usize) -> u8 {
    if row == column { Topology::LOCAL_DISTANCE } else { REMOTE_DISTANCE }
}

/// Limits the free memory of each node to its size, with a note. The kernel counts the two at different moments, and
/// free pages on each CPU apart, so a node that is all free can show too many.
pub(crate) fn settle_free(nodes: &mut [MachineNode], notes: &mut Vec<Note>) {
    for node in nodes {
        let (Some(free), Some(size)) = (node.free_bytes, node.memory_bytes) else { continue };
        if free > size {
            notes.push(Note::FreeExceedsSize { node: node.id, free, size });
            node.free_bytes = Some(size);
        }
    }
}
