//! Refills: how many blocks an allocation that found nothing takes from the zone.

use super::{DrainSize, PcpRules, RefillScale, Tuning, ZoneView};
use crate::units::{Order, PageCount};

impl Tuning {
    /// Notes an allocation of one block from the pageset. `mm/page_alloc.c: rmqueue_pcplist`, 6.12.
    #[inline]
    pub fn before_alloc(&mut self, rules: &PcpRules) {
        match rules.drain {
            DrainSize::Factor => self.free_factor >>= 1,
            DrainSize::FreeCount | DrainSize::Own(_) => self.free_count.0 >>= 1,
        }
    }

    /// Notes that an allocation left `count` pages in the pageset. Only [`Decay::ByUnused`] wants to know
    /// ([`PcpRules::counts_unused`]).
    ///
    /// [`Decay::ByUnused`]: super::Decay::ByUnused
    #[inline]
    pub fn after_alloc(&mut self, count: PageCount) {
        self.count_min = self.count_min.min(count);
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
    pub(super) fn fit_refill(&mut self, rules: &PcpRules, pages: u64, count: PageCount) -> u64 {
        let room = self.high.0.saturating_sub(count.0).saturating_sub(self.batch.0);
        let most = room.max(self.batch.0);
        let grows = rules.refill != RefillScale::Fixed && self.alloc_factor < rules.batch_scale_max;
        if pages <= most && grows {
            self.alloc_factor += 1;
        }
        pages.min(most)
    }
}
