//! nearpage on linux.

pub mod builder;
pub mod calls;
pub mod description;
pub mod environment;
mod fork;
pub mod host;
pub mod huge;
pub mod idlist;
pub mod machine;
pub mod memory;
pub mod numa;
pub mod placement;
pub mod prefault;
pub mod reclaim;
mod region;
pub mod rseq;
pub mod sysfs;
mod tell;
pub mod tree;
mod trim;


pub use builder::MemoryBuilder;
pub use huge::HugePages;
pub use machine::{HostMachine, HostNode};
pub use memory::{Memory, MemoryError, PageBlock};
