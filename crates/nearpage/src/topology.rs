//! The machine as plain data: nodes, their memory and CPUs, distances between them.
//!
//! Node ids are sparse, nodes may have no memory or no CPU, distances need not be symmetric, a node may
//! have several ranges with holes between them, and the ranges of two nodes may interleave. Nothing
//! here indexes by id.
//!
//! A zone is the part of one node's memory that is of one kind. Its span runs from the node's first to
//! its last frame of that kind, holes included, even where the holes belong to other nodes; the frames
//! that the node itself has there are *present*. The kinds are address intervals ([`AddressMap`]), and
//! Movable is carved from the top of a node ([`Node::movable_from`]). Normal memory may be divided into several zones
//! ([`ZoneInstances`]).

mod instances;
mod node;
mod validate;

pub use instances::ZoneInstances;
pub use node::{AddressMap, Node};
use node::{LOCAL_DISTANCE, MAX_NODES};
pub use validate::TopologyError;

use crate::units::{CpuId, NodeId, NodeIndex, PageCount, Pfn, PfnRange, ZoneKind};

/// A machine: validated nodes in ascending order of ids and the distances between them.
///
/// Methods that take a [`NodeIndex`] panic if it is not below [`len`](Topology::len).
#[derive(Clone, Copy, Debug)]
pub struct Topology<'a> {
    nodes: &'a [Node<'a>],
    distances: &'a [u8],
    address_map: AddressMap,
    instances: ZoneInstances,
}

impl<'a> Topology<'a> {
    /// Most nodes that a topology may have: four zones of each must fit a [`ZoneIndex`](crate::ZoneIndex).
    pub const NODES_MAX: usize = MAX_NODES;
    /// The distance of a node to itself. `include/linux/topology.h: LOCAL_DISTANCE`.
    pub const LOCAL_DISTANCE: u8 = LOCAL_DISTANCE;

