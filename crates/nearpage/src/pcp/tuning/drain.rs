//! Drains: when a free gives pages back to the zone, and how many.

use super::{Decay, DrainSize, FreeHigh, PcpRules, RefillScale, Tuning, ZoneView};
use crate::units::{COSTLY_ORDER, Order, PageCount};

/// Turns without use after which a pageset for a remote zone gives back a batch.
/// `mm/vmstat.c: refresh_cpu_vm_stats`, 6.12.
const REMOTE_TURNS: u8 = 3;

impl Tuning {
    /// Notes a free of one block of `order`, already in the pageset, which holds `count` pages with it.
    /// Returns how many pages to drain, at most `count`, or `None` if the pageset may keep them.
    /// `mm/page_alloc.c: free_unref_page_commit`, 6.12.
    #[inline(always)]
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
        let pages = if free_high.is_some_and(|rule| rule.drains_all) {
            count.0
        } else if free_high.is_some() {
            self.hold_max(rules).0
        } else {
            self.drain_pages(rules, high)
        };
        Some(PageCount(pages).min(count))
    }

    /// Whether a free of `order` that brings the pageset to `count` pages empties it although it is not full
    /// ([`PcpRules::free_high`]).
    pub fn empties_for(&self, rules: &PcpRules, order: Order, count: PageCount) -> bool {
        self.is_free_high(rules, order, count).is_some()
    }

    /// The count from which on a free drains, as things are; frees of order 1 to 3 may drain before
    /// ([`PcpRules::free_high`]). With a `high_min` below four batches, less than Linux allows, a
    /// free under reclaim may drain before too.
    pub fn drains_at(&self, rules: &PcpRules, zone: ZoneView) -> PageCount {
        let mut copy = *self;
        copy.high_for_free(rules, PageCount(0), None, zone)
    }

    /// The periodic turn, once a second: lets `high` fall ([`PcpRules::decay`]), down to `high_min` and by no more
    /// than one full hold below `count`. Returns the pages to drain: at most `count`, in pieces of
    /// `batch`, each under its own lock hold. Nothing is left to do when it returns 0 and `high` is
    /// `high_min`. `mm/page_alloc.c: decay_pcp_high`, 6.12.
    pub fn decay(&mut self, rules: &PcpRules, count: PageCount) -> PageCount {
        if !rules.tunes_high {
            return PageCount(0);
        }
        if self.high > self.high_min {
            let full_hold_below = count.0.saturating_sub(self.hold_max(rules).0);
            let high = self.decayed_high(rules);
            self.high = PageCount(high.max(full_hold_below).max(self.high_min.0));
        }
        let drained = count.0.saturating_sub(self.high.0);
        if rules.counts_unused() {
            self.count_min = PageCount(count.0 - drained);
        }
        PageCount(drained)
    }

    fn decayed_high(&self, rules: &PcpRules) -> u64 {
        let high = self.high.0;
        match rules.decay {
            Decay::Eighth => high - (high >> 3),
            Decay::ToFourFifths => high - high.div_ceil(5),
            Decay::ByUnused => high - (high / 5).min(self.count_min.0),
        }
    }

    /// Notes that the CPU used this pageset of another node's zone since the last turn.
    pub fn keep_remote(&mut self) {
        self.expire = REMOTE_TURNS;
    }

    /// The periodic turn for a pageset of another node's zone: after three turns without use it
    /// gives back a batch. That changes a counter, so it counts as use: three turns later the next batch goes.
    /// Returns the pages to drain. `mm/vmstat.c: refresh_cpu_vm_stats`, 6.12.
    pub fn expire_remote(&mut self, count: PageCount) -> PageCount {
        if self.expire == 0 || count.0 == 0 {
            return PageCount(0);
        }
        self.expire -= 1;
        if self.expire > 0 {
            return PageCount(0);
        }
        self.keep_remote();
        self.batch.min(count)
    }

    /// The most pages that one drain should move: `batch << batch_scale_max`. Who empties a whole
    /// pageset does so in pieces of this size. `mm/page_alloc.c: drain_pages_zone`, 6.12.
    pub fn hold_max(&self, rules: &PcpRules) -> PageCount {
        PageCount(self.batch_shifted(rules.batch_scale_max))
    }

    /// Below its limit `free_count` grows by the whole block, so that it may pass it by less than one.
    #[inline]
    fn count_free(&mut self, rules: &PcpRules, pages: PageCount) {
        if rules.drain != DrainSize::Factor && self.free_count < self.hold_max(rules) {
            self.free_count = PageCount(self.free_count.0.saturating_add(pages.0));
        }
    }

    /// The rule by which this free empties the pageset, if it does. Looks at the frees before this one,
    /// and at `count` with it.
    #[inline]
    fn is_free_high(&self, rules: &PcpRules, order: Order, count: PageCount) -> Option<FreeHigh> {
        let rule = rules.free_high.filter(|_| is_high_order(order))?;
        let in_a_row = match rules.drain {
            DrainSize::Factor => self.free_factor > 0,
            DrainSize::FreeCount | DrainSize::Own(_) => {
                self.free_count.0 >= self.free_high_from(rule)
            }
        };
        let previous = self.prev_free_high || !rule.after_high_order;
        let enough = count >= self.batch || !(rule.keeps_batch && self.free_high_batch);
        (in_a_row && previous && enough).then_some(rule)
    }

    fn free_high_from(&self, rule: FreeHigh) -> u64 {
        let half = if rule.waits_for_half { self.high_min.0 / 2 } else { 0 };
        self.batch.0.saturating_add(half)
    }

    /// The count at which this free drains; moves `high`. `mm/page_alloc.c: nr_pcp_high`, 6.12.
    #[inline]
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
            self.lower_high_under_pressure(rules, goal);
            return self.high.min(PageCount(self.batch.0.saturating_mul(4)));
        }
        if !self.is_tuned() {
            return high;
        }
        if rules.below_high && zone.below_high {
            self.lower_high_under_pressure(rules, goal);
            return count.max(self.high_min);
        }
        if count >= high {
            let need = PageCount(goal.saturating_add(self.batch.0));
            self.high = high.max(need).min(self.high_max);
        }
        high
    }

    fn lower_high_under_pressure(&mut self, rules: &PcpRules, goal: u64) {
        let least = if rules.lowers_a_batch { self.batch.0 } else { 0 };
        self.lower_high(goal.max(least));
    }

    fn drain_goal(&self, rules: &PcpRules) -> u64 {
        match rules.drain {
            DrainSize::Factor => self.batch_shifted(self.free_factor),
            DrainSize::FreeCount => self.free_count.0,
            DrainSize::Own(pages) => pages(self).min(self.hold_max(rules)).0,
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
        let is_unlimited = if rules.doubles_at_limit { goal <= most } else { goal < most };
        if is_unlimited && grows {
            self.free_factor += 1;
        }
        // Sizes with less than two batches in `high` exist on no Linux; the pageset must not grow there.
        goal.max(self.batch.0).min(most).max(1)
    }
}

pub(super) fn is_high_order(order: Order) -> bool {
    order.0 > 0 && order <= COSTLY_ORDER
}
