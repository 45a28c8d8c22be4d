//! What a cache counts. The fast path counts nothing: hits come from the positions of the stacks.

use core::sync::atomic::{AtomicU64, Ordering};

use nearpage::NodeIndex;
use nearpage::platform::{CountedList, ListCounts, Lock};

use crate::allocator::SlabAllocator;
use crate::events::RemoteReason;
use crate::place::{Cache, KmemCache};
use crate::platform::SlabPlatform;

/// What a cache did since it was made, on all CPUs of the topology. What a request for another node gets
/// ([`alloc_node`](SlabAllocator::alloc_node)) is not counted here, but under [`RemoteReason::Asked`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct CacheStats {
    /// Allocations near a CPU that its stack served.
    pub alloc_hits: u64,
    /// All others near a CPU.
    pub alloc_misses: u64,
    /// Frees that a CPU's stack took at once.
    pub free_hits: u64,
    /// All others.
    pub free_misses: u64,
    /// Batches taken from lists, and sheaves from barns.
    pub refills: u64,
    /// Batches given to lists, and sheaves to barns.
    pub flushes: u64,
}

/// What a cache did on a node since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct NodeStats {
    /// Acquisitions of the node's list lock.
    pub list_locks: u64,
    /// Acquisitions of locks of alien stacks that CPUs of this node fill.
    pub alien_locks: u64,
    /// Objects of other nodes that CPUs of this node freed, where there are alien stacks.
    pub alien_frees: u64,
    /// Alien stacks that were full, and so went home.
    pub alien_overflows: u64,
    /// Acquisitions of the lock of the node's barn by allocations and frees.
    pub barn_locks: u64,
    /// Objects that CPUs of this node freed past their sheaves: they are of other nodes.
    pub bypasses: u64,
    /// Slabs made.
    pub grown: u64,
    /// Slabs that could not be made: the node had no pages.
    pub grow_failures: u64,
    /// Slabs given back.
    pub reaped: u64,
    /// Objects that CPUs of this node got from other nodes, by [`RemoteReason`].
    pub remote: [u64; RemoteReason::COUNT],
    /// Slabs now.
    pub slabs: u64,
    /// Objects that lie in slabs now.
    pub objects_free: u64,
    /// Objects on the shared stack now.
    pub shared: u64,
    /// Objects on alien stacks for other nodes now.
    pub alien: u64,
    /// Objects in the barn now.
    pub barn: u64,
}

impl<'m, P: SlabPlatform> SlabAllocator<'_, 'm, P> {
    /// What a cache did.
    pub fn stats(&self, cache: &KmemCache<'m, P>) -> CacheStats {
        self.stats_of(cache.cache)
    }

    pub(super) fn stats_of(&self, cache: &Cache<'m, P>) -> CacheStats {
        let mut stats = CacheStats::default();
        for (stack, events) in cache.stacks.iter().zip(cache.events) {
            let ListCounts { pops, pushes, .. } = stack.stack.counts();
            stats.alloc_hits += pops.wrapping_sub(events.pops_before.get());
            let pushed = pushes.wrapping_sub(events.pushes_before.get());
            stats.free_hits += pushed.saturating_sub(events.slow_pushes.get());
            stats.alloc_misses += events.alloc_misses.get();
            stats.free_misses += events.free_misses.get();
            stats.refills += events.refills.get();
            stats.flushes += events.flushes.get();
        }
        stats
    }

    /// What a cache did on a node.
    ///
    /// # Panics
    /// If the topology has no such node.
    pub fn node_stats(&self, cache: &KmemCache<'m, P>, node: NodeIndex) -> NodeStats {
        self.node_stats_of(cache.cache, node)
    }

    pub(super) fn node_stats_of(&self, cache: &Cache<'m, P>, node: NodeIndex) -> NodeStats {
        let node = cache.node(node);
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // Before the lists are held: who holds everything (`hold.rs`) takes the alien stacks first.
        let alien = node.aliens().map(|(_, alien)| alien.lock().entries().len() as u64).sum();
        let barn = node.barn().map_or(0, |barn| barn.lock().objects());
        let lists = node.look();
        let events = &node.events;
        NodeStats {
            list_locks: events.list_locks.get(),
            alien_locks: get(&events.alien_locks),
            alien_frees: get(&events.alien_frees),
            alien_overflows: get(&events.alien_overflows),
            barn_locks: get(&events.barn_locks),
            bypasses: get(&events.bypasses),
            grown: get(&events.grown),
            grow_failures: get(&events.grow_failures),
            reaped: get(&events.reaped),
            remote: core::array::from_fn(|at| get(&events.remote[at])),
            slabs: lists.slabs() as u64,
            objects_free: lists.objects_free as u64,
            shared: lists.shared().len() as u64,
            alien,
            barn,
        }
    }
}
