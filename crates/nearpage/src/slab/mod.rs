//! Slab: caches of objects of one size, on the page allocator. After Linux's `mm/slab.c` of 2.6.35, whose 2010
//! change taught it memoryless nodes.
//!
//! ```text
//! cache --+-- stack of each CPU          entries; rseq or what the host has     fast path
//!         |
//!         +-- each node, under a lock    shared stack: entries
//!         |     |                        slabs: full, partial, free
//!         |     +-- alien stacks         entries of another node, one stack for each, under a lock each
//!         |
//!         +-- slab = block of pages      descriptor: a line in a table by frame; objects
//! ```
//!
//! **Words.** An *entry* is the 32-bit number of an object ([`entry`]). A frame's *tag* says of which cache and
//! node it is ([`tag`]). The *effective node* of a CPU is the nearest node with memory (`numa_mem_id`).
//!
//! **Allocation**: this CPU's stack gives an entry, which becomes an address by arithmetic ([`alloc`]).
//! An empty stack takes a batch from the shared stack of the CPU's effective node, else from its slabs, else from
//! a new slab of exactly that node. Only where that node has no memory left, one object comes from elsewhere.
//! **Free**: the tag of the frame must be that of this CPU's stack, which is then pushed to ([`free`]).
//! A full stack gives its oldest batch to the shared stack, or to the slabs. An object of another node goes onto an
//! alien stack, and home when that is full.
//!
//! **Memoryless nodes.** With [`LocalNode::OwnNode`], as Linux before 2010, the CPUs of a node without memory look
//! for objects on their own node, where there never are any: each allocation ends at the lists of another node, and
//! each free on an alien stack. With [`LocalNode::NearestMemory`] stacks, lists and aliens of a CPU are those of its
//! effective node. When memory comes or goes, the effective node of a CPU changes: its stacks are emptied
//! before ([`SlabAllocator::flush_stacks`]) and its node computed after ([`SlabAllocator::refresh_nodes`]), as when CPUs
//! come and go. A node that no CPU looks to any more keeps no free objects on stacks.
//!
//! **Locks**: the registry of caches, a CPU's stacks, an alien stack, a node's lists, in this order; no two of a kind at
//! once. None but the registry and stopped stacks is held while pages are freed, and none at all while they are allocated:
//! so reclaim may shrink caches from within an allocation.
//!
//! **Deliberately not there**: constructors, poisoning and red zones (they would touch the objects' memory, which
//! the core never does), and policies (they will choose the node of [`SlabAllocator::alloc_node`]).

mod alloc;
mod budget;
mod build;
mod bulk;
mod cache;
mod check;
pub mod classes;
pub mod descriptor;
pub mod entry;
pub mod error;
mod free;
pub mod geometry;
mod hold;
mod home;
mod lists;
mod node;
mod reap;
pub mod slabinfo;
pub mod stats;
pub mod storage;
pub mod tag;
#[cfg(test)]
mod tests;
pub mod tunables;
mod twice;

pub use build::metadata_size;
pub use bulk::BulkObjectError;
pub use cache::{CacheOptions, KmemCache};
pub use check::{SlabCheckError, SlabChecked};
pub use classes::SizeClasses;
pub use error::{CreateError, LiveObjects, ObjectError};
pub use hold::{SlabHeld, SlabParts};
pub use reap::{REAP_PERIOD_NS, StacksBusy};
pub use storage::ObjectStorage;

use crate::alloc::PageAllocator;
use crate::pcp::Storage;
use crate::platform::Platform;
use crate::sync::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering, OwnedCounter};
use crate::units::{CpuId, NodeIndex, ZoneKind};

use cache::{Cache, Registry};
use descriptor::DescriptorMap;
use entry::Frames;
use geometry::Rules;
use stats::CpuEvents;
use tag::Tag;

/// Which node a CPU's objects come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LocalNode {
    /// The nearest node that has memory (`numa_mem_id`, 2.6.35).
    #[default]
    NearestMemory,
    /// The node of the CPU, whether it has memory or not (`numa_node_id`, before).
    OwnNode,
}

/// What a slab allocator is made with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlabConfig {
    /// Places for caches.
    pub caches_max: usize,
    /// Where slabs keep what describes them.
    pub descriptors: geometry::Descriptors,
    /// Which node a CPU's objects come from.
    pub local: LocalNode,
}

impl Default for SlabConfig {
    /// nearpage's own rules, and 32 caches.
    fn default() -> Self {
        let (descriptors, local) = (geometry::Descriptors::Beside, LocalNode::NearestMemory);
        Self { caches_max: 32, descriptors, local }
    }
}

impl SlabConfig {
    /// As Linux 2.6.35.
    pub const LINUX_2_6_35: SlabConfig = SlabConfig {
        caches_max: 32,
        descriptors: geometry::Descriptors::Within,
        local: LocalNode::NearestMemory,
    };
}

