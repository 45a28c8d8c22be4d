//! What an allocator has counted.

pub use crate::alloc::{AllocReport, HotplugCounts, ScanCounts, StallCounts};
pub use crate::buddy::BuddyError;
pub use crate::check::{CheckError, Checked};
pub use crate::pcp::pageset::{Pageset, PagesetCounts, Totals};
pub use crate::vmstat::{PagesetLines, ZonePages, ZoneStats, ZoneinfoWriter};
pub use crate::waiters::{AwaitedBit, WaitCounts};
pub use crate::zone::{LockHolds, LockWork, Zone, ZoneCounts};
