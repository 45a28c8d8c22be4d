//! What the lock of settings protects.

use super::plugged::HotplugCounts;
use crate::units::{NodeIndex, PageCount};
use crate::watermark::Settings;

/// What the lock of settings protects.
pub(super) struct State<'m> {
    pub(super) settings: Settings,
    /// What others may keep on CPUs of the budget; `None` as long as nobody keeps notes.
    pub(super) lent_budget: Option<PageCount>,
    /// Whether zonelists were made anew at run time: Linux counts CPUs in the order of nodes only from then on.
    pub(super) booted: bool,
    /// Ranges that somebody is about to take: some of their pageblocks are isolated.
    pub(super) ranges: u32,
    /// What came and went.
    pub(super) plugged: HotplugCounts,
    /// Scratch space for the order of nodes, one entry a node.
    pub(super) loads: &'m mut [u32],
    pub(super) order: &'m mut [NodeIndex],
}
