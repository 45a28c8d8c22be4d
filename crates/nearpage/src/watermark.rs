//! Watermarks: how much of each zone stays free, and for whom.
//!
//! ```text
//!   managed pages of all zones ── min_free_kbytes ──┐
//!                                                   ├── marks: min < low < high < promo
//!   managed pages of one zone ── scale factor ──────┘
//!   managed pages of a node's higher zones ── lowmem reserve ratio ── protection of the lower zone
//! ```
//!
//! A request may take from a zone what lies above a mark plus the zone's protection against requests
//! that could have used a higher zone. Below `low` background reclaim is woken; it works up to `high`;
//! only urgent requests go below `min` ([`watermark_ok`]). `promo` is a target for promotion between
//! memory tiers. A zone's *boost* raises all four marks for a while, after pageblocks were mixed.
//!
//! Everything here is arithmetic over plain numbers: *managed* pages are those that the buddy was given.
//! Source: `mm/page_alloc.c` and `mm/khugepaged.c`, 6.12, each function by name below.

mod check;
mod pressure;
mod settings;

pub use check::{AllocFlags, WatermarkCheck, watermark_fast, watermark_ok};
pub use settings::{MovableMin, SettingError, Settings};

use crate::units::{PAGEBLOCK_ORDER, PageCount, ZoneKind};

/// A zone as the formulas see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneSize {
    /// The kind.
    pub kind: ZoneKind,
    /// Pages that the buddy was given.
    pub managed: PageCount,
}

impl ZoneSize {
    const fn is_buffer(&self) -> bool {
        self.kind.index() <= ZoneKind::Normal.index()
    }
}

/// The four marks of a zone: free pages, raw or with the boost added.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Marks {
    /// Only urgent requests go below.
    pub min: PageCount,
    /// Background reclaim is woken below.
    pub low: PageCount,
    /// Background reclaim stops here.
    pub high: PageCount,
    /// Background reclaim stops here when it also makes room for promoted pages.
    pub promo: PageCount,
}

impl Marks {
    /// These marks, raised by the boost of their zone.
    pub fn boosted(self, boost: PageCount) -> Marks {
        let raise = |mark: PageCount| PageCount(mark.0 + boost.0);
        Marks {
            min: raise(self.min),
            low: raise(self.low),
            high: raise(self.high),
            promo: raise(self.promo),
        }
    }

    /// The mark that `flags` name.
    #[inline]
    pub const fn of(self, flags: AllocFlags) -> PageCount {
        match flags.0 & AllocFlags::WMARK_MASK {
            0 => self.min,
            1 => self.low,
            2 => self.high,
            _ => self.promo,
        }
    }
}

/// The marks of the zones of one machine: what they have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watermarks {
    /// Pages that the zones of `lowmem` keep free together.
    min_free: PageCount,
    /// Managed pages of all zones that share `min_free`.
    lowmem: PageCount,
    scale_factor: u32,
    movable_min: MovableMin,
}

impl Watermarks {
    /// Prepares the marks of `zones`, which are all zones of the machine, for pages of
    /// `1 << page_shift` bytes.
    pub fn new(
        zones: impl Iterator<Item = ZoneSize>,
        min_free_kbytes: u64,
        settings: &Settings,
        page_shift: u32,
    ) -> Self {
        let shares = |zone: &ZoneSize| match settings.movable_min {
            MovableMin::Proportional => true,
            MovableMin::Small => zone.kind != ZoneKind::Movable,
        };
        Self {
            min_free: pages_in_kib(min_free_kbytes, page_shift),
            lowmem: PageCount(zones.filter(shares).map(|zone| zone.managed.0).sum()),
            scale_factor: settings.watermark_scale_factor,
            movable_min: settings.movable_min,
        }
    }

    /// The raw marks of a zone. `mm/page_alloc.c: __setup_per_zone_wmarks`.
    pub fn marks(&self, zone: ZoneSize) -> Marks {
        let share = mul_div(zone.managed.0, self.min_free.0, self.lowmem.0);
        let min = match (zone.kind, self.movable_min) {
            (ZoneKind::Movable, MovableMin::Small) => (zone.managed.0 / 1024).clamp(32, 128),
            _ => share,
        };
        let scaled = mul_div(zone.managed.0, self.scale_factor.into(), 10_000);
        let step = scaled.max(share / 4);
        let above = |steps: u64| PageCount(min.saturating_add(step.saturating_mul(steps)));
        Marks { min: above(0), low: above(1), high: above(2), promo: above(3) }
    }
}

