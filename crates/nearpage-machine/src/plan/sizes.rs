//! The input of the rules: sizes, CPUs, distances and settings of a machine.

use nearpage::rules::CpuTerm;
use nearpage::rules::watermarks::{HugePages, MinFree, ZoneSize, boot_min_free};
use nearpage::rules::zonelists::{NodeOrder, Online, ZoneRef, nofallback_zones};
use nearpage::{
    AddressMap, CpuId, NodeBuf, NodeId, NodeIndex, PageCount, Pfn, Settings, TopologyBuf,
    TopologyError, ZoneKind,
};

/// The parts of a machine that the rules compute from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// The nodes, ascending by id.
    pub nodes: Vec<NodeSizes>,
    /// Distances between them, row by row.
    pub distances: Vec<u8>,
    /// All online CPUs, ascending.
    pub cpus: Vec<CpuId>,
    /// The settings. If they lack `min_free_kbytes`, the value that boot computes holds.
    pub settings: Settings,
    /// Whether the machine has huge pages.
    pub huge_pages: HugePages,
    /// Whether background reclaim ever ran. Linux computes counter thresholds at boot and again when background reclaim
    /// goes to sleep; a write to a setting leaves them. `mm/vmscan.c: kswapd_try_to_sleep`.
    pub has_reclaimed: bool,
    /// Log2 of the bytes of a page.
    pub page_shift: u32,
}

/// A node of [`Sizes`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeSizes {
    /// The node's id.
    pub id: NodeId,
    /// CPUs that are near the node. Emulated nodes share those of the real one.
    pub cpus: Vec<CpuId>,
    /// One entry a kind of zone, populated or not, lowest first; several if the kind's memory is divided.
    pub zones: Vec<Extent>,
}

/// The addresses and the pages of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// The kind.
    pub kind: ZoneKind,
    /// First frame.
    pub start: Pfn,
    /// Frames from first to last.
    pub spanned: PageCount,
    /// Frames that are memory.
    pub present: PageCount,
    /// Frames that the allocator manages.
    pub managed: PageCount,
    /// Managed frames that boot freed at its end, after it had computed the watermarks.
    pub late: PageCount,
    /// The boost of its watermarks now.
    pub boost: PageCount,
}

impl Extent {
    /// The zone of a kind that a node does not have.
    pub fn empty(kind: ZoneKind) -> Extent {
        let none = PageCount(0);
        let (spanned, present, managed, late, boost) = (none, none, none, none, none);
        Extent { kind, start: Pfn(0), spanned, present, managed, late, boost }
    }

    pub(super) fn size(&self) -> ZoneSize {
        ZoneSize { kind: self.kind, managed: self.managed }
    }

    pub(super) fn size_at_boot(&self) -> ZoneSize {
        let managed = PageCount(self.managed.0.saturating_sub(self.late.0));
        ZoneSize { kind: self.kind, managed }
    }
}

/// Memory counts as online if a zone has it.
impl Online for Sizes {
    fn is_populated(&self, node: NodeIndex, kind: ZoneKind) -> bool {
        let zones = &self.nodes[node.0 as usize].zones;
        zones.iter().any(|zone| zone.kind == kind && zone.present > PageCount(0))
    }

    fn has_cpus(&self, node: NodeIndex) -> bool {
        !self.nodes[node.0 as usize].cpus.is_empty()
    }
}

impl Sizes {
    pub(super) fn zones(&self) -> impl Iterator<Item = &Extent> + Clone {
        self.nodes.iter().flat_map(|node| &node.zones)
    }

    pub(super) fn own_zones(&self, id: NodeId) -> Vec<ZoneRef> {
        let index = self.nodes.iter().position(|node| node.id == id);
        let index = NodeIndex(index.expect("a node of these") as u16);
        nofallback_zones(index, self).collect()
    }

    /// The nodes and their distances, which decide the order together with [`Online`].
    pub(super) fn bare_topology(&self) -> TopologyBuf {
        let node = |node: &NodeSizes| NodeBuf { id: node.id, ..NodeBuf::default() };
        TopologyBuf {
            nodes: self.nodes.iter().map(node).collect(),
            distances: self.distances.clone(),
            address_map: AddressMap::Flat,
        }
    }

    /// The sizes when boot computed its watermarks, without the memory that it freed later.
    pub fn at_boot(&self) -> Sizes {
        let mut sizes = self.clone();
        for zone in sizes.nodes.iter_mut().flat_map(|node| &mut node.zones) {
            zone.managed = zone.size_at_boot().managed;
            zone.late = PageCount(0);
        }
        sizes
    }

    /// The `min_free_kbytes` that boot computes. Of all settings only that of huge pages can be set before boot.
    pub(super) fn boot_min_free(&self) -> MinFree {
        let settings =
            Settings::default().with(|changed| changed.movable_min = self.settings.movable_min);
        let zones = self.zones().map(Extent::size_at_boot);
        boot_min_free(zones, &settings, self.huge_pages, self.page_shift)
    }
}

/// The fallback order of every node.
pub(super) fn fallback_orders(
    sizes: &Sizes,
    topology: &TopologyBuf,
    cpu_term: CpuTerm,
) -> Result<Vec<Vec<NodeIndex>>, TopologyError> {
    let count = sizes.nodes.len();
    topology.with(|topology| {
        let mut orders = Vec::with_capacity(count);
        NodeOrder { topology, online: sizes, cpu_term }.rebuild(
            &mut vec![0; count],
            &mut vec![NodeIndex(0); count],
            |_, order| orders.push(order.to_vec()),
        );
        orders
    })
}
