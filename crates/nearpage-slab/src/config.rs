//! What a slab allocator is made with.

use nearpage::Gfp;

use crate::geometry::Descriptors;
use crate::rules::SlabRules;

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
#[non_exhaustive]
pub struct SlabConfig {
    /// Places for caches.
    pub caches_max: usize,
    /// Where slabs keep what describes them.
    pub descriptors: Descriptors,
    /// Which node a CPU's objects come from.
    pub local: LocalNode,
    /// What lies between a CPU and the slabs.
    pub rules: SlabRules,
}

impl Default for SlabConfig {
    /// nearpage's own rules, and 32 caches.
    fn default() -> Self {
        let (descriptors, local) = (Descriptors::Beside, LocalNode::NearestMemory);
        Self { caches_max: 32, descriptors, local, rules: SlabRules::Slab2010 }
    }
}

impl SlabConfig {
    /// The same with room for so many caches, 1 to 32 767.
    #[must_use]
    pub const fn with_caches_max(self, caches_max: usize) -> Self {
        Self { caches_max, ..self }
    }

    /// The same with descriptors of slabs kept there.
    #[must_use]
    pub const fn with_descriptors(self, descriptors: Descriptors) -> Self {
        Self { descriptors, ..self }
    }

    /// The same with the objects of CPUs coming from there.
    #[must_use]
    pub const fn with_local(self, local: LocalNode) -> Self {
        Self { local, ..self }
    }

    /// The same with these rules between CPUs and slabs.
    #[must_use]
    pub const fn with_rules(self, rules: SlabRules) -> Self {
        Self { rules, ..self }
    }

    /// As Linux 2.6.35.
    pub const LINUX_2_6_35: SlabConfig = SlabConfig {
        caches_max: 32,
        descriptors: Descriptors::Within,
        local: LocalNode::NearestMemory,
        rules: SlabRules::Slab2010,
    };

    /// As Linux 7.0 on x86-64, where a CPU of a node without memory takes its own node for its nearest memory.
    pub const LINUX_7_0: SlabConfig = SlabConfig {
        caches_max: 32,
        descriptors: Descriptors::Beside,
        local: LocalNode::OwnNode,
        rules: SlabRules::Sheaves7_0,
    };

    /// As the first release candidates of Linux 7.0 on x86-64.
    pub const LINUX_7_0_RC1: SlabConfig = Self::LINUX_7_0.with_rules(SlabRules::Sheaves7_0Rc1);

    /// As Linux 7.1 on x86-64.
    pub const LINUX_7_1: SlabConfig = Self::LINUX_7_0.with_rules(SlabRules::Sheaves7_1);
}

/// Flags that mean nothing for the pages of a slab: nobody can move them, and what is to be cleared are objects.
pub(super) const NOT_FOR_SLABS: Gfp =
    Gfp::HIGHMEM.union(Gfp::MOVABLE).union(Gfp::THISNODE).union(Gfp::ZERO);
