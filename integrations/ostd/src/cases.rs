//! The cases of OSDK's own tests for a frame allocator, against whichever is there: layouts are met, and what was allocated
//! in one piece goes back in parts, in any order.

use alloc::vec::Vec;

use ostd::mm::{FrameAllocOptions, HasPaddr, PAGE_SIZE};
use ostd::prelude::*;

pub fn run() {
    let mut options = FrameAllocOptions::new();
    options.zeroed(false);
    // Small pieces, and one that is more than the largest block.
    for frames in (1..=64).chain([1500]) {
        let segment = options.alloc_segment(frames).expect("there is memory");
        assert_eq!(segment.size(), frames * PAGE_SIZE);
        assert_eq!(segment.paddr() % PAGE_SIZE, 0);
        // Each frame goes back by itself, the even ones first.
        let all: Vec<_> = segment.into_iter().collect();
        let (even, odd): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|frame| frame.paddr() / PAGE_SIZE % 2 == 0);
        drop(even);
        drop(odd);
    }
    // As `test_alloc_dealloc` of OSTD.
    let mut kept = Vec::new();
    for _ in 0..10 {
        for at in 0..10 {
            let frame = options.alloc_frame().expect("there is memory");
            if at % 3 == 0 {
                kept.push(frame);
            }
        }
        drop(options.alloc_segment(10).expect("there is memory"));
        kept.pop();
    }
    assert!(options.alloc_segment(1 << 30).is_err(), "no machine has so much");
    println!("cases: layouts, parts in any order, and a refusal passed");
}
