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

use crate::units::{COSTLY_ORDER, Order, PageCount};

/// A scale that caps nothing: `high` caps earlier.
const UNCAPPED: u8 = 31;
/// Turns without use after which a pageset for a remote zone gives back a batch.
/// `mm/vmstat.c: refresh_cpu_vm_stats`, 6.12.
const REMOTE_TURNS: u8 = 3;

/// How a drain knows how many pages to give back: its *goal*. What it really gives lies between one
/// batch and all but one batch of `high`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DrainSize {
    /// `batch << free_factor`. A drain that was not limited by `high` raises the factor, each allocation
    /// halves it. Linux before 6.7.
    Factor,
    /// `free_count`: pages freed, halved by each allocation. Linux from 6.7 (6ccdcb6d3a74).
    FreeCount,
    /// `batch << batch_scale_max`, always.
    FullHold,
}

/// How the size of order-0 refills follows the workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RefillScale {
    /// Always one batch. Linux before 6.7.
    Fixed,
    /// Doubles with each refill; each free halves it. Linux from 6.7 (c0a242394cb9).
    HalvedByFree,
    /// Doubles with each refill; each drain and each turn of the decay halves it.
    HalvedByDrain,
}

/// When a free of order 1 to 3 empties the pageset although it is not full, because pages that are
/// freed here in a row are wanted elsewhere (network buffers), while they are still in a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FreeHigh {
    /// The free before must have been of order 1 to 3 too. From 6.7 (ca71fe1ad922).
    pub after_high_order: bool,
    /// With a large cache slice ([`Tuning::set_cache_slice`]) a batch must have come together.
    /// From 6.7 (362d37a106dd).
    pub keeps_batch: bool,
    /// All pages leave in one lock hold; else at most `batch << batch_scale_max`, from 6.7 (51a755c56dc0).
    pub drains_all: bool,
}

/// A set of rules: which decisions a pageset takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PcpRules {
    /// No lock hold is to move more than `batch << batch_scale_max` pages, up to the end of a block; a
    /// refill of order 9 moves two blocks whatever this says.
    /// `mm/Kconfig: PCP_BATCH_SCALE_MAX`, 6.12.
    pub batch_scale_max: u8,
    /// How refills grow.
    pub refill: RefillScale,
    /// How much a drain gives back.
    pub drain: DrainSize,
    /// When frees of order 1 to 3 empty the pageset; `None`: never.
    pub free_high: Option<FreeHigh>,
    /// Whether `high` follows the workload; else it is `high_min`. From 6.7 (51a755c56dc0).
    pub tunes_high: bool,
    /// Whether `high` falls while the zone is below its high watermark. From 6.7 (57c0419c5f0e); without
    /// it the only thing that keeps `high` from rising is reclaim.
    pub below_high: bool,
}

impl PcpRules {
    /// Linux 6.1: fixed `high`, fixed refills, drains that double without a cap.
    pub const LINUX_6_1: Self = Self {
        batch_scale_max: UNCAPPED,
        refill: RefillScale::Fixed,
        drain: DrainSize::Factor,
        free_high: Some(FreeHigh { after_high_order: false, keeps_batch: false, drains_all: true }),
        tunes_high: false,
        below_high: false,
    };

    /// Linux 6.12: the series as merged, nine of its ten patches.
    pub const LINUX_6_12: Self = Self {
        batch_scale_max: 5,
        refill: RefillScale::HalvedByFree,
        drain: DrainSize::FreeCount,
        free_high: Some(FreeHigh { after_high_order: true, keeps_batch: true, drains_all: false }),
        tunes_high: true,
        below_high: true,
    };

