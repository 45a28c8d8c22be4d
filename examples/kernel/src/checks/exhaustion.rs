//! All memory in use: who asks is told why, on the serial line, and nothing is lost.

use core::fmt::Write as _;

use nearpage::{AllocError, Gfp, Order, Pfn, Request};
use nearpage_kernel::Pages;

use crate::console;
use crate::log;
use crate::mine::Mine;
use nearpage_kernel::page_address;

pub fn run(pages: &Pages<'_, Mine>) {
    let checked = pages.check().unwrap_or_else(|error| panic!("the walker: {error}"));
    let there = checked.free.0 + checked.cached.0;
    // The blocks are kept in a list through their own memory: a vector would need some.
    let mut last: Option<(Pfn, Order)> = None;
    let mut taken = 0;
    let mut refused: Option<AllocError> = None;
    for order in (0..=Order::MAX.0).rev().map(Order) {
        loop {
            match pages.alloc(Request::new(order, Gfp::KERNEL | Gfp::NOWARN)) {
                Ok(block) => {
                    let place = page_address::<Mine>(block).cast::<Option<(Pfn, Order)>>();
                    // SAFETY: the block was just allocated, and is larger.
                    unsafe { place.write(last) };
                    last = Some((block, order));
                    taken += order.pages().0;
                }
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
    }
    let refused = refused.expect("memory ends somewhere");
    console::with(|serial| {
        writeln!(serial, "exhausted: {taken} pages are in use: {refused}")?;
        let report = pages.report(Request::new(Order(0), Gfp::KERNEL));
        writeln!(serial, "{}", report.expect("the request is one that can be met"))
    });
    // What watermarks and lowmem reserves keep is less than a tenth.
    assert!(taken * 10 >= there * 9, "{taken} of {there} pages were had");
    while let Some((block, order)) = last {
        // SAFETY: as above; it was written then.
        last = unsafe { page_address::<Mine>(block).cast::<Option<(Pfn, Order)>>().read() };
        pages.free(block, order).expect("it was just allocated");
    }
    pages.alloc(Request::new(Order(0), Gfp::KERNEL)).map_or_else(
        |error| panic!("after exhaustion: {error}"),
        |page| pages.free(page, Order(0)).expect("it was just allocated"),
    );
    log!("exhaustion: {taken} pages were in use, and are free again");
}
