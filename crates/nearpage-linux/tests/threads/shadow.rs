//! Who has which page: a table beside the allocator, and a stamp in the memory of each page.

use std::sync::atomic::{AtomicU32, Ordering};

use nearpage::{Order, PageCount, Pfn, PfnRange, Topology};

use super::pages::Pages;

/// A block in somebody's hands.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    pub first: Pfn,
    pub order: Order,
    /// Not 0, and of no other block at the time.
    pub stamp: u32,
}

/// By page: the stamp of the block that has it, or 0.
pub struct Shadow {
    ranges: Vec<(PfnRange, Vec<AtomicU32>)>,
}

impl Shadow {
    /// All memory of a machine, in nobody's hands.
    pub fn new(topology: &Topology<'_>) -> Self {
        let ranges = topology.nodes().iter().flat_map(|node| node.memory);
        let shadow =
            |range: &PfnRange| (*range, (0..range.pages().0).map(|_| AtomicU32::new(0)).collect());
        Self { ranges: ranges.map(shadow).collect() }
    }

    fn owner(&self, pfn: Pfn) -> Result<&AtomicU32, String> {
        let range = self.ranges.iter().find(|(range, _)| range.contains(pfn));
        let (range, owners) = range.ok_or_else(|| format!("frame {pfn} is not of this machine"))?;
        Ok(&owners[(pfn.0 - range.start.0) as usize])
    }

    /// Notes that a block was handed out, and writes its stamp into its pages.
    pub fn take(&self, pages: &impl Pages, block: Block) -> Result<(), String> {
        for pfn in pages_of(block) {
            let before = self.owner(pfn)?.swap(block.stamp, Ordering::Relaxed);
            if before != 0 {
                return Err(format!("frame {pfn} was given twice: to {before:#x} and {block:x?}"));
            }
            if let Some(address) = pages.address(pfn) {
                // SAFETY: the page is online and aligned; whoever else writes to it does so atomically too.
                let word = unsafe { AtomicU32::from_ptr(address.as_ptr().cast()) };
                word.store(block.stamp, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Notes that a block is about to be freed, and looks whether its stamp is still there.
    pub fn give(&self, pages: &impl Pages, block: Block) -> Result<(), String> {
        for pfn in pages_of(block) {
            if let Some(address) = pages.address(pfn) {
                // SAFETY: as in `take`.
                let word = unsafe { AtomicU32::from_ptr(address.as_ptr().cast()) };
                let found = word.load(Ordering::Relaxed);
                if found != block.stamp {
                    return Err(format!("frame {pfn} of {block:x?} was written to: {found:#x}"));
                }
            }
            let before = self.owner(pfn)?.swap(0, Ordering::Relaxed);
            if before != block.stamp {
                return Err(format!("frame {pfn} of {block:x?} belongs to {before:#x}"));
            }
        }
        Ok(())
    }

    /// Pages in somebody's hands.
    pub fn held(&self) -> PageCount {
        let owners = self.ranges.iter().flat_map(|(_, owners)| owners);
        PageCount(owners.filter(|owner| owner.load(Ordering::Relaxed) != 0).count() as u64)
    }
}

fn pages_of(block: Block) -> impl Iterator<Item = Pfn> {
    (0..block.order.pages().0).map(move |page| Pfn(block.first.0 + page))
}
