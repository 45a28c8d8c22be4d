//! `bitmap-allocator`: a tree of 16-bit words, under the spin lock that kernels put around it.

use bitmap_allocator::{BitAlloc, BitAlloc1M, BitAlloc16M};
use nearpage::Order;
use spin::Mutex;

use crate::contestant::{Contestant, enlist};
use crate::region::{LARGE_PAGES, POOL_PAGES, Region};
use crate::source::{PAGE, PAGE_BYTES, PageSource};

struct Bitmap<A: 'static> {
    free: &'static Mutex<A>,
    /// Address of the first page.
    first: usize,
}

// Megabytes, which no stack has room for on their way to a heap.
static FREE: Mutex<BitAlloc1M> = Mutex::new(BitAlloc1M::DEFAULT);
static LARGE_FREE: Mutex<BitAlloc16M> = Mutex::new(BitAlloc16M::DEFAULT);

pub fn build() -> Result<Box<dyn Contestant>, String> {
    let region = Region::reserve().map_err(|error| error.to_string())?;
    FREE.lock().insert(0..POOL_PAGES);
    Ok(enlist(Bitmap { free: &FREE, first: region.address(0) }))
}

/// With a level more, for [`LARGE_PAGES`]. It never touches a page, and these have no memory.
pub fn build_large() -> Result<Box<dyn Contestant>, String> {
    LARGE_FREE.lock().insert(0..LARGE_PAGES);
    Ok(enlist(Bitmap { free: &LARGE_FREE, first: PAGE_BYTES }))
}

impl<A: BitAlloc + Send + 'static> PageSource for Bitmap<A> {
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
        self.first + block * PAGE_BYTES
    }
}