    /// Makes a topology of `nodes`, ascending by id, and `distances`, row by row in the order of
    /// `nodes`: entry `from * nodes.len() + to`. Distances may be asymmetric; a range may start and
    /// end at any frame.
    ///
    /// # Errors
    ///
    /// The first [`TopologyError`] that the data has: no or too many nodes, ids, CPUs or ranges that are
    /// not ascending or occur twice, an empty range, a table of distances of the wrong size, a distance
    /// below 10, or a local one other than 10.
    pub fn new(
        nodes: &'a [Node<'a>],
        distances: &'a [u8],
        address_map: AddressMap,
    ) -> Result<Self, TopologyError> {
        validate::check(nodes, distances)?;
        Ok(Self { nodes, distances, address_map, instances: ZoneInstances::ONE })
    }

    /// The same machine with its Normal memory divided so. An allocator divides it as its model says.
    #[must_use]
    pub fn with_instances(self, instances: ZoneInstances) -> Self {
        Self { instances, ..self }
    }

    /// The nodes, ascending by id.
    pub fn nodes(&self) -> &'a [Node<'a>] {
        self.nodes
    }

    /// How addresses are divided into zones.
    pub fn address_map(&self) -> AddressMap {
        self.address_map
    }

    /// Number of nodes: one or more.
    #[expect(clippy::len_without_is_empty, reason = "a topology is never empty")]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Indexes of all nodes, ascending.
    pub fn indexes(
        &self,
    ) -> impl DoubleEndedIterator<Item = NodeIndex> + ExactSizeIterator + use<> {
        // `MAX_NODES` fits.
        (0..self.nodes.len() as u16).map(NodeIndex)
    }

    /// The node at `index`.
    pub fn node(&self, index: NodeIndex) -> &'a Node<'a> {
        &self.nodes[index.0 as usize]
    }

    /// The index of the node that the machine knows as `id`.
    pub fn index_of(&self, id: NodeId) -> Option<NodeIndex> {
        let position = self.nodes.binary_search_by_key(&id, |node| node.id).ok()?;
        Some(NodeIndex(position as u16))
    }

    /// The distance from node `from` to node `to`.
    pub fn distance(&self, from: NodeIndex, to: NodeIndex) -> u8 {
        self.distances[from.0 as usize * self.nodes.len() + to.0 as usize]
    }

    /// The node of a CPU, or `None` if no node has it.
    pub fn node_of_cpu(&self, cpu: CpuId) -> Option<NodeIndex> {
        self.indexes().find(|&index| self.node(index).cpus.binary_search(&cpu).is_ok())
    }

    /// The node whose memory holds a frame, or `None` for a frame in a hole.
    pub fn node_of_pfn(&self, pfn: Pfn) -> Option<NodeIndex> {
        self.indexes().find(|&index| {
            let memory = self.node(index).memory;
            memory
                .get(memory.partition_point(|range| range.end <= pfn))
                .is_some_and(|r| r.contains(pfn))
        })
    }

    /// The kind of the zone that holds a frame, or `None` for a frame in a hole.
    pub fn zone_kind_of(&self, pfn: Pfn) -> Option<ZoneKind> {
        let node = self.node(self.node_of_pfn(pfn)?);
        ZoneKind::ALL.into_iter().find(|&kind| node.bounds(self.address_map, kind).contains(pfn))
    }

    /// The frames from the first to the last that a zone could have, holes included: the node's extent
    /// cut to the kind's addresses, as Linux prints it (`spanned`, `start_pfn`). 0..0 for an empty
    /// zone.
    /// `mm/mm_init.c: calculate_node_totalpages`.
    pub fn span(&self, node: NodeIndex, kind: ZoneKind) -> PfnRange {
        let node = self.node(node);
        let span = node.extent().intersection(node.bounds(self.address_map, kind));
        if span.is_empty() { PfnRange::new(0, 0) } else { span }
    }

    /// The ranges of memory in a zone, ascending.
    pub fn ranges(
        &self,
        node: NodeIndex,
        kind: ZoneKind,
    ) -> impl DoubleEndedIterator<Item = PfnRange> + use<'a> {
        self.ranges_in(node, self.node(node).bounds(self.address_map, kind))
    }

    /// The ranges of a node's memory within `span`, ascending.
    pub fn ranges_in(
        &self,
        node: NodeIndex,
        span: PfnRange,
    ) -> impl DoubleEndedIterator<Item = PfnRange> + use<'a> {
        let ranges = self.node(node).memory.iter();
        ranges.map(move |range| range.intersection(span)).filter(|range| !range.is_empty())
    }

    /// The spans of a node's zones of a kind, ascending: of those that have memory.
    pub fn zone_spans(
        &self,
        node: NodeIndex,
        kind: ZoneKind,
    ) -> impl Iterator<Item = PfnRange> + use<'a> {
        let topology = *self;
        let count = match kind {
            ZoneKind::Normal => self.instances.count(self.present(node, kind)),
            _ => 1,
        };
        let has_memory = move |span: &PfnRange| topology.ranges_in(node, *span).next().is_some();
        instances::parts(self.span(node, kind), count).filter(has_memory)
    }

    /// The most zones of one kind that a node has: at least 1.
    pub fn most_instances(&self) -> usize {
        let of_node = |node| self.zone_spans(node, ZoneKind::Normal).count();
        self.indexes().map(of_node).max().unwrap_or(1).max(1)
    }

    /// Pages of memory in a zone: its span without the holes.
    pub fn present(&self, node: NodeIndex, kind: ZoneKind) -> PageCount {
        PageCount(self.ranges(node, kind).map(|range| range.pages().0).sum())
    }

    /// Whether a zone has memory. A zone may span frames and have none of them.
    pub fn is_populated(&self, node: NodeIndex, kind: ZoneKind) -> bool {
        self.ranges(node, kind).next().is_some()
    }
}

/// A node of a [`TopologyBuf`].
#[cfg(any(test, feature = "alloc"))]
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeBuf {
    /// The number by which the machine knows the node.
    pub id: NodeId,
    /// Memory, ascending; empty for a memoryless node.
    pub memory: std_alloc::vec::Vec<PfnRange>,
    /// CPUs, ascending; empty for a CPU-less node.
    pub cpus: std_alloc::vec::Vec<CpuId>,
    /// First frame of the node's Movable zone, if it has one.
    pub movable_from: Option<Pfn>,
}

#[cfg(any(test, feature = "alloc"))]
impl NodeBuf {
    /// The node of a [`Topology`], which borrows this one.
    pub fn as_node(&self) -> Node<'_> {
        let Self { id, memory, cpus, movable_from } = self;
        Node { id: *id, memory, cpus, movable_from: *movable_from }
    }
}

