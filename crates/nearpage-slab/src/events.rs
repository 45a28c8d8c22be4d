//! Events of a cache, as they are counted.

use core::sync::atomic::{AtomicU64, Ordering};

use nearpage::internals::OwnedCounter;
use nearpage::platform::ListCounts;

/// Why an object came from another node than the effective one of the CPU that asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[non_exhaustive]
pub enum RemoteReason {
    /// It was asked for on that node.
    Asked = 0,
    /// The node that the CPU looks at has no memory: [`LocalNode::OwnNode`](super::LocalNode::OwnNode) on a
    /// memoryless node.
    Memoryless = 1,
    /// The node gave no page for a new slab.
    Exhausted = 2,
}

impl RemoteReason {
    /// Number of reasons.
    pub const COUNT: usize = 3;
    /// All reasons, in the order of their numbers.
    pub const ALL: [RemoteReason; Self::COUNT] = [Self::Asked, Self::Memoryless, Self::Exhausted];

    /// The name in statistics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Memoryless => "memoryless",
            Self::Exhausted => "exhausted",
        }
    }
}

/// Events of a cache on a CPU; written by threads there, of which two may lose an event of one.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct CpuEvents {
    /// Allocations that the stack had nothing for.
    pub(super) alloc_misses: OwnedCounter,
    /// Frees that did not go onto the stack at once.
    pub(super) free_misses: OwnedCounter,
    /// Trips to the lists for a batch.
    pub(super) refills: OwnedCounter,
    /// Pushes that were no free that the stack took at once: of refills, and after a flush.
    pub(super) slow_pushes: OwnedCounter,
    /// Trips to the lists with a batch.
    pub(super) flushes: OwnedCounter,
    pub(super) pops_before: OwnedCounter,
    pub(super) pushes_before: OwnedCounter,
}

impl CpuEvents {
    /// A new cache has this place.
    pub(super) fn begin(&self) {
        for counter in
            [&self.alloc_misses, &self.free_misses, &self.refills, &self.slow_pushes, &self.flushes]
        {
            counter.set(0);
        }
    }

    /// What its stack had seen before.
    pub(super) fn begin_stack(&self, counts: ListCounts) {
        self.pops_before.set(counts.pops);
        self.pushes_before.set(counts.pushes);
    }
}

/// Events of a cache on a node. All but `list_locks`, which the lock guards, are added to by anybody.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct NodeEvents {
    pub(super) list_locks: OwnedCounter,
    pub(super) alien_locks: AtomicU64,
    pub(super) alien_frees: AtomicU64,
    pub(super) alien_overflows: AtomicU64,
    pub(super) barn_locks: AtomicU64,
    pub(super) bypasses: AtomicU64,
    pub(super) grown: AtomicU64,
    pub(super) grow_failures: AtomicU64,
    pub(super) reaped: AtomicU64,
    pub(super) remote: [AtomicU64; RemoteReason::COUNT],
}

impl NodeEvents {
    /// Adds to a counter.
    pub(super) fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }

    pub(super) fn note_remote(&self, reason: RemoteReason, objects: u64) {
        Self::add(&self.remote[reason as usize], objects);
    }

    /// A new cache has this place.
    pub(super) fn begin(&self) {
        self.list_locks.set(0);
        for counter in [
            &self.alien_locks,
            &self.alien_frees,
            &self.alien_overflows,
            &self.barn_locks,
            &self.bypasses,
            &self.grown,
            &self.grow_failures,
            &self.reaped,
        ]
        .into_iter()
        .chain(&self.remote)
        {
            counter.store(0, Ordering::Relaxed);
        }
    }
}
