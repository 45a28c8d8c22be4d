//! The core's slab allocator, caches and size classes, whatever the memory's storage and its test at a free.
//!
//! There are four types of each. Calls that must be fast are made on the common type directly. All others go through the
//! traits here.

use std::fmt;

use nearpage::{Address, AllocError, CpuId, Gfp, NodeId, NodeIndex, PageCount};
use nearpage_slab::{
    BulkObjectError, CacheOptions, CacheStats, CreateError, Geometry, LiveObjects, NodeStats,
    ObjectError, ObjectOwner, SizeError, SizeFreeError, SlabCheckError, SlabChecked, StacksBusy,
};

use crate::host::Host;
use crate::objects::Upkeep;
use crate::storage::{RingAccess, Rings};

/// The core's slab allocator on this host.
pub(super) type Core<'a, A, const HARDENED: bool> =
    nearpage_slab::SlabAllocator<'a, 'static, Host<Rings<A>, HARDENED>>;

/// A cache of the core, with its allocator.
pub(super) struct BoundCache<'s, A: RingAccess, const HARDENED: bool> {
    pub core: &'s Core<'s, A, HARDENED>,
    pub cache: nearpage_slab::KmemCache<'static, Host<Rings<A>, HARDENED>>,
}

/// Size classes of the core, with their allocator.
pub(super) struct BoundClasses<'s, A: RingAccess, const HARDENED: bool> {
    pub core: &'s Core<'s, A, HARDENED>,
    pub classes: nearpage_slab::SizeClasses<'static, Host<Rings<A>, HARDENED>>,
}

/// Calls of a slab allocator.
pub(super) trait SlabCalls: Send + Sync {
    fn create<'s>(&'s self, options: CacheOptions)
    -> Result<Box<dyn CacheCalls + 's>, CreateError>;
    fn size_classes<'s>(&'s self) -> Result<Box<dyn ClassesCalls + 's>, CreateError>;
    /// The same allocator once more, for the memory to look after.
    fn twin<'t>(&self) -> Box<dyn Upkeep + 't>
    where
        Self: 't;
    fn platform_address(&self) -> usize;
    fn effective_node(&self, cpu: CpuId) -> Option<NodeIndex>;
    fn owner(&self, address: Address) -> Option<ObjectOwner>;
    fn reap(&self) -> Result<(), StacksBusy>;
    fn shrink_all(&self) -> PageCount;
    fn refresh_nodes(&self) -> Result<(), StacksBusy>;
    fn apply_budget(&self) -> Result<(), StacksBusy>;
    fn stack_bytes_max(&self) -> u64;
    fn write_slabinfo(&self, out: &mut String) -> fmt::Result;
    fn write_stats(&self, out: &mut String) -> fmt::Result;
    fn check_all(&self) -> Result<SlabChecked, SlabCheckError>;
}

/// Calls of a cache.
pub(super) trait CacheCalls: fmt::Debug + Send + Sync {
    fn alloc(&self, gfp: Gfp) -> Result<Address, AllocError>;
    fn alloc_node(&self, gfp: Gfp, node: NodeId) -> Result<Address, AllocError>;
    fn alloc_bulk(&self, gfp: Gfp, out: &mut [Address]) -> Result<usize, AllocError>;
    fn free(&self, object: Address) -> Result<(), ObjectError>;
    fn free_bulk(&self, objects: &[Address]) -> Result<(), BulkObjectError>;
    fn shrink(&self) -> Result<PageCount, StacksBusy>;
    fn object_size(&self) -> u64;
    fn geometry(&self) -> Geometry;
    fn stats(&self) -> CacheStats;
    fn node_stats(&self, node: NodeIndex) -> NodeStats;
    fn check(&self) -> Result<SlabChecked, SlabCheckError>;
    fn destroy_boxed<'s>(self: Box<Self>) -> Result<(), (Box<dyn CacheCalls + 's>, LiveObjects)>
    where
        Self: 's;
}

