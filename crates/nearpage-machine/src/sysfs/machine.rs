//! What was read, as plain data.

use std::fmt;

use nearpage::{CpuId, NodeId};

use super::cache::LastLevelCache;
use super::settings::KernelSettings;
use super::zoneinfo::ZoneExtent;

/// Bytes of a page where the machine does not tell: x86, and most others.
const PAGE_BYTES_DEFAULT: u64 = 4096;
/// The largest base page that any Linux has: 256 KiB.
const PAGE_BYTES_MAX: u64 = 256 << 10;

/// A machine as /sys and /proc describe it.
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
    /// A machine of which nothing but this is known: all of its nodes and CPUs are online.
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
    /// Its memory in bytes (`MemTotal`), without what the kernel keeps from its allocator. `None` if the
    /// machine does not tell.
    pub memory_bytes: Option<u64>,
    /// How much of it was free.
    pub free_bytes: Option<u64>,
    /// Its populated zones; empty for a memoryless node and where the machine does not tell.
    pub zones: Vec<ZoneExtent>,
}

impl MachineNode {
    /// A node of whose zones nothing is known. `cpus` ascend.
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

/// Something that the machine does not tell, or tells in two ways, and that had to be assumed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Note {
    /// A node has no file of distances: 10 to itself, 20 to others.
    DistancesAssumed {
        /// The node.
        node: NodeId,
    },
    /// Two emulated nodes list the same CPUs: the first keeps them.
    CpusShared {
        /// The node that lost them.
        node: NodeId,
        /// The node that keeps them.
        first: NodeId,
    },
    /// A node's CPUs are unknown and taken for none.
    CpusUnknown {
        /// The node.
        node: NodeId,
    },
    /// A node's memory is unknown and taken for none.
    MemoryUnknown {
        /// The node.
        node: NodeId,
    },
    /// More of a node's memory is free than it has: it is all taken for free.
    FreeExceedsSize {
        /// The node.
        node: NodeId,
        /// What is free, in bytes.
        free: u64,
        /// What there is, in bytes.
        size: u64,
    },
    /// /proc/zoneinfo does not tell where each zone lies: they are left out.
    ZonesUnknown,
    /// The zones lack much of a node's memory: they are left out.
    ZonesIncomplete {
        /// The node.
        node: NodeId,
        /// What its zones manage, in bytes.
        managed: u64,
        /// What there is, in bytes.
        size: u64,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::DistancesAssumed { node } => {
                write!(
                    f,
                    "the distances of node {node} are unknown: taken as 10 to itself, 20 to others"
                )
            }
            Note::CpusShared { node, first } => {
                write!(f, "nodes {first} and {node} list the same CPUs: taken as node {first}'s")
            }
            Note::MemoryUnknown { node } => {
                write!(f, "the memory of node {node} is unknown: taken as none")
            }
            Note::CpusUnknown { node } => {
                write!(f, "the CPUs of node {node} are unknown: taken as none")
            }
            Note::FreeExceedsSize { node, free, size } => {
                let (free, size) = (free >> 10, size >> 10);
                write!(
                    f,
                    "node {node} has {free} kB free and a size of {size} kB: taken as all free"
                )
            }
            Note::ZonesUnknown => f.write_str(
                "proc/zoneinfo does not tell where each zone lies: zones and addresses are taken as unknown",
            ),
            Note::ZonesIncomplete { node, managed, size } => {
                let (managed, size) = (managed >> 10, size >> 10);
                write!(
                    f,
                    "proc/zoneinfo tells of {managed} kB of node {node}, which has {size} kB: \
                     zones and addresses are taken as unknown"
                )
            }
        }
    }
}

/// Bytes of a page: a node's `MemTotal` divided by the pages that its zones manage, which the kernel
/// prints from the same counters.
pub(super) fn page_bytes(nodes: &[MachineNode], zones: &[ZoneExtent]) -> u64 {
    let ratio = |node: &MachineNode| {
        let of_node = |zone: &&ZoneExtent| nodes.len() == 1 || zone.node == node.id;
        let managed = zones
            .iter()
            .filter(of_node)
            .fold(0, |sum: u64, zone| sum.saturating_add(zone.managed.0));
        // The two files are read one after the other: memory may be added between.
        let ratio = node.memory_bytes?.checked_div(managed)?;
        let bytes = ratio.checked_next_power_of_two()?;
        let is_size = (PAGE_BYTES_DEFAULT..=PAGE_BYTES_MAX).contains(&bytes);
        (is_size && is_most(ratio, bytes)).then_some(bytes)
    };
    nodes.iter().find_map(ratio).unwrap_or(PAGE_BYTES_DEFAULT)
}

/// Whether a part is nearly the whole: what memory comes or goes between reading two files is far less.
fn is_most(part: u64, whole: u64) -> bool {
    part >= whole - whole / 8
}

/// Gives each node its zones, and sizes to nodes whose meminfo is missing. Zones that lack much of a node's memory
/// are those of a text without its end, or of a node that just came: without them all addresses are unknown.
pub(super) fn attach_zones(
    nodes: &mut [MachineNode],
    zones: Vec<ZoneExtent>,
    page_bytes: u64,
    notes: &mut Vec<Note>,
) {
    let has_zones = !zones.is_empty();
    for node in &mut *nodes {
        node.zones = zones.iter().copied().filter(|zone| zone.node == node.id).collect();
        if node.memory_bytes.is_none() {
            node.memory_bytes = managed_bytes(&node.zones, page_bytes);
        }
        if node.memory_bytes.is_none() {
            notes.push(Note::MemoryUnknown { node: node.id });
        }
    }
    let incomplete = |node: &MachineNode| {
        let managed = managed_bytes(&node.zones, page_bytes).unwrap_or(0);
        let size = node.memory_bytes.filter(|&size| has_zones && !is_most(managed, size))?;
        Some(Note::ZonesIncomplete { node: node.id, managed, size })
    };
    let incomplete: Vec<Note> = nodes.iter().filter_map(incomplete).collect();
    if !incomplete.is_empty() {
        nodes.iter_mut().for_each(|node| node.zones.clear());
        notes.extend(incomplete);
    }
}

/// Leaves no more of a node free than it has. The kernel counts both at two moments, and free pages on each CPU
/// apart, so that a node that is all free can have too many.
pub(super) fn settle_free(nodes: &mut [MachineNode], notes: &mut Vec<Note>) {
    for node in nodes {
        let (Some(free), Some(size)) = (node.free_bytes, node.memory_bytes) else { continue };
        if free > size {
            notes.push(Note::FreeExceedsSize { node: node.id, free, size });
            node.free_bytes = Some(size);
        }
    }
}

/// The bytes that zones manage; `None` without zones.
fn managed_bytes(zones: &[ZoneExtent], page_bytes: u64) -> Option<u64> {
    let managed = zones.iter().map(|zone| zone.managed.0).reduce(u64::saturating_add)?;
    managed.checked_mul(page_bytes)
}