    /// The default: 6.12 with its memory in the slow path only.
    ///
    /// The aim is the fewest lock acquisitions with bounded holds, so whenever pages flow one way each
    /// hold should be as long as allowed. In 6.12 single operations against the flow undo that: a free
    /// halves `alloc_factor`, an allocation halves `free_count`, and refills and drains fall from 2016
    /// pages to 63. Here only a drain (or a turn of the decay) ends a run of refills, and a drain gives
    /// back a full hold, or all but a batch. Lock acquisitions of one pageset (batch 63, `high` from 370
    /// to 37000) in 2 million operations of order 0; no hold is longer than 2016 pages:
    ///
    /// | workload | 6.12 | here |
    /// |---|---|---|
    /// | allocations only | 997 | 997 |
    /// | frees only | 994 | 992 |
    /// | 30 % frees among allocations | 12723 | 402 |
    /// | 30 % allocations among frees | 12728 | 398 |
    /// | 60 % allocations for 20000 operations, then 60 % frees, and so on | 106 | 11 |
    /// | bursts of one kind, of random length up to 4096 | 329 | 103 |
    /// | 100000 allocations, then 100000 frees, and so on | 698 | 698 |
    ///
    /// What it costs: a CPU that allocates little by little keeps up to a full hold of pages where 6.12
    /// keeps a batch, until the decay has halved its refills; and a drain may give back pages that are soon
    /// wanted again, one refill's worth.
    ///
    /// No free of a high order empties the pageset. On a CPU that only frees blocks of order 3 that means
    /// 31 times fewer drains, but the blocks wait until they are cold. Linux decided otherwise, for its
    /// network buffers (patches 3 and 10 of the series).
    ///
    /// Since no fast path changes anything, decisions are the same on every storage, and
    /// [`Tuning::absorb`] has nothing to guess.
    pub const NEARPAGE: Self = Self {
        refill: RefillScale::HalvedByDrain,
        drain: DrainSize::FullHold,
        free_high: None,
        ..Self::LINUX_6_12
    };
}

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
    pub fn set_cache_slice(&mut self, slice: PageCount) {
        self.free_high_batch = slice.0 > self.batch.0.saturating_mul(3);
    }

    /// Whether [`before_alloc`](Self::before_alloc) would change anything.
    #[inline]
    pub fn notes_allocs(rules: &PcpRules) -> bool {
        rules.drain != DrainSize::FullHold
    }

    /// Notes an allocation of one block from the pageset. `mm/page_alloc.c: rmqueue_pcplist`, 6.12.
    #[inline]
    pub fn before_alloc(&mut self, rules: &PcpRules) {
        match rules.drain {
            DrainSize::Factor => self.free_factor >>= 1,
            DrainSize::FreeCount => self.free_count.0 >>= 1,
            DrainSize::FullHold => {}
        }
    }

    /// How many blocks of `order` to take from the zone for an allocation that found no block of its
    /// order and type; at least 1. `count` is what the pageset holds in its other lists.
    /// `mm/page_alloc.c: nr_pcp_alloc`, 6.12.
    pub fn refill_blocks(
        &mut self,
        rules: &PcpRules,
        order: Order,
        count: PageCount,
        zone: ZoneView,
    ) -> u64 {
        if self.clamp_high() < self.batch {
            return 1;
        }
        let doubles = order.0 == 0 && rules.refill != RefillScale::Fixed;
        let factor = if doubles { self.alloc_factor.min(rules.batch_scale_max) } else { 0 };
        let mut pages = self.batch_shifted(factor);
        self.raise_high(rules, pages, zone);
        if order.0 == 0 {
            pages = self.fit_refill(rules, pages, count);
        }
        if pages > 1 { (pages / order.pages().0).max(2) } else { 1 }
    }

    /// Notes a free of one block of `order`, already in the pageset, which holds `count` pages with it.
    /// Returns how many pages to drain, at most `count`, or `None` if the pageset may keep them.
    /// `mm/page_alloc.c: free_unref_page_commit`, 6.12.
    pub fn after_free(
        &mut self,
        rules: &PcpRules,
        order: Order,
        count: PageCount,
        zone: ZoneView,
    ) -> Option<PageCount> {
        if rules.refill == RefillScale::HalvedByFree {
            self.alloc_factor >>= 1;
        }
        let free_high = self.is_free_high(rules, order, count);
        self.prev_free_high = is_high_order(order);
        self.count_free(rules, order.pages());
        let high = self.high_for_free(rules, count, free_high, zone);
        if count < high {
            return None;
        }
        self.end_refill_run(rules);
        let pages = if free_high.is_some_and(|rule| rule.drains_all) {
            count.0
        } else if free_high.is_some() {
            self.hold_max(rules).0
        } else {
            self.drain_pages(rules, high)
        };
        Some(PageCount(pages).min(count))
    }

    /// The count from which on a free drains, as things are; frees of order 1 to 3 may drain before
    /// ([`PcpRules::free_high`]). With a `high_min` below four batches, less than Linux allows, a
    /// free under reclaim may drain before too.
    pub fn drains_at(&self, rules: &PcpRules, zone: ZoneView) -> PageCount {
        let mut copy = *self;
        copy.high_for_free(rules, PageCount(0), None, zone)
    }

    /// The periodic turn, once a second: lets `high` fall by an eighth, down to `high_min` and by no more
    /// than one full hold below `count`. Returns the pages to drain: at most `count`, in pieces of
    /// `batch`, each under its own lock hold. Nothing is left to do when it returns 0 and `high` is
    /// `high_min`. `mm/page_alloc.c: decay_pcp_high`, 6.12.
    pub fn decay(&mut self, rules: &PcpRules, count: PageCount) -> PageCount {
        if !rules.tunes_high {
            return PageCount(0);
        }
        self.end_refill_run(rules);
        if self.high > self.high_min {
            let full_hold_below = count.0.saturating_sub(self.hold_max(rules).0);
            let high = self.high.0 - (self.high.0 >> 3);
            self.high = PageCount(high.max(full_hold_below).max(self.high_min.0));
        }
        PageCount(count.0.saturating_sub(self.high.0))
    }

    /// Notes that the CPU used this pageset of another node's zone since the last turn.
    pub fn keep_remote(&mut self) {
        self.expire = REMOTE_TURNS;
    }

    /// The periodic turn for a pageset of another node's zone: after three turns without use it
    /// gives back a batch, once. Returns the pages to drain.
    /// `mm/vmstat.c: refresh_cpu_vm_stats`, 6.12.
    pub fn expire_remote(&mut self, count: PageCount) -> PageCount {
        if self.expire == 0 || count.0 == 0 {
            return PageCount(0);
        }
        self.expire -= 1;
        if self.expire == 0 { self.batch.min(count) } else { PageCount(0) }
    }

    /// Folds in operations of order 0 that were not noted one by one: all since the last refill or drain,
    /// without the one that now needs the next.
    ///
    /// Their order is not known; only `free_count` depends on it. It becomes what it would be had the
    /// frees been spread evenly before, between and after the allocations: with `f` of them in each
    /// place, halving after halving leaves `2 f`. That is exact for runs of one kind and within two
    /// pages for a steady alternation. In random order refills come out equal to those of the exact
    /// machine and drains within 1 %. Where a burst of allocations came first and the frees after, it is
    /// too small: the first drain gives back one batch instead of `free_count`, the next ones
    /// double, which makes up to six more drains a burst. Random bursts of up to 4096 pages drain up to
    /// 3.7 times as often (and take the lock 1.1 to 1.8 times as often); the pages moved differ by 2 %.
    ///
    /// `free_factor` and `alloc_factor` come out exact in any order: between two slow events allocations
    /// and frees only halve them. Under [`PcpRules::NEARPAGE`] there is nothing to fold.
    pub fn absorb(&mut self, rules: &PcpRules, allocs: u64, frees: u64) {
        if rules.refill == RefillScale::HalvedByFree {
            self.alloc_factor = halved(self.alloc_factor.into(), frees) as u8;
        }
        match rules.drain {
            DrainSize::Factor => self.free_factor = halved(self.free_factor.into(), allocs) as u8,
            DrainSize::FreeCount => self.absorb_free_count(rules, allocs, frees),
            DrainSize::FullHold => {}
        }
        self.prev_free_high &= frees == 0;
    }

    /// The most pages that one drain should move: `batch << batch_scale_max`. Who empties a whole
    /// pageset does so in pieces of this size. `mm/page_alloc.c: drain_pages_zone`, 6.12.
    pub fn hold_max(&self, rules: &PcpRules) -> PageCount {
        PageCount(self.batch_shifted(rules.batch_scale_max))
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
            u32::from_le_bytes(small).into(),
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
        }
    }

    fn batch_shifted(&self, factor: u8) -> u64 {
        self.batch.0.saturating_mul(1 << factor.min(UNCAPPED))
    }

    fn is_tuned(&self) -> bool {
        self.high_min != self.high_max
    }

    fn clamp_high(&mut self) -> PageCount {
        self.high = self.high.min(self.high_max).max(self.high_min);
        self.high
    }

    fn lower_high(&mut self, pages: u64) {
        self.high = PageCount(self.high.0.saturating_sub(pages)).max(self.high_min);
    }

    /// A refill says that the pageset was too small: `high` rises by what it asks for.
    /// Raises `high` by what the zone had to give because the pageset was empty, so that the pages can stay
    /// when they come back. Not under pressure.
    pub fn raise_high(&mut self, rules: &PcpRules, pages: u64, zone: ZoneView) {
        let pressed = if rules.below_high { zone.below_high } else { zone.reclaim_active };
        if self.is_tuned() && !pressed {
            self.high = PageCount(self.high.0.saturating_add(pages)).min(self.high_max);
        }
    }

    /// Limits an order-0 refill so that a batch of room stays below `high`, and doubles the next one
    /// unless that limited this one.
    fn fit_refill(&mut self, rules: &PcpRules, pages: u64, count: PageCount) -> u64 {
        let room = self.high.0.saturating_sub(count.0).saturating_sub(self.batch.0);
        let most = room.max(self.batch.0);
        let grows = rules.refill != RefillScale::Fixed && self.alloc_factor < rules.batch_scale_max;
        if pages <= most && grows {
            self.alloc_factor += 1;
        }
        pages.min(most)
    }

    fn end_refill_run(&mut self, rules: &PcpRules) {
        if rules.refill == RefillScale::HalvedByDrain {
            self.alloc_factor >>= 1;
        }
    }

    /// Below its limit `free_count` grows by the whole block, so that it may pass it by less than one.
    fn count_free(&mut self, rules: &PcpRules, pages: PageCount) {
        if rules.drain == DrainSize::FreeCount && self.free_count < self.hold_max(rules) {
            self.free_count = PageCount(self.free_count.0.saturating_add(pages.0));
        }
    }

    fn absorb_free_count(&mut self, rules: &PcpRules, allocs: u64, frees: u64) {
        let hold_max = self.hold_max(rules).0;
        let in_each_place = (frees / allocs.saturating_add(1)).min(hold_max);
        let added = 2 * in_each_place - halved(in_each_place, allocs);
        let kept = halved(self.free_count.0, allocs);
        self.free_count = PageCount(kept + added.min(hold_max.saturating_sub(kept)));
    }

    /// The rule by which this free empties the pageset, if it does. Looks at the frees before this one,
    /// and at `count` with it.
    fn is_free_high(&self, rules: &PcpRules, order: Order, count: PageCount) -> Option<FreeHigh> {
        let rule = rules.free_high.filter(|_| is_high_order(order))?;
        let in_a_row = match rules.drain {
            DrainSize::Factor => self.free_factor > 0,
            DrainSize::FreeCount => self.free_count >= self.batch,
            DrainSize::FullHold => true,
        };
        let previous = self.prev_free_high || !rule.after_high_order;
        let enough = count >= self.batch || !(rule.keeps_batch && self.free_high_batch);
        (in_a_row && previous && enough).then_some(rule)
    }

    /// The count at which this free drains; moves `high`. `mm/page_alloc.c: nr_pcp_high`, 6.12.
    fn high_for_free(
        &mut self,
        rules: &PcpRules,
        count: PageCount,
        free_high: Option<FreeHigh>,
        zone: ZoneView,
    ) -> PageCount {
        let high = self.clamp_high();
        if high.0 == 0 {
            return high;
        }
        if free_high.is_some() {
            self.lower_high(self.hold_max(rules).0);
            return PageCount(0);
        }
        let goal = self.drain_goal(rules);
        if zone.reclaim_active {
            self.lower_high(goal.max(self.batch.0));
            return self.high.min(PageCount(self.batch.0.saturating_mul(4)));
        }
        if !self.is_tuned() {
            return high;
        }
        if rules.below_high && zone.below_high {
            self.lower_high(goal.max(self.batch.0));
            return count.max(self.high_min);
        }
        if count >= high {
            let need = PageCount(goal.saturating_add(self.batch.0));
            self.high = high.max(need).min(self.high_max);
        }
        high
    }

    fn drain_goal(&self, rules: &PcpRules) -> u64 {
        match rules.drain {
            DrainSize::Factor => self.batch_shifted(self.free_factor),
            DrainSize::FreeCount => self.free_count.0,
            DrainSize::FullHold => self.hold_max(rules).0,
        }
    }

    /// Pages of a drain at `high`: the goal, but a batch at least, and a batch stays.
    /// `mm/page_alloc.c: nr_pcp_free`, 6.12.
    fn drain_pages(&mut self, rules: &PcpRules, high: PageCount) -> u64 {
        if high < self.batch {
            return 1;
        }
        let goal = self.drain_goal(rules);
        let most = high.0 - self.batch.0;
        let grows = rules.drain == DrainSize::Factor && self.free_factor < rules.batch_scale_max;
        if goal < most && grows {
            self.free_factor += 1;
        }
        // Sizes with less than two batches in `high` exist on no Linux; the pageset must not grow there.
        goal.max(self.batch.0).min(most).max(1)
    }
}

