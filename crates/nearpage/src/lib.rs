//! The NUMA page allocator of a kernel, as a library.
#![no_std]
#![deny(unsafe_code)]

#[cfg(any(test, feature = "alloc"))]
extern crate alloc as std_alloc;

pub mod alloc;
pub mod arena;
pub mod buddy;
pub mod check;
pub mod error;
pub mod frame;
pub mod gfp;
pub mod limit;
pub mod model;
pub mod pagelock;
pub mod pcp;
pub mod platform;
pub mod policy;
pub mod reason;
pub mod slab;
mod slot;
pub mod sync;
pub mod topology;
pub mod units;
pub mod vmstat;
pub mod watermark;
pub mod zone;
pub mod zonelist;

#[cfg(feature = "testing")]
pub mod testing;

/// The examples of the book, run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/guides/kernel.md")]
mod book_kernel {}
