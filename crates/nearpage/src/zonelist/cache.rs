//! The zonelist cache: which zones of a list were full within the last second, so that a long scan need not
//! ask each of them again.
//!
//! ```text
//! list    zone indexes                  16 bits each
//! cache   one Hint for each of them     16 bits each, 32 to a cache line, all cleared once a second
//!
//! Hint    promo | high | low | min      4 bits each: 1 + the lowest order that this watermark refused, or 0
//! ```
//!
//! To ask a zone costs the lines of its watermarks and of its free pages, which others write. A hint costs a
//! thirty-second of a line that is written when a zone fills up.
//!
//! **Keyed hints cannot poison each other.** Under a watermark, whoever is refused a block of an order would be
//! refused all higher orders; nothing follows for lower orders or other watermarks. Requests with a
//! right to reserves neither leave nor take hints. Reserves depend on the highest zone kind that a request may
//! use, so there is a list, with a cache, for each kind.
//!
//! Hints are read and written without a lock. A lost one costs a look at a zone; a stale one sends a page
//! further away than need be, for up to a second and never past the first zone.
//!
//! Source: the zonelist cache of 2006 (`mm/page_alloc.c: zlc_setup, zlc_zone_worth_trying,
//! zlc_mark_zone_full`, 2.6.20), which Linux had until 4.4.

use crate::sync::{AtomicU16, AtomicU64, Ordering};
use crate::units::Order;
use crate::watermark::AllocFlags;

/// Whether scans remember full zones, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CacheRule {
    /// Each scan asks each zone.
    Off,
    /// As in 2.6.20: a zone that refused anything, to anybody but who ignores watermarks, is skipped by
    /// all, whatever they ask for. A failed scan is always repeated without hints.
    Original,
    /// nearpage's own: a zone is skipped by requests that it would have refused when it was asked. The first
    /// zone is always asked. A failed scan is repeated without hints if it skipped any zone.
    Keyed,
}

/// Hints live this long, and until the next scan that gets past the first zone.
const LIFE_NS: u64 = 1_000_000_000;

/// What is remembered of one zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct Hint(u16);

impl Hint {
    /// Nothing is remembered.
    pub const NONE: Hint = Hint(0);

    const fn shift(flags: AllocFlags) -> u32 {
        (flags.0 & AllocFlags::WMARK_MASK) * 4
    }

    /// Whether the watermark in `flags` refused a block of this order or of a lower one.
    #[inline]
    pub const fn refuses(self, flags: AllocFlags, order: Order) -> bool {
        let lowest = self.0 >> Self::shift(flags) & 0xf;
        lowest != 0 && lowest <= order.0 as u16 + 1
    }

    /// The hint after the watermark in `flags` refused a block of this order.
    #[must_use]
    pub const fn with_refusal(self, flags: AllocFlags, order: Order) -> Hint {
        if self.refuses(flags, order) {
            return self;
        }
        let shift = Self::shift(flags);
        Hint(self.0 & !(0xf << shift) | (order.0 as u16 + 1) << shift)
    }
}

const _: () = assert!(crate::units::ORDERS < 16, "an order and one must fit four bits");

/// Hints on one cache line.
#[derive(Debug)]
#[repr(align(64))]
pub struct HintLine([AtomicU16; ZonelistCache::ZONES_PER_LINE]);

impl Default for HintLine {
    fn default() -> Self {
        Self([const { AtomicU16::new(0) }; ZonelistCache::ZONES_PER_LINE])
    }
}

/// The hints of one zonelist, by position on it.
#[derive(Debug)]
pub struct ZonelistCache<'m> {
    lines: &'m [HintLine],
    last_zap_ns: AtomicU64,
}

impl<'m> ZonelistCache<'m> {
    /// Hints on a line.
    pub const ZONES_PER_LINE: usize = 32;

    /// Lines for a list of so many zones.
    pub const fn lines(zones: usize) -> usize {
        zones.div_ceil(Self::ZONES_PER_LINE)
    }

    /// A cache without hints.
    pub const fn new(lines: &'m [HintLine]) -> Self {
        Self { lines, last_zap_ns: AtomicU64::new(0) }
    }

