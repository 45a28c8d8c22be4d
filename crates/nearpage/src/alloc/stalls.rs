//! How often requests that found nothing took each step of the ladder.

use crate::sync::{AtomicU64, Ordering};
use crate::units::ZoneKind;

/// Steps of requests that began at a node, or at several.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct StallCounts {
    /// Times that the host was asked to reclaim, by the highest kind of zone that the request may use.
    pub reclaims: [u64; ZoneKind::COUNT],
    /// Times that the host compacted, with or without success.
    pub compactions: u64,
    /// Times that reclaim of one node brought something ([`Platform::node_reclaim`](crate::host::Platform::node_reclaim)).
    pub node_reclaims: u64,
    /// Times that reclaim of one node brought nothing.
    pub node_reclaims_failed: u64,
    /// Pageblocks that were reserved for urgent requests and were given up.
    pub unreserved: u64,
    /// Times that all pagesets were drained.
    pub drains: u64,
    /// Times that the last resort helped.
    pub last_resorts: u64,
}

impl core::ops::Add for StallCounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        StallCounts {
            reclaims: core::array::from_fn(|kind| self.reclaims[kind] + other.reclaims[kind]),
            compactions: self.compactions + other.compactions,
            node_reclaims: self.node_reclaims + other.node_reclaims,
            node_reclaims_failed: self.node_reclaims_failed + other.node_reclaims_failed,
            unreserved: self.unreserved + other.unreserved,
            drains: self.drains + other.drains,
            last_resorts: self.last_resorts + other.last_resorts,
        }
    }
}

impl core::ops::AddAssign for StallCounts {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl core::iter::Sum for StallCounts {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), |sum, counts| sum + counts)
    }
}

/// [`StallCounts`] that anybody adds to.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct StallEvents {
    pub(super) reclaims: [AtomicU64; ZoneKind::COUNT],
    pub(super) compactions: AtomicU64,
    pub(super) node_reclaims: AtomicU64,
    pub(super) node_reclaims_failed: AtomicU64,
    pub(super) unreserved: AtomicU64,
    pub(super) drains: AtomicU64,
    pub(super) last_resorts: AtomicU64,
}

impl StallEvents {
    pub(super) fn counts(&self) -> StallCounts {
        let read = |event: &AtomicU64| event.load(Ordering::Relaxed);
        StallCounts {
            reclaims: core::array::from_fn(|kind| read(&self.reclaims[kind])),
            compactions: read(&self.compactions),
            node_reclaims: read(&self.node_reclaims),
            node_reclaims_failed: read(&self.node_reclaims_failed),
            unreserved: read(&self.unreserved),
            drains: read(&self.drains),
            last_resorts: read(&self.last_resorts),
        }
    }
}

/// Counts one more.
pub(super) fn count(event: &AtomicU64) {
    event.fetch_add(1, Ordering::Relaxed);
}