/// Calls of size classes.
pub(super) trait ClassesCalls: Send + Sync {
    fn alloc(&self, size: u64, gfp: Gfp) -> Result<Address, SizeError>;
    fn alloc_aligned(
        &self,
        size: u64,
        align: u64,
        gfp: Gfp,
        node: Option<NodeId>,
    ) -> Result<Address, SizeError>;
    fn free(&self, address: Address) -> Result<(), SizeFreeError>;
    fn usable_size(&self, address: Address) -> Option<u64>;
    fn destroy_boxed<'s>(self: Box<Self>) -> Result<(), (Box<dyn ClassesCalls + 's>, LiveObjects)>
    where
        Self: 's;
}

impl<A: RingAccess, const HARDENED: bool> SlabCalls for Core<'_, A, HARDENED> {
    fn create<'s>(
        &'s self,
        options: CacheOptions,
    ) -> Result<Box<dyn CacheCalls + 's>, CreateError> {
        Ok(Box::new(BoundCache::new(self, options)?))
    }

    fn size_classes<'s>(&'s self) -> Result<Box<dyn ClassesCalls + 's>, CreateError> {
        Ok(Box::new(BoundClasses::new(self)?))
    }

    fn twin<'t>(&self) -> Box<dyn Upkeep + 't>
    where
        Self: 't,
    {
        Box::new(Core::twin(self))
    }

    fn platform_address(&self) -> usize {
        std::ptr::from_ref(self.pages().platform()).addr()
    }

    fn effective_node(&self, cpu: CpuId) -> Option<NodeIndex> {
        Core::effective_node(self, cpu)
    }

    fn owner(&self, address: Address) -> Option<ObjectOwner> {
        Core::owner(self, address)
    }

    /// The error is of the first CPU whose stacks could not be had.
    fn reap(&self) -> Result<(), StacksBusy> {
        let cpus = self.pages().topology().nodes().iter().flat_map(|node| node.cpus);
        cpus.map(|&cpu| self.reap_cpu(cpu)).fold(Ok(()), Result::and)
    }

    fn shrink_all(&self) -> PageCount {
        Core::shrink_all(self)
    }

    fn refresh_nodes(&self) -> Result<(), StacksBusy> {
        Core::refresh_nodes(self)
    }

    fn apply_budget(&self) -> Result<(), StacksBusy> {
        Core::apply_budget(self)
    }

    fn stack_bytes_max(&self) -> u64 {
        Core::stack_bytes_max(self)
    }

    fn write_slabinfo(&self, out: &mut String) -> fmt::Result {
        Core::write_slabinfo(self, out)
    }

    fn write_stats(&self, out: &mut String) -> fmt::Result {
        Core::write_stats(self, out)
    }

    fn check_all(&self) -> Result<SlabChecked, SlabCheckError> {
        Core::check_all(self)
    }
}

impl<A: RingAccess, const HARDENED: bool> Upkeep for Core<'_, A, HARDENED> {
    fn shrink_all(&self) -> PageCount {
        Core::shrink_all(self)
    }

    fn reap(&self) {
        // Stacks that cannot be had are reaped the next time.
        let _ = SlabCalls::reap(self);
    }

    fn apply_budget(&self) {
        // Stacks that cannot be had are within it later.
        let _ = Core::apply_budget(self);
    }

    fn flush_stacks(&self) {
        // Stacks that cannot be had are emptied when their CPU gets another node.
        let _ = Core::flush_stacks(self);
    }

    fn refresh_nodes(&self) {
        // A CPU whose stacks cannot be had keeps its node until it is reaped.
        let _ = Core::refresh_nodes(self);
    }

    #[cfg(feature = "stats")]
    fn write_slabinfo(&self, out: &mut String) -> fmt::Result {
        Core::write_slabinfo(self, out)
    }
}

impl<'s, A: RingAccess, const HARDENED: bool> BoundCache<'s, A, HARDENED> {
    pub fn new(
        core: &'s Core<'_, A, HARDENED>,
        options: CacheOptions,
    ) -> Result<Self, CreateError> {
        Ok(Self { core, cache: core.create(options)? })
    }

