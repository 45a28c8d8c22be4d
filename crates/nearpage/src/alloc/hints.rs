//! How one scan uses the cache of its zonelist.

use crate::reason::Reason;
use crate::sync::{AtomicU64, Ordering};
use crate::units::Order;
use crate::watermark::AllocFlags;
use crate::zonelist::cache::{CacheRule, Hint, ZonelistCache};

/// What scans of the zonelists of a node, or of several, did so far. A request that the first zone of its list
/// serves does not count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ScanCounts {
    /// Zones behind the first of their list that were asked.
    pub zones_visited: u64,
    /// Zones that were not asked because of a hint.
    pub zones_skipped: u64,
    /// Scans that were repeated without hints.
    pub second_passes: u64,
    /// Times that the hints of a list were forgotten because of their age.
    pub zaps: u64,
}

impl core::ops::Add for ScanCounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        ScanCounts {
            zones_visited: self.zones_visited + other.zones_visited,
            zones_skipped: self.zones_skipped + other.zones_skipped,
            second_passes: self.second_passes + other.second_passes,
            zaps: self.zaps + other.zaps,
        }
    }
}

impl core::ops::AddAssign for ScanCounts {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl core::iter::Sum for ScanCounts {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), |sum, counts| sum + counts)
    }
}

/// [`ScanCounts`] that anybody adds to, once a scan.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct ScanEvents {
    zones_visited: AtomicU64,
    zones_skipped: AtomicU64,
    second_passes: AtomicU64,
    zaps: AtomicU64,
}

impl ScanEvents {
    pub(super) fn counts(&self) -> ScanCounts {
        let read = |event: &AtomicU64| event.load(Ordering::Relaxed);
        ScanCounts {
            zones_visited: read(&self.zones_visited),
            zones_skipped: read(&self.zones_skipped),
            second_passes: read(&self.second_passes),
            zaps: read(&self.zaps),
        }
    }

    fn add(&self, counts: ScanCounts) {
        let add = |event: &AtomicU64, n: u64| {
            if n > 0 {
                event.fetch_add(n, Ordering::Relaxed);
            }
        };
        add(&self.zones_visited, counts.zones_visited);
        add(&self.zones_skipped, counts.zones_skipped);
        add(&self.second_passes, counts.second_passes);
        add(&self.zaps, counts.zaps);
    }
}

/// Why a zone gave nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    /// It did not pass the watermark.
    Watermark,
    /// It passed, and had no block.
    Block,
}

/// Whether a scan has more zones than its first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Others {
    /// It has only one.
    None,
    /// It has several.
    Some,
}

/// Where a scan stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No zone has refused: the cache was not looked at.
    Untouched,
    /// Hints count.
    Heeded,
    /// The scan is repeated without hints.
    Ignored,
}

/// The hints of a zonelist as one scan sees them. Nothing of the cache is touched until a zone refused.
pub(super) struct Hints<'a, 'm> {
    rule: CacheRule,
    cache: &'a ZonelistCache<'m>,
    events: &'a ScanEvents,
    /// Where the first zone that the request may use is on the list.
    first: usize,
    order: Order,
    flags: AllocFlags,
    phase: Phase,
    counts: ScanCounts,
}

impl<'a, 'm> Hints<'a, 'm> {
    /// For a request for `order` with `flags` that scans the zone at `first` and others.
    pub(super) fn new(
        rule: CacheRule,
        cache: &'a ZonelistCache<'m>,
        events: &'a ScanEvents,
        first: usize,
        others: Others,
        order: Order,
        flags: AllocFlags,
    ) -> Self {
        let rights = AllocFlags::RESERVES.union(AllocFlags::NO_WATERMARKS);
        let is_for_hints = others == Others::Some && !flags.intersects(rights);
        let rule = if rule == CacheRule::Keyed && !is_for_hints { CacheRule::Off } else { rule };
        let (phase, counts) = (Phase::Untouched, ScanCounts::default());
        Self { rule, cache, events, first, order, flags, phase, counts }
    }

    /// Where the first zone that the request may use is on the list.
    #[inline]
    pub(super) fn first(&self) -> usize {
        self.first
    }

    /// A zone was not asked because the request may not use it. In 2.6.20 the look at the cpuset came behind that
    /// at the hints, so that a zone outside it made them count, as one that refused does. Facts 5.1.
    pub(super) fn passed_over(&mut self, why: Reason, now_ns: impl FnOnce() -> u64) {
        if self.rule == CacheRule::Original && why == Reason::Cpuset {
            self.heed(now_ns);
        }
    }