/// A machine that owns its data, for hosts with a heap. Not validated until it is used.
#[cfg(any(test, feature = "alloc"))]
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopologyBuf {
    /// The nodes, ascending by id.
    pub nodes: std_alloc::vec::Vec<NodeBuf>,
    /// Distances, row by row in the order of `nodes`: entry `from * nodes.len() + to`.
    pub distances: std_alloc::vec::Vec<u8>,
    /// How addresses are divided into zones.
    pub address_map: AddressMap,
}

#[cfg(any(test, feature = "alloc"))]
impl TopologyBuf {
    /// Calls `f` with the validated topology, which borrows this one, and returns what it returns.
    ///
    /// # Errors
    ///
    /// As [`Topology::new`]; `f` is not called then.
    pub fn with<R>(&self, f: impl FnOnce(&Topology<'_>) -> R) -> Result<R, TopologyError> {
        let nodes: std_alloc::vec::Vec<_> = self.nodes.iter().map(NodeBuf::as_node).collect();
        Topology::new(&nodes, &self.distances, self.address_map).map(|topology| f(&topology))
    }
}

#[cfg(test)]
mod tests {
    use std_alloc::vec;
    use std_alloc::vec::Vec;

    use super::*;

    const GIB: u64 = (1 << 30) / 4096;

    pub(super) fn node(id: u32, memory: &[(u64, u64)], cpus: &[u32]) -> NodeBuf {
        NodeBuf {
            id: NodeId(id),
            memory: memory.iter().map(|&(start, end)| PfnRange::new(start, end)).collect(),
            cpus: cpus.iter().copied().map(CpuId).collect(),
            movable_from: None,
        }
    }

    pub(super) fn machine(nodes: Vec<NodeBuf>) -> TopologyBuf {
        let count = nodes.len();
        let distance = |at| if at / count == at % count { 10 } else { 20 };
        let distances = (0..count * count).map(distance).collect();
        TopologyBuf { nodes, distances, address_map: AddressMap::X86 }
    }

    /// Vector B of the recordings, in boot's own numbers: 5 GiB and 3 GiB around the hole below 4 GiB.
    pub(super) fn vector_b() -> TopologyBuf {
        machine(vec![
            node(0, &[(1, 0x9f), (0x100, 0xbffe0), (0x10_0000, 0x18_0000)], &[0, 1]),
            node(1, &[(0x18_0000, 0x24_0000)], &[2, 3]),
        ])
    }

    /// (start, spanned, present) of each spanned zone, by node and kind.
    fn zones(machine: &TopologyBuf) -> Vec<(usize, &'static str, u64, u64, u64)> {
        let list = |topology: &Topology<'_>| {
            let mut zones = Vec::new();
            for index in topology.indexes() {
                for kind in ZoneKind::ALL {
                    let span = topology.span(index, kind);
                    let present = topology.present(index, kind).0;
                    assert_eq!(topology.is_populated(index, kind), present > 0);
                    if !span.is_empty() {
                        let node = index.0 as usize;
                        zones.push((node, kind.name(), span.start.0, span.pages().0, present));
                    }
                }
            }
            zones
        };
        machine.with(list).unwrap()
    }

    #[test]
    fn zones_are_as_recorded() {
        // 6.12.117 with 5 GiB and 3 GiB; `spanned` of DMA32 includes the hole below 4 GiB.
        let expected = vec![
            (0, "DMA", 1, 4095, 3998),
            (0, "DMA32", 4096, 1_044_480, 782_304),
            (0, "Normal", 1_048_576, 524_288, 524_288),
            (1, "Normal", 1_572_864, 786_432, 786_432),
        ];
        assert_eq!(zones(&vector_b()), expected);
    }

