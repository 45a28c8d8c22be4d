//! Descriptions of NUMA machines, and the texts in which kernels and tools print them.

pub mod description;
pub mod idlist;
pub mod over;
#[cfg(feature = "archive")]
pub mod packing;
pub mod plan;
pub mod shown;
pub mod sysfs;
pub mod topology;
pub mod tree;
pub mod work;
