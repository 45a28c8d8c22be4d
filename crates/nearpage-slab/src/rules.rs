//! Sets of rules of the slab, by name: what lies between a CPU and the slabs.

use core::fmt;

/// What lies between a CPU and the slabs. The slabs below are the same under all rules.
///
/// An object from a CPU without memory and back, by the rules of 7.0 and of 7.1:
///
/// ```
/// use nearpage::platform::SingleThreaded;
/// use nearpage_slab::{CacheOptions, SlabAllocator, SlabConfig};
/// use nearpage::{AddressMap, Config, CpuId, Gfp, Node, NodeId, NodeIndex, PageAllocator, PfnRange, Topology};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let memory = [PfnRange::new(0x10_0000, 0x10_8000)];
/// let nodes = [
///     Node { id: NodeId(0), memory: &memory, cpus: &[CpuId(0)], movable_from: None },
///     Node { id: NodeId(1), memory: &[], cpus: &[CpuId(1)], movable_from: None },
/// ];
/// for (config, past_the_sheaves) in [(SlabConfig::LINUX_7_0, 1), (SlabConfig::LINUX_7_1, 0)] {
///     let topology = Topology::new(&nodes, &[10, 20, 20, 10], AddressMap::X86)?;
///     let buffer = |_node, bytes| vec![0; bytes].leak(); // the allocator's own memory, zeroes
///     let pages = PageAllocator::new(SingleThreaded::new(), topology, Config::default(), buffer)?;
///     let slab = SlabAllocator::new(&pages, config, buffer)?;
///     slab.online_all(&memory)?;
///     let cache = slab.create(CacheOptions::new("request", 256))?;
///     pages.platform().run_on(CpuId(1));
///     let object = slab.alloc(&cache, Gfp::KERNEL)?;
///     slab.free(&cache, object)?;
///     assert_eq!(slab.node_stats(&cache, NodeIndex(1)).bypasses, past_the_sheaves);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum SlabRules {
    /// `mm/slab.c` of 2.6.35: a stack a CPU, a shared stack and alien stacks a node. Facts 9.
    #[default]
    Slab2010,
    /// As [`Sheaves7_0`](Self::Sheaves7_0), with a defect of its first release candidates: a request that may not block
    /// fills no sheaf from slabs, but takes one object.
    Sheaves7_0Rc1,
    /// Sheaves as in Linux 7.0: a node with memory has a barn, others have none. An object of another node than
    /// the CPU's goes past the sheaves to its slab. Facts 9.9.
    Sheaves7_0,
    /// Sheaves as in Linux 7.1: every node has a barn, and CPUs of nodes without memory keep objects of other nodes.
    Sheaves7_1,
}

impl SlabRules {
    /// All rules, in the order of their years.
    pub const ALL: [Self; 4] =
        [Self::Slab2010, Self::Sheaves7_0Rc1, Self::Sheaves7_0, Self::Sheaves7_1];

    /// The rules called `name`.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rules| rules.name() == name)
    }

    /// The name: `slab-2010`, `sheaves-7.0-rc1`, `sheaves-7.0` or `sheaves-7.1`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Slab2010 => "slab-2010",
            Self::Sheaves7_0Rc1 => "sheaves-7.0-rc1",
            Self::Sheaves7_0 => "sheaves-7.0",
            Self::Sheaves7_1 => "sheaves-7.1",
        }
    }

    /// One line about them.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Slab2010 => "mm/slab.c of 2.6.35: a stack a CPU, shared and alien stacks a node",
            Self::Sheaves7_0Rc1 => "sheaves-7.0; requests that may not block take single objects",
            Self::Sheaves7_0 => "sheaves, barns where there is memory; remote frees bypass them",
            Self::Sheaves7_1 => "sheaves, barns everywhere; CPUs without memory keep all objects",
        }
    }

    /// Whether CPUs have sheaves.
    pub(super) const fn has_sheaves(self) -> bool {
        !matches!(self, Self::Slab2010)
    }

    /// Whether a node has a barn.
    pub(super) const fn has_barn(self, node_has_memory: bool) -> bool {
        match self {
            Self::Slab2010 => false,
            Self::Sheaves7_0Rc1 | Self::Sheaves7_0 => node_has_memory,
            Self::Sheaves7_1 => true,
        }
    }

    /// Whether a request fills a sheaf from slabs.
    pub(super) const fn refills(self, may_block: bool) -> bool {
        may_block || !matches!(self, Self::Sheaves7_0Rc1)
    }

    /// Whether CPUs that look to a node keep freed objects of other nodes.
    pub(super) const fn keeps_remote(self, node_has_memory: bool) -> bool {
        matches!(self, Self::Sheaves7_1) && !node_has_memory
    }
}

impl fmt::Display for SlabRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_that_of_one_set() {
        for rules in SlabRules::ALL {
            assert_eq!(SlabRules::by_name(rules.name()), Some(rules));
        }
        assert_eq!(SlabRules::by_name("slub"), None);
    }

    #[test]
    fn nodes_without_memory_have_barns_since_7_1() {
        let of = |rules: SlabRules| {
            [true, false].map(|memory| (rules.has_barn(memory), rules.keeps_remote(memory)))
        };
        assert_eq!(of(SlabRules::Slab2010), [(false, false), (false, false)]);
        assert_eq!(of(SlabRules::Sheaves7_0Rc1), [(true, false), (false, false)]);
        assert_eq!(of(SlabRules::Sheaves7_0), [(true, false), (false, false)]);
        assert_eq!(of(SlabRules::Sheaves7_1), [(true, false), (true, true)]);
    }
}