/// Whether Linux makes transparent huge pages, which want free pageblocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HugePages {
    /// `always` or `madvise`.
    Enabled,
    /// `never`.
    Disabled,
    /// They were never set up: the machine has less memory than [`HUGEPAGE_BYTES_MIN`].
    Unavailable,
}

/// With less memory, Linux does not set up transparent huge pages. `mm/huge_memory.c: hugepage_init`.
pub const HUGEPAGE_BYTES_MIN: u64 = 512 << 20;

/// Which rule a machine's `min_free_kbytes` comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MinFreeRule {
    /// The setting.
    Given,
    /// [`derived_min_free_kbytes`] of what the zones manage.
    Memory,
    /// [`derived_min_free_kbytes`] of what they manage above their high marks.
    MemoryAboveHigh,
    /// [`hugepage_min_free_kbytes`], from the number of zones alone.
    HugePages,
    /// [`hugepage_min_free_kbytes`], limited to a twentieth of memory.
    HugePagesLimited,
}

impl MinFreeRule {
    /// Whether the value follows from how many pages the zones managed when it was computed.
    pub const fn depends_on_managed(self) -> bool {
        !matches!(self, Self::Given | Self::HugePages)
    }
}

/// A machine's `min_free_kbytes` and where it comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MinFree {
    /// The value.
    pub kbytes: u64,
    /// The rule that gave it.
    pub rule: MinFreeRule,
}

/// KiB that a machine keeps free: the setting, or what Linux ends up with after boot, which first
/// derives it from the size of memory and then raises it for huge pages. Without huge pages by setting,
/// this is [`HugePages::Unavailable`].
pub fn boot_min_free_kbytes(
    zones: impl Iterator<Item = ZoneSize> + Clone,
    settings: &Settings,
    page_shift: u32,
) -> u64 {
    let huge_pages = match settings.transparent_hugepage {
        true => HugePages::Enabled,
        false => HugePages::Unavailable,
    };
    boot_min_free(zones, settings, huge_pages, page_shift).kbytes
}

/// As [`boot_min_free_kbytes`], with the rule. `mm/khugepaged.c: set_recommended_min_free_kbytes`
/// derives the value anew where huge pages are disabled: by then the zones have high marks, and what
/// lies below them no longer counts.
pub fn boot_min_free(
    zones: impl Iterator<Item = ZoneSize> + Clone,
    settings: &Settings,
    huge_pages: HugePages,
    page_shift: u32,
) -> MinFree {
    if let Some(kbytes) = settings.min_free_kbytes {
        return MinFree { kbytes, rule: MinFreeRule::Given };
    }
    let buffer = || zones.clone().filter(ZoneSize::is_buffer);
    let managed = PageCount(buffer().map(|zone| zone.managed.0).sum());
    let derived = derived_min_free_kbytes(managed, page_shift);
    let from_memory = MinFree { kbytes: derived, rule: MinFreeRule::Memory };
    if huge_pages == HugePages::Unavailable {
        return from_memory;
    }
    let marks = Watermarks::new(zones.clone(), derived, settings, page_shift);
    let above_high = |zone: ZoneSize| zone.managed.0.saturating_sub(marks.marks(zone).high.0);
    let above_high = PageCount(buffer().map(above_high).sum());
    if huge_pages == HugePages::Disabled {
        let kbytes = derived_min_free_kbytes(above_high, page_shift);
        return MinFree { kbytes, rule: MinFreeRule::MemoryAboveHigh };
    }
    let populated = buffer().filter(|zone| zone.managed.0 > 0).count() as u64;
    let raised = hugepage_min_free_kbytes(populated, above_high, page_shift);
    let unlimited = hugepage_min_free_kbytes(populated, PageCount(u64::MAX), page_shift);
    let rule = match raised == unlimited {
        true => MinFreeRule::HugePages,
        false => MinFreeRule::HugePagesLimited,
    };
    if raised > derived { MinFree { kbytes: raised, rule } } else { from_memory }
}

/// `min_free_kbytes` as derived from the size of memory: four times the root of its KiB, 128 KiB to
/// 256 MiB. `buffer_pages` is the sum, over zones up to Normal, of what they manage above their high
/// mark (above 0 before there are marks). `mm/page_alloc.c: calculate_min_free_kbytes`.
pub fn derived_min_free_kbytes(buffer_pages: PageCount, page_shift: u32) -> u64 {
    (kib_of_pages(buffer_pages, page_shift) * 16).isqrt().clamp(128, 262_144)
}

