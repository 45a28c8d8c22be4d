//! What an allocator makes of a machine before anybody allocates: zones, watermarks, reserves, sizes of
//! pagesets, zonelists. The rules are the core's; this module applies them to a described machine.

use clap::ValueEnum;
use nearpage::pcp::sizes::{self, Sizes, ZoneShare};
use nearpage::topology::Topology;
use nearpage::units::{CpuId, NodeId, NodeIndex, PageCount, Pfn, ZoneKind};
use nearpage::watermark::{
    self, Marks, MovableMin, SettingError, Settings, Watermarks, ZoneSize, boot_min_free_kbytes,
};
use nearpage::zonelist::{
    self, CpuTerm, MemorylessLine, NodeOrder, ZoneRef, fallback_zones, nofallback_zones,
};

use crate::topology::MachineDescription;

/// Whose rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Model {
    /// Linux 6.1.
    #[value(name = "linux-6.1")]
    Linux6_1,
    /// Linux 6.12.
    #[value(name = "linux-6.12")]
    Linux6_12,
    /// nearpage's own: as 6.12, and nodes without CPUs are always preferred for spilling.
    Nearpage,
}

impl Model {
    /// The name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Model::Linux6_1 => "linux-6.1",
            Model::Linux6_12 => "linux-6.12",
            Model::Nearpage => "nearpage",
        }
    }

    /// Whether nodes without CPUs are preferred.
    fn cpu_term(self, lists: Lists) -> CpuTerm {
        match (self, lists) {
            (Model::Linux6_1 | Model::Linux6_12, Lists::Boot) => CpuTerm::Ignored,
            (Model::Nearpage, _) | (_, Lists::Rebuilt) => CpuTerm::Counted,
        }
    }

    fn movable_min(self) -> MovableMin {
        match self {
            Model::Linux6_1 => MovableMin::Proportional,
            Model::Linux6_12 | Model::Nearpage => MovableMin::Small,
        }
    }

    /// How the order of a memoryless node is printed.
    pub fn memoryless_line(self) -> MemorylessLine {
        match self {
            Model::Linux6_1 => MemorylessLine::WithSelf,
            Model::Linux6_12 | Model::Nearpage => MemorylessLine::WithoutSelf,
        }
    }
}

/// When the zonelists were made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lists {
    /// At boot.
    Boot,
    /// At run time, after memory came or went.
    Rebuilt,
}

/// A machine as an allocator sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Whose rules.
    pub model: Model,
    /// When the zonelists were made.
    pub lists: Lists,
    /// `vm.min_free_kbytes`: the machine's, or what the model ends up with after boot.
    pub min_free_kbytes: u64,
    /// The other settings: the machine's where it tells, else Linux's defaults.
    pub settings: Settings,
    /// The nodes, in the order of the topology.
    pub nodes: Vec<PlannedNode>,
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

/// A zone of a [`Plan`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlannedZone {
    /// The kind.
    pub kind: ZoneKind,
    /// First frame.
    pub start: Pfn,
    /// Frames from first to last.
    pub spanned: PageCount,
    /// Frames that are memory.
    pub present: PageCount,
    /// Frames that the allocator is given.
    pub managed: PageCount,
    /// Watermarks.
    pub marks: Marks,
    /// What it keeps from requests, by the highest kind that they could have used.
    pub protection: [PageCount; ZoneKind::COUNT],
    /// Sizes of every CPU's pageset.
    pub pageset: Sizes,
    /// How far a CPU's counters may lag behind.
    pub stat_threshold: u32,
}

impl PlannedZone {
    /// Whether the zone has memory.
    pub fn is_populated(&self) -> bool {
        self.present > PageCount(0)
    }
}

impl Plan {
    /// Applies the rules of `model` to a machine.
    ///
    /// # Errors
    ///
    /// A setting of the machine that no Linux accepts.
    pub fn new(
        description: &MachineDescription,
        model: Model,
        lists: Lists,
    ) -> Result<Plan, SettingError> {
        description
            .topology
            .with(|topology| plan(description, topology, model, lists))
            .expect("a description's topology is valid")
    }

    /// All online CPUs, ascending.
    pub fn cpus(&self) -> Vec<CpuId> {
        let mut cpus: Vec<CpuId> =
            self.nodes.iter().flat_map(|node| node.cpus.iter().copied()).collect();
        cpus.sort_unstable();
        cpus
    }
}

