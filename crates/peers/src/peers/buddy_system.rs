//! `buddy_system_allocator`: sorted trees of free blocks behind its own spin lock.

use buddy_system_allocator::LockedFrameAllocator;
use nearpage::Order;

use crate::contestant::{Contestant, enlist};
use crate::region::{POOL_PAGES, Region};
use crate::source::PageSource;

struct BuddySystem {
    frames: LockedFrameAllocator,
    region: Region,
}

pub fn build() -> Result<Box<dyn Contestant>, String> {
    let region = Region::reserve().map_err(|error| error.to_string())?;
    let frames = LockedFrameAllocator::new();
    frames.lock().add_frame(0, POOL_PAGES);
    Ok(enlist(BuddySystem { frames, region }))
}

impl PageSource for BuddySystem {
    type Block = usize;
    const BLANK: usize = 0;

    #[inline]
    fn alloc(&self, order: Order) -> Option<usize> {
        self.frames.lock().alloc(1 << order.0)
    }

    #[inline]
    unsafe fn free(&self, block: usize, order: Order) {
        self.frames.lock().dealloc(block, 1 << order.0);
    }

    fn alloc_bulk(&self, blocks: &mut [usize]) -> usize {
        let mut frames = self.frames.lock();
        for (done, slot) in blocks.iter_mut().enumerate() {
            match frames.alloc(1) {
                Some(block) => *slot = block,
                None => return done,
            }
        }
        blocks.len()
    }

    unsafe fn free_bulk(&self, blocks: &[usize]) {
        let mut frames = self.frames.lock();
        for &block in blocks {
            frames.dealloc(block, 1);
        }
    }

    fn address(&self, block: usize) -> usize {
        self.region.address(block)
    }
}
