//! Where the kernel says that a memory's pages are.

use std::io;

use nearpage::PfnRange;

use super::Memory;
use crate::frame::FRAME_SHIFT;
use crate::placement::{NodeSample, PlacementReport};
use crate::region::page_size;

impl Memory {
    /// Asks the kernel on which node up to `pages_max` pages of each node are, spread evenly over its online memory. A page
    /// that no thread has touched is on no node yet; see [`NodeSample`].
    ///
    /// ```
    /// use nearpage_linux::Memory;
    ///
    /// let memory = Memory::builder().bytes_per_node(16 << 20).build()?;
    /// memory.alloc_pages(1)?[0] = 1;
    /// match memory.verify_placement(1000) {
    ///     Ok(report) => print!("{report}"),
    ///     Err(refusal) => println!("the kernel does not tell: {refusal}"),
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The refusal of `move_pages`: `EPERM` or `ENOSYS` where a sandbox denies it.
    pub fn verify_placement(&self, pages_max: u64) -> io::Result<PlacementReport> {
        let page_bytes = page_size() as u64;
        let sample = |range: PfnRange| {
            let pages = self.online_pages(range).to_bytes(FRAME_SHIFT) / page_bytes;
            let count = pages.min(pages_max);
            let start = self.address(range.start);
            // SAFETY: the page lies within what is online of the node.
            let page = |at: u64| unsafe { start.add((at * pages / count * page_bytes) as usize) };
            NodeSample::of_pages(&(0..count).map(page).collect::<Vec<_>>())
        };
        let nodes = self.node_ranges.iter();
        let nodes = nodes.map(|(node, range)| Ok((*node, sample(*range)?)));
        Ok(PlacementReport { nodes: nodes.collect::<io::Result<_>>()? })
    }
}
