//! The 2023 series "mm: PCP high auto-tuning" as posted, each patch on or off, on top of 6.6.
//!
//! | patch | what it changes here |
//! |---|---|
//! | 1 avoid to drain PCP when process exit | [`FreeHigh::after_high_order`] |
//! | 2 calculate per-CPU data cache size | nothing: the host says how large a slice is |
//! | 3 reduce lock contention for draining high-order pages | [`FreeHigh::keeps_batch`] |
//! | 4 restrict the pcp batch scale factor | [`PcpRules::batch_scale_max`] |
//! | 5 scale the number of pages that are batch allocated | [`PcpRules::refill`] |
//! | 6 framework for PCP high auto-tuning | nothing without 7 |
//! | 7 tune PCP high automatically | [`PcpRules::tunes_high`], [`FreeHigh::drains_all`], [`PcpRules::doubles_at_limit`] |
//! | 8 decrease PCP high if free pages < high watermark | [`PcpRules::below_high`] |
//! | 9 avoid to reduce PCP high unnecessarily | [`PcpRules::decay`] |
//! | 10 reduce detecting time of consecutive high order page freeing | [`PcpRules::drain`] |
//!
//! As posted, the decay is by a fifth, a slice is large from four batches on, and patch 10 lowers `high` by what
//! was freed and no more. Not reproduced: the first version of patch 8 tested the high watermark at each
//! allocation; here, as merged, a drain tests it.

use super::rules::UNCAPPED;
use super::{Decay, DrainSize, FreeHigh, PcpRules, RefillScale, SizeRule};

/// A choice of patches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Series2023 {
    /// Bit n: patch n.
    patches: u16,
}

impl Series2023 {
    /// None of the patches: 6.6.
    pub const NONE: Self = Self { patches: 0 };
    /// All ten.
    pub const ALL: Self = Self { patches: 0b111_1111_1110 };

    /// The choice with one more patch, 1 to 10.
    ///
    /// # Panics
    /// If there is no such patch.
    #[must_use]
    pub const fn with(self, patch: u8) -> Self {
        assert!(patch >= 1 && patch <= 10, "the series has patches 1 to 10");
        Self { patches: self.patches | 1 << patch }
    }

    /// The choice without one patch.
    ///
    /// # Panics
    /// If there is no such patch.
    #[must_use]
    pub const fn without(self, patch: u8) -> Self {
        Self { patches: self.with(patch).patches & !(1 << patch) }
    }

    /// The patches up to one, 0 to 10: the rows of the tables of the series.
    ///
    /// # Panics
    /// If there is no such patch.
    pub const fn up_to(patch: u8) -> Self {
        assert!(patch <= 10, "the series has patches 1 to 10");
        Self { patches: Self::ALL.patches & ((2 << patch) - 1) }
    }

    /// Whether a patch is in the choice.
    pub const fn has(self, patch: u8) -> bool {
        self.patches >> patch & 1 == 1
    }
}

