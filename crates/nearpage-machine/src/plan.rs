//! What an allocator makes of a machine before the first allocation: zones, watermarks, reserves, sizes of
//! pagesets, zonelists. The rules are the core's; this module applies them to a described machine.

mod described;
mod sizes;
mod zone;

use std::fmt::{self, Display};

use nearpage::rules::watermarks::MinFree;
use nearpage::rules::zonelists::{ZoneRef, fallback_zones, write_fallback_order};
use nearpage::rules::{CpuTerm, MemorylessCpu, zonelists};
use nearpage::{
    CpuId, Model, NodeId, NodeIndex, SettingError, Settings, Topology, TopologyBuf, TopologyError,
};

use crate::input::MachineDescription;

pub use described::{huge_pages, settings_of};
pub use sizes::{Extent, NodeSizes, Sizes};
pub use zone::PlannedZone;

use sizes::fallback_orders;
use zone::Rules;

/// When the zonelists were made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lists {
    /// At boot.
    Boot,
    /// At run time, after memory was added or removed.
    Rebuilt,
}

/// A machine as an allocator sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The rules.
    pub model: Model,
    /// When the zonelists were made.
    pub lists: Lists,
    /// `vm.min_free_kbytes`: the machine's setting, or the value that boot computes.
    pub min_free_kbytes: u64,
    /// The `min_free_kbytes` that boot computes, whatever the machine's setting.
    pub boot_min_free: MinFree,
    /// The other settings: the machine's where they are known, else Linux's defaults.
    pub settings: Settings,
    /// The nodes, in the order of the topology.
    pub nodes: Vec<PlannedNode>,
    /// All online CPUs, ascending.
    pub cpus: Vec<CpuId>,
    /// The nodes and their distances; memory and CPUs are left out.
    distances: TopologyBuf,
}

/// A node of a [`Plan`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlannedNode {
    /// The node's id.
    pub id: NodeId,
    /// Its online CPUs.
    pub cpus: Vec<CpuId>,
    /// All zones, populated or not, lowest first.
    pub zones: Vec<PlannedZone>,
    /// The nodes with memory, nearest first.
    pub fallback: Vec<NodeIndex>,
    /// The node whose memory is local to this one's CPUs; `None` if no node has any.
    pub effective: Option<NodeIndex>,
    /// The zones that a request tries.
    pub zonelist: Vec<ZoneRef>,
    /// The zones that a request with `__GFP_THISNODE` tries.
    pub zonelist_this_node: Vec<ZoneRef>,
}

impl Plan {
    /// Applies the rules of `model` to a described machine.
    ///
    /// # Errors
    ///
    /// A setting of the machine that no Linux accepts.
    pub fn new(
        description: &MachineDescription,
        model: Model,
        lists: Lists,
    ) -> Result<Plan, SettingError> {
        Plan::with(description, model, lists, |_| ())
    }

    /// The same, after a change of the machine's settings.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new), of the changed settings.
    pub fn with(
        description: &MachineDescription,
        model: Model,
        lists: Lists,
        change: impl FnOnce(&mut Settings),
    ) -> Result<Plan, SettingError> {
        let mut sizes = described::sizes(description, model);
        change(&mut sizes.settings);
        sizes.settings.check()?;
        let plan = Plan::of(&sizes, model, lists);
        Ok(plan.expect("a description's nodes and distances are valid"))
    }

    /// Applies the rules of `model` to a machine's sizes.
    ///
    /// # Errors
    ///
    /// Nodes or distances that the core refuses.
    pub fn of(sizes: &Sizes, model: Model, lists: Lists) -> Result<Plan, TopologyError> {
        let cpu_term = match lists {
            Lists::Boot => model.cpu_term_at_boot,
            Lists::Rebuilt => CpuTerm::Counted,
        };
        let distances = sizes.bare_topology();
        let orders = fallback_orders(sizes, &distances, cpu_term)?;
        let rules = Rules::new(sizes, &model);
        let node = |(node, fallback): (&NodeSizes, Vec<NodeIndex>)| PlannedNode {
            id: node.id,
            cpus: node.cpus.clone(),
            zones: node.zones.iter().map(|zone| rules.zone(zone, node)).collect(),
            effective: zonelists::effective_node(&fallback, sizes),
            zonelist: fallback_zones(&fallback, sizes).collect(),
            zonelist_this_node: sizes.own_zones(node.id),
            fallback,
        };
        Ok(Plan {
            model,
            lists,
            min_free_kbytes: rules.min_free_kbytes,
            boot_min_free: sizes.boot_min_free(),
            settings: sizes.settings,
            nodes: sizes.nodes.iter().zip(orders).map(node).collect(),
            cpus: sizes.cpus.clone(),
            distances,
        })
    }

    /// What `numa_mem_id()` answers on the CPUs of a node.
    pub fn numa_mem_id(&self, node: &PlannedNode) -> NodeId {
        match (self.model.memoryless_cpu, node.effective) {
            (MemorylessCpu::NearestMemory, Some(nearest)) => self.nodes[nearest.0 as usize].id,
            _ => node.id,
        }
    }

    /// The order of a node as the kernel logs it.
    pub fn logged_order(&self, node: usize) -> Vec<NodeId> {
        let order = &self.nodes[node].fallback;
        let local = NodeIndex(node as u16);
        zonelists::logged_order(local, order, self.model.memoryless_line)
            .map(|node| self.nodes[node.0 as usize].id)
            .collect()
    }

