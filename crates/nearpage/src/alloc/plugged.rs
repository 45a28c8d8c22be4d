//! How often memory and CPUs came and went.

use crate::units::PageCount;

/// What came and went since the allocator was made; what came first, came too.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct HotplugCounts {
    /// Times that memory came online.
    pub memory_onlines: u64,
    /// Pages that came online.
    pub onlined_pages: PageCount,
    /// Times that memory went offline.
    pub memory_offlines: u64,
    /// Pages that went offline.
    pub offlined_pages: PageCount,
    /// Times that memory stayed, because somebody had some of it.
    pub memory_in_use: u64,
    /// Times that a CPU was switched on; all are at first, which does not count.
    pub cpu_onlines: u64,
    /// Times that a CPU was switched off.
    pub cpu_offlines: u64,
}

impl HotplugCounts {
    pub(super) fn came(&mut self, pages: PageCount) {
        self.memory_onlines += 1;
        self.onlined_pages.0 += pages.0;
    }

    pub(super) fn went(&mut self, pages: PageCount) {
        self.memory_offlines += 1;
        self.offlined_pages.0 += pages.0;
    }
}