    #[test]
    fn movable_zones_are_carved_from_the_top() {
        // Vector C: vector B with movablecore=2G.
        let mut machine = vector_b();
        machine.nodes[0].movable_from = Some(Pfn(1_049_600));
        let expected = vec![
            (0, "DMA", 1, 4095, 3998),
            (0, "DMA32", 4096, 1_044_480, 782_304),
            (0, "Normal", 1_048_576, 1024, 1024),
            (0, "Movable", 1_049_600, 523_264, 523_264),
            (1, "Normal", 1_572_864, 786_432, 786_432),
        ];
        assert_eq!(zones(&machine), expected);
        let kind = |pfn| machine.with(|topology| topology.zone_kind_of(Pfn(pfn))).unwrap();
        assert_eq!(kind(1_049_599), Some(ZoneKind::Normal));
        assert_eq!(kind(1_049_600), Some(ZoneKind::Movable));
        assert_eq!(kind(1_572_864), Some(ZoneKind::Normal));

        machine.nodes[0].movable_from = Some(Pfn(0));
        machine.nodes[1].movable_from = Some(Pfn(0x24_0000));
        let all_movable = vec![
            (0, "Movable", 1, 1_572_863, 3998 + 782_304 + 524_288),
            (1, "Normal", 1_572_864, 786_432, 786_432),
        ];
        assert_eq!(zones(&machine), all_movable);
    }

