//! The slab allocator's parts, and the ways to them.

use core::sync::atomic::AtomicU64;

use nearpage::platform::Storage;
use nearpage::{CpuId, NodeIndex, PageAllocator, ZoneKind};

use crate::config::LocalNode;
use crate::cpu::SlabCpu;
use crate::descriptor::DescriptorMap;
use crate::entry::Frames;
use crate::events::CpuEvents;
use crate::geometry::Rules;
use crate::place::{Cache, Registry};
use crate::platform::SlabPlatform;
use crate::rules::SlabRules;

/// Caches of objects on a page allocator.
pub struct SlabAllocator<'a, 'm, P: SlabPlatform> {
    pub(super) pages: &'a PageAllocator<'m, P>,
    pub(super) layout: Rules,
    pub(super) rules: SlabRules,
    pub(super) local: LocalNode,
    pub(super) frames: Frames,
    pub(super) descriptors: DescriptorMap<'m>,
    /// Of hardened hosts, by section: the objects in somebody's hands, `BIT_WORDS` words a frame.
    pub(super) hands: &'m [&'m [AtomicU64]],
    /// By CPU id.
    pub(super) cpus: &'m [Option<SlabCpu<P>>],
    pub(super) cpu_count: u64,
    pub(super) caches: &'m [Cache<'m, P>],
    pub(super) registry: &'m P::Lock<Registry>,
}

impl<P: SlabPlatform> core::fmt::Debug for SlabAllocator<'_, '_, P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SlabAllocator")
            .field("rules", &self.rules)
            .field("local", &self.local)
            .field("caches_max", &self.caches.len())
            .finish_non_exhaustive()
    }
}

impl<'a, 'm, P: SlabPlatform> SlabAllocator<'a, 'm, P> {
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
    pub(super) fn storage(&self) -> &'a P::Storage {
        self.pages.platform().storage()
    }

    /// The CPU that this thread runs on, if it is one of the topology and on. Others have no stacks to use: their objects
    /// come from lists, and go there.
    pub(super) fn this_cpu(&self) -> Option<&'m SlabCpu<P>> {
        let cpu = self.cpus.get(self.storage().current_cpu().0 as usize)?.as_ref();
        cpu.filter(|cpu| cpu.is_on())
    }

    pub(super) fn cpus_on(&self) -> impl Iterator<Item = &'m SlabCpu<P>> + use<'m, P> {
        self.cpus.iter().flatten().filter(|cpu| cpu.is_on())
    }

    /// CPUs whose objects come from a node.
    pub(super) fn cpus_of(&self, node: NodeIndex) -> usize {
        self.cpus_on().filter(|cpu| cpu.effective() == node).count()
    }

    pub(super) fn node_indexes(&self) -> impl Iterator<Item = NodeIndex> + use<P> {
        (0..self.node_count() as u16).map(NodeIndex)
    }

    pub(super) fn node_count(&self) -> usize {
        self.pages.topology().len()
    }

    /// The node that objects come from for a CPU of `node`. Nobody prefers a private node, not even its own CPUs.
    pub(super) fn effective_of(&self, node: NodeIndex) -> NodeIndex {
        let nearest = self.pages.memory_node(node);
        match (self.local, nearest) {
            (LocalNode::OwnNode, Some(_)) => node,
            (_, Some(nearest)) => nearest,
            (_, None) => self.nearest_general(node).unwrap_or(node),
        }
    }

    /// The nearest node whose memory all requests may use.
    pub(super) fn nearest_general(&self, node: NodeIndex) -> Option<NodeIndex> {
        let mut zones = self.pages.fallback_zones(node);
        Some(zones.find(|zone| zone.kind() <= ZoneKind::Normal)?.node())
    }

    pub(super) fn events_of(&self, cache: &Cache<'m, P>, cpu: CpuId) -> Option<&'m CpuEvents> {
        cache.events.get(cpu.0 as usize)
    }
}
