//! The NUMA page allocator of a kernel, on real memory of a Linux process.
//!
//! A [`Memory`] reserves a range of addresses for each NUMA node, binds it to the node, and hands out its pages. A thread
//! gets pages near its CPU from a cache that belongs to that CPU, by restartable sequences: without a lock, and without
//! an atomic instruction. The rules (zones, watermarks, fallback orders, per-CPU caches) are those of the core, the crate
//! [`nearpage`].
//!
//! # When to use it
//!
//! * You keep a pool of pages or of large buffers: a database's buffer pool, a packet pool, an arena for a garbage
//!   collector.
//! * Threads on many CPUs allocate and free, and often a page is freed on another CPU than the one that allocated it.
//! * It matters on which node a page lies, how much of a node is used, or why a page came from elsewhere.
//!
//! Do not use it as a general `malloc`, though [`SizeClasses`] can be one: objects of a few bytes are faster elsewhere. A
//! program with one thread and a fixed number of pages needs only a free list.
//!
//! # First example
//!
//! ```
//! use nearpage_linux::Memory;
//!
//! let memory = Memory::builder().bytes_per_node(64 << 20).build()?;
//! let mut block = memory.alloc_pages(4)?; // 16 KiB near this CPU, freed when dropped
//! block[0] = 1;
//! println!("node {}", block.node());
//! println!("{}", memory.zoneinfo()); // the layout of /proc/zoneinfo
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The examples of the crate go on from there: `first_pages` places pages and reads counters, `buffer_pool` is a page
//! cache over a file.
//!
//! # The map
//!
//! | where | what |
//! |---|---|
//! | [`Memory`], [`MemoryBuilder`], [`MemoryError`] | a memory: making it, pages, growth, settings, texts |
//! | [`HostMachine`], [`HostNode`], [`Environment`], [`Nodes`] | the nodes that a memory has: the kernel's, or emulated ones |
//! | [`BindMode`], [`Binding`], [`HugePages`], [`StorageInUse`] | what is behind the addresses, and how CPUs keep their caches |
//! | [`Warning`], [`VariableWarning`] | what is not as it was asked for |
//! | [`PageBlock`], [`OwnedPages`] | pages that free themselves, borrowed or owned; frame numbers are methods of [`Memory`] |
//! | [`MappedBytes`] | more than a block can have |
//! | [`LockablePages`], [`LockedPage`], [`PageHandle`] | locks of pages |
//! | [`Reclaim`], [`Shrinker`], [`Pressure`] | what happens when memory gets short |
//! | [`SlabAllocator`], [`KmemCache`], [`TypedCache`], [`SizeClasses`] | objects smaller than a page |
//! | [`PlacementReport`], [`NodeSample`], [`SystemCall`] | what the kernel did, and what it lets a process do |
//! | [`OnMisuse`], [`Misuse`] | wrong frees |
//!
//! Nothing reads the environment unless it is asked to ([`MemoryBuilder::from_env`]), and nothing prints: what a memory
//! does without is told by [`Memory::warnings`].
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `allocator-api2` | `Memory::allocator`: a memory as an allocator of collections |
//! | `stats` | `Memory::serve_stats`: texts and JSON of a memory over a unix socket |
//!
//! No feature is on by default.
//!
//! # Cost
//!
//! * **Time.** Allocating a page from this CPU's cache takes 40 instructions, and freeing it takes 43 (x86-64). Without
//!   restartable sequences a lock per CPU takes their place, and a pair takes about five times as long.
//! * **Memory.** Less than 19 bytes of metadata for each page of 4 KiB, on the page's node, and 64 bytes more for each
//!   page of a slab. Nodes below 1 GiB, and CPUs with less than 16 MiB of each zone, cost more. Addresses cost nothing: a
//!   memory may reserve much more than it brings online.
//! * **Forks.** A fork stops all memories of the process for some microseconds a CPU; the child may use them. It has all that no
//!   other thread of its parent had in hand: what is free, what CPUs cache, and the blocks of the thread that forked. Blocks of
//!   other threads stay allocated, and so do, for each of them, up to 128 pages that it was just moving. A child that knows
//!   blocks by their frames may free those; the pages that were on their way are lost to it.
//!
//! # Limits
//!
//! * Restartable sequences need x86-64 or aarch64, Linux 5.10 and glibc 2.35. Elsewhere pagesets have locks.
//! * Blocks have 2^0 to 2^10 pages of 4 KiB. A node has less than 16 TiB.
//! * A memory can have one slab allocator in its life.
//! * A signal handler must not use a memory: the thread that it interrupts may hold one of its locks.
#![warn(missing_debug_implementations)]

mod bind;
mod binding;
mod builder;
mod calls;
mod environment;
mod error;
mod ffi;
mod fork;
mod frame;
mod futex;
mod growth;
mod host;
mod huge;
mod in_use;
mod lock;
mod locked;
mod machine;
mod memory;
mod metadata;
mod misuse;
#[cfg(feature = "allocator-api2")]
mod node_allocator;
mod objects;
mod pagelock;
mod pages;
mod placement;
mod prefault;
mod pressure;
mod reclaim;
mod region;
mod ring;
mod rseq;
mod settings;
mod slab;
#[cfg(feature = "stats")]
mod stats;
mod storage;
mod topology;
mod trim;
mod waiting;
mod warning;

#[cfg(feature = "allocator-api2")]
pub use node_allocator::NodeAllocator;

pub use bind::BindMode;
pub use binding::Binding;
pub use builder::MemoryBuilder;
pub use calls::SystemCall;
pub use environment::{Environment, EnvironmentError, Nodes};
pub use error::MemoryError;
pub use frame::FRAME_BYTES;
pub use huge::HugePages;
pub use in_use::StorageInUse;
pub use machine::{HostMachine, HostNode};
pub use memory::{MappedBytes, Memory, OwnedPages, PageBlock};
pub use misuse::{Misuse, OnMisuse};
pub use pagelock::{LockError, LockablePages, LockedPage, PageHandle};
pub use placement::{NodeSample, PlacementReport};
pub use prefault::PrefaultError;
pub use pressure::Pressure;
pub use reclaim::{Reclaim, ReclaimCounts, ReclaimOptions, ReclaimThread, Shrinker};
pub use rseq::RseqUnavailable;
pub use slab::{KmemCache, ObjectBox, SizeClasses, SlabAllocator, TypedCache};
#[cfg(feature = "stats")]
pub use stats::{StatsError, StatsServer};
pub use warning::{VariableWarning, Warning};

/// What the crates beside this one take from within it. Nothing here is promised to stay as it is.
#[doc(hidden)]
pub mod internals {
    pub use crate::fork::AtForks;
    pub use crate::host::Host;
    pub use crate::locked::{GetCpu, LockedStorage};
    pub use crate::region::{address_limit, page_size, physical_bytes};
    pub use crate::rseq::{Area, BareLists, RingStorage};
}

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

/// The examples of the book, run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/how/slab.md")]
mod book_slab {}
