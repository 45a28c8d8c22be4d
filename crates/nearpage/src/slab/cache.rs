//! A cache: made, found again, destroyed.

use super::alloc::NOT_FOR_SLABS;
use super::entry::{EntryCode, unit_min};
use super::error::{CreateError, LiveObjects};
use super::geometry::{Geometry, GeometryCell, ObjectLayout, size_max};
use super::lists::Codes;
use super::node::CacheNode;
use super::stats::CpuEvents;
use super::tag::Tag;
use super::tunables::Tunables;
use super::{CpuStack, ObjectStorage, SlabAllocator};
use crate::gfp::Gfp;
use crate::pcp::CountedList;
use crate::platform::{Lock, Platform};
use crate::sync::{AtomicU32, Ordering};
use crate::units::NodeIndex;

/// What somebody wants a cache for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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
pub(super) struct Cache<'m, P: Platform<Storage: ObjectStorage>> {
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

impl<'m, P: Platform<Storage: ObjectStorage>> Cache<'m, P> {
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
pub struct KmemCache<'m, P: Platform<Storage: ObjectStorage>> {
    pub(super) cache: &'m Cache<'m, P>,
    // What the fast path needs, so that it follows one pointer less.
    pub(super) stacks: &'m [CpuStack<'m, P>],
    pub(super) code: EntryCode,
    options: CacheOptions,
    geometry: Geometry,
}

impl<P: Platform<Storage: ObjectStorage>> KmemCache<'_, P> {
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

impl<P: Platform<Storage: ObjectStorage>> core::fmt::Debug for KmemCache<'_, P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("KmemCache")
            .field("options", &self.options)
            .field("geometry", &self.geometry)
            .finish_non_exhaustive()
    }
}