    #[expect(clippy::result_large_err, reason = "the cache comes back if it cannot go")]
    pub fn destroy(self) -> Result<(), (Self, LiveObjects)> {
        let Self { core, cache } = self;
        core.destroy(cache).map_err(|(cache, live)| (Self { core, cache }, live))
    }
}

impl<A: RingAccess, const HARDENED: bool> CacheCalls for BoundCache<'_, A, HARDENED> {
    fn alloc(&self, gfp: Gfp) -> Result<Address, AllocError> {
        self.core.alloc(&self.cache, gfp)
    }

    fn alloc_node(&self, gfp: Gfp, node: NodeId) -> Result<Address, AllocError> {
        self.core.alloc_node(&self.cache, gfp, node)
    }

    fn alloc_bulk(&self, gfp: Gfp, out: &mut [Address]) -> Result<usize, AllocError> {
        self.core.alloc_bulk(&self.cache, gfp, out)
    }

    fn free(&self, object: Address) -> Result<(), ObjectError> {
        self.core.free(&self.cache, object)
    }

    fn free_bulk(&self, objects: &[Address]) -> Result<(), BulkObjectError> {
        self.core.free_bulk(&self.cache, objects)
    }

    fn shrink(&self) -> Result<PageCount, StacksBusy> {
        self.core.shrink(&self.cache)
    }

    fn object_size(&self) -> u64 {
        self.cache.object_size()
    }

    fn geometry(&self) -> Geometry {
        *self.cache.geometry()
    }

    fn stats(&self) -> CacheStats {
        self.core.stats(&self.cache)
    }

    fn node_stats(&self, node: NodeIndex) -> NodeStats {
        self.core.node_stats(&self.cache, node)
    }

    fn check(&self) -> Result<SlabChecked, SlabCheckError> {
        self.core.check(&self.cache)
    }

    fn destroy_boxed<'s>(self: Box<Self>) -> Result<(), (Box<dyn CacheCalls + 's>, LiveObjects)>
    where
        Self: 's,
    {
        self.destroy().map_err(|(cache, live)| (Box::new(cache) as Box<_>, live))
    }
}

impl<A: RingAccess, const HARDENED: bool> fmt::Debug for BoundCache<'_, A, HARDENED> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cache.fmt(f)
    }
}

impl<'s, A: RingAccess, const HARDENED: bool> BoundClasses<'s, A, HARDENED> {
    pub fn new(core: &'s Core<'_, A, HARDENED>) -> Result<Self, CreateError> {
        Ok(Self { core, classes: nearpage_slab::SizeClasses::new(core)? })
    }

    #[expect(clippy::result_large_err, reason = "the classes come back if they cannot go")]
    pub fn destroy(self) -> Result<(), (Self, LiveObjects)> {
        let Self { core, classes } = self;
        core.destroy_classes(classes).map_err(|(classes, live)| (Self { core, classes }, live))
    }
}

impl<A: RingAccess, const HARDENED: bool> ClassesCalls for BoundClasses<'_, A, HARDENED> {
    fn alloc(&self, size: u64, gfp: Gfp) -> Result<Address, SizeError> {
        self.core.alloc_bytes(&self.classes, size, gfp)
    }

    fn alloc_aligned(
        &self,
        size: u64,
        align: u64,
        gfp: Gfp,
        node: Option<NodeId>,
    ) -> Result<Address, SizeError> {
        self.core.alloc_bytes_aligned(&self.classes, size, align, gfp, node)
    }

    fn free(&self, address: Address) -> Result<(), SizeFreeError> {
        self.core.free_bytes(address)
    }

    fn usable_size(&self, address: Address) -> Option<u64> {
        self.core.usable_size(address)
    }

    fn destroy_boxed<'s>(self: Box<Self>) -> Result<(), (Box<dyn ClassesCalls + 's>, LiveObjects)>
    where
        Self: 's,
    {
        self.destroy().map_err(|(classes, live)| (Box::new(classes) as Box<_>, live))
    }
}
