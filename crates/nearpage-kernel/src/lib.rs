#![doc = include_str!("../README.md")]
#![no_std]
#![warn(missing_debug_implementations)]

#[cfg(test)]
extern crate std;

mod aside;
pub mod boot;
mod cache;
mod exclusion;
pub mod firmware;
#[cfg(test)]
mod fuzz;
mod heap;
mod lock;
mod order;
mod platform;
mod rings;
mod seam;

pub use aside::Aside;
pub use cache::{Constructor, Object, ObjectCache};
pub use exclusion::{ByInterrupts, CpuFlag, HeldCpu};
pub use heap::{Heap, HeapError, Objects, OnNode};
pub use lock::{TicketGuard, TicketLock};
pub use order::{IS_CHECKED, LockFault};
pub use platform::{ByLinks, ByRings, ByTryLock, KernelPlatform, ThisCpu};
pub use rings::{RingList, Rings};
pub use seam::{Interrupts, InterruptsOff, Kernel, page_address};

/// The page allocator of a kernel: [`nearpage::PageAllocator`] on its platform.
pub type Pages<'m, K, S = ByRings<K>> = nearpage::PageAllocator<'m, KernelPlatform<K, S>>;

/// The lines of the book, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/guides/in-your-kernel.md")]
mod book {}
