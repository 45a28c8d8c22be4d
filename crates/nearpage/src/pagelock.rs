//! The lock of a page, and what waits for it.

pub use crate::alloc::{BitWord, PageLock};
pub use crate::error::PageLockError;
pub use crate::page_wait::{
    Interrupted, PageLockRules, Parking, Site, Wait, WaitCounts, WaitTables, WaitersBit,
};
