//! Where pages really are: `move_pages(2)`.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::fmt;
use std::io;
use std::ptr::NonNull;

use nearpage::NodeId;
use rustix::io::Errno;

use crate::ffi;

/// Pages asked about in one call.
const PAGES_PER_CALL: usize = 1024;

/// Where a sample of pages is that were all wanted on one node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeSample {
    /// Pages by the node that they are on.
    pub pages_on: BTreeMap<NodeId, u64>,
    /// Pages without memory: no thread has touched them yet, or they are swapped out.
    pub untouched: u64,
    /// Pages about which the kernel said nothing.
    pub unknown: u64,
}

impl NodeSample {
    /// Pages whose node is known.
    pub fn placed(&self) -> u64 {
        self.pages_on.values().sum()
    }

    /// Pages that the kernel was asked about.
    pub fn asked_about(&self) -> u64 {
        self.placed() + self.untouched + self.unknown
    }

    /// Pages on other nodes than `wanted`.
    pub fn misplaced(&self, wanted: NodeId) -> u64 {
        self.placed() - self.pages_on.get(&wanted).copied().unwrap_or(0)
    }

    /// Asks the kernel on which nodes pages are. Each address stands for one page of the kernel's size.
    ///
    /// # Errors
    /// The refusal of `move_pages`: `EPERM` or `ENOSYS` in a sandbox that denies it, `ENOSYS` without NUMA.
    pub fn of_pages(pages: &[NonNull<u8>]) -> io::Result<NodeSample> {
        let mut placement = NodeSample::default();
        for pages in pages.chunks(PAGES_PER_CALL) {
            let mut nodes = [0; PAGES_PER_CALL];
            let nodes = &mut nodes[..pages.len()];
            ffi::nodes_of_pages(pages, nodes)?;
            nodes.iter().for_each(|&node| placement.count(node));
        }
        Ok(placement)
    }

    fn count(&mut self, status: c_int) {
        match status {
            0.. => *self.pages_on.entry(NodeId(status as u32)).or_default() += 1,
            // ENOENT: no memory. EFAULT: the zero page, which a read of untouched memory finds.
            _ if [Errno::NOENT, Errno::FAULT].contains(&Errno::from_raw_os_error(-status)) => {
                self.untouched += 1;
            }
            _ => self.unknown += 1,
        }
    }
}

/// Where a sample of a memory's pages is, by the node that they were wanted on. Only this shows what the kernel places
/// elsewhere than asked: after a refused binding, from a full node, or by balancing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlacementReport {
    /// Nodes with memory online, in the order of the memory.
    pub nodes: Vec<(NodeId, NodeSample)>,
}

impl PlacementReport {
    /// Whether a page is on another node than wanted.
    pub fn has_misplaced(&self) -> bool {
        self.nodes.iter().any(|(wanted, placement)| placement.misplaced(*wanted) > 0)
    }
}

impl fmt::Display for PlacementReport {
    /// A line for each node: `asked node 1: 3.2 % on node 0, 96.8 % on node 1, of 4096 pages`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (wanted, placement) in &self.nodes {
            write!(f, "asked node {wanted}: ")?;
            let placed = placement.placed();
            if placed == 0 {
                writeln!(f, "no page has memory yet")?;
                continue;
            }
            for (node, pages) in &placement.pages_on {
                write!(f, "{:.1} % on node {node}, ", *pages as f64 * 100.0 / placed as f64)?;
            }
            write!(f, "of {placed} pages")?;
            if placement.untouched > 0 {
                write!(f, "; {} not touched yet", placement.untouched)?;
            }
            if placement.unknown > 0 {
                write!(f, "; {} unknown", placement.unknown)?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::{Region, page_size};

    fn pages(region: &Region, count: usize) -> Vec<NonNull<u8>> {
        let start = region.start();
        // SAFETY: the pages lie within the region.
        (0..count).map(|page| unsafe { start.add(page * page_size()) }).collect()
    }

    #[test]
    fn touched_pages_are_somewhere_and_others_nowhere() {
        let region = Region::reserve(3000 * page_size(), page_size()).unwrap();
        region.make_usable(0, 3000 * page_size()).unwrap();
        let pages = pages(&region, 3000);
        for page in &pages[..2500] {
            // SAFETY: the page is usable and ours.
            unsafe { page.write(1) };
        }
        let placement = NodeSample::of_pages(&pages).unwrap();
        assert_eq!((placement.placed(), placement.untouched, placement.unknown), (2500, 500, 0));
        let node = *placement.pages_on.keys().next().unwrap();
        assert_eq!(placement.misplaced(NodeId(node.0 + 1000)), 2500);
    }

    #[test]
    fn shares_are_told() {
        let pages_on = [(NodeId(0), 32), (NodeId(1), 968)].into();
        let placement = NodeSample { pages_on, untouched: 24, unknown: 0 };
        let none = NodeSample::default();
        let report = PlacementReport { nodes: vec![(NodeId(1), placement), (NodeId(8), none)] };
        assert_eq!(
            report.to_string(),
            "asked node 1: 3.2 % on node 0, 96.8 % on node 1, of 1000 pages; 24 not touched yet\n\
             asked node 8: no page has memory yet\n"
        );
        assert!(report.has_misplaced());
    }
}
