//! A node, and how addresses are divided into zones.

use crate::units::{CpuId, NodeId, Pfn, PfnRange, ZoneKind};

/// Most nodes that a topology may have: four zones of each must fit a [`ZoneIndex`].
///
/// [`ZoneIndex`]: crate::units::ZoneIndex
pub(super) const MAX_NODES: usize = 1 << 14;

/// The distance of a node to itself. `include/linux/topology.h: LOCAL_DISTANCE`.
pub(super) const LOCAL_DISTANCE: u8 = 10;

/// One node of a machine.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    /// The number by which the machine knows the node.
    pub id: NodeId,
    /// All memory that the node has or may get later, ascending, not overlapping; empty for a memoryless node.
    pub memory: &'a [PfnRange],
    /// CPUs of the node, ascending; empty for a CPU-less node.
    pub cpus: &'a [CpuId],
    /// First frame of the node's Movable zone, which reaches to the node's end; `None`, or a frame at
    /// or above the node's end, means that the node has none.
    pub movable_from: Option<Pfn>,
}

/// How addresses are divided into zones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AddressMap {
    /// All memory is in a Normal zone: user space.
    Flat,
    /// DMA below 16 MiB, DMA32 below 4 GiB, Normal above (pages of 4 KiB). `arch/x86/mm/init.c: zone_sizes_init`.
    X86,
}

/// First frame of DMA32 with [`AddressMap::X86`]: 16 MiB.
const X86_DMA_END: u64 = (16 << 20) / 4096;
/// First frame of Normal with [`AddressMap::X86`]: 4 GiB.
const X86_DMA32_END: u64 = (4 << 30) / 4096;
/// One past any frame.
const PFN_MAX: u64 = u64::MAX;

impl AddressMap {
    /// Addresses of `kind`, before Movable zones take theirs away.
    const fn bounds(self, kind: ZoneKind) -> PfnRange {
        match (self, kind) {
            (Self::Flat, ZoneKind::Normal) => PfnRange::new(0, PFN_MAX),
            (Self::X86, ZoneKind::Dma) => PfnRange::new(0, X86_DMA_END),
            (Self::X86, ZoneKind::Dma32) => PfnRange::new(X86_DMA_END, X86_DMA32_END),
            (Self::X86, ZoneKind::Normal) => PfnRange::new(X86_DMA32_END, PFN_MAX),
            _ => PfnRange::new(0, 0),
        }
    }
}

impl Node<'_> {
    /// From the node's first to its last frame, holes included; empty for a memoryless node.
    pub(super) fn extent(&self) -> PfnRange {
        match (self.memory.first(), self.memory.last()) {
            (Some(first), Some(last)) => PfnRange { start: first.start, end: last.end },
            _ => PfnRange::new(0, 0),
        }
    }

    /// Addresses that are of `kind` on this node.
    pub(super) fn bounds(&self, map: AddressMap, kind: ZoneKind) -> PfnRange {
        let movable_from = self.movable_from.unwrap_or(Pfn(PFN_MAX));
        match kind {
            ZoneKind::Movable => PfnRange { start: movable_from, end: Pfn(PFN_MAX) },
            _ => map.bounds(kind).intersection(PfnRange { start: Pfn(0), end: movable_from }),
        }
    }
}