/// The `min_free_kbytes` that huge pages ask for: in each of `zones`, the populated zones up to Normal
/// of all nodes, two free pageblocks and one for each pair of the three mergeable migratetypes; but at
/// most a twentieth of `buffer_pages`, as in [`derived_min_free_kbytes`].
/// `mm/khugepaged.c: set_recommended_min_free_kbytes`.
pub fn hugepage_min_free_kbytes(zones: u64, buffer_pages: PageCount, page_shift: u32) -> u64 {
    let wanted = zones * PAGEBLOCK_ORDER.pages().0 * (2 + 3 * 3);
    kib_of_pages(PageCount(wanted.min(buffer_pages.0 / 20)), page_shift)
}

/// What a zone of `kind` keeps from requests, by the highest kind that they could have used; `managed`
/// are the pages of its node's zones. The `protection:` line of `/proc/zoneinfo`.
/// `mm/page_alloc.c: setup_per_zone_lowmem_reserve`.
pub fn lowmem_reserve(
    kind: ZoneKind,
    managed: &[PageCount; ZoneKind::COUNT],
    settings: &Settings,
) -> [PageCount; ZoneKind::COUNT] {
    let mut reserve = [PageCount(0); ZoneKind::COUNT];
    let ratio = u64::from(settings.lowmem_reserve_ratio[kind.index()]);
    if ratio == 0 || managed[kind.index()].0 == 0 {
        return reserve;
    }
    let mut higher = 0;
    for above in kind.index() + 1..ZoneKind::COUNT {
        higher += managed[above].0;
        reserve[above] = PageCount(higher / ratio);
    }
    reserve
}

/// Pages of a zone that no ordinary request can ever get: its largest reserve and its high mark, boost
/// included, but not more than it manages. `mm/page_alloc.c: calculate_totalreserve_pages`.
pub fn total_reserve(
    managed: PageCount,
    high: PageCount,
    reserve: &[PageCount; ZoneKind::COUNT],
) -> PageCount {
    let largest = reserve.iter().map(|pages| pages.0).max().unwrap_or(0);
    PageCount((largest + high.0).min(managed.0))
}

/// The boost of a zone after a request took pages from a pageblock of another migratetype: one
/// pageblock more than `boost`, up to `factor` 1/10000 of the raw high mark. `None` where zones are not
/// boosted: `factor` or the mark is too small to matter, or the zone has less than four pageblocks.
/// `mm/page_alloc.c: boost_watermark`.
pub fn raised_boost(
    boost: PageCount,
    managed: PageCount,
    high: PageCount,
    factor: u32,
) -> Option<PageCount> {
    let pageblock = PAGEBLOCK_ORDER.pages().0;
    let most = mul_div(high.0, factor.into(), 10_000);
    if most == 0 || managed.0 < 4 * pageblock {
        return None;
    }
    Some(PageCount((boost.0 + pageblock).min(most.max(pageblock))))
}

/// `value * numerator / denominator`, saturating; 0 if the denominator is 0.
///
/// Linux computes `value / d * n + value % d * n / d`, which is the same number.
fn mul_div(value: u64, numerator: u64, denominator: u64) -> u64 {
    let product = u128::from(value) * u128::from(numerator);
    product.checked_div(denominator.into()).unwrap_or(0).try_into().unwrap_or(u64::MAX)
}

const fn pages_in_kib(kib: u64, page_shift: u32) -> PageCount {
    PageCount(kib.saturating_mul(1024) / PageCount(1).to_bytes(page_shift))
}

const fn kib_of_pages(pages: PageCount, page_shift: u32) -> u64 {
    pages.to_bytes(page_shift) / 1024
}

#[cfg(test)]
mod tests {
    use std_alloc::vec::Vec;

    use super::*;
    use ZoneKind::{Dma, Dma32, Movable, Normal};

    /// Node, kind, managed pages, marks, protection.
    type Row = (u8, ZoneKind, u64, [u64; 4], [u64; 5]);

    const UNPROTECTED: [u64; 5] = [0; 5];

