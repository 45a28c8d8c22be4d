//! The rules, as pure functions and data.

pub use crate::buddy::{FallbackModel, FallbackRules, HeldMovable};
pub use crate::model::{Departures, TextLayout};
pub use crate::pcp::tuning::PcpRules;
pub use crate::rule_set::{ByModel, Linux, Places};
pub use crate::waiters::{PageLockRules, WaitTables, WaitersBit};
pub use crate::watermark::MovableMin;
pub use crate::zonelist::cache::CacheRule;
pub use crate::zonelist::{CpuTerm, MemorylessCpu, MemorylessLine};

/// Watermarks and reserves: how much of each zone stays free, and for whom.
pub mod watermarks {
    pub use crate::watermark::{
        AllocFlags, HUGEPAGE_BYTES_MIN, HugePages, MinFree, MinFreeRule, WatermarkCheck,
        Watermarks, ZoneSize, boot_min_free, boot_min_free_kbytes, derived_min_free_kbytes,
        hugepage_min_free_kbytes, lowmem_reserve, raised_boost, total_reserve, watermark_fast,
        watermark_ok,
    };
}

/// Pagesets: how large they may be, and when they refill and drain.
pub mod pagesets {
    pub use crate::pcp::sizes::{Sizes, ZoneShare, batch, stat_threshold};
    pub use crate::pcp::tuning::{
        Decay, DrainSize, FreeHigh, PcpRules, RefillScale, Series2023, SizeRule, Tuning, ZoneView,
    };
    pub use crate::pcp::{LISTS, list_index, list_order, list_type};
}

/// Fallback orders and zonelists.
pub mod zonelists {
    pub use crate::zonelist::{
        CpuTerm, MemorylessLine, NodeOrder, Online, ZoneRef, effective_node, fallback_zones,
        logged_order, nofallback_zones, write_fallback_order,
    };
}
