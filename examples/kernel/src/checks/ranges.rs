//! Parts of blocks, and ranges larger than the largest order.

use nearpage::{Gfp, Order, PageCount, PfnRange, Request};
use nearpage_kernel::Pages;

use crate::log;
use crate::mine::Mine;

pub fn run(pages: &Pages<'_, Mine>) {
    let block = pages.alloc(Request::new(Order(4), Gfp::KERNEL)).expect("there is memory");
    let part = |from: u64, to: u64| PfnRange::new(block.0 + from, block.0 + to);
    for (from, to) in [(5, 6), (0, 5), (6, 16)] {
        pages.free_range(part(from, to)).expect("it is ours");
    }
    let block = pages.alloc(Request::new(Order(3), Gfp::KERNEL)).expect("there is memory");
    pages.split(block, Order(3), Order(1)).expect("it is ours");
    for at in [6, 0, 4, 2] {
        pages.free(block + PageCount(at), Order(1)).expect("it was split");
    }
    let request = Request::new(Order(0), Gfp::KERNEL);
    let wanted = PageCount(2500);
    let range = pages.alloc_contiguous(wanted, Order(9), request);
    let range = range.unwrap_or_else(|error| panic!("{wanted} pages in one piece: {error}"));
    assert!(range.start.is_aligned(Order(9)) && range.pages() == wanted);
    let middle = range.start + PageCount(1111);
    pages.free_range(PfnRange { start: middle, end: range.end }).expect("it is ours");
    pages.free_range(PfnRange { start: range.start, end: middle }).expect("it is ours");
    log!("ranges: parts of blocks were freed, and {wanted} pages in one piece at {}", range.start);
    super::walk(pages, "after the ranges");
}