fn plan(
    description: &MachineDescription,
    topology: &Topology<'_>,
    model: Model,
    lists: Lists,
) -> Result<Plan, SettingError> {
    let extents: Vec<Vec<Extent>> =
        topology.indexes().map(|node| extents(description, topology, node)).collect();
    let settings = settings(description, model, &extents);
    settings.check()?;
    let page_shift = description.machine.page_bytes.trailing_zeros();
    let sizes = extents.iter().flatten().map(Extent::size);
    let min_free_kbytes = boot_min_free_kbytes(sizes.clone(), &settings, page_shift);
    let rules = Rules {
        watermarks: Watermarks::new(sizes, min_free_kbytes, &settings, page_shift),
        settings,
        model,
        page_shift,
        cpus_online: topology.nodes().iter().map(|node| node.cpus.len() as u32).sum(),
    };
    let orders = fallback_orders(topology, model.cpu_term(lists));
    let node = |((index, fallback), extents): ((NodeIndex, Vec<NodeIndex>), &Vec<Extent>)| {
        let node = topology.node(index);
        PlannedNode {
            id: node.id,
            cpus: node.cpus.to_vec(),
            zones: extents.iter().map(|zone| rules.zone(zone, extents, node.cpus.len())).collect(),
            effective: zonelist::effective_node(&fallback, topology),
            zonelist: fallback_zones(&fallback, topology).collect(),
            zonelist_this_node: nofallback_zones(index, topology).collect(),
            fallback,
        }
    };
    let nodes = topology.indexes().zip(orders).zip(&extents).map(node).collect();
    Ok(Plan { model, lists, min_free_kbytes, settings, nodes })
}

/// Where a zone lies and what it has.
#[derive(Clone, Copy)]
struct Extent {
    kind: ZoneKind,
    start: Pfn,
    spanned: PageCount,
    present: PageCount,
    managed: PageCount,
}

impl Extent {
    fn size(&self) -> ZoneSize {
        ZoneSize { kind: self.kind, managed: self.managed }
    }
}

/// The zones of a node: as recorded, or else as the topology has them, with all of it managed.
fn extents(
    description: &MachineDescription,
    topology: &Topology<'_>,
    node: NodeIndex,
) -> Vec<Extent> {
    let recorded = &description.machine.nodes[node.0 as usize].zones;
    let extent = |kind| match recorded.iter().find(|zone| zone.kind == kind) {
        Some(zone) => Extent {
            kind,
            start: zone.start,
            spanned: zone.spanned,
            present: zone.present,
            managed: zone.managed,
        },
        None => {
            let span = topology.span(node, kind);
            let present = topology.present(node, kind);
            Extent { kind, start: span.start, spanned: span.pages(), present, managed: present }
        }
    };
    ZoneKind::ALL.map(extent).to_vec()
}

/// The machine's settings, and Linux's defaults where it does not tell.
fn settings(description: &MachineDescription, model: Model, extents: &[Vec<Extent>]) -> Settings {
    /// With less memory, Linux turns transparent huge pages off. `mm/huge_memory.c: hugepage_init`.
    const HUGEPAGE_BYTES_MIN: u64 = 512 << 20;
    let known = &description.machine.settings;
    let defaults = Settings::default();
    let pages: u64 = extents.iter().flatten().map(|zone| zone.managed.0).sum();
    let is_large = pages.saturating_mul(description.machine.page_bytes) >= HUGEPAGE_BYTES_MIN;
    // A kernel that is built without some kind of zone has no ratio for it; which one, it does not tell.
    let ratios =
        known.lowmem_reserve_ratio.as_ref().and_then(|list| list.as_slice().try_into().ok());
    Settings {
        min_free_kbytes: known.min_free_kbytes,
        watermark_scale_factor: known
            .watermark_scale_factor
            .unwrap_or(defaults.watermark_scale_factor),
        lowmem_reserve_ratio: ratios.unwrap_or(defaults.lowmem_reserve_ratio),
        percpu_pagelist_high_fraction: known.percpu_pagelist_high_fraction.unwrap_or(0),
        transparent_hugepage: known.transparent_hugepages.unwrap_or(true) && is_large,
        movable_min: model.movable_min(),
        ..defaults
    }
}

/// What the zones of a machine have in common.
struct Rules {
    watermarks: Watermarks,
    settings: Settings,
    model: Model,
    page_shift: u32,
    cpus_online: u32,
}

impl Rules {
    fn zone(&self, zone: &Extent, of_node: &[Extent], cpus_of_node: usize) -> PlannedZone {
        let marks = self.watermarks.marks(zone.size());
        let mut managed = [PageCount(0); ZoneKind::COUNT];
        for other in of_node {
            managed[other.kind.index()] = other.managed;
        }
        PlannedZone {
            kind: zone.kind,
            start: zone.start,
            spanned: zone.spanned,
            present: zone.present,
            managed: zone.managed,
            marks,
            protection: watermark::lowmem_reserve(zone.kind, &managed, &self.settings),
            pageset: self.pageset(zone, marks, cpus_of_node),
            stat_threshold: sizes::stat_threshold(zone.managed, self.cpus_online, self.page_shift),
        }
    }

