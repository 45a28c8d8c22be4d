//! A cache: the place that it has, and the handle of its user.

use core::sync::atomic::{AtomicU32, Ordering};

use nearpage::platform::Lock;
use nearpage::{Gfp, NodeIndex};

use crate::cpu::CpuStack;
use crate::entry::EntryCode;
use crate::events::CpuEvents;
use crate::geometry::{Geometry, GeometryCell};
use crate::node::CacheNode;
use crate::platform::SlabPlatform;
use crate::tag::Tag;
use crate::tunables::Tunables;

/// What somebody wants a cache for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CacheOptions {
    /// The name that reports and `slabinfo` show: one word, which no other cache of the allocator has.
    pub name: &'static str,
    /// Bytes of an object, at least 1.
    pub size: u64,
    /// The least alignment, a power of two.
    pub align: u64,
    /// Whether objects begin at a cache line, unless they are much smaller (`SLAB_HWCACHE_ALIGN`).
    pub line_aligned: bool,
    /// Whether its user frees objects when memory gets short (`SLAB_RECLAIM_ACCOUNT`): small slabs of
    /// reclaimable pages.
    pub reclaimable: bool,
    /// Flags of all pages of the cache, with those of a request: `GFP_DMA` and the like. `__GFP_ZERO`,
    /// `__GFP_THISNODE`, `__GFP_HIGHMEM` and `__GFP_MOVABLE` mean nothing for them and are refused.
    pub gfp: Gfp,
}

impl CacheOptions {
    /// Objects of `size` bytes with any alignment.
    pub const fn new(name: &'static str, size: u64) -> Self {
        Self { name, size, align: 1, line_aligned: false, reclaimable: false, gfp: Gfp(0) }
    }

    /// The same, aligned.
    #[must_use]
    pub const fn align(self, align: u64) -> Self {
        Self { align, ..self }
    }

    /// The same with objects that begin at a cache line, unless they are much smaller.
    #[must_use]
    pub const fn line_aligned(self) -> Self {
        Self { line_aligned: true, ..self }
    }

    /// The same for objects that their user frees when memory gets short.
    #[must_use]
    pub const fn reclaimable(self) -> Self {
        Self { reclaimable: true, ..self }
    }

    /// The same with `gfp` among the flags of all pages of the cache.
    #[must_use]
    pub const fn gfp(self, gfp: Gfp) -> Self {
        Self { gfp, ..self }
    }
}

/// What a cache is, once it is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheInfo {
    /// What was asked for.
    pub options: CacheOptions,
    /// How objects lie in slabs.
    pub geometry: Geometry,
    /// What its stacks keep, within the budget.
    pub tunables: Tunables,
    pub(super) code: EntryCode,
}

/// A place for a cache.
pub(super) struct Cache<'m, P: SlabPlatform> {
    pub(super) index: u16,
    /// By CPU id.
    pub(super) stacks: &'m [CpuStack<'m, P>],
    /// By CPU id.
    pub(super) events: &'m [CpuEvents],
    /// By node index.
    pub(super) nodes: &'m [&'m CacheNode<'m, P>],
    /// Log2 of the unit of entries: for frees that do not know the cache.
    pub(super) shift: AtomicU32,
    /// Objects of a refill or flush.
    pub(super) batch: AtomicU32,
    pub(super) geometry: GeometryCell,
    /// Flags of all pages.
    pub(super) gfp: AtomicU32,
    pub(super) info: P::Lock<Option<CacheInfo>>,
}

impl<'m, P: SlabPlatform> Cache<'m, P> {
    pub(super) fn info(&self) -> Option<CacheInfo> {
        *self.info.lock()
    }

    pub(super) fn name(&self) -> &'static str {
        self.info().map_or("(none)", |info| info.options.name)
    }

    pub(super) fn node(&self, node: NodeIndex) -> &'m CacheNode<'m, P> {
        self.nodes[node.0 as usize]
    }

    pub(super) fn tag(&self, node: NodeIndex) -> Tag {
        Tag::new(self.index, node)
    }

    /// Objects of a refill or flush; at least one, so that a budget of nothing still gives objects.
    pub(super) fn batch(&self) -> u32 {
        self.batch.load(Ordering::Relaxed).max(1)
    }
}

/// What changes when caches come and go. Its lock comes before all others: who goes over all caches holds it, so that
/// no place gets another cache meanwhile.
#[derive(Debug, Default)]
pub(super) struct Registry {
    pub(super) caches: usize,
    /// The budget that was dealt out last.
    pub(super) budget_kbytes: Option<u64>,
}

/// A cache of objects of one size (`struct kmem_cache`).
///
/// There is one handle a cache, so that nobody uses a cache that was destroyed.
pub struct KmemCache<'m, P: SlabPlatform> {
    pub(super) cache: &'m Cache<'m, P>,
    // What the fast path needs, so that it follows one pointer less.
    pub(super) stacks: &'m [CpuStack<'m, P>],
    pub(super) code: EntryCode,
    pub(super) options: CacheOptions,
    pub(super) geometry: Geometry,
}

impl<P: SlabPlatform> KmemCache<'_, P> {
    /// The name.
    pub fn name(&self) -> &'static str {
        self.options.name
    }

    /// What it was made with.
    pub fn options(&self) -> &CacheOptions {
        &self.options
    }

    /// How its objects lie in slabs.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Bytes that an object may use: at least the size asked for.
    pub fn object_size(&self) -> u64 {
        self.geometry.size as u64
    }
}

impl<P: SlabPlatform> core::fmt::Debug for KmemCache<'_, P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("KmemCache")
            .field("options", &self.options)
            .field("geometry", &self.geometry)
            .finish_non_exhaustive()
    }
}
