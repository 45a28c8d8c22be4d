//! Trajectories of recorded kernels, tables of the series, and properties of every decision.

use super::drain::is_high_order;
use super::*;
use crate::testing::random::Random;
use crate::units::Order;
use proptest::prelude::*;
use std_alloc::vec::Vec;

const CALM: ZoneView = ZoneView { below_high: false, reclaim_active: false };
const RECLAIM: ZoneView = ZoneView { below_high: false, reclaim_active: true };
const BELOW_HIGH: ZoneView = ZoneView { below_high: true, reclaim_active: false };
const VIEWS: [ZoneView; 4] =
    [CALM, RECLAIM, BELOW_HIGH, ZoneView { below_high: true, reclaim_active: true }];
const SERIES: PcpRules = PcpRules::series_2023(Series2023::ALL);
const OWN: PcpRules = PcpRules {
    drain: DrainSize::Own(|tuning| PageCount(tuning.free_count.0.saturating_mul(3))),
    ..PcpRules::LINUX_6_12
};
const SETS: [&PcpRules; 4] = [&PcpRules::LINUX_6_1, &PcpRules::LINUX_6_12, &SERIES, &OWN];
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
        if self.noting == Noting::Absorbed && count < self.tuning.drains_at(self.rules, self.zone) {
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

/// Drains of 6.1.192 with a `high` that would allow more than `batch << 5`, as recorded.
#[test]
fn linux_6_1_drains_stop_doubling_at_the_cap() {
    let drains = |rules: &PcpRules| {
        let mut pageset = Pageset::new(rules, sized(rules, 3783, 3783, 63));
        pageset.run(times(12_000, Free(0)));
        (pageset.drains, pageset.tuning.free_factor)
    };
    let capped = [63, 126, 252, 504, 1008, 2016, 2016, 2016, 2016];
    assert_eq!(drains(&PcpRules::LINUX_6_1), (capped.to_vec(), 5));
    let uncapped = [63, 126, 252, 504, 1008, 2016, 3720, 3720];
    assert_eq!(drains(&PcpRules::LINUX_6_6), (uncapped.to_vec(), 6));
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
    tuning.set_cache_slice(rules, PageCount(190));
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
    tuning.set_cache_slice(rules, PageCount(189));
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
    tuning.set_cache_slice(rules, PageCount(240));
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
    let mut tuning = sized(&PcpRules::LINUX_6_12, 1000, 8000, 63);
    assert_eq!(tuning.expire_remote(PageCount(500)).0, 0, "never used");
    tuning.keep_remote();
    let turns = [500, 500, 500, 437, 437, 437];
    let turns = turns.map(|count| tuning.expire_remote(PageCount(count)).0);
    assert_eq!(turns, [0, 0, 63, 0, 0, 63], "and again");
    tuning.keep_remote();
    tuning.expire_remote(PageCount(5));
    tuning.keep_remote();
    let turns = [5, 0, 5, 5].map(|count| tuning.expire_remote(PageCount(count)).0);
    assert_eq!(turns, [0, 0, 0, 5], "an empty one does not age");
}

const OPERATIONS: usize = 2_000_000;

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

// Operations that are folded in afterwards.

#[test]
fn absorbed_operations_change_nothing_under_rules_that_do_not_count_frees() {
    let rules = &PcpRules::LINUX_6_1;
    for (seed, workload) in (1..).zip([Mixed(5), Mixed(50), Tides(2000), Bursts(12)]) {
        let exact = ran(rules, Noting::Each, workload, seed);
        let folded = ran(rules, Noting::Absorbed, workload, seed);
        assert_eq!(exact.refills, folded.refills, "{workload:?}");
        assert_eq!(exact.drains, folded.drains, "{workload:?}");
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
    (before.free_count, before.alloc_factor, before.high) = (PageCount(1000), 5, before.high_min);
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
fn check_decisions(rules: &PcpRules, before: Tuning, order: Order, count: PageCount, sane: bool) {
    for zone in VIEWS {
        let case = (rules, before, order, count, zone);
        let hold_max = before.hold_max(rules).0;

        let mut tuning = before;
        let blocks = tuning.refill_blocks(rules, order, count, zone);
        assert!(blocks >= 1 && blocks <= hold_max.max(2), "{case:?}: {blocks}");
        assert!(
            tuning.high >= before.high_min && tuning.high <= before.high_max.max(before.high_min)
        );
        assert!(tuning.alloc_factor <= before.alloc_factor.max(rules.batch_scale_max), "{case:?}");

        let mut tuning = before;
        let count = PageCount(count.0.saturating_add(order.pages().0));
        let drain = tuning.after_free(rules, order, count, zone);
        assert!(
            tuning.high >= before.high_min && tuning.high <= before.high_max.max(before.high_min)
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
                                let sane = capped && !rules.free_high.is_some_and(|r| r.drains_all);
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
    let settings = sized(&PcpRules::LINUX_6_12, 7, 8, 9).to_words();
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
