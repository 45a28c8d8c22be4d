//! What a memory counts, as numbers and in the layout of the kernel's texts.

use std::fmt;

use nearpage::stats::{CheckError, Checked};
use nearpage::{Marks, NodeId, PageCount};

use super::Memory;
use crate::misuse::Misuse;

impl Memory {
    /// Free pages of a node: callers do not have them and CPUs do not cache them. 0 if the node is unknown.
    pub fn free_pages(&self, node: NodeId) -> PageCount {
        self.pages().free_pages(node)
    }

    /// Online pages of a node. 0 if the node is unknown.
    pub fn managed_pages(&self, node: NodeId) -> PageCount {
        self.pages().managed_pages(node)
    }

    /// Walks all frames and re-derives all counters; see
    /// [`PageAllocator::check`](nearpage::PageAllocator::check). No other thread may use this memory meanwhile.
    ///
    /// # Errors
    /// The first contradiction. The memory must not be used after it.
    pub fn check(&self) -> Result<Checked, CheckError> {
        self.pages().check()
    }

    /// The zones of this memory, in the layout of `/proc/zoneinfo`.
    pub fn zoneinfo(&self) -> String {
        text(|out| self.pages().write_zoneinfo(out))
    }

    /// The free blocks of this memory by order, in the layout of `/proc/buddyinfo`.
    pub fn buddyinfo(&self) -> String {
        text(|out| self.pages().write_buddyinfo(out))
    }

    /// The free blocks and pageblocks of this memory by migratetype, in the layout of `/proc/pagetypeinfo`.
    pub fn pagetypeinfo(&self) -> String {
        text(|out| self.pages().write_pagetypeinfo(out))
    }

    /// The NUMA events of a node, in the layout of `/sys/devices/system/node/nodeN/numastat`. `None` if the node is unknown.
    pub fn numastat(&self, node: NodeId) -> Option<String> {
        let node = self.topology().index_of(node)?;
        Some(text(|out| self.pages().write_numastat(node, out)))
    }

    /// The counters of this memory, in the layout of `/proc/vmstat`. Counters that Linux does not have follow at the end; see
    /// [`PageAllocator::write_vmstat`](nearpage::PageAllocator::write_vmstat).
    pub fn vmstat(&self) -> String {
        text(|out| self.pages().write_vmstat(out))
    }

    /// The caches of the slab allocator, in the layout of `/proc/slabinfo`; `None` if this memory has none.
    #[cfg(feature = "stats")]
    pub(crate) fn slabinfo_if_any(&self) -> Option<String> {
        self.with_objects(|objects| Some(text(|out| objects.write_slabinfo(out))))
    }

    /// The watermarks of a node, summed over its zones. Zeroes if the node is unknown.
    pub fn watermarks(&self, node: NodeId) -> Marks {
        self.pages().watermarks(node)
    }

    /// How many frees and unlocks were refused so far.
    pub fn misuses(&self) -> u64 {
        self.pages().misuses().count()
    }

    /// The first refused frees and unlocks, at most ten.
    pub fn first_misuses(&self) -> Vec<Misuse> {
        self.pages().misuses().first()
    }

    /// How often [`Pressure::background`](crate::Pressure::background) panicked so far.
    pub fn pressure_panics(&self) -> u64 {
        self.pages().pressure_panics()
    }
}

pub(crate) fn text(write: impl FnOnce(&mut String) -> fmt::Result) -> String {
    let mut text = String::new();
    write(&mut text).expect("writing to a string cannot fail");
    text
}
