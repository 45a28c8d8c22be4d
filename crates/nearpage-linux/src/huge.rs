//! Huge pages behind a node's memory.

use nearpage::units::NodeId;

/// Bytes of an explicit huge page.
pub const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// Which pages of the kernel's are behind a node's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HugePages {
    /// As `transparent_hugepage/enabled` says.
    #[default]
    AsConfigured,
    /// Transparent huge pages are asked for (`MADV_HUGEPAGE`): given unless they are switched off.
    Advised,
    /// No transparent huge pages (`MADV_NOHUGEPAGE`).
    Never,
    /// Pages of 2 MiB from the machine's pool (`vm.nr_hugepages`), or none: memory comes online in
    /// multiples of 2 MiB, and fails where the pool has no more.
    Explicit,
}

/// Which pages are behind each node's memory.
#[derive(Debug, Default)]
pub(crate) struct HugePagesByNode {
    /// Of nodes about which nothing else was said.
    pub all: HugePages,
    /// Of single nodes; what was said last counts.
    pub on: Vec<(NodeId, HugePages)>,
}

impl HugePagesByNode {
    /// What was said last of a node.
    pub fn of(&self, node: NodeId) -> HugePages {
        let said = self.on.iter().rev().find(|(id, _)| *id == node);
        said.map_or(self.all, |(_, huge_pages)| *huge_pages)
    }
}
