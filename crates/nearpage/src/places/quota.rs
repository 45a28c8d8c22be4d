//! What a CPU may take of a zone, and where.
//!
//! The quota is a word that anybody may take from and add to. All else is hints, for whoever runs on the CPU at the moment:
//! one that is late or wrong costs a look.

use super::size::QuotaSize;
use crate::frame::Migratetype;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering, SharedCounter};
use crate::units::PageCount;

const TYPES: usize = Migratetype::PCP_COUNT;
/// No pageblock.
const NONE: u32 = u32::MAX;

/// The quota of one CPU for one zone. Threads of the CPU use it without a hold, and one may come between two steps of another:
/// so they add atomically to the pageset's events, too.
#[derive(Debug)]
#[repr(align(128))]
pub struct Quota {
    pages: AtomicU64,
    /// The fewest pages since that was last asked.
    least: AtomicU32,
    /// What [`QuotaSize`] keeps.
    size: AtomicU32,
    moved: AtomicU32,
    /// Where whole pageblocks are looked for.
    whole: AtomicU32,
    /// Writes to words that all CPUs share: the zone's counter, and its bits.
    pub(crate) shared_writes: SharedCounter,
    /// Whether pages came from pageblocks of other types since that was last asked.
    pub(crate) fell_back: AtomicBool,
    /// Pages that were given back past the lists.
    pub(crate) pages_put: SharedCounter,
    /// Pages that refills pushed to lists, which count pushes as frees; they do not count runs that are appended.
    pub(crate) pages_listed: SharedCounter,
    pub(crate) places: [Place; TYPES],
}

impl Quota {
    /// None, for the CPU that is `at` of all: it looks for pageblocks where the others do not, of so many.
    pub(crate) fn new(at: u64, cpus: u64, pageblocks: u32) -> Self {
        let start = (u64::from(pageblocks) * at / cpus.max(1)) as u32;
        Self {
            pages: AtomicU64::new(0),
            least: AtomicU32::new(0),
            size: AtomicU32::new(0),
            moved: AtomicU32::new(0),
            whole: AtomicU32::new(start),
            shared_writes: SharedCounter::new(),
            fell_back: AtomicBool::new(false),
            pages_put: SharedCounter::new(),
            pages_listed: SharedCounter::new(),
            places: core::array::from_fn(|_| Place::new(start)),
        }
    }

    /// Pages that may be taken.
    #[inline]
    pub(crate) fn pages(&self) -> PageCount {
        PageCount(self.pages.load(Ordering::Relaxed))
    }

    /// Takes a multiple of `unit` pages, up to `most`; 0 if there are fewer.
    #[inline]
    pub(crate) fn take(&self, unit: u64, most: u64) -> u64 {
        let mut taken = 0;
        let take = |pages: u64| {
            let some = pages.min(most);
            taken = some - some % unit;
            (taken > 0).then(|| pages - taken)
        };
        let (order, failed) = (Ordering::Acquire, Ordering::Relaxed);
        let Ok(before) = self.pages.fetch_update(order, failed, take) else { return 0 };
        self.note_least(before - taken);
        taken
    }

    /// Takes what is above `kept`.
    pub(crate) fn take_above(&self, kept: PageCount) -> PageCount {
        let mut taken = 0;
        let take = |pages: u64| {
            taken = pages.saturating_sub(kept.0);
            (taken > 0).then(|| pages - taken)
        };
        let _ = self.pages.fetch_update(Ordering::Acquire, Ordering::Relaxed, take);
        PageCount(taken)
    }

    /// Adds pages. Their bits are set.
    #[inline]
    pub(crate) fn give(&self, pages: u64) {
        self.pages.fetch_add(pages, Ordering::Release);
    }

    fn note_least(&self, pages: u64) {
        if pages < self.least.load(Ordering::Relaxed).into() {
            self.least.store(pages as u32, Ordering::Relaxed);
        }
    }

    /// The fewest pages since this was last asked.
    pub(crate) fn take_least(&self) -> PageCount {
        let now = self.pages().0.min(u32::MAX.into()) as u32;
        let least = self.least.swap(now, Ordering::Relaxed);
        PageCount(least.min(now).into())
    }

    /// How many pages there may be, and since when.
    pub(crate) fn size(&self) -> QuotaSize {
        let (size, moved) = (&self.size, &self.moved);
        QuotaSize { pages: size.load(Ordering::Relaxed), moved: moved.load(Ordering::Relaxed) }
    }

    /// Sets what [`size`](Self::size) returns.
    pub(crate) fn set_size(&self, size: QuotaSize) {
        self.size.store(size.pages, Ordering::Relaxed);
        self.moved.store(size.moved, Ordering::Relaxed);
    }

