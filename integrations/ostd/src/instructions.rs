//! Instructions of operations: the emulator counts one nanosecond for each (`-icount shift=0`), and the time stamp counter shows
//! them. What OSTD itself does for a frame (its metadata) is in all figures.

use alloc::boxed::Box;
use alloc::vec::Vec;

use ostd::arch::read_tsc;
use ostd::mm::FrameAllocOptions;
use ostd::prelude::*;

const ROUNDS: u64 = 2048;
const HELD: usize = 4096;

fn show(name: &str, counts: [u64; 2], operations: u64) {
    // The first is to fill what is empty.
    let tenths = counts[1] * 10 / operations;
    println!("instructions: | {} | {}.{} |", name, tenths / 10, tenths % 10);
}

fn twice(mut work: impl FnMut() -> u64) -> [u64; 2] {
    [work(), work()]
}

fn pairs(mut work: impl FnMut()) -> u64 {
    let begin = read_tsc();
    for _ in 0..ROUNDS {
        work();
    }
    read_tsc() - begin
}

pub fn run() {
    let irq = ostd::irq::disable_local();
    let mut options = FrameAllocOptions::new();
    options.zeroed(false);
    let options = &options;
    let pair = twice(|| pairs(|| drop(options.alloc_frame().expect("there is memory"))));
    show("a pair of a frame", pair, ROUNDS);
    let segment = twice(|| pairs(|| drop(options.alloc_segment(8).expect("there is memory"))));
    show("a pair of 8 frames in one piece", segment, ROUNDS);
    let mut held = Vec::with_capacity(HELD);
    let mut freed = [0; 2];
    let mut round = 0;
    let filled = twice(|| {
        let begin = read_tsc();
        held.extend((0..HELD).map(|_| options.alloc_frame().expect("there is memory")));
        let filled = read_tsc() - begin;
        let begin = read_tsc();
        while let Some(frame) = held.pop() {
            drop(frame);
        }
        freed[round] = read_tsc() - begin;
        round += 1;
        filled
    });
    show("a frame of a fill of 4096", filled, HELD as u64);
    show("a free of those, last in first out", freed, HELD as u64);
    let parts = twice(|| {
        let mut ticks = 0;
        for round in 0..ROUNDS as usize {
            let segment = options.alloc_segment(8).expect("there is memory");
            for (at, frame) in segment.into_iter().enumerate() {
                let begin = read_tsc();
                drop(frame);
                let took = read_tsc() - begin;
                // Each of the eight in turn, of eight pieces: what a few of 64 frees do for all is counted as often as it is done.
                if at == round / 8 % 8 {
                    ticks += took;
                }
            }
        }
        ticks
    });
    show("a free of one frame of a piece of 8", parts, ROUNDS);
    let object = twice(|| pairs(|| drop(core::hint::black_box(Box::new([0_u64; 8])))));
    show("a pair of a heap object of 64 bytes", object, ROUNDS);
    drop(irq);
}
