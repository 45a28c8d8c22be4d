#![doc = include_str!("../README.md")]
#![no_std]
#![deny(unsafe_code)]
#![warn(missing_debug_implementations)]

#[cfg(any(test, feature = "alloc"))]
extern crate alloc as std_alloc;
#[cfg(loom)]
extern crate std;

mod alloc;
mod arena;
mod buddy;
mod check;
mod check_error;
mod error;
mod frame;
mod gfp;
mod host;
mod limit;
mod linux;
mod model;
mod pcp;
mod places;
mod policy;
mod reason;
mod rule_set;
mod single;
mod slot;
mod sync;
mod topology;
mod units;
mod vmstat;
mod waiters;
mod watermark;
mod zone;
mod zonelist;

pub mod platform;
pub mod rules;
pub mod stats;

#[doc(hidden)]
pub mod internals;
#[cfg(feature = "testing")]
pub mod testing;

pub use alloc::{
    BuildError, BulkFreeError, Config, CpuError, DrainBusy, Lending, LentPages, Limits, NodeAccess,
    PageAllocator, ReclaimPass, Request, metadata_size,
};
pub use error::{
    AllocError, FreeError, LimitError, LimitOf, OfflineError, OnlineError, RangeError, SetOfNodes,
    UnknownNode,
};
pub use frame::{FrameState, Migratetype};
pub use gfp::Gfp;
pub use model::{Model, PageblockOwners, UnknownModel};
pub use policy::{Cursor, NodeSet, NodeSetError, Placement, Policy, Turn};
pub use reason::{CallSite, Fallbacks, Reason};
pub use topology::{AddressMap, Node, Topology, TopologyError, ZoneInstances};
#[cfg(any(test, feature = "alloc"))]
pub use topology::{NodeBuf, TopologyBuf};
pub use units::{
    Address, CpuId, NodeId, NodeIndex, Order, PageCount, Pfn, PfnRange, ZoneIndex, ZoneKind,
};
pub use watermark::{Marks, SettingError, Settings};

/// The examples of the book, run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/guides/kernel.md")]
mod book_kernel {}
