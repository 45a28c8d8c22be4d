//! May a request take a block from a zone? The watermark check and the flags that steer it.
//!
//! Source: `mm/internal.h` (flags), `mm/page_alloc.c: __zone_watermark_ok, zone_watermark_fast`, 6.12
//! without CMA.

use crate::frame::Migratetype;
use crate::units::{MAX_ORDER, Order, PageCount};

/// How a request is served: the mark that it respects and what it may do beyond.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(transparent)]
pub struct AllocFlags(pub u32);

impl AllocFlags {
    /// The bits that select a mark.
    pub const WMARK_MASK: u32 = 0x03;
    /// Respects the `min` mark.
    pub const WMARK_MIN: AllocFlags = AllocFlags(0);
    /// Respects the `low` mark.
    pub const WMARK_LOW: AllocFlags = AllocFlags(1);
    /// Respects the `high` mark.
    pub const WMARK_HIGH: AllocFlags = AllocFlags(2);
    /// Respects no mark: the request helps to free memory.
    pub const NO_WATERMARKS: AllocFlags = AllocFlags(0x04);
    /// Uses half of the reserve below the mark: the out-of-memory victim.
    pub const OOM: AllocFlags = AllocFlags(0x08);
    /// Cannot wait for reclaim.
    pub const NON_BLOCK: AllocFlags = AllocFlags(0x10);
    /// Uses half of the reserve below the mark (`__GFP_HIGH`), and more with `NON_BLOCK`.
    pub const MIN_RESERVE: AllocFlags = AllocFlags(0x20);
    /// Stays within the cpuset.
    pub const CPUSET: AllocFlags = AllocFlags(0x40);
    /// Takes no block from another migratetype's pageblock.
    pub const NOFRAGMENT: AllocFlags = AllocFlags(0x100);
    /// May take blocks that are reserved for urgent requests of higher order.
    pub const HIGHATOMIC: AllocFlags = AllocFlags(0x200);
    /// May wake background reclaim.
    pub const KSWAPD: AllocFlags = AllocFlags(0x800);
    /// May exceed a limit: nearpage's own, for who may not fail.
    pub const OVER_LIMIT: AllocFlags = AllocFlags(0x1_0000);
    /// Any right to go below a mark.
    pub const RESERVES: AllocFlags =
        Self::NON_BLOCK.union(Self::MIN_RESERVE).union(Self::HIGHATOMIC).union(Self::OOM);

    /// The flags of both sets.
    #[inline]
    pub const fn union(self, other: AllocFlags) -> AllocFlags {
        AllocFlags(self.0 | other.0)
    }

    /// The flags that are in this set and not in `other`.
    #[inline]
    pub const fn difference(self, other: AllocFlags) -> AllocFlags {
        AllocFlags(self.0 & !other.0)
    }

    /// The flags that are in both sets.
    #[inline]
    pub const fn intersection(self, other: AllocFlags) -> AllocFlags {
        AllocFlags(self.0 & other.0)
    }

    /// Whether all flags of `other` are set. Marks are numbers, not flags: see [`respects_min`].
    ///
    /// [`respects_min`]: AllocFlags::respects_min
    #[inline]
    pub const fn contains(self, other: AllocFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any flag of `other` is set.
    #[inline]
    pub const fn intersects(self, other: AllocFlags) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether no flag is set.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the mark selected is `min`.
    #[inline]
    pub const fn respects_min(self) -> bool {
        self.0 & Self::WMARK_MASK == 0
    }
}

impl core::ops::BitOr for AllocFlags {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

impl core::ops::BitOrAssign for AllocFlags {
    #[inline]
    fn bitor_assign(&mut self, other: Self) {
        *self = self.union(other);
    }
}

impl core::ops::BitAnd for AllocFlags {
    type Output = Self;

    #[inline]
    fn bitand(self, other: Self) -> Self {
        self.intersection(other)
    }
}

impl core::ops::Sub for AllocFlags {
    type Output = Self;

