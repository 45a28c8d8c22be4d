//! What was read, as plain data.

use std::fmt;

use nearpage::units::{CpuId, NodeId};

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
    pub(super) fn new(
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

/// Something that the machine does not tell and that had to be assumed.
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
    /// A node's memory is unknown and taken for none.
    MemoryUnknown {
        /// The node.
        node: NodeId,
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
        let bytes = node.memory_bytes?.checked_div(managed)?.checked_next_power_of_two()?;
        (PAGE_BYTES_DEFAULT..=PAGE_BYTES_MAX).contains(&bytes).then_some(bytes)
    };
    nodes.iter().find_map(ratio).unwrap_or(PAGE_BYTES_DEFAULT)
}

/// Gives each node its zones, and sizes to nodes whose meminfo is missing.
pub(super) fn attach_zones(
    nodes: &mut [MachineNode],
    zones: Vec<ZoneExtent>,
    page_bytes: u64,
    notes: &mut Vec<Note>,
) {
    for node in nodes {
        node.zones = zones.iter().copied().filter(|zone| zone.node == node.id).collect();
        if node.memory_bytes.is_none() {
            node.memory_bytes = managed_bytes(&node.zones, page_bytes);
        }
        if node.memory_bytes.is_none() {
            notes.push(Note::MemoryUnknown { node: node.id });
        }
    }
}

/// The bytes that zones manage; `None` without zones.
fn managed_bytes(zones: &[ZoneExtent], page_bytes: u64) -> Option<u64> {
    let managed = zones.iter().map(|zone| zone.managed.0).reduce(u64::saturating_add)?;
    managed.checked_mul(page_bytes)
}
