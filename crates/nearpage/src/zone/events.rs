//! What a zone counts.

use crate::sync::{AtomicU64, Ordering, OwnedCounter};
use crate::units::PageCount;

/// How often the lock of a zone was taken, and for how much at a time: the two objectives of all tuning.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct LockHolds {
    /// Times that the lock was taken to move pages.
    pub acquisitions: u64,
    /// Most pages that moved in one hold.
    pub most_pages: PageCount,
    /// Most pages that came back to the zone in one hold.
    pub most_returned: PageCount,
}

/// All holds of a lock, whatever they were for, and what was done in them. [`Zone::work`](super::Zone::work) has those of a
/// zone's lock.
///
/// An *operation* is one block linked to a free list or unlinked from one, or one word written for a block (its pageblock's
/// type). A step that takes or frees several blocks costs as much as one step for each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct LockWork {
    /// Times that the lock was taken. Who only looks is not counted: texts, statistics, walkers.
    pub holds: u64,
    /// Operations in all of them.
    pub operations: u64,
    /// Most operations of one hold.
    pub most_operations: u64,
}

impl LockWork {
    /// The work of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            holds: self.holds + other.holds,
            operations: self.operations + other.operations,
            most_operations: self.most_operations.max(other.most_operations),
        }
    }
}

/// Where [`LockWork`] is counted. Only the holder of the lock writes.
#[derive(Debug, Default)]
pub(crate) struct WorkCounters {
    holds: OwnedCounter,
    operations: OwnedCounter,
    most_operations: OwnedCounter,
}

impl WorkCounters {
    /// Counts a hold that begins.
    #[inline]
    pub fn begin(&self) {
        self.holds.add(1);
    }

    /// Counts the operations of a hold that ends.
    #[inline]
    pub fn end(&self, operations: u64) {
        self.operations.add(operations);
        self.most_operations.raise_to(operations);
    }

    pub fn read(&self) -> LockWork {
        LockWork {
            holds: self.holds.get(),
            operations: self.operations.get(),
            most_operations: self.most_operations.get(),
        }
    }

    /// From now on, the most of a hold is that of later ones.
    pub fn forget_most(&self) {
        self.most_operations.set(0);
    }
}

/// Events of a zone that no pageset counts: they are rare, so anybody adds to them.
///
/// A page that a pageset hands out is not an event here; `vmstat` derives those from the pagesets.
#[derive(Debug, Default)]
pub(crate) struct ZoneEvents {
    /// Allocations past the pagesets.
    pub direct_allocs: AtomicU64,
    /// Pages of those.
    pub direct_alloc_pages: AtomicU64,
    /// Pages freed past the pagesets.
    pub direct_free_pages: AtomicU64,
    /// Of the direct allocations, those by CPUs of another node.
    pub direct_other: AtomicU64,
    /// Allocations that came from here although another node was preferred: `numa_miss`.
    pub miss: AtomicU64,
    /// Allocations that preferred this zone and came from another node: `numa_foreign`.
    pub foreign: AtomicU64,
    /// Allocations that were interleaved to here: `numa_interleave`.
    pub interleave: AtomicU64,
    /// Takes that a hard limit refused.
    pub limit_refused: AtomicU64,
    /// Takes above a soft limit, which woke background reclaim.
    pub soft_limit_wakes: AtomicU64,
}

/// Rare events of a zone, as of a moment ago. What pagesets hand out is not counted here
/// ([`ZoneStats`](crate::stats::ZoneStats) has the sums).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ZoneCounts {
    /// Allocations past the pagesets.
    pub direct_allocs: u64,
    /// Pages of those.
    pub direct_alloc_pages: u64,
    /// Pages freed past the pagesets.
    pub direct_free_pages: u64,
    /// Of the direct allocations, those by CPUs of another node.
    pub direct_other: u64,
    /// Allocations that came from here although another node was preferred: `numa_miss`.
    pub miss: u64,
    /// Allocations that preferred this zone and came from another node: `numa_foreign`.
    pub foreign: u64,
    /// Allocations that were interleaved to here: `numa_interleave`.
    pub interleave: u64,
    /// Takes that a hard limit refused.
    pub limit_refused: u64,
    /// Takes above a soft limit, which woke background reclaim.
    pub soft_limit_wakes: u64,
}

impl ZoneEvents {
    pub(super) fn counts(&self) -> ZoneCounts {
        let read = |event: &AtomicU64| event.load(Ordering::Relaxed);
        ZoneCounts {
            direct_allocs: read(&self.direct_allocs),
            direct_alloc_pages: read(&self.direct_alloc_pages),
            direct_free_pages: read(&self.direct_free_pages),
            direct_other: read(&self.direct_other),
            miss: read(&self.miss),
            foreign: read(&self.foreign),
            interleave: read(&self.interleave),
            limit_refused: read(&self.limit_refused),
            soft_limit_wakes: read(&self.soft_limit_wakes),
        }
    }

    /// Adds `n` to one of the events.
    #[inline]
    pub fn add(event: &AtomicU64, n: u64) {
        event.fetch_add(n, Ordering::Relaxed);
    }
}
