//! Instructions of operations, counted by an emulator that counts one nanosecond for each (`-icount shift=0`). One CPU runs, and
//! no interrupts come. Locks are checked in this build, so trips to a zone take more than in one without `checks`.

use alloc::vec::Vec;
use core::alloc::{GlobalAlloc as _, Layout};

use nearpage::{Gfp, Order, Pfn, Request};
use nearpage_kernel::Pages;

use crate::mine::{HEAP, Mine};
use crate::{arch, log};

const ROUNDS: u64 = 4096;
const BULK: usize = 512;

pub fn run(pages: &Pages<'_, Mine>) {
    let nothing = measure(ROUNDS, || {});
    let each = |name: &str, operations: u64, work: &mut dyn FnMut()| {
        // Once to fill what is empty, and then to be counted.
        measure(ROUNDS, &mut *work);
        let counted = measure(ROUNDS, work).saturating_sub(nothing);
        let tenths = counted * 10 / (ROUNDS * operations);
        log!("instructions: {}.{} {name}", tenths / 10, tenths % 10);
    };
    for (name, order, gfp) in [
        ("a pair, one unmovable page", Order(0), Gfp::KERNEL),
        ("a pair, one movable page", Order(0), Gfp::HIGHUSER_MOVABLE),
        ("a pair, a block of order 3", Order(3), Gfp::KERNEL),
        ("a pair, a block of order 9", Order(9), Gfp::KERNEL),
    ] {
        each(name, 1, &mut || {
            let block = pages.alloc(Request::new(order, gfp)).expect("there is memory");
            pages.free(block, order).expect("it was just allocated");
        });
    }
    let mut some = [Pfn(0); BULK];
    each("a page, of 512 in bulk", BULK as u64, &mut || {
        let got = pages.alloc_bulk(Request::new(Order(0), Gfp::KERNEL), &mut some);
        let got = got.expect("there is memory");
        pages.free_bulk(&some[..got]).expect("they were just allocated");
    });
    let mut held = Vec::with_capacity(BULK);
    each("a page, of 512 that are freed last in, first out", BULK as u64, &mut || {
        let request = Request::new(Order(0), Gfp::KERNEL);
        held.extend((0..BULK).filter_map(|_| pages.alloc(request).ok()));
        while let Some(page) = held.pop() {
            pages.free(page, Order(0)).expect("it was allocated");
        }
    });
    let layout = Layout::new::<[u64; 8]>();
    each("a pair, an object of 64 bytes", 1, &mut || {
        // SAFETY: the layout is not of size 0, and the object is freed as it was allocated.
        unsafe {
            let object = HEAP.alloc(layout);
            HEAP.dealloc(object, layout);
        }
    });
}

fn measure(rounds: u64, mut work: impl FnMut()) -> u64 {
    let begin = arch::now_ns();
    for _ in 0..rounds {
        work();
    }
    arch::now_ns() - begin
}
