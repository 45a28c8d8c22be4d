//! What a pilot run finds of a recording: see [`pilot`](crate::pilot).

use std::collections::{HashMap, HashSet};

use nearpage::CpuId;
use nearpage::rules::pagesets::LISTS;

/// What a pilot run finds.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// What each pageset held at the start, by CPU and position of its zone.
    pub contents: HashMap<(CpuId, usize), Content>,
    /// Tasks with memory policies.
    pub policies: HashSet<u32>,
}

/// What a pageset held at the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Content {
    /// Pages of each list, as is likely.
    pub pages: [u64; LISTS],
    /// The least and the most that the trace leaves open, of all lists but `rest`.
    pub open: [[u64; 2]; LISTS],
    /// The list that the others leave the rest to.
    pub rest: usize,
}