    #[inline]
    fn sub(self, other: Self) -> Self {
        self.difference(other)
    }
}

/// A request for a block of a zone, and the zone's numbers at that moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WatermarkCheck {
    /// Free pages of the zone, those in pagesets not counted.
    pub free: PageCount,
    /// Free pages in pageblocks reserved for urgent requests of higher order.
    pub free_high_atomic: PageCount,
    /// The mark to respect, boost included.
    pub mark: PageCount,
    /// The boost within `mark`.
    pub boost: PageCount,
    /// The zone's protection against the highest zone kind that the request may use.
    pub reserve: PageCount,
    /// Order of the block.
    pub order: Order,
    /// Rights of the request.
    pub flags: AllocFlags,
}

impl WatermarkCheck {
    /// Free pages that the request cannot have: all but one page of its own block, and the urgent
    /// reserve unless it has a right to reserves.
    const fn unusable(&self) -> u64 {
        let has_rights = self.flags.intersects(AllocFlags::RESERVES);
        let urgent = if has_rights { 0 } else { self.free_high_atomic.0 };
        self.order.pages().0 - 1 + urgent
    }

    /// What is left of `mark` for a request with these rights.
    ///
    /// Before 6.4 the quarter was taken of requests that need not wait also without the half, and the victim's half
    /// instead of the quarter, not after it. For what the ladder asks for (`alloc/slow.rs`) that comes to the same: no
    /// victim asks here, and who cannot wait had that right only if it was urgent too (`GFP_ATOMIC`, not `GFP_NOWAIT`).
    const fn lowered(&self, mark: u64) -> u64 {
        let mut left = mark;
        if self.flags.contains(AllocFlags::MIN_RESERVE) {
            left -= left / 2;
            if self.flags.contains(AllocFlags::NON_BLOCK) {
                left -= left / 4;
            }
        }
        if self.flags.contains(AllocFlags::OOM) {
            left -= left / 2;
        }
        left
    }

    /// The fewest free pages with which [`watermark_ok`] has no objection but that of blocks.
    pub const fn free_needed(&self) -> PageCount {
        PageCount(self.lowered(self.mark.0) + self.reserve.0 + self.unusable() + 1)
    }

    /// The free pages that must be left when the block is taken.
    pub(crate) const fn left_free(&self) -> PageCount {
        PageCount(self.lowered(self.mark.0) + self.reserve.0)
    }

    /// Whether enough pages are free above `mark`, whatever the sizes of their blocks.
    const fn has_pages(&self, mark: u64) -> bool {
        self.free.0 > mark + self.reserve.0 + self.unusable()
    }

