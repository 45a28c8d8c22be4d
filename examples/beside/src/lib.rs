//! The same work on nearpage and on the allocators that kernels in Rust take, each behind a lock that keeps interrupts off.
//!
//! The library runs in a kernel on bare metal, where ticks are instructions, and in a process, where they are nanoseconds.
//! Nothing here reads a clock but by the function that it is given.
#![no_std]

mod heaps;
mod others;
mod spin;
mod work;

pub use heaps::{Byte, LinkedList, Ours as OurHeap, TalcHeap};
pub use others::{Bitmap, Buddy, Frames, Ours, Refused};
pub use work::{Blocks, FRAME_WORK, HEAP_WORK, HELD, Work, run_frames, run_heap};
