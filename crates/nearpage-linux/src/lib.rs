//! nearpage on linux.

pub mod idlist;
pub mod storage;
pub mod sysfs;
pub mod tree;
