//! Figures that are not a time per page.

use serde::Serialize;

/// A figure of nearpage that is not a time per page.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Fact {
    /// What it is.
    pub name: &'static str,
    /// In the unit that the name ends with.
    pub value: f64,
}

impl Fact {
    /// Milliseconds to online 64 GiB of reserved range of which nothing is touched.
    pub const ONLINE_64G_MS: &'static str = "online_64g_ms";
    /// MiB in memory after that.
    pub const ONLINE_64G_RESIDENT_MIB: &'static str = "online_64g_resident_mib";
    /// Percent of allocations on a memoryless node that a CPU's stack served.
    pub const MEMORYLESS_HITS_PERCENT: &'static str = "memoryless_hits_percent";
    /// The same with the behaviour before 2010.
    pub const MEMORYLESS_OLD_HITS_PERCENT: &'static str = "memoryless_old_hits_percent";
    /// List-lock acquisitions per message of hackbench between memoryless nodes.
    pub const LIST_LOCKS_PER_MESSAGE: &'static str = "list_locks_per_message";
    /// The same with the behaviour before 2010.
    pub const LIST_LOCKS_OLD_PER_MESSAGE: &'static str = "list_locks_old_per_message";
}
