//! `bitmap-allocator`: a tree of 16-bit words, under the spin lock that kernels put around it.

use bitmap_allocator::{BitAlloc, BitAlloc1M};
use nearpage::Order;
use spin::Mutex;

use crate::contestant::{Contestant, enlist};
use crate::region::{POOL_PAGES, Region};
use crate::source::{PAGE, PageSource};

struct Bitmap {
    free: Mutex<Box<BitAlloc1M>>,
    region: Region,
}

pub fn build() -> Result<Box<dyn Contestant>, String> {
    let region = Region::reserve().map_err(|error| error.to_string())?;
    let mut free = Box::new(BitAlloc1M::DEFAULT);
    free.insert(0..POOL_PAGES);
    Ok(enlist(Bitmap { free: Mutex::new(free), region }))
}

impl PageSource for Bitmap {
    type Block = usize;
    const BLANK: usize = 0;

    #[inline]
    fn alloc(&self, order: Order) -> Option<usize> {
        match order {
            PAGE => self.free.lock().alloc(),
            _ => self.free.lock().alloc_contiguous(None, 1 << order.0, order.0.into()),
        }
    }

    #[inline]
    unsafe fn free(&self, block: usize, order: Order) {
        match order {
            PAGE => self.free.lock().dealloc(block),
            _ => self.free.lock().dealloc_contiguous(block, 1 << order.0),
        };
    }

    fn alloc_bulk(&self, blocks: &mut [usize]) -> usize {
        let mut free = self.free.lock();
        for (done, slot) in blocks.iter_mut().enumerate() {
            match free.alloc() {
                Some(block) => *slot = block,
                None => return done,
            }
        }
        blocks.len()
    }

    unsafe fn free_bulk(&self, blocks: &[usize]) {
        let mut free = self.free.lock();
        for &block in blocks {
            free.dealloc(block);
        }
    }

    fn address(&self, block: usize) -> usize {
        self.region.address(block)
    }
}