    /// Whether a free block is large enough and of a type that the request may take.
    fn has_block(&self, is_free: impl Fn(Order, Migratetype) -> bool) -> bool {
        let urgent = AllocFlags::HIGHATOMIC.union(AllocFlags::OOM);
        let usable = |migratetype: &Migratetype| match migratetype {
            Migratetype::HighAtomic => self.flags.intersects(urgent),
            other => other.is_mergeable(),
        };
        (self.order.0..=MAX_ORDER.0).any(|order| {
            Migratetype::ALL.iter().filter(|t| usable(t)).any(|&t| is_free(Order(order), t))
        })
    }
}

/// Whether the zone may give the block: more pages free than the mark, lowered for those with rights to
/// reserves, plus the protection; and for orders above 0 a free block that is large enough.
/// `is_free` says whether a block of exactly that order is on that type's free list.
pub fn watermark_ok(check: &WatermarkCheck, is_free: impl Fn(Order, Migratetype) -> bool) -> bool {
    let enough = check.has_pages(check.lowered(check.mark.0));
    enough && (check.order == Order(0) || check.has_block(is_free))
}

/// [`watermark_ok`] as the allocation path asks it: a single page is first tried without the arithmetic
/// of reserves, and one with rights to the `min` reserve is not held up by a boost.
pub fn watermark_fast(
    check: &WatermarkCheck,
    is_free: impl Fn(Order, Migratetype) -> bool,
) -> bool {
    let single = check.order == Order(0);
    if single && check.has_pages(check.mark.0) || watermark_ok(check, is_free) {
        return true;
    }
    let ignores_boost = single
        && check.flags.contains(AllocFlags::MIN_RESERVE)
        && check.flags.respects_min()
        && check.boost != PageCount(0);
    ignores_boost && check.has_pages(check.lowered(check.mark.0.saturating_sub(check.boost.0)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NO_BLOCK: fn(Order, Migratetype) -> bool = |_, _| false;

    fn single(free: u64, mark: u64, flags: AllocFlags) -> WatermarkCheck {
        WatermarkCheck {
            free: PageCount(free),
            free_high_atomic: PageCount(0),
            mark: PageCount(mark),
            boost: PageCount(0),
            reserve: PageCount(0),
            order: Order(0),
            flags,
        }
    }

    /// The fewest free pages with which the check passes.
    fn lowest_free(check: WatermarkCheck) -> u64 {
        let passes =
            |free| watermark_ok(&WatermarkCheck { free: PageCount(free), ..check }, |_, _| true);
        (0..100_000).find(|&free| passes(free)).unwrap()
    }

    #[test]
    fn rights_lower_the_mark() {
        let lowest = |flags| lowest_free(single(0, 1000, flags));
        let (reserve, non_block, oom) =
            (AllocFlags::MIN_RESERVE, AllocFlags::NON_BLOCK, AllocFlags::OOM);
        assert_eq!(lowest(AllocFlags::default()), 1001);
        assert_eq!(lowest(non_block), 1001);
        assert_eq!(lowest(reserve), 501);
        assert_eq!(lowest(reserve.union(non_block)), 376);
        assert_eq!(lowest(oom), 501);
        assert_eq!(lowest(reserve.union(oom)), 251);
        assert_eq!(lowest(reserve.union(non_block).union(oom)), 189);
        // Odd marks: 13 - 6 = 7, 7 - 1 = 6, 6 - 3 = 3.
        let all = reserve.union(non_block).union(oom);
        assert_eq!(lowest_free(single(0, 13, all)), 4);
    }

    /// Facts 2.4, last line: the rights of `GFP_ATOMIC`, of `__GFP_HIGH` that may wait, and of nobody.
    #[test]
    fn older_kernels_lower_it_as_much_for_the_rights_that_are_asked_for() {
        let before_6_4 = |mark: u64, is_urgent: bool, cannot_wait: bool| {
            let mark = if is_urgent { mark - mark / 2 } else { mark };
            if cannot_wait { mark - mark / 4 } else { mark }
        };
        let none = AllocFlags::default();
        let (reserve, non_block) = (AllocFlags::MIN_RESERVE, AllocFlags::NON_BLOCK);
        for mark in 0..2000 {
            let lowered = |flags| single(0, mark, flags).lowered(mark);
            assert_eq!(lowered(none), before_6_4(mark, false, false));
            assert_eq!(lowered(reserve), before_6_4(mark, true, false));
            assert_eq!(lowered(reserve.union(non_block)), before_6_4(mark, true, true));
        }
    }

    #[test]
    fn reserves_and_order_raise_the_mark() {
        let mut check = single(0, 100, AllocFlags::WMARK_LOW);
        check.reserve = PageCount(50);
        assert_eq!(lowest_free(check), 151);
        check.order = Order(3);
        assert_eq!(lowest_free(check), 158);
        check.free_high_atomic = PageCount(512);
        assert_eq!(lowest_free(check), 158 + 512);
        for right in [AllocFlags::NON_BLOCK, AllocFlags::HIGHATOMIC] {
            assert_eq!(lowest_free(WatermarkCheck { flags: right, ..check }), 158);
        }
    }

    #[test]
    fn larger_blocks_must_be_on_a_list_that_the_request_may_use() {
        let request = |flags| WatermarkCheck { order: Order(3), ..single(1000, 100, flags) };
        let ok = |flags, order, migratetype| {
            watermark_ok(&request(flags), |o, t| (o, t) == (Order(order), migratetype))
        };
        let none = AllocFlags::default();
        assert!(!watermark_ok(&request(none), NO_BLOCK));
        for migratetype in Migratetype::ALL {
            assert!(!ok(none, 2, migratetype));
            assert_eq!(ok(none, 3, migratetype), migratetype.is_mergeable());
            assert_eq!(ok(none, 10, migratetype), migratetype.is_mergeable());
        }
        for right in [AllocFlags::HIGHATOMIC, AllocFlags::OOM] {
            assert!(ok(right, 4, Migratetype::HighAtomic));
            assert!(!ok(right, 4, Migratetype::Isolate));
        }
        assert!(!ok(AllocFlags::NON_BLOCK, 4, Migratetype::HighAtomic));
    }

    #[test]
    fn a_boost_does_not_hold_up_urgent_single_pages() {
        let mut check = single(600, 1600, AllocFlags::MIN_RESERVE);
        check.boost = PageCount(1000);
        // Boosted: 1600 - 800 = 800. Raw: 600 - 300 = 300.
        assert!(!watermark_ok(&check, NO_BLOCK));
        assert!(watermark_fast(&check, NO_BLOCK));
        let refused = |changed: WatermarkCheck| !watermark_fast(&changed, |_, _| true);
        assert!(refused(WatermarkCheck { free: PageCount(300), ..check }));
        assert!(refused(WatermarkCheck {
            flags: AllocFlags::OOM,
            ..single(800, 1600, check.flags)
        }));
        assert!(refused(WatermarkCheck { flags: AllocFlags::NON_BLOCK, ..check }));
        assert!(refused(WatermarkCheck {
            flags: AllocFlags::MIN_RESERVE.union(AllocFlags::WMARK_LOW),
            ..check
        }));
        assert!(refused(WatermarkCheck { order: Order(1), ..check }));
    }

    #[test]
    fn flags_are_sets() {
        let flags = AllocFlags::WMARK_LOW.union(AllocFlags::KSWAPD).union(AllocFlags::MIN_RESERVE);
        assert!(flags.contains(AllocFlags::KSWAPD) && !flags.contains(AllocFlags::RESERVES));
        assert!(flags.intersects(AllocFlags::RESERVES) && !flags.respects_min());
        assert!(!flags.difference(AllocFlags::MIN_RESERVE).intersects(AllocFlags::RESERVES));
        let marks = crate::watermark::Marks { low: PageCount(3), ..Default::default() };
        assert_eq!(marks.of(flags), PageCount(3));
    }

    /// The rule with signed numbers, step by step.
    fn naive_ok(check: &WatermarkCheck, is_free: impl Fn(Order, Migratetype) -> bool) -> bool {
        let has = |flags| check.flags.intersects(flags);
        let mut free = check.free.0 as i64 - ((1i64 << check.order.0) - 1);
        if !has(AllocFlags::RESERVES) {
            free -= check.free_high_atomic.0 as i64;
        }
        let mut mark = check.mark.0 as i64;
        if has(AllocFlags::MIN_RESERVE) {
            mark -= mark / 2;
            mark -= if has(AllocFlags::NON_BLOCK) { mark / 4 } else { 0 };
        }
        mark -= if has(AllocFlags::OOM) { mark / 2 } else { 0 };
        if free <= mark + check.reserve.0 as i64 {
            return false;
        }
        let urgent = has(AllocFlags::HIGHATOMIC) || has(AllocFlags::OOM);
        check.order == Order(0)
            || (check.order.0..=10).any(|order| {
                (0..3).any(|t| is_free(Order(order), Migratetype::ALL[t]))
                    || urgent && is_free(Order(order), Migratetype::HighAtomic)
            })
    }

    prop_compose! {
        fn any_check()(
            pages in prop::array::uniform4(0u64..3000),
            boost in 0u64..3000,
            order in 0u8..=10,
            flags in 0u32..0x1000,
        ) -> WatermarkCheck {
            let [free, free_high_atomic, mark, reserve] = pages.map(PageCount);
            let boost = PageCount(boost.min(mark.0));
            let (order, flags) = (Order(order), AllocFlags(flags));
            WatermarkCheck { free, free_high_atomic, mark, boost, reserve, order, flags }
        }
    }

    proptest! {
        #[test]
        fn unsigned_arithmetic_is_the_signed_rule(check in any_check(), lists in any::<u64>()) {
            let is_free = |order: Order, migratetype: Migratetype| {
                lists >> (order.0 as usize * 5 + migratetype.index()) & 1 == 1
            };
            let ok = naive_ok(&check, is_free);
            prop_assert_eq!(watermark_ok(&check, is_free), ok);
            let needed = check.free_needed();
            let with = |free| WatermarkCheck { free: PageCount(free), ..check };
            prop_assert!(watermark_ok(&with(needed.0), |_, _| true));
            prop_assert!(!watermark_ok(&with(needed.0 - 1), |_, _| true));
            let single = check.order == Order(0);
            let plain = WatermarkCheck { flags: AllocFlags::default(), ..check };
            let raw = WatermarkCheck { mark: PageCount(check.mark.0 - check.boost.0), ..check };
            let skips_boost = check.flags.contains(AllocFlags::MIN_RESERVE) && check.flags.respects_min();
            let fast = ok
                || single && naive_ok(&plain, is_free)
                || single && skips_boost && naive_ok(&raw, is_free);
            prop_assert_eq!(watermark_fast(&check, is_free), fast);
        }
    }
}
