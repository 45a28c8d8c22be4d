//! Tuning of pagesets: how many pages a CPU keeps, and how many move in one hold of the zone's lock.
//!
//! A pageset holds `count` pages. An allocation that finds it empty *refills* it from the zone, a free
//! that makes it full *drains* it back; both take the zone's lock. This file decides when and how much.
//!
//! | word | meaning |
//! |---|---|
//! | `high` | a free that brings `count` to `high` drains; moves between `high_min` and `high_max` |
//! | `batch` | the unit of refills and drains |
//! | `alloc_factor` | an order-0 refill asks for `batch << alloc_factor`; doubles refill by refill |
//! | `free_count` | pages freed in a row: what a drain gives back |
//! | `free_factor` | the same before 6.7: a drain gives back `batch << free_factor` |
//!
//! Refills raise `high`; pressure on the zone, frees of high orders and idle time lower it. Every
//! decision is a pure function of the state [`Tuning`], the rules [`PcpRules`] and `count`: no lock, no
//! clock, no pages. Rules are data, so that one code serves each kernel version and a host that names
//! a constant set pays for no other. All functions are total: a state torn by a lost update
//! makes a poor decision, never an overflow, a panic or a drain of more than there is.
//!
//! **Who calls what.** The owner of the pageset (its CPU, or the holder of its lock):
//!
//! ```text
//! allocate one   before_alloc; if empty: refill_blocks, take them, push them
//! allocate bulk  if empty: refill_blocks; not before_alloc (Linux counts no bulk allocation either)
//! free one       push; after_free(count with the block): Some(n): drain n pages
//! once a second  decay: drain in pieces of `batch`; for a zone of another node expire_remote too
//! ```
//!
//! A host whose fast path may write nothing but its cursor (a restartable sequence) calls
//! [`Tuning::absorb`] before a refill or a drain instead of `before_alloc` and `after_free` each time;
//! [`Tuning::drains_at`] tells its fast path from which count on a free is a slow one.
//!
//! A drain takes blocks, coldest first, from the list just used and then from the others until at least
//! that many pages are gone; which blocks is the business of the storage, as is the end of
//! [`ZoneView::below_high`], for which the zone looks at its high watermark after each drain.
//!
//! Sources: the 2023 series "mm: PCP high auto-tuning"; `mm/page_alloc.c`, 6.1 and 6.12, by behaviour:
//! the constants reproduce recorded state trajectories of 6.1.192 and 6.12.95 step by step.

mod absorb;
mod drain;
mod refill;
mod rules;
mod series;
#[cfg(test)]
mod tests;

pub use rules::{Decay, DrainSize, FreeHigh, PcpRules, RefillScale, SizeRule};
pub use series::Series2023;

use rules::UNCAPPED;

use crate::units::PageCount;

/// What a decision needs to know of the zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ZoneView {
    /// An allocation found the zone at or below its high watermark, and no drain has ended that.
    /// `include/linux/mmzone.h: ZONE_BELOW_HIGH`, 6.12.
    pub below_high: bool,
    /// Background reclaim works on the zone. `include/linux/mmzone.h: ZONE_RECLAIM_ACTIVE`, 6.12.
    pub reclaim_active: bool,
}

/// The tuning state of one pageset: of one CPU and one zone.
///
/// The first four fields are settings, written by whoever resizes; the others belong to the owner of the
/// pageset. Under a set of rules that does not use a field, it stays zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tuning {
    /// Lower bound of `high`; 0 disables the pageset.
    pub high_min: PageCount,
    /// Upper bound of `high`; equal to `high_min`: no tuning.
    pub high_max: PageCount,
    /// Unit of refills and drains, at least 1.
    pub batch: PageCount,
    /// The CPU's slice of the cache is large: see [`FreeHigh::keeps_batch`].
    pub free_high_batch: bool,
    /// A free that brings the pageset to this many pages drains. A new size takes hold only at
    /// the next refill or free, as in Linux: until then this may lie out of bounds, or be 0.
    pub high: PageCount,
    /// Pages freed lately, halved by each allocation; stops growing at `batch << batch_scale_max`.
    pub free_count: PageCount,
    /// Doublings of the next order-0 refill.
    pub alloc_factor: u8,
    /// Doublings of the next drain.
    pub free_factor: u8,
    /// Turns until a pageset for a remote zone gives back a batch; 0: it has.
    pub expire: u8,
    /// The last free was of order 1 to 3.
    pub prev_free_high: bool,
    /// Fewest pages in the pageset since the last turn, below 2^32.
    pub count_min: PageCount,
}