    #[inline]
    fn cell(&self, position: usize) -> &'m AtomicU16 {
        &self.lines[position / Self::ZONES_PER_LINE].0[position % Self::ZONES_PER_LINE]
    }

    /// What is remembered of the zone at a position.
    ///
    /// # Panics
    /// If the list is shorter.
    #[inline]
    pub fn hint(&self, position: usize) -> Hint {
        Hint(self.cell(position).load(Ordering::Relaxed))
    }

    /// The cache line with the hint for a position, for [`Platform::touch`](crate::host::Platform::touch).
    ///
    /// # Panics
    /// If the list is shorter.
    #[inline(always)]
    pub fn line(&self, position: usize) -> *const () {
        (&raw const self.lines[position / Self::ZONES_PER_LINE]).cast()
    }

    /// Remembers that a watermark refused a block. Writes only what is new; returns whether it did.
    ///
    /// # Panics
    /// If the list is shorter.
    pub fn note_refusal(&self, position: usize, flags: AllocFlags, order: Order) -> bool {
        let before = self.hint(position);
        let after = before.with_refusal(flags, order);
        if after != before {
            self.cell(position).store(after.0, Ordering::Relaxed);
        }
        after != before
    }

    /// Forgets everything if that was last done more than a second ago; returns whether it did.
    pub fn zap_if_stale(&self, now_ns: u64) -> bool {
        let age = now_ns.wrapping_sub(self.last_zap_ns.load(Ordering::Relaxed));
        if age <= LIFE_NS {
            return false;
        }
        self.last_zap_ns.store(now_ns, Ordering::Relaxed);
        self.clear();
        true
    }

    /// Forgets everything.
    pub fn clear(&self) {
        for cell in self.lines.iter().flat_map(|line| &line.0) {
            cell.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::MAX_ORDER;

    const MARKS: [AllocFlags; 4] =
        [AllocFlags::WMARK_MIN, AllocFlags::WMARK_LOW, AllocFlags::WMARK_HIGH, AllocFlags(3)];

    fn orders() -> impl Iterator<Item = Order> {
        (0..=MAX_ORDER.0).map(Order)
    }

    #[test]
    fn a_refusal_concerns_its_watermark_and_orders_no_lower() {
        for mark in MARKS {
            for refused in orders() {
                let hint = Hint::NONE.with_refusal(mark, refused);
                for (other, order) in MARKS.into_iter().flat_map(|m| orders().map(move |o| (m, o)))
                {
                    let expected = other == mark && order >= refused;
                    assert_eq!(hint.refuses(other, order), expected, "{mark:?} {refused}");
                }
            }
        }
    }

    #[test]
    fn the_lowest_refusal_of_each_watermark_counts() {
        let mut hint = Hint::NONE;
        for (mark, order) in [(1, 9), (0, 10), (1, 3), (1, 5), (3, 0)] {
            hint = hint.with_refusal(AllocFlags(mark), Order(order));
        }
        let lowest = |mark: AllocFlags| orders().find(|&order| hint.refuses(mark, order));
        assert_eq!(MARKS.map(lowest), [Some(Order(10)), Some(Order(3)), None, Some(Order(0))]);
        // Rights beside the mark are not part of the key: who has any leaves no hint.
        assert!(hint.refuses(AllocFlags::WMARK_LOW.union(AllocFlags::KSWAPD), Order(3)));
    }

    #[test]
    fn hints_live_for_a_second() {
        let lines = [HintLine::default(), HintLine::default()];
        let cache = ZonelistCache::new(&lines);
        let low = AllocFlags::WMARK_LOW;
        assert!(cache.zap_if_stale(5_000_000_000));
        cache.note_refusal(40, low, Order(2));
        assert!(!cache.zap_if_stale(6_000_000_000));
        assert!(cache.hint(40).refuses(low, Order(2)));
        assert_eq!(cache.hint(39), Hint::NONE);
        assert!(cache.zap_if_stale(6_000_000_001));
        assert_eq!(cache.hint(40), Hint::NONE);
        assert_eq!((ZonelistCache::lines(0), ZonelistCache::lines(32)), (0, 1));
        assert_eq!(ZonelistCache::lines(33), 2);
        assert_eq!(size_of::<HintLine>(), 64);
    }
}