    /// Whether pages came from pageblocks of other types since this was last asked.
    pub(crate) fn take_fell_back(&self) -> bool {
        self.fell_back.load(Ordering::Relaxed) && self.fell_back.swap(false, Ordering::Relaxed)
    }

    /// The pageblock from which on whole ones are looked for.
    pub(crate) fn whole_from(&self) -> u32 {
        self.whole.load(Ordering::Relaxed)
    }

    pub(crate) fn set_whole_from(&self, at: u32) {
        self.whole.store(at, Ordering::Relaxed);
    }

    /// Whether the CPU takes pages from a pageblock.
    pub(crate) fn has_place(&self, at: u32) -> bool {
        self.places.iter().any(|place| place.at() == Some(at))
    }

    /// The line of the quota.
    pub(crate) fn line(&self) -> *const () {
        (&raw const self.pages).cast()
    }
}

/// Pageblocks that are kept in mind.
const SEEN: usize = 32;
const AT_BITS: u32 = 23;
const AT_MASK: u32 = (1 << AT_BITS) - 1;

/// Where a CPU takes pages of a type.
#[derive(Debug)]
pub(crate) struct Place {
    at: AtomicU32,
    /// Where the sweep is.
    hand: AtomicU32,
    /// Pageblocks that the sweep saw lately, those with the fewest free pages: a pageblock each, and above it how many pages.
    seen: [AtomicU32; SEEN],
}

impl Place {
    fn new(hand: u32) -> Self {
        let seen = [const { AtomicU32::new(NONE) }; SEEN];
        Self { at: AtomicU32::new(NONE), hand: AtomicU32::new(hand), seen }
    }

    /// The pageblock.
    #[inline]
    pub(crate) fn at(&self) -> Option<u32> {
        Some(self.at.load(Ordering::Relaxed)).filter(|&at| at != NONE)
    }

    pub(crate) fn set(&self, at: Option<u32>) {
        self.at.store(at.unwrap_or(NONE), Ordering::Relaxed);
    }

    pub(crate) fn hand(&self) -> u32 {
        self.hand.load(Ordering::Relaxed)
    }

    pub(crate) fn set_hand(&self, at: u32) {
        self.hand.store(at, Ordering::Relaxed);
    }

    /// Keeps a pageblock with so many free pages in mind, if it has fewer than another that is.
    pub(crate) fn note(&self, at: u32, pages: u32) {
        debug_assert!(at <= AT_MASK && pages > 0, "a pageblock of the zone, with free pages");
        let entry = at | (pages - 1) << AT_BITS;
        let mut most = (0, 0);
        for (slot, seen) in self.seen.iter().enumerate() {
            let seen = seen.load(Ordering::Relaxed);
            if seen != NONE && seen & AT_MASK == at {
                most = (slot, NONE);
                break;
            }
            if seen >= most.1 {
                most = (slot, seen);
            }
        }
        if entry < most.1 {
            self.seen[most.0].store(entry, Ordering::Relaxed);
        }
    }

    /// Forgets the pageblock that had the fewest pages, and returns it.
    pub(crate) fn take_seen(&self) -> Option<u32> {
        let slots = self.seen.iter().map(|seen| seen.load(Ordering::Relaxed)).enumerate();
        let (slot, entry) = slots.min_by_key(|(_, entry)| *entry)?;
        self.seen[slot].store(NONE, Ordering::Relaxed);
        (entry != NONE).then_some(entry & AT_MASK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_whole_units_and_remembers_the_fewest() {
        let quota = Quota::new(0, 1, 8);
        assert_eq!(quota.take(1, 64), 0);
        quota.give(1000);
        assert_eq!(quota.take_least(), PageCount(0));
        assert_eq!(quota.take(8, 100), 96);
        assert_eq!(quota.take(512, 512), 512);
        assert_eq!(quota.take(512, 512), 0);
        quota.give(600);
        assert_eq!(quota.pages(), PageCount(992));
        assert_eq!(quota.take_least(), PageCount(392));
        assert_eq!(quota.take_least(), PageCount(992));
        assert_eq!(quota.take_above(PageCount(1000)), PageCount(0));
        assert_eq!(quota.take_above(PageCount(100)), PageCount(892));
        assert_eq!(quota.pages(), PageCount(100));
    }

    #[test]
    fn the_fullest_pageblocks_are_kept_in_mind() {
        let place = Place::new(0);
        for at in 0..100 {
            place.note(at, 512 - at);
        }
        place.note(99, 20);
        let seen: std_alloc::vec::Vec<_> = core::iter::from_fn(|| place.take_seen()).collect();
        let expected = core::iter::once(99).chain((68..99).rev());
        assert_eq!(seen, expected.collect::<std_alloc::vec::Vec<_>>());
    }
}