/// A CPU: its node, and what makes its stacks exclusive.
struct SlabCpu<P: Platform> {
    id: CpuId,
    node: NodeIndex,
    effective: AtomicU16,
    /// Stacks of a CPU that is off stay empty.
    is_on: AtomicBool,
    /// The node whose alien stack is drained in the next round of reaping.
    reap_node: AtomicU16,
    exclusion: <P::Storage as Storage>::PerCpu,
}

impl<P: Platform> SlabCpu<P> {
    fn effective(&self) -> NodeIndex {
        NodeIndex(self.effective.load(Ordering::Relaxed))
    }

    fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }
}

/// A CPU's stack for a cache: one line, all that the fast path touches of a cache.
#[repr(C, align(64))]
struct CpuStack<'m, P: Platform<Storage: ObjectStorage>> {
    stack: <P::Storage as ObjectStorage>::Stack<'m>,
    exclusion: &'m <P::Storage as Storage>::PerCpu,
    /// What the frames of objects say that belong here: the cache, and the effective node of the CPU.
    tag: AtomicU32,
    /// A refill since the last round of reaping.
    refilled: AtomicU32,
    /// Pops until the last round of reaping.
    pops_reaped: OwnedCounter,
}

impl<P: Platform<Storage: ObjectStorage>> CpuStack<'_, P> {
    #[inline(always)]
    fn tag(&self) -> Tag {
        Tag(self.tag.load(Ordering::Relaxed))
    }
}

/// Caches of objects on a page allocator.
pub struct SlabAllocator<'a, 'm, P: Platform<Storage: ObjectStorage>> {
    pages: &'a PageAllocator<'m, P>,
    rules: Rules,
    local: LocalNode,
    frames: Frames,
    descriptors: DescriptorMap<'m>,
    /// Of hardened hosts, by section: the objects in somebody's hands, `BIT_WORDS` words a frame.
    hands: &'m [&'m [AtomicU64]],
    /// By CPU id.
    cpus: &'m [Option<SlabCpu<P>>],
    cpu_count: u64,
    caches: &'m [Cache<'m, P>],
    registry: &'m P::Lock<Registry>,
}

impl<'a, 'm, P: Platform<Storage: ObjectStorage>> SlabAllocator<'a, 'm, P> {
    /// The same allocator once more, for a host that looks after it from elsewhere: nothing in the value changes, so one
    /// is as good as the other.
    pub fn twin(&self) -> Self {
        Self { ..*self }
    }

    /// The page allocator below.
    pub fn pages(&self) -> &'a PageAllocator<'m, P> {
        self.pages
    }

    /// The effective node of a CPU, or `None` if the topology has no such CPU.
    pub fn effective_node(&self, cpu: CpuId) -> Option<NodeIndex> {
        Some(self.cpus.get(cpu.0 as usize)?.as_ref()?.effective())
    }

    #[inline(always)]
    fn storage(&self) -> &'a P::Storage {
        self.pages.platform().storage()
    }

    /// The CPU that this thread runs on, if it is one of the topology and on. Others have no stacks to use: their objects
    /// come from lists, and go there.
    fn this_cpu(&self) -> Option<&'m SlabCpu<P>> {
        let cpu = self.cpus.get(self.storage().current_cpu().0 as usize)?.as_ref();
        cpu.filter(|cpu| cpu.is_on())
    }

    fn cpus_on(&self) -> impl Iterator<Item = &'m SlabCpu<P>> + use<'m, P> {
        self.cpus.iter().flatten().filter(|cpu| cpu.is_on())
    }

    /// CPUs whose objects come from a node.
    fn cpus_of(&self, node: NodeIndex) -> usize {
        self.cpus_on().filter(|cpu| cpu.effective() == node).count()
    }

    fn node_indexes(&self) -> impl Iterator<Item = NodeIndex> + use<P> {
        (0..self.node_count() as u16).map(NodeIndex)
    }

    fn node_count(&self) -> usize {
        self.pages.topology().len()
    }

    /// The node that objects come from for a CPU of `node`. Nobody prefers a private node, not even its own CPUs.
    fn effective_of(&self, node: NodeIndex) -> NodeIndex {
        let nearest = self.pages.memory_node(node);
        match (self.local, nearest) {
            (LocalNode::OwnNode, Some(_)) => node,
            (_, Some(nearest)) => nearest,
            (_, None) => self.nearest_general(node).unwrap_or(node),
        }
    }

    /// The nearest node whose memory all requests may use.
    fn nearest_general(&self, node: NodeIndex) -> Option<NodeIndex> {
        let mut zones = self.pages.fallback_zones(node);
        Some(zones.find(|zone| zone.kind() <= ZoneKind::Normal)?.node())
    }

    fn events_of(&self, cache: &Cache<'m, P>, cpu: CpuId) -> Option<&'m CpuEvents> {
        cache.events.get(cpu.0 as usize)
    }
}