    /// The lines that the kernel logs of its fallback orders.
    pub fn fallback_lines(&self) -> impl Display {
        fmt::from_fn(|out| {
            let write = |topology: &Topology<'_>| {
                let memoryless = self.model.memoryless_line;
                topology.indexes().zip(&self.nodes).try_for_each(|(local, node)| {
                    write_fallback_order(out, topology, local, &node.fallback, memoryless)
                })
            };
            self.distances.with(write).expect("a plan's nodes and distances are valid")
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use nearpage::{PageCount, Pfn, ZoneKind};

    use super::*;
    use crate::input::MachineInput;

    fn description(nodes: &[&str]) -> MachineDescription {
        let nodes = nodes.iter().map(ToString::to_string).collect();
        let input = MachineInput::ShortForm { nodes, distances: Vec::new() };
        MachineDescription::read(&input, &crate::Budget::DEFAULT).unwrap()
    }

    fn plan(nodes: &[&str], model: Model) -> Plan {
        Plan::new(&description(nodes), model, Lists::Boot).unwrap()
    }

    fn zone(plan: &Plan, node: usize, kind: ZoneKind) -> PlannedZone {
        plan.nodes[node].zones[kind.index()]
    }

    #[test]
    fn sizes_become_zones() {
        let plan = plan(&["5G,cpus=0", "3G,cpus=1"], Model::LINUX_6_12);
        let dma32 = zone(&plan, 0, ZoneKind::Dma32);
        assert_eq!((dma32.extent.start, dma32.extent.spanned), (Pfn(4096), PageCount(1_044_480)));
        assert_eq!(
            (dma32.extent.present, dma32.extent.managed),
            (PageCount(782_336), PageCount(782_336))
        );
        assert!(!zone(&plan, 1, ZoneKind::Dma32).is_populated());
        assert_eq!(zone(&plan, 1, ZoneKind::Normal).extent.start, Pfn(1_572_864));
        // Huge pages ask for 11 pageblocks in each of four zones.
        assert_eq!(plan.min_free_kbytes, 4 * 11 * 2048);
        let movable = zone(&plan, 1, ZoneKind::Movable);
        assert_eq!((movable.marks.min, movable.marks.promo), (PageCount(32), PageCount(32)));
    }

    #[test]
    fn little_memory_has_no_huge_pages() {
        let small = plan(&["511M,cpus=0"], Model::LINUX_6_12);
        assert!(!small.settings.transparent_hugepage);
        // Four times the root of the KiB.
        assert_eq!(small.min_free_kbytes, 2893);
        assert!(plan(&["513M,cpus=0"], Model::LINUX_6_12).settings.transparent_hugepage);
    }

    #[test]
    fn models_differ() {
        let nodes = ["2G,cpus=0", "2G"];
        let (old, new) = (plan(&nodes, Model::LINUX_6_1), plan(&nodes, Model::LINUX_6_12));
        let pageset = |plan: &Plan| zone(plan, 0, ZoneKind::Dma32).pageset;
        assert_eq!(pageset(&old).high_max, pageset(&old).high_min);
        assert_eq!(pageset(&old).high_min, pageset(&new).high_min);
        assert!(pageset(&new).high_max > pageset(&new).high_min);
        assert_eq!(zone(&old, 0, ZoneKind::Movable).marks.min, PageCount(0));
    }

    #[test]
    fn settings_are_the_machines_where_it_tells() {
        let mut description = description(&["2G,cpus=0"]);
        let settings = &mut description.machine.settings;
        settings.min_free_kbytes = Some(4096);
        settings.watermark_scale_factor = Some(200);
        settings.lowmem_reserve_ratio = Some(vec![1, 2, 3, 4, 5]);
        settings.percpu_pagelist_high_fraction = Some(100);
        let plan = Plan::new(&description, Model::LINUX_6_12, Lists::Boot).unwrap();
        assert_eq!(plan.min_free_kbytes, 4096);
        assert_eq!(plan.settings.lowmem_reserve_ratio, [1, 2, 3, 4, 5]);
        let dma32 = zone(&plan, 0, ZoneKind::Dma32);
        assert_eq!(dma32.marks.low.0 - dma32.marks.min.0, dma32.extent.managed.0 / 50);
        assert_eq!(dma32.pageset.high_max.0, dma32.extent.managed.0 / 100);

        // A kernel without one of the kinds does not tell which ratio is whose.
        description.machine.settings.lowmem_reserve_ratio = Some(vec![1, 2, 3, 4]);
        let plan = Plan::new(&description, Model::LINUX_6_12, Lists::Boot).unwrap();
        assert_eq!(plan.settings.lowmem_reserve_ratio, [256, 256, 32, 0, 0]);

        description.machine.settings.percpu_pagelist_high_fraction = Some(7);
        let error = Plan::new(&description, Model::LINUX_6_12, Lists::Boot).unwrap_err();
        assert_eq!(
            error.to_string(),
            "percpu_pagelist_high_fraction is 7; accepted: 0, or 8 and more"
        );
    }

    proptest! {
        /// Whatever the sizes: every node with memory is once on every list, the local one first.
        #[test]
        fn lists_have_every_node_with_memory(
            nodes in proptest::collection::vec("0|[1-9][0-9]{0,3}[MG]", 1..12),
        ) {
            let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
            let plan = plan(&nodes, Model::NEARPAGE);
            let has_memory = |node: &PlannedNode| node.zones.iter().any(PlannedZone::is_populated);
            let with_memory = plan.nodes.iter().filter(|node| has_memory(node)).count();
            for (index, node) in plan.nodes.iter().enumerate() {
                let mut order = node.fallback.clone();
                prop_assert!(!has_memory(node) || order[0] == NodeIndex(index as u16));
                order.sort_unstable();
                order.dedup();
                prop_assert_eq!(order.len(), with_memory);
            }
        }
    }
}