impl<'m, P: Platform<Storage: ObjectStorage>> SlabAllocator<'_, 'm, P> {
    /// Makes a cache. It has no slab until the first object is asked for.
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn create(&self, options: CacheOptions) -> Result<KmemCache<'m, P>, CreateError> {
        let (geometry, code) = self.lay_out(&options)?;
        let mut registry = self.registry.lock();
        if self.live_caches().any(|(_, info)| info.options.name == options.name) {
            return Err(CreateError::NameTaken { cache: options.name });
        }
        let cache = self.caches.iter().find(|cache| cache.info.lock().is_none());
        let too_many =
            CreateError::TooManyCaches { cache: options.name, caches_max: self.caches.len() };
        let cache = cache.ok_or(too_many)?;
        let page_bytes = 1 << self.frames.page_shift;
        let (cpus, nodes) = (self.cpu_count as usize, self.node_count());
        let tunables = Tunables::of(geometry.size, cpus, nodes, page_bytes);
        self.begin_nodes(cache, &geometry);
        for (stack, cpu) in cache.stacks.iter().zip(self.cpus) {
            let tag = cpu.as_ref().map_or(Tag::NOBODY, |cpu| cache.tag(cpu.effective()));
            stack.tag.store(tag.0, Ordering::Relaxed);
            stack.refilled.store(0, Ordering::Relaxed);
            stack.pops_reaped.set(stack.stack.counts().pops);
        }
        cache.events.iter().for_each(|events| events.begin());
        for (stack, events) in cache.stacks.iter().zip(cache.events) {
            events.begin_stack(stack.stack.counts());
        }
        cache.shift.store(unit_shift(&geometry), Ordering::Relaxed);
        cache.geometry.set(&geometry);
        let reclaimable = if options.reclaimable { Gfp::RECLAIMABLE } else { Gfp(0) };
        cache.gfp.store(options.gfp.or(reclaimable).0, Ordering::Relaxed);
        *cache.info.lock() = Some(CacheInfo { options, geometry, tunables, code });
        registry.caches += 1;
        // What other caches hold above their limits goes home as they free.
        let _ = self.deal_out_budget(&mut registry);
        Ok(KmemCache { cache, stacks: cache.stacks, code, options, geometry })
    }

    fn lay_out(&self, options: &CacheOptions) -> Result<(Geometry, EntryCode), CreateError> {
        let CacheOptions { name: cache, size, align, line_aligned, reclaimable, gfp } = *options;
        let breaks_line = |c: char| c.is_whitespace() || c.is_control();
        if cache.is_empty() || cache.starts_with('#') || cache.contains(breaks_line) {
            return Err(CreateError::BadName { cache });
        }
        if let Some(gfp) = refused_flags(gfp) {
            return Err(CreateError::Flags { cache, gfp });
        }
        if size == 0 {
            return Err(CreateError::ZeroSize { cache });
        }
        if !align.is_power_of_two() {
            return Err(CreateError::Alignment { cache, align });
        }
        let layout = ObjectLayout { size, align, line_aligned, reclaimable };
        let size_max = size_max(self.frames.page_shift);
        let too_large = CreateError::TooLarge { cache, size, align, size_max };
        let geometry = Geometry::of(layout, &self.rules).ok_or(too_large)?;
        Ok((geometry, EntryCode::new(self.frames.start(), unit_shift(&geometry))))
    }

    /// How the numbers of a cache are read.
    pub(super) fn codes(&self, code: EntryCode) -> Codes<'m> {
        Codes { descriptors: self.descriptors, entries: code, page_shift: self.frames.page_shift }
    }

    /// The code of the entries of a cache.
    pub(super) fn code_of(&self, cache: &Cache<'m, P>) -> EntryCode {
        EntryCode::new(self.frames.start(), cache.shift.load(Ordering::Relaxed))
    }

    /// Empties a cache and gives up its place.
    ///
    /// # Errors
    /// The cache, and [`LiveObjects`], if somebody still has objects of it, or has locked pages of it.
    #[expect(clippy::result_large_err, reason = "the handle goes back to its owner")]
    pub fn destroy(&self, cache: KmemCache<'m, P>) -> Result<(), (KmemCache<'m, P>, LiveObjects)> {
        match self.destroy_all(cache.name(), core::slice::from_ref(&cache)) {
            Ok(()) => Ok(()),
            Err(live) => Err((cache, live)),
        }
    }

    /// Empties caches and gives up their places, or, if somebody has objects of one, none of them. The caller gives up
    /// the handles if this succeeds.
    pub(super) fn destroy_all(
        &self,
        name: &'static str,
        caches: &[KmemCache<'m, P>],
    ) -> Result<(), LiveObjects> {
        let mut registry = self.registry.lock();
        for cache in caches {
            // A CPU that could not be stopped keeps objects, which count as live.
            let _ = self.shrink_alone(&registry, cache.cache);
        }
        let (mut objects, mut slabs) = (0, 0);
        for node in caches.iter().flat_map(|cache| cache.cache.nodes) {
            let lists = node.lock();
            objects += lists.objects_out();
            slabs += lists.full.len() as u64 + lists.partial.len() as u64;
        }
        if objects > 0 {
            return Err(LiveObjects { cache: name, objects, slabs });
        }
        // Nobody has objects, so none come back: the slabs that are left are free, or have locked pages.
        for cache in caches {
            self.shrink_nodes(cache.cache);
        }
        let nodes = caches.iter().flat_map(|cache| cache.cache.nodes);
        let slabs = nodes.map(|node| node.look().slabs() as u64).sum();
        if slabs > 0 {
            return Err(LiveObjects { cache: name, objects: 0, slabs });
        }
        for cache in caches {
            *cache.cache.info.lock() = None;
        }
        registry.caches -= caches.len();
        let _ = self.deal_out_budget(&mut registry);
        Ok(())
    }

    /// The caches that are there.
    pub(super) fn live_caches(
        &self,
    ) -> impl Iterator<Item = (&'m Cache<'m, P>, CacheInfo)> + use<'m, P> {
        self.caches.iter().filter_map(|cache| Some((cache, cache.info()?)))
    }

    /// The unit that all objects of this machine begin at a multiple of.
    pub(super) fn align_min(bytes: u64) -> u64 {
        unit_min(bytes)
    }
}

/// Those of a cache's flags that its pages cannot have, if there are any.
fn refused_flags(gfp: Gfp) -> Option<Gfp> {
    let refused = Gfp(gfp.0 & (NOT_FOR_SLABS.0 | !Gfp::KNOWN.0));
    match gfp.zone_kind() {
        _ if refused.0 != 0 => Some(refused),
        Some(_) => None,
        None => Some(Gfp(gfp.0 & Gfp::DMA.or(Gfp::DMA32).0)),
    }
}

/// Log2 of the unit: the size if it is a power of two and slabs begin with an object, so that no address inside
/// an object is mistaken for one; else the alignment.
fn unit_shift(geometry: &Geometry) -> u32 {
    let all_at_multiples = geometry.first.is_multiple_of(geometry.size)
        && (geometry.colours == 0 || geometry.colour_bytes.is_multiple_of(geometry.size));
    let whole = geometry.size.is_power_of_two() && all_at_multiples;
    if whole { geometry.size.trailing_zeros() } else { geometry.align.trailing_zeros() }
}