    #[test]
    fn frames_and_cpus_are_found() {
        let machine = machine(vec![
            node(0, &[(1, 4000), (5000, GIB), (2 * GIB, 3 * GIB)], &[0, 2]),
            node(8, &[(GIB, 2 * GIB), (4 * GIB, 5 * GIB)], &[1, 700]),
            node(252, &[], &[3]),
        ]);
        let check = |topology: &Topology<'_>| {
            assert_eq!(topology.len(), 3);
            assert_eq!(topology.index_of(NodeId(8)), Some(NodeIndex(1)));
            assert_eq!(topology.index_of(NodeId(252)), Some(NodeIndex(2)));
            assert_eq!(topology.index_of(NodeId(1)), None);
            assert_eq!(topology.distance(NodeIndex(0), NodeIndex(2)), 20);
            assert_eq!(topology.node_of_cpu(CpuId(700)), Some(NodeIndex(1)));
            assert_eq!(topology.node_of_cpu(CpuId(3)), Some(NodeIndex(2)));
            assert_eq!(topology.node_of_cpu(CpuId(4)), None);
            let places =
                [(0, None), (1, Some(0)), (4000, None), (GIB - 1, Some(0)), (GIB, Some(1))];
            for (pfn, node) in places.into_iter().chain([(3 * GIB, None), (4 * GIB, Some(1))]) {
                assert_eq!(topology.node_of_pfn(Pfn(pfn)), node.map(NodeIndex), "frame {pfn}");
            }
            assert_eq!(topology.zone_kind_of(Pfn(4095)), None);
            assert_eq!(topology.zone_kind_of(Pfn(5000)), Some(ZoneKind::Dma32));
            assert_eq!(topology.zone_kind_of(Pfn(4 * GIB)), Some(ZoneKind::Normal));
            assert!(topology.span(NodeIndex(2), ZoneKind::Normal).is_empty());
        };
        machine.with(check).unwrap();
    }

    #[test]
    fn flat_machines_have_normal_zones_only() {
        let mut machine = vector_b();
        machine.address_map = AddressMap::Flat;
        let expected = vec![
            (0, "Normal", 1, 1_572_863, 3998 + 782_304 + 524_288),
            (1, "Normal", 1_572_864, 786_432, 786_432),
        ];
        assert_eq!(zones(&machine), expected);
    }

    /// 6.12.117 on aarch64 with 3328 MiB, 0 and 512 MiB: memory begins at 1 GiB, and there is no DMA32.
    #[test]
    fn other_processors_divide_addresses_elsewhere() {
        let end = Pfn(0x10_0000);
        let address_map = AddressMap::Divided { dma_end: end, dma32_end: end };
        let nodes = vec![
            node(0, &[(0x4_0000, 0x11_0000)], &[0, 1]),
            node(1, &[], &[2]),
            node(2, &[(0x11_0000, 0x13_0000)], &[3]),
        ];
        let expected = vec![
            (0, "DMA", 0x4_0000, 786_432, 786_432),
            (0, "Normal", 1_048_576, 65_536, 65_536),
            (2, "Normal", 1_114_112, 131_072, 131_072),
        ];
        assert_eq!(zones(&TopologyBuf { address_map, ..machine(nodes) }), expected);
        let span = |start: u64, spanned: u64| PfnRange::new(start, start + spanned);
        let dma = (ZoneKind::Dma, span(0x4_0000, 786_432));
        let normal = (ZoneKind::Normal, span(1_048_576, 65_536));
        assert_eq!(AddressMap::of_zones([normal, dma]), Some(address_map));
    }

    #[test]
    fn a_map_is_found_for_zones_that_lie_one_above_the_other() {
        let zones = [
            (ZoneKind::Dma, PfnRange::new(1, 4096)),
            (ZoneKind::Dma32, PfnRange::new(4096, 0x8000)),
            (ZoneKind::Movable, PfnRange::new(0x6000, 0x8000)),
        ];
        assert_eq!(AddressMap::of_zones(zones), Some(AddressMap::X86));
        // As riscv64 has them, and a processor with Normal alone.
        let dma32 = (ZoneKind::Dma32, PfnRange::new(0x8_0000, 0x9_0000));
        let (dma_end, dma32_end) = (Pfn(0), Pfn(0x9_0000));
        let normal = (ZoneKind::Normal, PfnRange::new(0x9_0000, 0xa_0000));
        let divided = AddressMap::Divided { dma_end, dma32_end };
        assert_eq!(AddressMap::of_zones([dma32, normal]), Some(divided));
        let divided = AddressMap::Divided { dma_end, dma32_end: Pfn(0) };
        assert_eq!(AddressMap::of_zones([normal]), Some(divided));
        // DMA would reach over Normal.
        let dma = (ZoneKind::Dma, PfnRange::new(0x9_8000, 0xb_0000));
        assert_eq!(AddressMap::of_zones([normal, dma]), None);
        let empty = (ZoneKind::Dma, PfnRange::new(0xb_0000, 0xb_0000));
        assert_eq!(AddressMap::of_zones([empty, normal]), Some(divided));
    }

    #[test]
    fn asymmetric_and_equal_distances_are_legal() {
        let mut machine = vector_b();
        machine.distances = vec![10, 10, 255, 10];
        assert_eq!(machine.with(|t| t.distance(NodeIndex(1), NodeIndex(0))), Ok(255));
    }

    proptest::proptest! {
        /// Zones partition the memory, and every lookup agrees with a scan of all ranges.
        #[test]
        fn zones_partition_memory(
            lengths in proptest::collection::vec((0u64..400_000, 1u64..400_000, 0usize..4), 1..20),
            movable_from in proptest::collection::vec(proptest::option::of(0u64..4_000_000), 4),
            ends in proptest::option::of([0u64..4_000_000, 0u64..4_000_000]),
        ) {
            let mut nodes: Vec<NodeBuf> = (0..4).map(|id| node(3 * id, &[], &[id])).collect();
            let mut at = 1;
            for &(hole, length, owner) in &lengths {
                nodes[owner].memory.push(PfnRange::new(at + hole, at + hole + length));
                at += hole + length;
            }
            for (node, &from) in nodes.iter_mut().zip(&movable_from) {
                node.movable_from = from.map(Pfn);
            }
            let mut machine = machine(nodes);
            if let Some([a, b]) = ends {
                let (dma_end, dma32_end) = (Pfn(a.min(b)), Pfn(a.max(b)));
                machine.address_map = AddressMap::Divided { dma_end, dma32_end };
            }
            machine.with(check_partition).unwrap();
        }
    }

    fn check_partition(topology: &Topology<'_>) {
        for index in topology.indexes() {
            let node = topology.node(index);
            let mut present = 0;
            for kind in ZoneKind::ALL {
                let span = topology.span(index, kind);
                for range in topology.ranges(index, kind) {
                    assert_eq!(span.intersection(range), range);
                    present += range.pages().0;
                    for pfn in [range.start, Pfn(range.end.0 - 1)] {
                        assert_eq!(topology.node_of_pfn(pfn), Some(index), "{pfn}");
                        assert_eq!(topology.zone_kind_of(pfn), Some(kind), "{pfn}");
                    }
                }
            }
            assert_eq!(present, node.memory.iter().map(|range| range.pages().0).sum::<u64>());
            let behind = node.memory.last().map_or(0, |range| range.end.0);
            let naive = topology
                .nodes()
                .iter()
                .position(|node| node.memory.iter().any(|range| range.contains(Pfn(behind))));
            assert_eq!(topology.node_of_pfn(Pfn(behind)).map(|index| index.0 as usize), naive);
        }
    }
}