    /// Whether [`skips`](Self::skips) reads the cache for the zone at a position.
    #[inline]
    pub(super) fn are_read(&self, position: usize) -> bool {
        position != self.unread() && self.phase == Phase::Heeded && self.rule != CacheRule::Off
    }

    /// The position that is asked whatever its hint says: the first one; in 2.6.20 the first of the list.
    fn unread(&self) -> usize {
        if self.rule == CacheRule::Original { 0 } else { self.first }
    }

    /// Whether the zone at a position need not be asked.
    #[inline]
    pub(super) fn skips(&mut self, position: usize) -> bool {
        if position == self.unread() {
            return false;
        }
        let skips = self.phase == Phase::Heeded && self.hint_refuses(position);
        *(if skips { &mut self.counts.zones_skipped } else { &mut self.counts.zones_visited }) += 1;
        skips
    }

    fn hint_refuses(&self, position: usize) -> bool {
        let hint = self.cache.hint(position);
        match self.rule {
            CacheRule::Off => false,
            CacheRule::Original => hint != Hint::NONE,
            CacheRule::Keyed => hint.refuses(self.flags, self.order),
        }
    }

    /// Notes that the zone at a position was asked and gave nothing; from then on hints count. Returns whether
    /// the cache was written.
    pub(super) fn refused(
        &mut self,
        position: usize,
        how: Refusal,
        now_ns: impl FnOnce() -> u64,
    ) -> bool {
        let is_noted = match self.rule {
            CacheRule::Off => return false,
            CacheRule::Original => true,
            CacheRule::Keyed => position > 0 && how == Refusal::Watermark,
        };
        let mut wrote = is_noted && self.cache.note_refusal(position, self.flags, self.order);
        // In 2.6.20 too the first zone is noted before the hints may be forgotten.
        wrote |= self.heed(now_ns);
        wrote
    }

    /// Begins to heed the hints; returns whether old ones were forgotten.
    fn heed(&mut self, now_ns: impl FnOnce() -> u64) -> bool {
        if self.phase != Phase::Untouched {
            return false;
        }
        self.phase = Phase::Heeded;
        let zapped = self.cache.zap_if_stale(now_ns());
        self.counts.zaps += u64::from(zapped);
        zapped
    }

    /// Whether a zone was left out for a hint on this pass.
    pub(super) fn have_skipped(&self) -> bool {
        self.phase == Phase::Heeded && self.counts.zones_skipped > 0
    }

    /// After a scan that found nothing: whether to scan again, without hints.
    pub(super) fn begin_second_pass(&mut self) -> bool {
        let again = match self.rule {
            CacheRule::Off => false,
            CacheRule::Original => self.phase == Phase::Heeded,
            CacheRule::Keyed => self.phase == Phase::Heeded && self.counts.zones_skipped > 0,
        };
        if again {
            self.phase = Phase::Ignored;
            self.counts.second_passes += 1;
        }
        again
    }