    /// What 6.12.117 printed after `min_free_kbytes` and `lowmem_reserve_ratio` were rewritten.
    const A: [Row; 4] = [
        (0, Dma, 3840, [171, 213, 255, 297], [0, 953, 953, 953, 953]),
        (0, Dma32, 244_219, [10_901, 13_626, 16_351, 19_076], UNPROTECTED),
        (1, Dma32, 128_915, [5754, 7192, 8630, 10_068], UNPROTECTED),
        (2, Dma32, 127_712, [5700, 7125, 8550, 9975], UNPROTECTED),
    ];
    const B: [Row; 4] = [
        (0, Dma, 3840, [42, 52, 62, 72], [0, 2991, 4959, 4959, 4959]),
        (0, Dma32, 765_920, [8472, 10_590, 12_708, 14_826], [0, 0, 1967, 1967, 1967]),
        (0, Normal, 503_629, [5571, 6963, 8355, 9747], UNPROTECTED),
        (1, Normal, 763_047, [8441, 10_551, 12_661, 14_771], UNPROTECTED),
    ];
    /// B with `movablecore=2G`.
    const C: [Row; 5] = [
        (0, Dma, 3840, [56, 70, 84, 98], [0, 2954, 2958, 4921, 4921]),
        (0, Dma32, 756_365, [11_109, 13_886, 16_663, 19_440], [0, 0, 4, 1967, 1967]),
        (0, Normal, 1024, [15, 18, 21, 24], [0, 0, 0, 15_706, 15_706]),
        (0, Movable, 502_605, [128, 1973, 3818, 5663], UNPROTECTED),
        (1, Normal, 772_603, [11_347, 14_183, 17_019, 19_855], UNPROTECTED),
    ];
    /// Node 1 is memoryless.
    const D: [Row; 3] = [
        (0, Dma, 3840, [172, 215, 258, 301], [0, 954, 954, 954, 954]),
        (0, Dma32, 244_285, [10_985, 13_731, 16_477, 19_223], UNPROTECTED),
        (2, Dma32, 127_606, [5738, 7172, 8606, 10_040], UNPROTECTED),
    ];
    /// Small enough for the 5 % limit of the raise for huge pages.
    const E: [Row; 5] = [
        (0, Dma, 3840, [191, 238, 285, 332], [0, 487, 487, 487, 487]),
        (0, Dma32, 124_816, [6210, 7762, 9314, 10_866], UNPROTECTED),
        (1, Dma32, 128_915, [6414, 8017, 9620, 11_223], UNPROTECTED),
        (2, Dma32, 128_915, [6414, 8017, 9620, 11_223], UNPROTECTED),
        (3, Dma32, 118_225, [5882, 7352, 8822, 10_292], UNPROTECTED),
    ];
    /// A 6.18 host.
    const G: [Row; 3] = [
        (0, Dma, 3840, [48, 60, 72, 84], [0, 3019, 5195, 5195, 5195]),
        (0, Dma32, 772_915, [9790, 12_237, 14_684, 17_131], [0, 0, 2176, 2176, 2176]),
        (0, Normal, 557_056, [7056, 8820, 10_584, 12_348], UNPROTECTED),
    ];

    fn zones(rows: &[Row]) -> impl Iterator<Item = ZoneSize> + Clone {
        rows.iter().map(|row| ZoneSize { kind: row.1, managed: PageCount(row.2) })
    }

    fn numbers(marks: Marks) -> [u64; 4] {
        [marks.min, marks.low, marks.high, marks.promo].map(|mark| mark.0)
    }

    fn marks(rows: &[Row], min_free_kbytes: u64, settings: &Settings) -> Vec<[u64; 4]> {
        let watermarks = Watermarks::new(zones(rows), min_free_kbytes, settings, 12);
        zones(rows).map(|zone| numbers(watermarks.marks(zone))).collect()
    }

    fn protection(rows: &[Row], node: u8, kind: ZoneKind) -> [u64; 5] {
        let mut managed = [PageCount(0); ZoneKind::COUNT];
        for row in rows.iter().filter(|row| row.0 == node) {
            managed[row.1.index()] = PageCount(row.2);
        }
        lowmem_reserve(kind, &managed, &Settings::default()).map(|pages| pages.0)
    }

    #[test]
    fn marks_and_protection_are_as_recorded() {
        let vectors: [(&[Row], u64); 6] =
            [(&A, 90_112), (&B, 90_112), (&C, 90_112), (&D, 67_584), (&E, 100_456), (&G, 67_584)];
        let settings = Settings::default();
        for (rows, min_free_kbytes) in vectors {
            assert_eq!(boot_min_free_kbytes(zones(rows), &settings, 12), min_free_kbytes);
            for (row, marks) in rows.iter().zip(marks(rows, min_free_kbytes, &settings)) {
                assert_eq!(marks, row.3, "node {} {:?}", row.0, row.1);
                assert_eq!(protection(rows, row.0, row.1), row.4, "node {} {:?}", row.0, row.1);
            }
        }
        let given = Settings { min_free_kbytes: Some(4096), ..settings };
        assert_eq!(boot_min_free_kbytes(zones(&E), &given, 12), 4096);
    }

