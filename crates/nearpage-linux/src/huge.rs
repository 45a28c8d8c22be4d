//! Huge pages behind a node's memory.

use nearpage::NodeId;

/// Bytes of an explicit huge page.
pub const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// Which kind of the kernel's pages is behind a node's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HugePages {
    /// The kernel's choice, by `/sys/kernel/mm/transparent_hugepage/enabled`.
    #[default]
    AsConfigured,
    /// Transparent huge pages, unless the machine has them switched off (`MADV_HUGEPAGE`).
    Advised,
    /// No transparent huge pages (`MADV_NOHUGEPAGE`).
    Never,
    /// Pages of 2 MiB from the machine's pool (`vm.nr_hugepages`). Memory comes online in multiples of 2 MiB, and not at
    /// all if the pool is empty.
    Explicit,
}

/// Which kind of pages is behind each node's memory.
#[derive(Debug, Default)]
pub(crate) struct HugePagesByNode {
    /// For nodes without a choice of their own.
    pub all: HugePages,
    /// For single nodes; the last entry of a node counts.
    pub on: Vec<(NodeId, HugePages)>,
}

impl HugePagesByNode {
    /// The choice for a node.
    pub fn of(&self, node: NodeId) -> HugePages {
        let said = self.on.iter().rev().find(|(id, _)| *id == node);
        said.map_or(self.all, |(_, huge_pages)| *huge_pages)
    }
}
