//! nearpage on linux.

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
mod storage;
mod topology;
mod trim;
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
pub use memory::{Memory, PageBlock};
pub use misuse::{Misuse, OnMisuse};
pub use pagelock::{LockError, LockablePages, LockedPage, PageHandle};
pub use placement::{NodeSample, PlacementReport};
pub use prefault::Progress;
pub use pressure::Pressure;
pub use reclaim::{Reclaim, ReclaimCounts, ReclaimOptions, ReclaimThread, Shrinker};
pub use rseq::RseqUnavailable;
pub use slab::{KmemCache, NotDestroyed, ObjectBox, SizeClasses, SlabAllocator, TypedCache};
pub use warning::{VariableWarning, Warning};

/// What the crates beside this one take from within it. Nothing here is promised to stay as it is.
#[doc(hidden)]
pub mod internals {
    pub use crate::host::Host;
    pub use crate::locked::{GetCpu, LockedStorage};
    pub use crate::region::page_size;
    pub use crate::rseq::{Area, BareLists, RingStorage};
}