    #[test]
    fn huge_pages_raise_as_recorded() {
        // E while huge pages were off: 5672, derived before boot gave its last 2000 pages to the buddy.
        let settings = Settings::default();
        let high: u64 = marks(&E, 5672, &settings).iter().map(|marks| marks[2]).sum();
        assert_eq!(high, 2418);
        let above_high = PageCount(504_711 - high);
        assert_eq!(hugepage_min_free_kbytes(5, above_high, 12), 100_456);
        assert_eq!(derived_min_free_kbytes(PageCount(502_700), 12), 5672);
        // Three, four and five zones with much memory.
        let raised = [3, 4, 5].map(|n| hugepage_min_free_kbytes(n, PageCount(1 << 30), 12));
        assert_eq!(raised, [67_584, 90_112, 112_640]);
        let without = Settings { transparent_hugepage: false, ..settings };
        assert_eq!(boot_min_free_kbytes(zones(&E), &without, 12), 5683);
    }

    /// What 6.12.95 and 6.1.192 printed, from the pages that their zones managed before the memory of
    /// initialisation was freed: `managed` of the texts without what the log says was freed later.
    #[test]
    fn min_free_kbytes_at_boot_are_as_recorded() {
        use HugePages::{Disabled, Enabled, Unavailable};
        let min_free = |rows: &[(ZoneKind, u64)], huge_pages| {
            let zones =
                rows.iter().map(|&(kind, pages)| ZoneSize { kind, managed: PageCount(pages) });
            let found = boot_min_free(zones, &Settings::default(), huge_pages, 12);
            (found.kbytes, found.rule)
        };
        let small = [(Dma, 3840), (Dma32, 48_886 - 2016)];
        assert_eq!(min_free(&small, Unavailable), (1801, MinFreeRule::Memory));
        let eight = [(Dma, 3840), (Dma32, 502_267 - 2017), (Dma32, 245_728), (Normal, 1_284_105)];
        assert_eq!(min_free(&eight, Disabled), (11_389, MinFreeRule::MemoryAboveHigh));
        let three = [(Dma, 3840), (Dma32, 244_219), (Dma32, 128_915)];
        assert_eq!(min_free(&three, Enabled), (67_584, MinFreeRule::HugePages));
        assert_eq!(min_free(&small, Enabled).1, MinFreeRule::HugePagesLimited);
        assert!(MinFreeRule::HugePagesLimited.depends_on_managed());
        assert!(!MinFreeRule::HugePages.depends_on_managed());
    }

    #[test]
    fn settings_move_marks_as_recorded() {
        let scaled = Settings { watermark_scale_factor: 200, ..Settings::default() };
        let expected = [
            [42, 118, 194, 270],
            [8472, 23_790, 39_108, 54_426],
            [5571, 15_643, 25_715, 35_787],
            [8441, 23_701, 38_961, 54_221],
        ];
        assert_eq!(marks(&B, 90_112, &scaled), expected);
        let expected = [
            [1, 4, 7, 10],
            [385, 1150, 1915, 2680],
            [253, 756, 1259, 1762],
            [383, 1146, 1909, 2672],
        ];
        assert_eq!(marks(&B, 4096, &Settings::default()), expected);
    }

    #[test]
    fn extreme_zones_have_marks() {
        let watermarks = Watermarks::new(zones(&A), 90_112, &Settings::default(), 12);
        let empty = |kind| numbers(watermarks.marks(ZoneSize { kind, managed: PageCount(0) }));
        assert_eq!(empty(Movable), [32; 4]);
        assert_eq!(empty(Normal), [0; 4]);
        let absurd = Settings { watermark_scale_factor: u32::MAX, ..Settings::default() };
        let absurd = Watermarks::new(zones(&A), u64::MAX, &absurd, 12);
        let zone = ZoneSize { kind: Movable, managed: PageCount(u64::MAX) };
        assert_eq!(absurd.marks(zone).promo, PageCount(u64::MAX));
        // A machine without memory.
        let nothing = Watermarks::new(zones(&[]), 90_112, &Settings::default(), 12);
        assert_eq!(numbers(nothing.marks(ZoneSize { kind: Dma, managed: PageCount(0) })), [0; 4]);
        assert_eq!(boot_min_free_kbytes(zones(&[]), &Settings::default(), 12), 128);
    }

