//! No allocator at all: what the benchmarks themselves cost.

use nearpage::Order;

use crate::contestant::{Contestant, enlist};
use crate::source::PageSource;

struct Floor;

pub fn build() -> Result<Box<dyn Contestant>, String> {
    Ok(enlist(Floor))
}

impl PageSource for Floor {
    type Block = usize;
    const BLANK: usize = 0;

    #[inline]
    fn alloc(&self, _order: Order) -> Option<usize> {
        Some(std::hint::black_box(1))
    }

    #[inline]
    unsafe fn free(&self, block: usize, _order: Order) {
        std::hint::black_box(block);
    }

    fn alloc_bulk(&self, blocks: &mut [usize]) -> usize {
        std::hint::black_box(blocks).len()
    }

    unsafe fn free_bulk(&self, blocks: &[usize]) {
        std::hint::black_box(blocks);
    }

    fn address(&self, _block: usize) -> usize {
        0
    }
}
