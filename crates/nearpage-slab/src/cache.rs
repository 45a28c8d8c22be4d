//! Caches are made and destroyed.

use core::sync::atomic::Ordering;

use nearpage::Gfp;
use nearpage::platform::{CountedList, Lock};

use crate::allocator::SlabAllocator;
use crate::config::NOT_FOR_SLABS;
use crate::entry::{EntryCode, unit_min};
use crate::error::{CreateError, LiveObjects};
use crate::geometry::{Geometry, ObjectLayout, size_max};
use crate::lists::Codes;
use crate::place::{Cache, CacheInfo, CacheOptions, KmemCache};
use crate::platform::SlabPlatform;
use crate::tag::Tag;
use crate::tunables::Tunables;

impl<'m, P: SlabPlatform> SlabAllocator<'_, 'm, P> {
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
        let tunables = Tunables::of(self.rules, geometry.size, cpus, nodes, page_bytes);
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
        cache.gfp.store(options.gfp.union(reclaimable).0, Ordering::Relaxed);
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
        let geometry = Geometry::of(layout, &self.layout).ok_or(too_large)?;
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
        None => Some(Gfp(gfp.0 & Gfp::DMA.union(Gfp::DMA32).0)),
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