impl PcpRules {
    /// 6.6 with patches of the series as posted.
    pub const fn series_2023(series: Series2023) -> Self {
        let tunes_high = series.has(6) && series.has(7);
        Self {
            batch_scale_max: if series.has(4) { 5 } else { UNCAPPED },
            sizes: SizeRule::Linux,
            refill: if series.has(5) { RefillScale::HalvedByFree } else { RefillScale::Fixed },
            drain: if series.has(10) { DrainSize::FreeCount } else { DrainSize::Factor },
            free_high: Some(FreeHigh {
                after_high_order: series.has(1),
                keeps_batch: series.has(3),
                waits_for_half: false,
                drains_all: !series.has(7),
            }),
            tunes_high,
            below_high: tunes_high && series.has(8),
            decay: if series.has(9) { Decay::ByUnused } else { Decay::ToFourFifths },
            lowers_a_batch: !series.has(10),
            doubles_at_limit: series.has(7),
            large_slice_batches: 4,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pcp::tuning::{Tuning, ZoneView};
    use crate::units::{Order, PageCount};

    const CALM: ZoneView = ZoneView { below_high: false, reclaim_active: false };

    fn sized(rules: &PcpRules, high_min: u64, high: u64) -> Tuning {
        let mut tuning = Tuning::BOOT;
        tuning.resize(rules, PageCount(high_min), PageCount(62_231), PageCount(63));
        tuning.high = PageCount(high);
        tuning
    }

    #[test]
    fn without_patches_it_is_6_6_and_with_those_merged_nearly_6_12() {
        // What differs never matters without tuning and without patch 3.
        let none = PcpRules::series_2023(Series2023::NONE);
        let of_6_6 = PcpRules::LINUX_6_6;
        let (decay, large_slice_batches) = (none.decay, none.large_slice_batches);
        assert_eq!(none, PcpRules { decay, large_slice_batches, ..of_6_6 });
        let merged = PcpRules::series_2023(Series2023::ALL.without(9));
        let (decay, lowers_a_batch) = (Decay::ToFourFifths, false);
        let of_6_12 = PcpRules::LINUX_6_12;
        let posted = PcpRules { decay, lowers_a_batch, large_slice_batches: 4, ..of_6_12 };
        assert_eq!(merged, posted);
    }

    #[test]
    fn choices_add_up() {
        assert_eq!(Series2023::up_to(0), Series2023::NONE);
        assert_eq!(Series2023::up_to(10), Series2023::ALL);
        let three = Series2023::NONE.with(1).with(2).with(3);
        assert_eq!(Series2023::up_to(3), three);
        assert!(three.has(3) && !three.has(4) && !three.without(3).has(3));
    }

    #[test]
    fn each_patch_changes_its_own_rule() {
        let all = PcpRules::series_2023(Series2023::ALL);
        for patch in 1..=10 {
            let without = PcpRules::series_2023(Series2023::ALL.without(patch));
            assert_eq!(without == all, patch == 2, "patch {patch}");
        }
    }

    #[test]
    fn as_posted_high_decays_to_four_fifths() {
        let rules = &PcpRules::series_2023(Series2023::up_to(8));
        let mut tuning = sized(rules, 13_971, 30_401);
        for high in [24_320, 19_456, 15_564, 13_971] {
            tuning.decay(rules, PageCount(10_000));
            assert_eq!(tuning.high, PageCount(high));
        }
    }

    #[test]
    fn patch_9_lets_go_only_of_what_was_not_used() {
        let rules = &PcpRules::series_2023(Series2023::up_to(9));
        let mut tuning = sized(rules, 1000, 10_000);
        tuning.decay(rules, PageCount(9000));
        assert_eq!((tuning.high, tuning.count_min), (PageCount(10_000), PageCount(9000)));
        for count in [5000, 300, 8000] {
            tuning.after_alloc(PageCount(count));
        }
        tuning.decay(rules, PageCount(8000));
        assert_eq!((tuning.high, tuning.count_min), (PageCount(9700), PageCount(8000)));
        tuning.decay(rules, PageCount(8000));
        assert_eq!((tuning.high, tuning.count_min), (PageCount(7760), PageCount(7760)));
        assert_eq!(Tuning::from_words(tuning.to_words()), tuning);
    }

    #[test]
    fn patch_10_as_posted_lowers_high_by_what_was_freed() {
        let under_reclaim = ZoneView { reclaim_active: true, ..CALM };
        for (patches, high) in [(9, 5000 - 63), (10, 5000 - 6)] {
            let rules = &PcpRules::series_2023(Series2023::up_to(patches));
            let mut tuning = sized(rules, 1000, 5000);
            tuning.free_count = PageCount(if patches == 10 { 5 } else { 0 });
            tuning.after_free(rules, Order(0), PageCount(10), under_reclaim);
            assert_eq!(tuning.high, PageCount(high), "patches up to {patches}");
        }
    }

    #[test]
    fn patch_7_doubles_drains_up_to_the_limit_itself() {
        for (patches, factor) in [(6, 1), (7, 2)] {
            let rules = &PcpRules::series_2023(Series2023::up_to(patches));
            let mut tuning = Tuning::BOOT;
            // All but a batch of `high` is just what the drain wants.
            tuning.resize(rules, PageCount(189), PageCount(189), PageCount(63));
            tuning.free_factor = 1;
            let drain = tuning.after_free(rules, Order(0), PageCount(189), CALM);
            assert_eq!((drain, tuning.free_factor), (Some(PageCount(126)), factor));
        }
    }
}
