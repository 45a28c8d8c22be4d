//! How often requests that found nothing took each step of the ladder.

use super::PageAllocator;
use crate::platform::Platform;
use crate::sync::{AtomicU64, Ordering};
use crate::units::{NodeIndex, ZoneKind};

/// Steps of requests that began at a node, or at several.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StallCounts {
    /// Times that the host was asked to reclaim, by the highest kind of zone that the request may use.
    pub reclaims: [u64; ZoneKind::COUNT],
    /// Times that the host compacted, with or without success.
    pub compactions: u64,
    /// Times that reclaim of one node brought something ([`node_reclaim`](Platform::node_reclaim)).
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

impl StallCounts {
    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: StallCounts) -> StallCounts {
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

/// Counts one more.
pub(super) fn count(event: &AtomicU64) {
    event.fetch_add(1, Ordering::Relaxed);
}

impl<P: Platform> PageAllocator<'_, P> {
    /// What requests that began at a node did when they found nothing.
    ///
    /// # Panics
    /// If the topology has no such node.
    pub fn stall_counts(&self, node: NodeIndex) -> StallCounts {
        let events = &self.nodes[node.0 as usize].stalls;
        let read = |event: &AtomicU64| event.load(Ordering::Relaxed);
        StallCounts {
            reclaims: core::array::from_fn(|kind| read(&events.reclaims[kind])),
            compactions: read(&events.compactions),
            node_reclaims: read(&events.node_reclaims),
            node_reclaims_failed: read(&events.node_reclaims_failed),
            unreserved: read(&events.unreserved),
            drains: read(&events.drains),
            last_resorts: read(&events.last_resorts),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alloc::Request;
    use crate::gfp::Gfp;
    use crate::testing::machine::TestMachine;
    use crate::units::Order;

    #[test]
    fn each_step_of_the_ladder_counts() {
        TestMachine::new().node(0, 0, &[0]).node(1, 4096, &[1]).run(|allocator| {
            let counts = |node| allocator.stall_counts(NodeIndex(node));
            let atomic = Request::new(Order(0), Gfp::ATOMIC.or(Gfp::NORETRY));
            while allocator.alloc(atomic).is_ok() {}
            assert_eq!(counts(0), StallCounts::default(), "who cannot wait takes no step");
            let waits = Request::new(Order(0), Gfp::KERNEL);
            assert!(allocator.alloc(waits).is_err());
            let after = counts(0);
            assert!(after.reclaims[ZoneKind::Normal.index()] > 0 && after.drains > 0, "{after:?}");
            assert_eq!((after.compactions, after.last_resorts, after.unreserved), (0, 0, 0));
            assert_eq!(counts(1), StallCounts::default(), "requests began at node 0");
            assert_eq!(after.plus(after).drains, 2 * after.drains);
        });
    }
}
