//! Slab: caches of objects of one size, on the page allocator. After Linux's `mm/slab.c` of 2.6.35, whose 2010
//! change taught it memoryless nodes.
//!
//! ```text
//! cache --+-- stack of each CPU          entries; rseq or what the host has     fast path
//!         |
//!         +-- each node, under a lock    shared stack: entries
//!         |     |                        slabs: full, partial, free
//!         |     +-- alien stacks         entries of another node, one stack for each, under a lock each
//!         |
//!         +-- slab = block of pages      descriptor: a line in a table by frame; objects
//! ```
//!
//! **Words.** An *entry* is the 32-bit number of an object ([`entry`]). A frame's *tag* says of which cache and
//! node it is ([`tag`]). The *effective node* of a CPU is the nearest node with memory (`numa_mem_id`).
//!
//! **Allocation**: this CPU's stack gives an entry, which becomes an address by arithmetic ([`alloc`]).
//! An empty stack takes a batch from the shared stack of the CPU's effective node, else from its slabs, else from
//! a new slab of exactly that node. Only where that node has no memory left, one object comes from elsewhere.
//! **Free**: the tag of the frame must be that of this CPU's stack, which is then pushed to ([`free`]).
//! A full stack gives its oldest batch to the shared stack, or to the slabs. An object of another node goes onto an
//! alien stack, and home when that is full.
//!
//! **Memoryless nodes.** With [`LocalNode::OwnNode`], as Linux before 2010, the CPUs of a node without memory look
//! for objects on their own node, where there never are any: each allocation ends at the lists of another node, and
//! each free on an alien stack. With [`LocalNode::NearestMemory`] stacks, lists and aliens of a CPU are those of its
//! effective node. When memory comes or goes, the effective node of a CPU changes: its stacks are emptied
//! before ([`SlabAllocator::flush_stacks`]) and its node computed after ([`SlabAllocator::refresh_nodes`]), as when CPUs
//! come and go. A node that no CPU looks to any more keeps no free objects on stacks.
//!
//! **Sheaves.** By the rules of Linux 7.0 and 7.1 ([`SlabRules`]) there are no shared and no alien stacks. A CPU's stack is
//! two sheaves, a node has a barn of full sheaves, and what the CPU's node does not keep goes straight to slabs
//! ([`sheaves`]).
//!
//! **Locks**: the registry of caches, a CPU's stacks, an alien stack or a barn, a node's lists, in this order; no two of a kind at
//! once. None but the registry and stopped stacks is held while pages are freed, and none at all while they are allocated:
//! so reclaim may shrink caches from within an allocation.
//!
//! **Deliberately not there**: constructors, poisoning and red zones (they would touch the objects' memory, which
//! the core never does), and policies (they will choose the node of [`SlabAllocator::alloc_node`]).

#![no_std]
#![deny(unsafe_code)]
#![warn(missing_debug_implementations)]

#[cfg(any(test, feature = "testing"))]
extern crate alloc as std_alloc;

mod alloc;
mod allocator;
mod barn;
mod budget;
mod build;
mod bulk;
mod cache;
mod check;
mod classes;
mod config;
mod cpu;
mod descriptor;
mod entry;
mod error;
mod events;
mod free;
mod geometry;
mod hold;
mod home;
mod lists;
mod node;
mod place;
mod platform;
mod reap;
mod rules;
mod sheaves;
mod slabinfo;
mod stats;
mod storage;
mod tag;
#[cfg(test)]
mod tests;
mod tunables;
mod twice;

#[doc(hidden)]
pub mod internals;
#[cfg(feature = "testing")]
pub mod testing;

pub use allocator::SlabAllocator;
pub use bulk::BulkObjectError;
pub use check::{SlabCheckError, SlabChecked};
pub use classes::{CLASS_BYTES_MAX, CLASSES, ObjectOwner, SizeClasses, SizeError, SizeFreeError};
pub use config::{LocalNode, SlabConfig};
pub use error::{CreateError, LiveObjects, ObjectError, SlabBuildError};
pub use events::RemoteReason;
pub use geometry::{Descriptors, Geometry};
pub use place::{CacheOptions, KmemCache};
pub use platform::SlabPlatform;
pub use reap::{REAP_PERIOD_NS, StacksBusy};
pub use rules::SlabRules;
pub use slabinfo::SlabCounts;
pub use stats::{CacheStats, NodeStats};
pub use storage::{ArrayStack, ObjectStorage};
