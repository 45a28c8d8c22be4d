//! A zone and its pagesets at the moment of `before`.

use nearpage::rules::pagesets::Sizes;
use nearpage::{CpuId, Marks, Migratetype, NodeId, Order, PageCount, ZoneKind};

use crate::layout::Blocks;

/// A zone at the moment of `before`.
#[derive(Clone, Debug)]
pub struct StartZone {
    /// Its node.
    pub node: NodeId,
    /// Its kind.
    pub kind: ZoneKind,
    /// The position of the recorded zone that it is, or is an instance of.
    pub recorded: usize,
    /// Pages that its allocator was given.
    pub managed: PageCount,
    /// Whether all of them are free: a machine that was made up.
    pub is_all_free: bool,
    /// Watermarks.
    pub marks: Marks,
    /// Pages kept from requests by the highest kind of zone that they may use.
    pub reserve: [PageCount; ZoneKind::COUNT],
    /// Free blocks.
    pub free: Blocks,
    /// Pageblocks by type.
    pub pageblocks: [u64; Migratetype::COUNT],
    /// Pages by which each CPU may change the counter of free pages before it tells: `vm stats threshold`.
    pub threshold: u64,
    /// Each CPU's pageset.
    pub pagesets: Vec<StartPageset>,
}

/// A pageset at the moment of `before`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StartPageset {
    /// Whose it is.
    pub cpu: CpuId,
    /// Pages in it.
    pub count: PageCount,
    /// The limit, as printed.
    pub high: PageCount,
    /// Batch and bounds.
    pub sizes: Sizes,
}

impl StartZone {
    /// `node 0 zone DMA32`.
    pub fn name(&self) -> String {
        format!("node {} zone {}", self.node, self.kind.name())
    }

    /// A CPU's pageset.
    pub fn pageset(&self, cpu: CpuId) -> Option<&StartPageset> {
        self.pagesets.iter().find(|pageset| pageset.cpu == cpu)
    }

    /// Pages that CPUs may have taken and not told the counter of free pages.
    pub fn untold_most(&self) -> u64 {
        self.threshold * self.pagesets.len() as u64
    }

    /// Free pages.
    pub fn free_pages(&self) -> u64 {
        let pages = |blocks: &[u64; Order::COUNT]| -> u64 {
            blocks.iter().enumerate().map(|(order, count)| count << order).sum()
        };
        self.free.iter().map(pages).sum()
    }
}