/// Words of a [`Tuning`] in memory.
pub const WORDS: usize = 7;
/// The first words, which hold the settings.
pub const SETTING_WORDS: usize = 4;

const _: () = assert!(size_of::<[u64; WORDS]>() <= 64, "must fit a cache line");

impl Tuning {
    /// The boot pageset: nothing stays in it. `mm/page_alloc.c: per_cpu_pages_init`, 6.12.
    pub const BOOT: Self = Self {
        high_min: PageCount(0),
        high_max: PageCount(0),
        batch: PageCount(1),
        free_high_batch: false,
        high: PageCount(0),
        free_count: PageCount(0),
        alloc_factor: 0,
        free_factor: 0,
        expire: 0,
        prev_free_high: false,
        count_min: PageCount(0),
    };

    /// Sets the sizes: `high` will move in `high_min..=high_max`, or stay at `high_min` under
    /// rules without tuning. A `batch` of 0 counts as 1, a `high_max` below `high_min` as `high_min`.
    ///
    /// Linux keeps `high_min` at four batches or more; with less, drains get smaller than a batch.
    /// `mm/page_alloc.c: zone_set_pageset_high_and_batch`, 6.12.
    pub fn resize(
        &mut self,
        rules: &PcpRules,
        high_min: PageCount,
        high_max: PageCount,
        batch: PageCount,
    ) {
        self.high_min = high_min;
        self.high_max = if rules.tunes_high { high_max.max(high_min) } else { high_min };
        self.batch = batch.max(PageCount(1));
        if !rules.tunes_high {
            self.high = high_min;
        }
    }

    /// Brings `high` within its bounds now and not at the next decision, so that what lies above them goes back
    /// with the next turn of the decay.
    pub fn apply_bounds(&mut self) {
        self.clamp_high();
    }

    /// Makes every further free pass straight through; the caller drains what is there.
    /// [`Self::resize`] ends it. `mm/page_alloc.c: zone_pcp_disable`, 6.12.
    pub fn disable(&mut self) {
        self.high_min = PageCount(0);
        self.high_max = PageCount(0);
        self.batch = PageCount(1);
    }

    /// Tells the pageset how many pages this CPU's share of the last-level cache holds: its size divided
    /// by the CPUs that share it. Call it after [`Self::resize`].
    /// `mm/page_alloc.c: zone_pcp_update_cacheinfo`, 6.12.
    pub fn set_cache_slice(&mut self, rules: &PcpRules, slice: PageCount) {
        let batches = u64::from(rules.large_slice_batches);
        self.free_high_batch = slice.0 > self.batch.0.saturating_mul(batches);
    }

    /// The state as plain words for per-CPU memory, the settings first. All zero is [`Self::BOOT`].
    pub fn to_words(self) -> [u64; WORDS] {
        let small = [self.alloc_factor, self.free_factor, self.expire, self.prev_free_high.into()];
        [
            self.high_min.0,
            self.high_max.0,
            self.batch.0.saturating_sub(1),
            self.free_high_batch.into(),
            self.high.0,
            self.free_count.0,
            u64::from(u32::from_le_bytes(small)) | self.count_min.0 << 32,
        ]
    }

    /// The state from the words of [`Self::to_words`]; any words make a state, with `high_max` no lower
    /// than `high_min`.
    pub fn from_words(words: [u64; WORDS]) -> Self {
        let [alloc_factor, free_factor, expire, prev_free_high, ..] = words[6].to_le_bytes();
        Self {
            high_min: PageCount(words[0]),
            high_max: PageCount(words[1].max(words[0])),
            batch: PageCount(words[2].saturating_add(1)),
            free_high_batch: words[3] != 0,
            high: PageCount(words[4]),
            free_count: PageCount(words[5]),
            alloc_factor,
            free_factor,
            expire,
            prev_free_high: prev_free_high != 0,
            count_min: PageCount(words[6] >> 32),
        }
    }

    pub(super) fn batch_shifted(&self, factor: u8) -> u64 {
        self.batch.0.saturating_mul(1 << factor.min(UNCAPPED))
    }

    pub(super) fn is_tuned(&self) -> bool {
        self.high_min != self.high_max
    }

    /// `high` within its bounds, which may have changed since it was set.
    fn clamped_high(&self) -> PageCount {
        self.high.min(self.high_max).max(self.high_min)
    }

    pub(super) fn clamp_high(&mut self) -> PageCount {
        self.high = self.clamped_high();
        self.high
    }

    pub(super) fn lower_high(&mut self, pages: u64) {
        self.high = PageCount(self.high.0.saturating_sub(pages)).max(self.high_min);
    }
}
