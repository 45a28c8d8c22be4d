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
    /// DMA below a frame, DMA32 from there to another one, Normal above, as other processors have them: aarch64 mostly has
    /// DMA below 4 GiB and no DMA32. `arch/arm64/mm/init.c: zone_sizes_init`.
    Divided {
        /// One past the last frame of DMA; 0 if there is none.
        dma_end: Pfn,
        /// One past the last frame of DMA32; that of DMA if there is none.
        dma32_end: Pfn,
    },
}

/// First frame of DMA32 with [`AddressMap::X86`]: 16 MiB.
const X86_DMA_END: Pfn = Pfn((16 << 20) / 4096);
/// First frame of Normal with [`AddressMap::X86`]: 4 GiB.
const X86_DMA32_END: Pfn = Pfn((4 << 30) / 4096);
/// One past any frame.
const PFN_MAX: Pfn = Pfn(u64::MAX);

impl AddressMap {
    /// The map under which zones lie where they are said to: that of x86-64 if it is one; `None` if a zone reaches over
    /// one of a higher kind. Movable zones lie anywhere.
    pub fn of_zones(
        zones: impl IntoIterator<Item = (ZoneKind, PfnRange), IntoIter: Clone>,
    ) -> Option<AddressMap> {
        let zones = zones.into_iter().filter(|(_, span)| !span.is_empty());
        let end_of = |kind| {
            let ends = zones.clone().filter(|(of, _)| *of == kind).map(|(_, span)| span.end);
            ends.max().unwrap_or(Pfn(0))
        };
        let dma_end = end_of(ZoneKind::Dma);
        let dma32_end = end_of(ZoneKind::Dma32).max(dma_end);
        [Self::X86, Self::Divided { dma_end, dma32_end }].into_iter().find(|map| {
            zones.clone().all(|(kind, span)| match kind {
                ZoneKind::Movable | ZoneKind::Device => true,
                _ => map.bounds(kind).intersection(span) == span,
            })
        })
    }

    /// Addresses of `kind`, before Movable zones take theirs away.
    const fn bounds(self, kind: ZoneKind) -> PfnRange {
        let (dma_end, dma32_end) = match self {
            Self::Flat => (Pfn(0), Pfn(0)),
            Self::X86 => (X86_DMA_END, X86_DMA32_END),
            Self::Divided { dma_end, dma32_end } => (dma_end, dma32_end),
        };
        match kind {
            ZoneKind::Dma => PfnRange { start: Pfn(0), end: dma_end },
            ZoneKind::Dma32 => PfnRange { start: dma_end, end: dma32_end },
            ZoneKind::Normal => PfnRange { start: dma32_end, end: PFN_MAX },
            ZoneKind::Movable | ZoneKind::Device => PfnRange::new(0, 0),
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
        let movable_from = self.movable_from.unwrap_or(PFN_MAX);
        match kind {
            ZoneKind::Movable => PfnRange { start: movable_from, end: PFN_MAX },
            _ => map.bounds(kind).intersection(PfnRange { start: Pfn(0), end: movable_from }),
        }
    }
}
