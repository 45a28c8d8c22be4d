//! What the crates beside this one take from within it. Nothing here is promised to stay as it is.

pub use crate::hash::Key;
pub use crate::page::LockWord;
pub use crate::parking::OVERTAKEN_MAX;
pub use crate::queue::{Bucket, HeldBucket};
pub use crate::table::{WaitTable, hold_buckets};
pub use crate::wait::{Awaited, PageSite, try_lock};