    /// Adds what the scan did to the counters.
    pub(super) fn finish(&self) {
        self.events.add(self.counts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alloc::{Config, PageAllocator, Request};
    use crate::gfp::Gfp;
    use crate::model::Model;
    use crate::testing::machine::TestMachine;
    use crate::testing::plain::PlainPlatform;
    use crate::units::{NodeId, NodeIndex};
    use crate::zonelist::cache::HintLine;

    type Allocator<'m> = PageAllocator<'m, PlainPlatform>;

    const PAGE: Order = Order(0);

    /// Node 0 is full, node 1 has single pages but no room for a block of order 10, node 2 is empty.
    fn on_three_nodes<R>(rule: CacheRule, run: impl FnOnce(&Allocator<'_>) -> R) -> R {
        let model = Model { zonelist_cache: rule, ..Model::LINUX_6_12 };
        let machine = TestMachine::new().node(0, 4096, &[0]).node(1, 4096, &[]).node(2, 4096, &[]);
        let machine = machine.distances(&[10, 20, 30, 20, 10, 20, 30, 20, 10]);
        machine.config(Config { model, ..Config::default() }).run(|allocator| {
            let gfp = Gfp::KERNEL.union(Gfp::THISNODE);
            while allocator.alloc(Request::new(PAGE, gfp)).is_ok() {}
            while allocator.alloc(Request::new(Order(10), gfp).on(NodeId(1))).is_ok() {}
            run(allocator)
        })
    }

    fn node_of_next(allocator: &Allocator<'_>, order: Order) -> NodeIndex {
        let pfn = allocator.alloc(Request::new(order, Gfp::KERNEL)).unwrap();
        allocator.topology().node_of_pfn(pfn).unwrap()
    }

    fn counts(allocator: &Allocator<'_>) -> [u64; 4] {
        let ScanCounts { zones_visited, zones_skipped, second_passes, zaps } =
            allocator.scan_counts(NodeIndex(0));
        [zones_visited, zones_skipped, second_passes, zaps]
    }

    #[test]
    fn in_2006_a_large_miss_sends_single_pages_away_for_a_second() {
        on_three_nodes(CacheRule::Original, |allocator| {
            assert_eq!(node_of_next(allocator, Order(10)), NodeIndex(2));
            assert_eq!(node_of_next(allocator, PAGE), NodeIndex(2));
            assert_eq!(counts(allocator)[1], 1);
            allocator.platform().set_now_ns(1_000_000_001);
            assert_eq!(node_of_next(allocator, PAGE), NodeIndex(1));
            assert_eq!(counts(allocator)[3], 1);
        });
    }

    #[test]
    fn a_large_miss_does_not_poison_keyed_hints() {
        on_three_nodes(CacheRule::Keyed, |allocator| {
            assert_eq!(node_of_next(allocator, Order(10)), NodeIndex(2));
            assert_eq!(counts(allocator), [2, 0, 0, 0]);
            assert_eq!(node_of_next(allocator, PAGE), NodeIndex(1));
            assert_eq!(counts(allocator), [3, 0, 0, 0]);
            assert_eq!(node_of_next(allocator, Order(10)), NodeIndex(2));
            assert_eq!(counts(allocator), [4, 1, 0, 0], "skipped for as large a block");
        });
    }

    #[test]
    fn a_page_behind_a_stale_hint_is_found_by_the_second_pass() {
        for rule in [CacheRule::Original, CacheRule::Keyed] {
            on_three_nodes(rule, |allocator| {
                let huge = Request::new(Order(10), Gfp::KERNEL.union(Gfp::NORETRY));
                let taken: std_alloc::vec::Vec<_> =
                    core::iter::from_fn(|| allocator.alloc(huge).ok()).collect();
                allocator.free(taken[0], Order(10)).unwrap();
                let before = counts(allocator);
                assert_eq!(node_of_next(allocator, Order(10)), NodeIndex(2), "{rule:?}");
                let after = counts(allocator);
                assert_eq!((after[1] - before[1], after[2] - before[2]), (2, 1), "{rule:?}");
            });
        }
    }

    /// A scan past full zones reads a hint for each and nothing of the zones, whose lines others write.
    #[test]
    fn a_long_scan_reads_a_line_for_32_zones() {
        let machine = (0..100).fold(TestMachine::new(), |machine, id| {
            machine.node(id, 2048, if id == 0 { &[0] } else { &[] })
        });
        machine.run(|allocator| {
            let gfp = Gfp::KERNEL.union(Gfp::THISNODE);
            let last = allocator.fallback_zones(NodeIndex(0)).last().unwrap().node();
            for zone in allocator.zones().iter().filter(|zone| zone.node() != last) {
                let id = allocator.topology().node(zone.node()).id;
                while allocator.alloc(Request::new(PAGE, gfp).on(id)).is_ok() {}
            }
            assert_eq!(node_of_next(allocator, PAGE), last);
            assert_eq!(counts(allocator), [99, 0, 0, 0]);
            assert_eq!(node_of_next(allocator, PAGE), last);
            assert_eq!(counts(allocator), [100, 98, 0, 0], "only the last was asked again");
            let lines = ZonelistCache::lines(100);
            assert_eq!((lines, size_of::<HintLine>() * lines), (4, 256), "bytes of all hints");
        });
    }

    #[test]
    fn the_first_zone_costs_nothing() {
        on_three_nodes(CacheRule::Keyed, |allocator| {
            let near = Request::new(Order(4), Gfp::KERNEL).on(NodeId(2));
            let nothing = ScanCounts::default();
            assert!(allocator.alloc(near).is_ok());
            assert_eq!(allocator.scan_counts(NodeIndex(2)), nothing);
        });
    }
}
