//! Descriptions of NUMA machines, and the texts in which kernels and tools print them.

#[cfg(feature = "catalog")]
pub mod catalog;
pub mod description;
pub mod idlist;
pub mod over;
#[cfg(feature = "archive")]
pub mod packing;
pub mod plan;
pub mod shown;
pub mod sysfs;
#[cfg(feature = "catalog")]
pub mod table;
pub mod topology;
pub mod tree;
pub mod work;