    fn pageset(&self, zone: &Extent, marks: Marks, cpus_of_node: usize) -> Sizes {
        let cpus = if cpus_of_node == 0 { self.cpus_online } else { cpus_of_node as u32 };
        let share = ZoneShare { managed: zone.managed, low: marks.low, cpus };
        let fraction = self.settings.percpu_pagelist_high_fraction;
        let sizes = Sizes::of(share, fraction, self.page_shift);
        match self.model {
            // Before the tuning of 6.7 the limit is fixed.
            Model::Linux6_1 => Sizes { high_max: sizes.high_min, ..sizes },
            Model::Linux6_12 | Model::Nearpage => sizes,
        }
    }
}

/// The fallback order of every node.
fn fallback_orders(topology: &Topology<'_>, cpu_term: CpuTerm) -> Vec<Vec<NodeIndex>> {
    let mut loads = vec![0; topology.len()];
    let mut order = vec![NodeIndex(0); topology.len()];
    let mut orders = Vec::with_capacity(topology.len());
    NodeOrder { topology, online: topology, cpu_term }.rebuild(
        &mut loads,
        &mut order,
        |_, order| {
            orders.push(order.to_vec());
        },
    );
    orders
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::topology::MachineInput;

    fn description(nodes: &[&str]) -> MachineDescription {
        let nodes = nodes.iter().map(ToString::to_string).collect();
        let input = MachineInput::ShortForm { nodes, distances: Vec::new() };
        MachineDescription::read(&input).unwrap()
    }

    fn plan(nodes: &[&str], model: Model) -> Plan {
        Plan::new(&description(nodes), model, Lists::Boot).unwrap()
    }

    fn zone(plan: &Plan, node: usize, kind: ZoneKind) -> PlannedZone {
        plan.nodes[node].zones[kind.index()]
    }

    #[test]
    fn sizes_become_zones() {
        let plan = plan(&["5G,cpus=0", "3G,cpus=1"], Model::Linux6_12);
        let dma32 = zone(&plan, 0, ZoneKind::Dma32);
        assert_eq!((dma32.start, dma32.spanned), (Pfn(4096), PageCount(1_044_480)));
        assert_eq!((dma32.present, dma32.managed), (PageCount(782_336), PageCount(782_336)));
        assert!(!zone(&plan, 1, ZoneKind::Dma32).is_populated());
        assert_eq!(zone(&plan, 1, ZoneKind::Normal).start, Pfn(1_572_864));
        // Huge pages ask for 11 pageblocks in each of four zones.
        assert_eq!(plan.min_free_kbytes, 4 * 11 * 2048);
        let movable = zone(&plan, 1, ZoneKind::Movable);
        assert_eq!((movable.marks.min, movable.marks.promo), (PageCount(32), PageCount(32)));
    }

    #[test]
    fn little_memory_has_no_huge_pages() {
        let small = plan(&["511M,cpus=0"], Model::Linux6_12);
        assert!(!small.settings.transparent_hugepage);
        // Four times the root of the KiB.
        assert_eq!(small.min_free_kbytes, 2893);
        assert!(plan(&["513M,cpus=0"], Model::Linux6_12).settings.transparent_hugepage);
    }

    #[test]
    fn models_differ() {
        let nodes = ["2G,cpus=0", "2G"];
        let (old, new) = (plan(&nodes, Model::Linux6_1), plan(&nodes, Model::Linux6_12));
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
        let plan = Plan::new(&description, Model::Linux6_12, Lists::Boot).unwrap();
        assert_eq!(plan.min_free_kbytes, 4096);
        assert_eq!(plan.settings.lowmem_reserve_ratio, [1, 2, 3, 4, 5]);
        let dma32 = zone(&plan, 0, ZoneKind::Dma32);
        assert_eq!(dma32.marks.low.0 - dma32.marks.min.0, dma32.managed.0 / 50);
        assert_eq!(dma32.pageset.high_max.0, dma32.managed.0 / 100);

        // A kernel without one of the kinds does not tell which ratio is whose.
        description.machine.settings.lowmem_reserve_ratio = Some(vec![1, 2, 3, 4]);
        let plan = Plan::new(&description, Model::Linux6_12, Lists::Boot).unwrap();
        assert_eq!(plan.settings.lowmem_reserve_ratio, [256, 256, 32, 0, 0]);

        description.machine.settings.percpu_pagelist_high_fraction = Some(7);
        let error = Plan::new(&description, Model::Linux6_12, Lists::Boot).unwrap_err();
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
            let plan = plan(&nodes, Model::Nearpage);
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
