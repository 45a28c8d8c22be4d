//! nearpage on linux.

pub mod builder;
pub mod calls;
pub mod environment;
mod ffi;
mod fork;
mod futex;
mod growth;
#[cfg(feature = "allocator-api2")]
mod handle;
pub mod host;
pub mod huge;
pub mod locked;
pub mod machine;
pub mod memory;
pub mod numa;
pub mod pagelock;
pub mod placement;
pub mod prefault;
pub mod reclaim;
mod region;
mod ring;
pub mod rseq;
pub mod slab;
mod storage;
mod tell;
mod trim;

#[cfg(feature = "allocator-api2")]
pub use handle::NodeAllocator;

pub use builder::MemoryBuilder;
pub use huge::HugePages;
pub use machine::{HostMachine, HostNode};
pub use memory::{Memory, MemoryError, PageBlock};
pub use pagelock::{LockablePages, LockedPage, PageHandle};

/// The examples of the front page, run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod readme {}

/// The examples of the book, run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/guides/pool.md")]
mod book_pool {}

/// The examples of the book, run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/guides/objects.md")]
mod book_objects {}
