//! nearpage on linux.

pub mod builder;
pub mod environment;
pub mod host;
pub mod idlist;
pub mod memory;
pub mod numa;
mod region;
pub mod rseq;
pub mod storage;
pub mod sysfs;
pub mod tree;

pub use builder::{HostMachine, HostNode, MemoryBuilder};
pub use memory::{Memory, MemoryError, PageBlock};
