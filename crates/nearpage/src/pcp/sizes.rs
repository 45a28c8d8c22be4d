//! Sizes of pagesets: how many pages move at once, how many a CPU may keep, and how far a zone's
//! counters may lag behind.
//!
//! All CPUs have the same sizes for a zone. They follow from the zone's managed pages, its low mark and
//! the number of CPUs that are near it, so they are computed anew whenever one of these changes.

use super::LISTS;
use crate::units::PageCount;

/// Sizes of every CPU's pageset for one zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sizes {
    /// Pages of the smallest refill and the smallest drain.
    pub batch: PageCount,
    /// The pageset's limit, and the lowest that tuning may set it to.
    pub high_min: PageCount,
    /// The highest that tuning may set the limit to; equal to `high_min` where the limit is fixed.
    pub high_max: PageCount,
}

/// A zone as the formulas see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneShare {
    /// Pages that the buddy was given.
    pub managed: PageCount,
    /// The low mark, boost included.
    pub low: PageCount,
    /// CPUs that share the zone: those online on its node, or all online CPUs if it has none. While a
    /// CPU comes online, Linux counts one more than are on the node, on every node.
    pub cpus: u32,
}

/// Without a fixed fraction, a pageset may grow to this fraction of its zone.
/// `mm/page_alloc.c: MIN_PERCPU_PAGELIST_HIGH_FRACTION`.
const FRACTION_MIN: u32 = 8;
/// A pageset's limit is at least this many batches.
const HIGH_BATCHES_MIN: u64 = 4;
/// Highest threshold: the differences are kept in eight bits.
const STAT_THRESHOLD_MAX: u32 = 125;

impl Sizes {
    /// Sizes for a zone of pages of `1 << page_shift` bytes. `high_fraction` is the sysctl
    /// `vm.percpu_pagelist_high_fraction`: 0 for limits that tune themselves, or 8 and more.
    /// `mm/page_alloc.c: zone_set_pageset_high_and_batch`, 6.12.
    pub fn new(zone: ZoneShare, high_fraction: u32, page_shift: u32) -> Sizes {
        let batch = batch(zone.managed, page_shift);
        let high = |pages: u64| high(PageCount(pages), zone.cpus, batch);
        let part = |fraction: u32| high(zone.managed.0 / u64::from(fraction));
        match high_fraction {
            0 => Sizes { batch, high_min: high(zone.low.0), high_max: part(FRACTION_MIN) },
            _ => Sizes { batch, high_min: part(high_fraction), high_max: part(high_fraction) },
        }
    }

    /// These sizes for a pageset that is to keep no more than its part of `budget`, if all pagesets that
    /// share it would keep `wanted` together. A part is split into `high_max` and a batch for each list, since
    /// a list that is in use has that much room beside the others. A part too small for that keeps nothing.
    #[must_use]
    pub fn within(self, budget: PageCount, wanted: PageCount) -> Sizes {
        let lists = LISTS as u64;
        if wanted <= budget {
            return self;
        }
        let part =
            (u128::from(self.most_kept().0) * u128::from(budget.0) / u128::from(wanted.0)) as u64;
        let batch = self.batch.0.min(part / (2 * lists)).max(1);
        let high_max = PageCount(part.saturating_sub(lists * batch));
        let high_min = self.high_min.min(high_max);
        Sizes { batch: PageCount(batch), high_min, high_max }
    }

    /// Pages that a pageset of these sizes may keep: `high_max`, and a batch in each list.
    pub fn most_kept(self) -> PageCount {
        PageCount(self.high_max.0 + LISTS as u64 * self.batch.0)
    }
}

/// Pages of the smallest refill: about a quarter of 1/1024 of the zone, at most of 1 MiB, as one less
/// than a power of two, so that successive batches do not line up with the sets of a cache.
/// `mm/page_alloc.c: zone_batchsize`, 6.12.
pub fn batch(managed: PageCount, page_shift: u32) -> PageCount {
    let mebibyte = (1 << 20) / PageCount(1).to_bytes(page_shift);
    let quarter = ((managed.0 / 1024).min(mebibyte) / 4).max(1);
    let rounded = 1 << (quarter + quarter / 2).ilog2();
    PageCount((rounded - 1).max(1))
}

/// A CPU's part of `pages`, at least four batches. `mm/page_alloc.c: zone_highsize`, 6.12.
fn high(pages: PageCount, cpus: u32, batch: PageCount) -> PageCount {
    let part = pages.0 / u64::from(cpus.max(1));
    PageCount(part.max(HIGH_BATCHES_MIN * batch.0))
}

/// How far a CPU's difference to a zone counter may grow before it is added to the counter: logarithmic
/// in the number of online CPUs and in the zone's size in units of 128 MiB.
/// `mm/vmstat.c: calculate_normal_threshold`, 6.12.
pub fn stat_threshold(managed: PageCount, cpus_online: u32, page_shift: u32) -> u32 {
    let units = managed.to_bytes(page_shift) / (128 << 20);
    (2 * bits(cpus_online.into()) * (1 + bits(units))).min(STAT_THRESHOLD_MAX)
}