    #[test]
    fn movable_zones_share_proportionally_in_6_1() {
        // 6.1.192, one node of 2 GiB with movablecore=512M; 6.1 prints no promo.
        let rows: [Row; 3] = [
            (0, Dma, 3840, [86, 107, 128, 0], [0, 1475, 1475, 1945, 1945]),
            (0, Dma32, 377_802, [8479, 10_598, 12_717, 0], [0, 0, 0, 469, 469]),
            (0, Movable, 120_239, [2698, 3372, 4046, 0], UNPROTECTED),
        ];
        let settings = Settings { movable_min: MovableMin::Proportional, ..Settings::default() };
        assert_eq!(boot_min_free_kbytes(zones(&rows), &settings, 12), 45_056);
        for (row, marks) in rows.iter().zip(marks(&rows, 45_056, &settings)) {
            assert_eq!(marks[..3], row.3[..3], "{:?}", row.1);
            assert_eq!(protection(&rows, row.0, row.1), row.4, "{:?}", row.1);
        }
    }

    #[test]
    fn larger_pages_keep_the_same_bytes() {
        let zone = ZoneSize { kind: Normal, managed: PageCount(1 << 20) };
        let only = || core::iter::once(zone);
        let settings = Settings { transparent_hugepage: false, ..Settings::default() };
        // 4 GiB of 4 KiB pages and of 16 KiB pages.
        assert_eq!(boot_min_free_kbytes(only(), &settings, 12), 8192);
        let sixteen = ZoneSize { managed: PageCount(1 << 18), ..zone };
        let only_sixteen = || core::iter::once(sixteen);
        assert_eq!(boot_min_free_kbytes(only_sixteen(), &settings, 14), 8192);
        let marks = Watermarks::new(only_sixteen(), 8192, &settings, 14).marks(sixteen);
        assert_eq!(marks.min, PageCount(8192 / 16));
    }

    #[test]
    fn total_reserve_is_limited_by_the_zone() {
        let reserve = [0, 0, 50, 70, 70].map(PageCount);
        assert_eq!(total_reserve(PageCount(1000), PageCount(30), &reserve), PageCount(100));
        assert_eq!(total_reserve(PageCount(90), PageCount(30), &reserve), PageCount(90));
    }

    #[test]
    fn boosts_grow_by_pageblocks_up_to_a_limit() {
        let boost = |boost, managed, high, factor| {
            raised_boost(PageCount(boost), PageCount(managed), PageCount(high), factor)
                .map(|pages| pages.0)
        };
        assert_eq!(boost(0, 1 << 20, 10_000, 15_000), Some(512));
        assert_eq!(boost(14_800, 1 << 20, 10_000, 15_000), Some(15_000));
        assert_eq!(boost(0, 1 << 20, 100, 15_000), Some(512));
        assert_eq!(boost(512, 1 << 20, 100, 15_000), Some(512));
        assert_eq!(boost(0, 1 << 20, 10_000, 0), None);
        assert_eq!(boost(0, 2047, 10_000, 15_000), None);
        let marks = Marks { low: PageCount(7), ..Marks::default() };
        assert_eq!(numbers(marks.boosted(PageCount(5))), [5, 12, 5, 5]);
    }

    proptest::proptest! {
        /// Linux computes the same number in two parts.
        #[test]
        fn mul_div_is_the_form_of_linux(x in 0u64..1 << 40, n in 0u64..1 << 20, d in 1u64..1 << 20) {
            proptest::prop_assert_eq!(mul_div(x, n, d), x / d * n + x % d * n / d);
        }

        /// Together, the zones keep what was asked for, but for rounding.
        #[test]
        fn minima_add_up(
            managed in proptest::collection::vec(0u64..1 << 32, 1..20),
            min_free_kbytes in 0u64..1 << 20,
        ) {
            let zone = |&pages| ZoneSize { kind: Normal, managed: PageCount(pages) };
            let settings = Settings::default();
            let watermarks =
                Watermarks::new(managed.iter().map(zone), min_free_kbytes, &settings, 12);
            let sum: u64 = managed.iter().map(|m| watermarks.marks(zone(m)).min.0).sum();
            let expected = if managed.iter().sum::<u64>() == 0 { 0 } else { min_free_kbytes / 4 };
            proptest::prop_assert!(sum <= expected && expected - sum < managed.len() as u64);
        }
    }
}
