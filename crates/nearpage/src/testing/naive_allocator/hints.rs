//! The zonelist cache: sets of refusals.

use super::asked::Asked;
use super::refusals::Refusals;
use crate::alloc::{Reason, ScanCounts};
use crate::units::Order;
use crate::watermark::AllocFlags;
use crate::zonelist::cache::CacheRule;

/// What one request knows of the hints while it scans.
pub(super) struct Scan {
    rule: CacheRule,
    order: Order,
    flags: AllocFlags,
    /// Whether hints are looked at now.
    heeds: bool,
    was_set_up: bool,
    /// The zone that is always asked.
    exempt: Option<usize>,
    /// The zone that stands first on the list.
    head: Option<usize>,
    /// What to count.
    pub counts: ScanCounts,
}

impl Scan {
    pub(super) fn new(rule: CacheRule, asked: &Asked, flags: AllocFlags) -> Self {
        let urgent = AllocFlags::RESERVES.union(AllocFlags::NO_WATERMARKS);
        let keeps_out = flags.intersects(urgent) || asked.zonelist.len() == 1;
        Self {
            rule: if rule == CacheRule::Keyed && keeps_out { CacheRule::Off } else { rule },
            order: asked.order,
            flags,
            heeds: false,
            was_set_up: false,
            exempt: match rule {
                CacheRule::Original => asked.head,
                _ => asked.zonelist.first().copied(),
            },
            head: asked.head,
            counts: ScanCounts::default(),
        }
    }

    pub(super) fn is_exempt(&self, zone: usize) -> bool {
        self.exempt == Some(zone)
    }

    /// A zone was left out for a policy or a cpuset.
    pub(super) fn passed_over(&mut self, why: Reason, refusals: &mut Refusals, now_ns: u64) {
        if self.rule == CacheRule::Original && why == Reason::Cpuset {
            self.set_up(refusals, now_ns);
        }
    }

    fn mark(&self) -> u32 {
        self.flags.0 & AllocFlags::WMARK_MASK
    }

    /// Whether a zone other than the first is left out.
    pub(super) fn leaves_out(&mut self, zone: usize, refusals: &Refusals) -> bool {
        let is_known = |&(full, mark, order): &(usize, u32, Order)| {
            let concerns_us = match self.rule {
                CacheRule::Off => false,
                CacheRule::Original => true,
                CacheRule::Keyed => mark == self.mark() && order <= self.order,
            };
            full == zone && concerns_us
        };
        let leaves_out = self.heeds && refusals.seen.iter().any(is_known);
        if leaves_out {
            self.counts.zones_skipped += 1;
        } else {
            self.counts.zones_visited += 1;
        }
        leaves_out
    }

    /// A zone gave nothing.
    pub(super) fn refused(
        &mut self,
        zone: usize,
        passed_mark: bool,
        refusals: &mut Refusals,
        now_ns: u64,
    ) {
        if self.rule == CacheRule::Off {
            return;
        }
        if self.rule == CacheRule::Original || self.head != Some(zone) && !passed_mark {
            refusals.seen.insert((zone, self.mark(), self.order));
        }
        self.set_up(refusals, now_ns);
    }

    fn set_up(&mut self, refusals: &mut Refusals, now_ns: u64) {
        if !self.was_set_up {
            self.was_set_up = true;
            self.heeds = true;
            self.counts.zaps += u64::from(refusals.forget_if_old(now_ns));
        }
    }

    /// Whether a zone was left out while hints counted.
    pub(super) fn left_some_out(&self) -> bool {
        self.heeds && self.counts.zones_skipped > 0
    }

    /// Whether to scan once more.
    pub(super) fn wants_second_pass(&mut self) -> bool {
        let again =
            self.heeds && (self.rule == CacheRule::Original || self.counts.zones_skipped > 0);
        self.heeds = false;
        self.counts.second_passes += u64::from(again);
        again
    }
}
