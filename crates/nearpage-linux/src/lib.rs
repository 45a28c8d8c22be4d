//! nearpage on linux.

pub mod description;
pub mod environment;
pub mod idlist;
pub mod machine;
pub mod numa;
pub mod region;
pub mod storage;
pub mod sysfs;
pub mod tree;
