//! What a memory counts and how it looks, as numbers and as the kernel's texts.

use std::fmt;

use nearpage::check::{CheckError, Checked};
use nearpage::units::{NodeId, PageCount};
use nearpage::watermark::Marks;

use super::Memory;
use crate::misuse::Misuse;

impl Memory {
    /// Pages of a node that are free: neither handed out nor cached by a CPU. 0 if there is no such node.
    pub fn free_pages(&self, node: NodeId) -> PageCount {
        self.pages().free_pages(node)
    }

    /// Pages of a node that were brought online. 0 if there is no such node.
    pub fn managed_pages(&self, node: NodeId) -> PageCount {
        self.pages().managed_pages(node)
    }

    /// Walks all frames; see [`PageAllocator::check`](nearpage::alloc::PageAllocator::check). Only while no other thread uses this memory.
    ///
    /// # Errors
    /// The first thing found wrong; this memory must not be used any further.
    pub fn check(&self) -> Result<Checked, CheckError> {
        self.pages().check()
    }

    /// This memory as `/proc/zoneinfo` would print it.
    pub fn zoneinfo(&self) -> String {
        text(|out| self.pages().write_zoneinfo(out))
    }

    /// The free blocks of this memory as `/proc/buddyinfo` would print them.
    pub fn buddyinfo(&self) -> String {
        text(|out| self.pages().write_buddyinfo(out))
    }

    /// The free blocks and pageblocks of this memory by migratetype, as `/proc/pagetypeinfo` would print them.
    pub fn pagetypeinfo(&self) -> String {
        text(|out| self.pages().write_pagetypeinfo(out))
    }

    /// The NUMA events of a node as `/sys/devices/system/node/nodeN/numastat` would print them, or `None` if
    /// there is no such node.
    pub fn numastat(&self, node: NodeId) -> Option<String> {
        let node = self.topology().index_of(node)?;
        Some(text(|out| self.pages().write_numastat(node, out)))
    }

    /// The counters of this memory as `/proc/vmstat` would print them, and those that only nearpage has:
    /// see [`PageAllocator::write_vmstat`](nearpage::alloc::PageAllocator::write_vmstat).
    pub fn vmstat(&self) -> String {
        text(|out| self.pages().write_vmstat(out))
    }

    /// The watermarks of a node, all zones together. Zeroes if there is no such node.
    pub fn watermarks(&self, node: NodeId) -> Marks {
        self.pages().watermarks(node)
    }

    /// Frees and unlocks that were refused so far.
    pub fn misuses(&self) -> u64 {
        self.pages().misuses().count()
    }

    /// The first of them, at most ten.
    pub fn first_misuses(&self) -> Vec<Misuse> {
        self.pages().misuses().first()
    }

    /// Panics of [`Pressure::background`](crate::Pressure::background) so far.
    pub fn pressure_panics(&self) -> u64 {
        self.pages().pressure_panics()
    }
}

pub(crate) fn text(write: impl FnOnce(&mut String) -> fmt::Result) -> String {
    let mut text = String::new();
    write(&mut text).expect("writing to a string cannot fail");
    text
}