fn is_high_order(order: Order) -> bool {
    order.0 > 0 && order <= COSTLY_ORDER
}

fn halved(value: u64, times: u64) -> u64 {
    value >> times.min(63)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std_alloc::vec::Vec;

    const CALM: ZoneView = ZoneView { below_high: false, reclaim_active: false };
    const RECLAIM: ZoneView = ZoneView { below_high: false, reclaim_active: true };
    const BELOW_HIGH: ZoneView = ZoneView { below_high: true, reclaim_active: false };
    const VIEWS: [ZoneView; 4] =
        [CALM, RECLAIM, BELOW_HIGH, ZoneView { below_high: true, reclaim_active: true }];
    const SETS: [&PcpRules; 3] = [&PcpRules::LINUX_6_1, &PcpRules::LINUX_6_12, &PcpRules::NEARPAGE];
    const PAGE: Order = Order(0);

    fn sized(rules: &PcpRules, high_min: u64, high_max: u64, batch: u64) -> Tuning {
        let mut tuning = Tuning::BOOT;
        tuning.resize(rules, PageCount(high_min), PageCount(high_max), PageCount(batch));
        tuning
    }

    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Operation {
        Alloc(u8),
        Free(u8),
    }
    use Operation::{Alloc, Free};

    /// How operations of order 0 reach the tuning.
    #[derive(Clone, Copy, PartialEq)]
    enum Noting {
        Each,
        Absorbed,
    }

    /// A pageset that is a number of pages, and a zone without end.
    struct Pageset<'a> {
        rules: &'a PcpRules,
        noting: Noting,
        zone: ZoneView,
        tuning: Tuning,
        count: u64,
        allocs: u64,
        frees: u64,
        refills: Vec<u64>,
        drains: Vec<u64>,
    }

    impl<'a> Pageset<'a> {
        fn new(rules: &'a PcpRules, tuning: Tuning) -> Self {
            Self {
                rules,
                noting: Noting::Each,
                zone: CALM,
                tuning,
                count: 0,
                allocs: 0,
                frees: 0,
                refills: Vec::new(),
                drains: Vec::new(),
            }
        }

        fn absorb(&mut self) {
            self.tuning.absorb(self.rules, self.allocs, self.frees);
            (self.allocs, self.frees) = (0, 0);
        }

        fn alloc(&mut self, order: Order) {
            let pages = order.pages().0;
            if self.noting == Noting::Absorbed && self.count >= pages {
                self.allocs += 1;
            } else {
                self.absorb();
                self.tuning.before_alloc(self.rules);
            }
            if self.count < pages {
                let count = PageCount(self.count);
                let blocks = self.tuning.refill_blocks(self.rules, order, count, self.zone);
                self.refills.push(blocks * pages);
                self.count += blocks * pages;
            }
            self.count -= pages;
        }

        fn free(&mut self, order: Order) {
            self.count += order.pages().0;
            let count = PageCount(self.count);
            if self.noting == Noting::Absorbed
                && count < self.tuning.drains_at(self.rules, self.zone)
            {
                self.frees += 1;
                return;
            }
            self.absorb();
            if let Some(pages) = self.tuning.after_free(self.rules, order, count, self.zone) {
                // Blocks leave whole.
                let pages = pages.0.next_multiple_of(order.pages().0).min(self.count);
                self.drains.push(pages);
                self.count -= pages;
            }
        }

        fn run(&mut self, operations: impl IntoIterator<Item = Operation>) -> &mut Self {
            for operation in operations {
                match operation {
                    Alloc(order) => self.alloc(Order(order)),
                    Free(order) => self.free(Order(order)),
                }
            }
            self
        }

        fn locks(&self) -> usize {
            self.refills.len() + self.drains.len()
        }

        fn longest_hold(&self) -> u64 {
            self.refills.iter().chain(&self.drains).copied().max().unwrap_or(0)
        }
    }

    fn times(n: usize, operation: Operation) -> impl Iterator<Item = Operation> {
        core::iter::repeat_n(operation, n)
    }

    // Traces of 6.12.117 with batch 63 (high_max large unless said), as differences of /proc/zoneinfo
    // and of page counts.

    #[test]
    fn refills_double_up_to_a_full_hold_and_raise_high_by_their_sum() {
        let mut tuning = sized(&PcpRules::LINUX_6_12, 13_971, 62_231, 63);
        tuning.high = PageCount(18_367);
        let mut pageset = Pageset::new(&PcpRules::LINUX_6_12, tuning);
        pageset.run(times(12_033, Alloc(0)));
        assert_eq!(pageset.refills[..7], [63, 126, 252, 504, 1008, 2016, 2016]);
        assert_eq!(pageset.refills.iter().sum::<u64>(), 12_033);
        assert_eq!(pageset.tuning.high, PageCount(30_400));
    }

    #[test]
    fn a_fixed_high_limits_refills() {
        let mut tuning = sized(&PcpRules::LINUX_6_12, 1250, 1250, 63);
        tuning.alloc_factor = 3;
        for (count, pages) in [(838, 349), (837, 350), (1250, 63)] {
            let blocks = tuning.refill_blocks(&PcpRules::LINUX_6_12, PAGE, PageCount(count), CALM);
            assert_eq!(blocks, pages, "with {count} pages in other lists");
            assert_eq!((tuning.alloc_factor, tuning.high), (3, PageCount(1250)));
        }
        let all = tuning.refill_blocks(&PcpRules::LINUX_6_12, PAGE, PageCount(683), CALM);
        assert_eq!((all, tuning.alloc_factor), (504, 4), "just not limited");
    }

    #[test]
    fn steady_frees_drain_what_was_freed_up_to_a_full_hold() {
        let rules = &PcpRules::LINUX_6_12;
        let mut auto = Pageset::new(rules, sized(rules, 15_630, 62_231, 63));
        auto.count = 15_630 - 700;
        auto.run(times(9000, Free(0)));
        assert_eq!(auto.drains, [700, 1400, 2016, 2016, 2016, 2016]);
        let mut fixed = Pageset::new(rules, sized(rules, 1250, 1250, 63));
        fixed.run(times(5000, Free(0)));
        assert_eq!(fixed.drains, [1187, 1187, 1187, 1187]);
    }

    #[test]
    fn decay_takes_an_eighth_a_turn_down_to_high_min() {
        let mut tuning = sized(&PcpRules::LINUX_6_12, 13_971, 62_231, 63);
        tuning.high = PageCount(30_400);
        for high in [26_600, 23_275, 20_366, 17_821, 15_594, 13_971, 13_971] {
            assert_eq!(tuning.decay(&PcpRules::LINUX_6_12, PageCount(13_971)).0, 0);
            assert_eq!(tuning.high, PageCount(high));
        }
    }

    // Trajectories recorded on 6.12.95 and 6.1.192.

    #[test]
    fn decay_drains_at_most_a_full_hold() {
        let mut tuning = sized(&PcpRules::LINUX_6_12, 1899, 62_231, 63);
        tuning.high = PageCount(19_224);
        let mut count = PageCount(17_325);
        for left in [16_821, 14_805, 12_955, 11_336] {
            count.0 -= tuning.decay(&PcpRules::LINUX_6_12, count).0;
            assert_eq!((count, tuning.high), (PageCount(left), PageCount(left)));
        }
    }

    #[test]
    fn linux_6_1_drains_double_until_high_limits_them() {
        let rules = &PcpRules::LINUX_6_1;
        let mut pageset = Pageset::new(rules, sized(rules, 1894, 62_262, 63));
        pageset.run(times(6000, Free(0)));
        assert_eq!(pageset.drains, [63, 126, 252, 504, 1008, 1831, 1831]);
        assert_eq!(pageset.tuning.free_factor, 5);
        pageset.run(times(1, Alloc(0)));
        assert_eq!(pageset.tuning.free_factor, 2);
        pageset.run(times(2000, Alloc(0)));
        assert_eq!(pageset.refills.iter().max(), Some(&63));
        assert_eq!(pageset.tuning.high, PageCount(1894));
    }

    #[test]
    fn linux_6_1_drains_do_not_double_at_the_limit() {
        let rules = &PcpRules::LINUX_6_1;
        for (high, factor) in [(189, 1), (190, 2)] {
            let mut tuning = sized(rules, high, high, 63);
            tuning.free_factor = 1;
            let drain = tuning.after_free(rules, PAGE, PageCount(high), CALM);
            assert_eq!((drain, tuning.free_factor), (Some(PageCount(126)), factor));
        }
    }

    #[test]
    fn linux_6_1_knows_no_decay() {
        let mut tuning = sized(&PcpRules::LINUX_6_1, 252, 252, 63);
        assert_eq!(tuning.decay(&PcpRules::LINUX_6_1, PageCount(5000)), PageCount(0));
    }

    #[test]
    fn refills_of_higher_orders_are_one_batch_but_two_blocks_at_least() {
        for (order, blocks) in [(1, 31), (2, 15), (3, 7), (9, 2)] {
            let mut tuning = sized(&PcpRules::LINUX_6_12, 1899, 62_231, 63);
            tuning.alloc_factor = 5;
            let rules = &PcpRules::LINUX_6_12;
            assert_eq!(tuning.refill_blocks(rules, Order(order), PageCount(0), CALM), blocks);
            assert_eq!((tuning.high, tuning.alloc_factor), (PageCount(1962), 5));
        }
    }

    #[test]
    fn each_free_halves_the_next_refill() {
        let rules = &PcpRules::LINUX_6_12;
        let mut pageset = Pageset::new(rules, sized(rules, 1899, 62_231, 63));
        pageset.run(times(1000, Alloc(0)));
        for factor in [2, 1, 0, 0] {
            pageset.run([Free(0)]);
            assert_eq!(pageset.tuning.alloc_factor, factor);
        }
    }

    #[test]
    fn a_full_pageset_raises_high_so_that_a_full_hold_fits() {
        let rules = &PcpRules::LINUX_6_12;
        let mut pageset = Pageset::new(rules, sized(rules, 1899, 62_231, 63));
        pageset.run(times(4096, Free(0)));
        // Drained at 1899 with free_count 1899, at 1962 with 2016.
        assert_eq!((&pageset.drains[..], pageset.count), (&[1836, 1899][..], 361));
        assert_eq!(pageset.tuning.high, PageCount(2079));
    }

    #[test]
    fn below_the_high_watermark_high_falls_and_pages_go() {
        let rules = &PcpRules::LINUX_6_12;
        let mut tuning = sized(rules, 1899, 62_231, 63);
        (tuning.high, tuning.alloc_factor) = (PageCount(5868), 5);
        let mut pageset = Pageset::new(rules, tuning);
        (pageset.count, pageset.zone) = (1958, BELOW_HIGH);
        for (frees, count, high) in
            [(1, 1896, 5805), (3, 1836, 5616), (63, 1832, 1899), (67, 1765, 1899)]
        {
            pageset.run(times(frees, Free(0)));
            assert_eq!((pageset.count, pageset.tuning.high.0), (count, high));
        }
        pageset.count = 0;
        pageset.run([Alloc(0)]);
        assert_eq!(pageset.tuning.high, PageCount(1899), "no refill raises it");
        (pageset.count, pageset.tuning.free_count) = (4999, PageCount(2016));
        pageset.run([Free(0)]);
        assert_eq!(pageset.count, 5000 - 2016);
    }

    #[test]
    fn under_reclaim_four_batches_stay() {
        let rules = &PcpRules::LINUX_6_12;
        let mut pageset = Pageset::new(rules, sized(rules, 1899, 62_231, 63));
        (pageset.zone, pageset.tuning.high) = (RECLAIM, PageCount(5868));
        pageset.count = 1921;
        for (count, high) in [(1859, 5805), (1797, 5742), (1735, 5679)] {
            pageset.run([Free(0)]);
            assert_eq!((pageset.count, pageset.tuning.high.0), (count, high));
        }
        let mut pageset = Pageset::new(rules, sized(rules, 1899, 62_231, 63));
        (pageset.zone, pageset.tuning.high) = (RECLAIM, PageCount(3852));
        pageset.count = 125;
        pageset.run(times(2048, Free(0)));
        assert_eq!(pageset.drains[..3], [127, 189, 189]);
        assert_eq!(pageset.tuning.high, PageCount(1899));

        let rules = &PcpRules::LINUX_6_1;
        let mut pageset = Pageset::new(rules, sized(rules, 1894, 1894, 63));
        pageset.zone = RECLAIM;
        pageset.run(times(1000, Free(0)));
        assert_eq!(pageset.drains[..4], [63, 126, 189, 189]);
        assert_eq!(pageset.tuning.high, PageCount(1894));
    }

    #[test]
    fn patch_7_alone_raises_high_unless_reclaim_is_active() {
        let rules = &PcpRules { below_high: false, ..PcpRules::LINUX_6_12 };
        for (zone, high) in [(BELOW_HIGH, 1962), (RECLAIM, 1899)] {
            let mut tuning = sized(rules, 1899, 62_231, 63);
            tuning.refill_blocks(rules, PAGE, PageCount(0), zone);
            assert_eq!(tuning.high, PageCount(high));
        }
    }

    #[test]
    fn frees_of_order_1_empty_the_pageset_a_batch_at_a_time() {
        let rules = &PcpRules::LINUX_6_12;
        let mut tuning = sized(rules, 1899, 62_231, 63);
        tuning.set_cache_slice(PageCount(190));
        tuning.high = PageCount(2340);
        let mut pageset = Pageset::new(rules, tuning);
        pageset.count = 34;
        pageset.run(times(33, Free(1)));
        assert_eq!((&pageset.drains[..], pageset.tuning.high.0), (&[100][..], 1899));
        pageset.run(times(32, Free(1)));
        assert_eq!(pageset.drains, [100, 64]);
        pageset.run([Free(0), Free(1)].repeat(40));
        assert_eq!(pageset.drains, [100, 64], "never two of a high order in a row");
        pageset.run([Free(1)]);
        assert_eq!(pageset.drains, [100, 64, 122]);
    }

    #[test]
    fn a_small_cache_slice_keeps_no_batch() {
        let rules = &PcpRules::LINUX_6_12;
        let mut tuning = sized(rules, 1899, 62_231, 63);
        tuning.set_cache_slice(PageCount(189));
        let mut pageset = Pageset::new(rules, tuning);
        pageset.run(times(36, Free(1)));
        assert_eq!(pageset.drains, [66, 2, 2, 2]);
    }

    #[test]
    fn a_batch_in_a_row_and_a_batch_held_are_enough() {
        let rules = &PcpRules::LINUX_6_12;
        let mut tuning = sized(rules, 1899, 62_231, 63);
        (tuning.prev_free_high, tuning.free_high_batch) = (true, true);
        for (free_count, count, drain) in [(63, 63, Some(63)), (62, 63, None), (63, 62, None)] {
            let mut tuning = Tuning { free_count: PageCount(free_count), ..tuning };
            let drained = tuning.after_free(rules, Order(1), PageCount(count), CALM);
            assert_eq!(drained, drain.map(PageCount), "{free_count} in a row, {count} held");
        }
    }

    #[test]
    fn patch_4_without_patch_7_empties_the_pageset_in_one_hold() {
        let rules = &PcpRules { batch_scale_max: 1, ..PcpRules::LINUX_6_1 };
        let mut tuning = sized(rules, 1894, 1894, 63);
        tuning.free_factor = 1;
        let drain = tuning.after_free(rules, Order(3), PageCount(500), CALM);
        assert_eq!(drain, Some(PageCount(500)));
    }

    #[test]
    fn frees_of_order_9_are_as_frees_of_order_0() {
        let rules = &PcpRules::LINUX_6_12;
        let mut pageset = Pageset::new(rules, sized(rules, 1899, 62_231, 63));
        pageset.tuning.high = PageCount(2088);
        pageset.run(times(5, Free(9)));
        assert_eq!((&pageset.drains[..], pageset.tuning.high.0), (&[2048][..], 2111));
        assert_eq!(pageset.tuning.free_count, PageCount(2048));
    }

    /// Drains in 10000 rounds of `round` on a CPU that only frees.
    fn drains_of_one_way_frees(rules: &PcpRules, round: &[Operation]) -> usize {
        let mut tuning = sized(rules, 370, 37_000, 63);
        tuning.set_cache_slice(PageCount(240));
        let mut pageset = Pageset::new(rules, tuning);
        for _ in 0..10_000 {
            pageset.run(round.iter().copied());
        }
        pageset.drains.len()
    }

    /// Drains by frees of high orders, after the tables of the 2023 series. AF_UNIX frees orders 3, 2, 1, 0
    /// in turn: before, 3 of these 4 drain; with all patches a 15th of that. SCTP frees order 3: each
    /// drains; with all patches an 8th.
    #[test]
    fn one_way_frees_drain_as_often_as_the_series_published() {
        let unix = [Free(3), Free(2), Free(1), Free(0)];
        let (before, after) = (&PcpRules::LINUX_6_1, &PcpRules::LINUX_6_12);
        let within = |drains: usize, of: usize| drains.abs_diff(of) <= 150;
        assert!(within(drains_of_one_way_frees(before, &unix), 30_000));
        assert!(within(drains_of_one_way_frees(after, &unix), 2000));
        assert!(within(drains_of_one_way_frees(before, &[Free(3)]), 10_000));
        assert!(within(drains_of_one_way_frees(after, &[Free(3)]), 1250));
        assert_eq!(drains_of_one_way_frees(&PcpRules::NEARPAGE, &[Free(3)]), 40);
    }

    #[test]
    fn nothing_stays_in_a_boot_or_disabled_pageset() {
        for rules in SETS {
            let mut used = sized(rules, 1899, 62_231, 63);
            Pageset::new(rules, used).run(times(3000, Free(0)));
            used.disable();
            for before in [Tuning::BOOT, used] {
                for order in [0, 1, 3, 9].map(Order) {
                    let mut tuning = before;
                    let blocks = tuning.refill_blocks(rules, order, PageCount(0), CALM);
                    assert_eq!(blocks, 1);
                    let drain = tuning.after_free(rules, order, order.pages(), CALM);
                    assert_eq!(drain, Some(PageCount(1)), "order {order}, {rules:?}");
                }
            }
        }
    }

    #[test]
    fn a_new_size_takes_hold_at_the_next_decision() {
        let mut tuning = sized(&PcpRules::LINUX_6_12, 1000, 8000, 63);
        assert_eq!(tuning.high, PageCount(0));
        tuning.after_free(&PcpRules::LINUX_6_12, PAGE, PageCount(1), CALM);
        assert_eq!(tuning.high, PageCount(1000));
        let (min, max) = (PageCount(50), PageCount(20));
        tuning.resize(&PcpRules::LINUX_6_12, min, max, PageCount(0));
        assert_eq!((tuning.high_max, tuning.batch), (min, PageCount(1)));
        tuning.refill_blocks(&PcpRules::LINUX_6_12, PAGE, PageCount(0), CALM);
        assert_eq!(tuning.high, PageCount(50));
        let fixed = sized(&PcpRules::LINUX_6_1, 1000, 8000, 63);
        assert_eq!((fixed.high, fixed.high_max), (PageCount(1000), PageCount(1000)));
    }

    #[test]
    fn a_remote_pageset_gives_back_a_batch_after_three_idle_turns() {
        let mut tuning = sized(&PcpRules::NEARPAGE, 1000, 8000, 63);
        assert_eq!(tuning.expire_remote(PageCount(500)).0, 0, "never used");
        tuning.keep_remote();
        let turns = [500, 500, 500, 437].map(|count| tuning.expire_remote(PageCount(count)).0);
        assert_eq!(turns, [0, 0, 63, 0]);
        tuning.keep_remote();
        tuning.expire_remote(PageCount(5));
        tuning.keep_remote();
        let turns = [5, 0, 5, 5].map(|count| tuning.expire_remote(PageCount(count)).0);
        assert_eq!(turns, [0, 0, 0, 5], "an empty one does not age");
    }

    // The default rules.

    #[test]
    fn nearpage_refills_shrink_with_drains_and_decay_only() {
        let rules = &PcpRules::NEARPAGE;
        let mut pageset = Pageset::new(rules, sized(rules, 252, 8000, 63));
        pageset.run(times(1000, Alloc(0)));
        assert_eq!(pageset.tuning.alloc_factor, 5);
        pageset.run(times(500, Free(0)));
        assert_eq!((pageset.drains.len(), pageset.tuning.alloc_factor), (0, 5));
        pageset.tuning.decay(rules, PageCount(pageset.count));
        assert_eq!(pageset.tuning.alloc_factor, 2);
        pageset.run(times(2000, Free(0)));
        assert_eq!((pageset.drains.len(), pageset.tuning.alloc_factor), (1, 1));
    }

    const OPERATIONS: usize = 2_000_000;

    /// Splitmix64: enough for tests, and the same everywhere.
    struct Random(u64);

    impl Random {
        fn below(&mut self, n: u64) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (z ^ (z >> 31)) % n
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Workload {
        /// This percentage of frees, in random order.
        Mixed(u64),
        /// 60 % allocations for this many operations, then 60 % frees, and so on.
        Tides(usize),
        /// Bursts of one kind, of random kind and length up to 2 to this power.
        Bursts(u64),
        /// So many allocations, then as many frees, and so on.
        UpAndDown(usize),
    }
    use Workload::{Bursts, Mixed, Tides, UpAndDown};

    fn operations(workload: Workload, seed: u64) -> impl Iterator<Item = Operation> {
        let mut random = Random(seed);
        let (mut left, mut burst) = (0, Alloc(0));
        (0..OPERATIONS).map(move |n| {
            let frees = match workload {
                Mixed(percent) => random.below(100) < percent,
                Tides(period) => (random.below(100) < 60) == ((n / period) % 2 == 1),
                UpAndDown(length) => (n / length) % 2 == 1,
                Bursts(scale_max) => {
                    if left == 0 {
                        let scale = random.below(scale_max + 1);
                        left = 1 + random.below(1 << scale);
                        burst = if random.below(2) == 0 { Alloc(0) } else { Free(0) };
                    }
                    left -= 1;
                    burst == Free(0)
                }
            };
            if frees { Free(0) } else { Alloc(0) }
        })
    }

    fn ran(rules: &PcpRules, noting: Noting, workload: Workload, seed: u64) -> Pageset<'_> {
        let mut pageset = Pageset::new(rules, sized(rules, 370, 37_000, 63));
        pageset.noting = noting;
        pageset.run(operations(workload, seed));
        pageset
    }

    /// The table of [`PcpRules::NEARPAGE`].
    #[test]
    fn nearpage_takes_the_lock_less_often_with_no_longer_holds() {
        for (workload, linux, nearpage) in [
            (Mixed(0), 997, 997),
            (Mixed(100), 994, 992),
            (Mixed(30), 12_723, 402),
            (Mixed(70), 12_728, 398),
            (Tides(20_000), 106, 11),
            (Bursts(12), 329, 103),
            (UpAndDown(100_000), 698, 698),
        ] {
            for (rules, locks) in [(&PcpRules::LINUX_6_12, linux), (&PcpRules::NEARPAGE, nearpage)]
            {
                let pageset = ran(rules, Noting::Each, workload, 1);
                assert_eq!(pageset.locks(), locks, "{workload:?} {rules:?}");
                assert!(pageset.longest_hold() <= 2016, "{workload:?} {rules:?}");
            }
        }
    }

    // Operations that are folded in afterwards.

    #[test]
    fn absorbed_operations_change_nothing_under_rules_that_do_not_count_frees() {
        for rules in [&PcpRules::LINUX_6_1, &PcpRules::NEARPAGE] {
            for (seed, workload) in (1..).zip([Mixed(5), Mixed(50), Tides(2000), Bursts(12)]) {
                let exact = ran(rules, Noting::Each, workload, seed);
                let folded = ran(rules, Noting::Absorbed, workload, seed);
                assert_eq!(exact.refills, folded.refills, "{workload:?} {rules:?}");
                assert_eq!(exact.drains, folded.drains, "{workload:?} {rules:?}");
            }
        }
    }

    /// What [`Tuning::absorb`] promises of 6.12: (workload, percent that refills and that drains may differ).
    #[test]
    fn absorbed_operations_deviate_little_in_random_order_and_more_in_bursts() {
        for (workload, refills, drains) in [
            (Mixed(0), 0, 0),
            (Mixed(30), 0, 0),
            (Mixed(50), 0, 0),
            (Mixed(70), 0, 0),
            (Mixed(95), 0, 1),
            (Mixed(100), 0, 0),
            (Tides(20_000), 0, 0),
            (Tides(200_000), 0, 0),
            (UpAndDown(100_000), 0, 13),
            (Bursts(12), 10, 270),
            (Bursts(15), 1, 80),
        ] {
            for seed in 1..4 {
                let exact = ran(&PcpRules::LINUX_6_12, Noting::Each, workload, seed);
                let folded = ran(&PcpRules::LINUX_6_12, Noting::Absorbed, workload, seed);
                let near = |a: usize, b: usize, percent| a.abs_diff(b) * 100 <= a * percent;
                assert!(
                    near(exact.refills.len(), folded.refills.len(), refills)
                        && near(exact.drains.len(), folded.drains.len(), drains),
                    "{workload:?}, seed {seed}: {} refills, {} drains instead of {}, {}",
                    folded.refills.len(),
                    folded.drains.len(),
                    exact.refills.len(),
                    exact.drains.len(),
                );
            }
        }
    }

    #[test]
    fn absorb_is_exact_for_runs_and_near_for_alternation() {
        let rules = &PcpRules::LINUX_6_12;
        let noted = |before: Tuning, operations: &[Operation]| {
            let mut pageset = Pageset::new(rules, before);
            pageset.count = 10_000;
            pageset.run(operations.iter().copied()).tuning
        };
        let mut before = sized(rules, 60_000, 62_231, 63);
        (before.free_count, before.alloc_factor, before.high) =
            (PageCount(1000), 5, before.high_min);
        for n in [0, 1, 2, 7, 1500] {
            let (mut frees, mut allocs, mut both) = (before, before, before);
            frees.absorb(rules, 0, n);
            allocs.absorb(rules, n, 0);
            both.absorb(rules, n, n);
            let n = n as usize;
            assert_eq!(frees, noted(before, &times(n, Free(0)).collect::<Vec<_>>()));
            assert_eq!(allocs, noted(before, &times(n, Alloc(0)).collect::<Vec<_>>()));
            let alternating = noted(before, &[Alloc(0), Free(0)].repeat(n));
            assert!(both.free_count.0.abs_diff(alternating.free_count.0) <= 2, "{n}");
            assert_eq!(both.alloc_factor, alternating.alloc_factor);
        }
    }

    #[test]
    fn absorbed_frees_end_a_row_of_high_orders() {
        let mut tuning = Tuning { prev_free_high: true, ..Tuning::BOOT };
        tuning.absorb(&PcpRules::LINUX_6_12, 5, 0);
        assert!(tuning.prev_free_high);
        tuning.absorb(&PcpRules::LINUX_6_12, 5, 1);
        assert!(!tuning.prev_free_high);
    }

    // Properties of every decision.

    /// Checks all decisions in one state. `sane`: a state that decisions lead to, not a torn one.
    fn check_decisions(
        rules: &PcpRules,
        before: Tuning,
        order: Order,
        count: PageCount,
        sane: bool,
    ) {
        for zone in VIEWS {
            let case = (rules, before, order, count, zone);
            let hold_max = before.hold_max(rules).0;

            let mut tuning = before;
            let blocks = tuning.refill_blocks(rules, order, count, zone);
            assert!(blocks >= 1 && blocks <= hold_max.max(2), "{case:?}: {blocks}");
            assert!(
                tuning.high >= before.high_min
                    && tuning.high <= before.high_max.max(before.high_min)
            );
            assert!(
                tuning.alloc_factor <= before.alloc_factor.max(rules.batch_scale_max),
                "{case:?}"
            );

            let mut tuning = before;
            let count = PageCount(count.0.saturating_add(order.pages().0));
            let drain = tuning.after_free(rules, order, count, zone);
            assert!(
                tuning.high >= before.high_min
                    && tuning.high <= before.high_max.max(before.high_min)
            );
            if let Some(pages) = drain {
                assert!(pages.0 >= 1 && pages <= count, "{case:?}: {pages}");
                let hold = hold_max.saturating_add(order.pages().0);
                assert!(!sane || pages.0 <= hold, "{case:?}: {pages}");
            }
            let four_batches = before.high_min.0 >= before.batch.0.saturating_mul(4);
            if !is_high_order(order) && (four_batches || !zone.reclaim_active) {
                let at = before.drains_at(rules, zone);
                assert_eq!(drain.is_some(), count >= at, "{case:?}: drains at {at}");
            }
        }
        let mut tuning = before;
        assert!(tuning.decay(rules, count) <= count);
        assert!(tuning.high <= before.high.max(before.high_min).max(count));
        let words = before.to_words();
        assert_eq!(Tuning::from_words(words), before);
    }

    #[test]
    fn decisions_are_sound_in_all_small_states() {
        for rules in SETS {
            let rules = &PcpRules { batch_scale_max: rules.batch_scale_max.min(2), ..*rules };
            for (batch, high_min) in [(1, 0), (1, 1), (1, 4), (2, 3), (3, 12)] {
                for high_max in [high_min, high_min + 1, 30] {
                    let sized = sized(rules, high_min, high_max, batch);
                    for bits in 0..1 << 7 {
                        for high in high_min..=high_max.min(sized.high_max.0) {
                            let before = Tuning {
                                high: PageCount(high),
                                free_count: PageCount(bits & 15),
                                alloc_factor: (bits >> 4 & 1) as u8 * 2,
                                free_factor: (bits >> 4 & 1) as u8,
                                prev_free_high: bits >> 5 & 1 == 1,
                                free_high_batch: bits >> 6 & 1 == 1,
                                ..sized
                            };
                            for count in 0..20 {
                                for order in [0, 1, 3].map(Order) {
                                    let capped = (bits & 15) <= before.hold_max(rules).0;
                                    let sane =
                                        capped && !rules.free_high.is_some_and(|r| r.drains_all);
                                    check_decisions(rules, before, order, PageCount(count), sane);
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn zero_words_are_the_boot_pageset() {
        assert_eq!(Tuning::from_words([0; WORDS]), Tuning::BOOT);
        let settings = sized(&PcpRules::NEARPAGE, 7, 8, 9).to_words();
        assert_eq!(settings[SETTING_WORDS..], Tuning::BOOT.to_words()[SETTING_WORDS..]);
    }

    proptest! {
        /// Words that no sequence of decisions leads to: per-CPU memory after lost updates.
        #[test]
        fn torn_states_do_no_harm(
            words in prop::array::uniform7(prop_oneof![0u64..100, 0u64..1 << 20, any::<u64>()]),
            order in 0u8..=10,
            count in prop_oneof![0u64..100, 0u64..1 << 20, any::<u64>()],
            absorbed in any::<(u64, u64)>(),
        ) {
            for rules in SETS {
                let mut tuning = Tuning::from_words(words);
                tuning.absorb(rules, absorbed.0, absorbed.1);
                tuning.before_alloc(rules);
                let tuning = Tuning::from_words(tuning.to_words());
                check_decisions(rules, tuning, Order(order), PageCount(count), false);
            }
        }

        /// Any life of a pageset: it never holds more than `high` allows, and holds are bounded.
        #[test]
        fn a_pageset_stays_within_its_bounds(
            sizes in (4u64..300, 0u64..3000, 1u64..70),
            operations in prop::collection::vec((any::<bool>(), 0u8..4, 0u8..4, 1usize..300), 1..60),
        ) {
            for rules in &SETS[1..] {
                let (min, extra, batch) = (sizes.0.max(4 * sizes.2), sizes.1, sizes.2);
                let mut pageset = Pageset::new(rules, sized(rules, min, min + extra, batch));
                for &(frees, order, zone, n) in &operations {
                    pageset.zone = VIEWS[usize::from(zone)];
                    pageset.run(times(n, if frees { Free(order) } else { Alloc(order) }));
                    let high_max = pageset.tuning.high_max.0;
                    prop_assert!(pageset.count < high_max.max(min) + (batch << 5) + 16);
                }
                prop_assert!(pageset.longest_hold() <= (batch << 5) + 8);
            }
        }
    }
}