/// Number of bits needed to write `value`.
const fn bits(value: u64) -> u32 {
    u64::BITS - value.leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_steps_are_as_measured() {
        // The first zone size of each step, on 6.12.117.
        let steps = [(0, 1), (12_288, 3), (24_576, 7), (45_056, 15), (90_112, 31), (176_128, 63)];
        for (step, &(from, expected)) in steps.iter().enumerate() {
            assert_eq!(batch(PageCount(from), 12).0, expected, "{from}");
            if step > 0 {
                assert_eq!(batch(PageCount(from - 1), 12).0, steps[step - 1].1, "{}", from - 1);
            }
        }
        assert_eq!(batch(PageCount(1 << 40), 12).0, 63);
        // 1 MiB is 64 pages of 16 KiB.
        assert_eq!(batch(PageCount(1 << 40), 14).0, 15);
        assert_eq!(batch(PageCount(1 << 40), 21).0, 1);
    }

    #[test]
    fn sizes_are_as_recorded() {
        // 6.18, one node, 2 CPUs, min_free_kbytes 67584: managed, low, then high_min, high_max, batch.
        let zones = [
            (3840, 60, 30, 240, 1),
            (772_915, 12_237, 6118, 48_307, 63),
            (557_056, 8820, 4410, 34_816, 63),
        ];
        for (managed, low, high_min, high_max, batch) in zones {
            let zone = ZoneShare { managed: PageCount(managed), low: PageCount(low), cpus: 2 };
            let [batch, high_min, high_max] = [batch, high_min, high_max].map(PageCount);
            assert_eq!(Sizes::new(zone, 0, 12), Sizes { batch, high_min, high_max });
        }
        // A node without CPUs (vector E of the watermarks): all three CPUs online share it.
        let zone = ZoneShare { managed: PageCount(118_225), low: PageCount(7352), cpus: 3 };
        assert_eq!(Sizes::new(zone, 0, 12).high_min, PageCount(7352 / 3));
    }

    #[test]
    fn fraction_fixes_high() {
        let zone = ZoneShare { managed: PageCount(244_219), low: PageCount(13_626), cpus: 2 };
        let fixed = Sizes::new(zone, 100, 12);
        assert_eq!(fixed.high_min, PageCount(244_219 / 100 / 2));
        assert_eq!(fixed.high_max, fixed.high_min);
        assert_eq!(Sizes::new(zone, 1_000_000, 12).high_min, PageCount(4 * 63));
        assert_eq!(Sizes::new(ZoneShare { cpus: 0, ..zone }, 0, 12).high_min, PageCount(13_626));
    }

    #[test]
    fn batches_and_thresholds_are_as_recorded() {
        // Managed pages, CPUs online, batch, threshold: vectors A, B, C, D and G of the watermarks.
        let zones = [
            (3840, 4, 1, 6),
            (244_219, 4, 63, 24),
            (128_915, 4, 31, 18),
            (127_712, 4, 31, 18),
            (765_920, 4, 63, 36),
            (503_629, 4, 63, 30),
            (763_047, 4, 63, 36),
            (1024, 4, 1, 6),
            (3840, 3, 1, 4),
            (244_285, 3, 63, 16),
            (127_606, 3, 31, 12),
            (3840, 2, 1, 4),
            (772_915, 2, 63, 24),
            (557_056, 2, 63, 24),
        ];
        for (managed, cpus, expected_batch, threshold) in zones {
            let managed = PageCount(managed);
            assert_eq!(batch(managed, 12), PageCount(expected_batch), "{managed}");
            assert_eq!(stat_threshold(managed, cpus, 12), threshold, "{managed} {cpus}");
        }
        assert_eq!(stat_threshold(PageCount(1 << 40), 512, 12), 125);
        // The same bytes in larger pages.
        assert_eq!(stat_threshold(PageCount(244_219 / 4), 4, 14), 24);
    }

    #[test]
    fn a_budget_is_shared_in_proportion() {
        let large =
            Sizes { batch: PageCount(63), high_min: PageCount(1000), high_max: PageCount(9118) };
        let small = Sizes { batch: PageCount(1), high_min: PageCount(4), high_max: PageCount(986) };
        let wanted = PageCount(11_000);
        assert_eq!(large.most_kept().0 + small.most_kept().0, wanted.0);
        for sizes in [large, small] {
            assert_eq!(sizes.within(wanted, wanted), sizes);
        }
        let half = PageCount(5500);
        assert_eq!(
            (large.within(half, wanted).most_kept(), small.within(half, wanted).most_kept()),
            (PageCount(5000), PageCount(500))
        );
        let tight = large.within(PageCount(308), wanted);
        assert_eq!(
            tight,
            Sizes { batch: PageCount(10), high_min: PageCount(140), high_max: PageCount(140) }
        );
        assert_eq!(small.within(PageCount(100), wanted).high_max, PageCount(0), "nothing is kept");
    }

    proptest::proptest! {
        #[test]
        fn high_is_a_part_of_the_zone_or_four_batches(
            managed in 0u64..1 << 32,
            low in 0u64..1 << 24,
            cpus in 1u32..1024,
            fraction in 8u32..1000,
        ) {
            let zone = ZoneShare { managed: PageCount(managed), low: PageCount(low), cpus };
            let tuned = Sizes::new(zone, 0, 12);
            proptest::prop_assert!((tuned.batch.0 + 1).is_power_of_two());
            proptest::prop_assert!(tuned.high_min.0 >= 4 * tuned.batch.0);
            proptest::prop_assert!(tuned.high_min.0 <= (low / u64::from(cpus)).max(252));
            let fixed = Sizes::new(zone, fraction, 12);
            proptest::prop_assert!(fixed.high_max.0 <= tuned.high_max.0);
        }
    }
}
