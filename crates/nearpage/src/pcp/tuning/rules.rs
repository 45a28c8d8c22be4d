//! The rules: which decisions a pageset takes, as data; or as functions of your own.

use super::Tuning;
use crate::pcp::sizes::{Sizes, ZoneShare};
use crate::units::PageCount;

/// A scale that caps nothing: `high` caps earlier.
pub(super) const UNCAPPED: u8 = 31;

/// How a drain knows how many pages to give back: its *goal*. What it really gives lies between one
/// batch and all but one batch of `high`.
#[allow(
    unpredictable_function_pointer_comparisons,
    reason = "no decision rests on whether two functions are one"
)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DrainSize {
    /// `batch << free_factor`. A drain that was not limited by `high` raises the factor, each allocation
    /// halves it. Linux before 6.7.
    Factor,
    /// `free_count`: pages freed, halved by each allocation. Linux from 6.7 (6ccdcb6d3a74).
    FreeCount,
    /// What a function makes of the state, whose `free_count` is as from 6.7; at most `batch << batch_scale_max`.
    Own(fn(&Tuning) -> PageCount),
}

/// How large pagesets are.
#[allow(
    unpredictable_function_pointer_comparisons,
    reason = "no decision rests on whether two functions are one"
)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SizeRule {
    /// [`Sizes::new`], Linux's formulas.
    Linux,
    /// What a function makes of the zone and of Linux's sizes for it.
    Own(fn(ZoneShare, Sizes) -> Sizes),
}

impl SizeRule {
    /// The sizes for a zone for which Linux's formulas give `of_linux`.
    pub fn sizes(self, zone: ZoneShare, of_linux: Sizes) -> Sizes {
        match self {
            Self::Linux => of_linux,
            Self::Own(sizes) => sizes(zone, of_linux),
        }
    }
}

/// How the size of order-0 refills follows the workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RefillScale {
    /// Always one batch. Linux before 6.7.
    Fixed,
    /// Doubles with each refill; each free halves it. Linux from 6.7 (c0a242394cb9).
    HalvedByFree,
}

/// When a free of order 1 to 3 empties the pageset although it is not full, because pages that are
/// freed here in a row are wanted elsewhere (network buffers), while they are still in a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FreeHigh {
    /// The free before must have been of order 1 to 3 too. From 6.7 (ca71fe1ad922).
    pub after_high_order: bool,
    /// With a large cache slice ([`Tuning::set_cache_slice`](super::Tuning::set_cache_slice)) a batch must have come together.
    /// From 6.7 (362d37a106dd).
    pub keeps_batch: bool,
    /// So many pages must have been freed in a row that they would be a batch and half of `high_min`, which no
    /// pageset of a large zone ever counts to: it stops at a full hold. As recorded of 6.18; 6.12 wants a batch.
    pub waits_for_half: bool,
    /// All pages leave in one lock hold; else at most `batch << batch_scale_max`, from 6.7 (51a755c56dc0).
    pub drains_all: bool,
}

/// How far the periodic turn lets `high` fall.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decay {
    /// By an eighth. Linux from 6.7 (51a755c56dc0).
    Eighth,
    /// To four fifths: the series as posted.
    ToFourFifths,
    /// By a fifth, but by no more than the fewest pages that were in the pageset since the last turn: what was
    /// never used. Patch 9 of the series as posted, which was never merged.
    ByUnused,
}

/// A set of rules: which decisions a pageset takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PcpRules {
    /// No lock hold is to move more than `batch << batch_scale_max` pages, up to the end of a block; a
    /// refill of order 9 moves two blocks whatever this says.
    /// `mm/Kconfig: PCP_BATCH_SCALE_MAX`, 6.12.
    pub batch_scale_max: u8,
    /// How large pagesets are.
    pub sizes: SizeRule,
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
    /// How far the periodic turn lets `high` fall.
    pub decay: Decay,
    /// Under pressure `high` falls by a batch at least. From 6.7; as posted, by what was freed.
    pub lowers_a_batch: bool,
    /// The next drain doubles also if `high` just did not limit this one. From 6.7 (51a755c56dc0).
    pub doubles_at_limit: bool,
    /// A cache slice is large if it holds more batches than this: see [`FreeHigh::keeps_batch`].
    pub large_slice_batches: u8,
}

impl PcpRules {
    /// The same after a change: `PcpRules::LINUX_6_12.with(|rules| rules.batch_scale_max = 4)`.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Whether a decision depends on the fewest pages since the last turn.
    #[inline]
    pub fn counts_unused(&self) -> bool {
        self.decay == Decay::ByUnused
    }

    /// Linux 6.1 as its stable series is now: fixed `high`, fixed refills, drains that double up to
    /// `batch << 5`. The cap came later (52166607ecc9); a recorded 6.1.192 with a `high` of 3783 has it.
    pub const LINUX_6_1: Self = Self {
        batch_scale_max: 5,
        sizes: SizeRule::Linux,
        refill: RefillScale::Fixed,
        drain: DrainSize::Factor,
        free_high: Some(FreeHigh {
            after_high_order: false,
            keeps_batch: false,
            waits_for_half: false,
            drains_all: true,
        }),
        tunes_high: false,
        below_high: false,
        decay: Decay::Eighth,
        lowers_a_batch: true,
        doubles_at_limit: false,
        large_slice_batches: 3,
    };

    /// Linux 6.6, before the series: as 6.1, but drains double until `high` limits them.
    pub const LINUX_6_6: Self = Self { batch_scale_max: UNCAPPED, ..Self::LINUX_6_1 };

    /// Linux 6.12: the series as merged, nine of its ten patches.
    pub const LINUX_6_12: Self = Self {
        batch_scale_max: 5,
        sizes: SizeRule::Linux,
        refill: RefillScale::HalvedByFree,
        drain: DrainSize::FreeCount,
        free_high: Some(FreeHigh {
            after_high_order: true,
            keeps_batch: true,
            waits_for_half: false,
            drains_all: false,
        }),
        tunes_high: true,
        below_high: true,
        decay: Decay::Eighth,
        lowers_a_batch: true,
        doubles_at_limit: true,
        large_slice_batches: 3,
    };

    /// Linux 6.18, as far as recordings tell: as 6.12, but frees of high orders empty a pageset later.
    pub const LINUX_6_18: Self = Self {
        free_high: Some(FreeHigh {
            after_high_order: true,
            keeps_batch: true,
            waits_for_half: true,
            drains_all: false,
        }),
        ..Self::LINUX_6_12
    };
}
