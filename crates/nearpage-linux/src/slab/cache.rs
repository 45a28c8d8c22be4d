//! A cache of objects of one size.

use std::ptr::NonNull;

use nearpage::{Address, AllocError, Gfp, NodeId, PageCount};
use nearpage_slab::{
    BulkObjectError, CacheOptions, CacheStats, CreateError, Geometry, LiveObjects, NodeStats,
    ObjectError, SlabCheckError, SlabChecked, StacksBusy,
};

use super::address::address_of;
use super::allocator::{Shape, SlabAllocator};
use super::calls::{BoundCache, CacheCalls};
use crate::memory::Memory;
use crate::rseq::Sequences;

/// The core's cache with its allocator: of the common type, or of any other.
enum CacheShape<'s> {
    Rseq(BoundCache<'s, Sequences, false>),
    Other(Box<dyn CacheCalls + 's>),
}

/// A cache of objects of one size (`struct kmem_cache`). Threads share it by reference.
///
/// ```
/// use nearpage::Gfp;
/// use nearpage_slab::{CacheOptions, SlabConfig};
/// use nearpage_linux::Memory;
///
/// let memory = Memory::builder().bytes_per_node(16 << 20).build()?;
/// let slab = memory.slab(SlabConfig::default())?;
/// let cache = slab.create(CacheOptions::new("packets", 256))?;
/// let packet = cache.alloc(Gfp::KERNEL)?;
/// // SAFETY: the object is 256 bytes that nobody else has, and is freed once.
/// unsafe {
///     packet.write_bytes(0, 256);
///     cache.free(packet)?;
/// }
/// assert!(cache.destroy().is_ok(), "no object is left");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A cache that is dropped without [`destroy`](Self::destroy) keeps its objects and its place in the allocator.
pub struct KmemCache<'s> {
    shape: CacheShape<'s>,
    memory: &'s Memory,
    slab: &'s SlabAllocator<'s>,
}

impl SlabAllocator<'_> {
    /// Makes a cache.
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn create(&self, options: CacheOptions) -> Result<KmemCache<'_>, CreateError> {
        KmemCache::create(self, options)
    }
}

impl<'s> KmemCache<'s> {
    pub(super) fn create(
        slab: &'s SlabAllocator<'_>,
        options: CacheOptions,
    ) -> Result<Self, CreateError> {
        let shape = match slab.shape() {
            Shape::Rseq(core) => CacheShape::Rseq(BoundCache::new(core, options)?),
            Shape::Other(core) => CacheShape::Other(core.create(options)?),
        };
        Ok(Self { shape, memory: slab.memory(), slab })
    }

    fn calls(&self) -> &(dyn CacheCalls + 's) {
        match &self.shape {
            CacheShape::Rseq(bound) => bound,
            CacheShape::Other(cache) => &**cache,
        }
    }

    /// Allocates an object near the calling thread's CPU. `__GFP_ZERO` clears it; otherwise its bytes are undefined. The zones
    /// and the urgency in `gfp` matter only when the cache needs pages for a new slab.
    ///
    /// # Errors
    /// The [`AllocError`] of the pages for a new slab.
    #[inline(always)]
    pub fn alloc(&self, gfp: Gfp) -> Result<NonNull<u8>, AllocError> {
        // The common shape is inlined into the caller, the others are a call away.
        let address = match &self.shape {
            CacheShape::Rseq(bound) => bound.core.alloc(&bound.cache, gfp)?,
            _ => self.alloc_otherwise(gfp)?,
        };
        Ok(self.cleared(self.memory.pointer(address), gfp))
    }

    /// Clears a new object if the request asked for that.
    #[inline(always)]
    fn cleared(&self, object: NonNull<u8>, gfp: Gfp) -> NonNull<u8> {
        if gfp.contains(Gfp::ZERO) {
            self.clear(object);
        }
        object
    }

    #[cold]
    #[inline(never)]
    fn clear(&self, object: NonNull<u8>) {
        let bytes = self.calls().object_size() as usize;
        // SAFETY: the object is as long, and its new owner does not have it yet.
        unsafe { object.write_bytes(0, bytes) };
    }

    #[cold]
    #[inline(never)]
    fn alloc_otherwise(&self, gfp: Gfp) -> Result<Address, AllocError> {
        self.calls().alloc(gfp)
    }

    /// Allocates an object on a node. If the node has no memory left the object comes from another node, except with
    /// `__GFP_THISNODE`.
    ///
    /// # Errors
    /// The [`AllocError`] of the pages for a new slab, or an unknown node.
    pub fn alloc_node(&self, gfp: Gfp, node: NodeId) -> Result<NonNull<u8>, AllocError> {
        let address = self.calls().alloc_node(gfp, node)?;
        Ok(self.cleared(self.memory.pointer(address), gfp))
    }

    /// Allocates `out.len()` objects, or fewer if memory is short; returns how many.
    ///
    /// # Errors
    /// [`AllocError`] if there is no memory for even one.
    pub fn alloc_bulk(&self, gfp: Gfp, out: &mut [*mut u8]) -> Result<usize, AllocError> {
        let mut got = 0;
        let mut addresses = [Address(0); 64];
        while got < out.len() {
            let want = (out.len() - got).min(addresses.len());
            let more = self.calls().alloc_bulk(gfp, &mut addresses[..want]);
            match more {
                Ok(more) => {
                    for (place, address) in out[got..].iter_mut().zip(&addresses[..more]) {
                        *place = self.cleared(self.memory.pointer(*address), gfp).as_ptr();
                    }
                    got += more;
                    if more < want {
                        break;
                    }
                }
                Err(error) if got == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(got)
    }

    /// Frees an object of this cache, from any thread.
    ///
    /// # Errors
    /// [`ObjectError`] if the pointer is no allocated object of this cache; the call then changes nothing.
    ///
    /// # Safety
    /// * The caller owns the object, and no thread uses it any more.
    #[inline(always)]
    pub unsafe fn free(&self, object: NonNull<u8>) -> Result<(), ObjectError> {
        let address = address_of(object.as_ptr());
        match &self.shape {
            CacheShape::Rseq(bound) => bound.core.free(&bound.cache, address),
            _ => self.free_otherwise(address),
        }
    }

    #[cold]
    #[inline(never)]
    fn free_otherwise(&self, address: Address) -> Result<(), ObjectError> {
        self.calls().free(address)
    }

    /// Frees objects of this cache.
    ///
    /// # Errors
    /// [`BulkObjectError`] if some pointers are no objects of this cache; the others are free then.
    ///
    /// # Safety
    /// * As [`free`](Self::free), for each of them.
    pub unsafe fn free_bulk(&self, objects: &[*mut u8]) -> Result<(), BulkObjectError> {
        let mut result: Result<(), BulkObjectError> = Ok(());
        let mut before = 0;
        for chunk in objects.chunks(64) {
            let mut addresses = [Address(0); 64];
            for (address, object) in addresses.iter_mut().zip(chunk) {
                *address = address_of(*object);
            }
            let freed = self.calls().free_bulk(&addresses[..chunk.len()]);
            result = add_up(result, before, freed, chunk.len());
            before += chunk.len();
        }
        result
    }

    /// Returns all free objects to their slabs and free slabs to the memory; returns the freed pages.
    ///
    /// # Errors
    /// [`StacksBusy`] for the first CPU whose stacks are busy; everything else went back.
    pub fn shrink(&self) -> Result<PageCount, StacksBusy> {
        self.calls().shrink()
    }

    /// Destroys the cache.
    ///
    /// # Errors
    /// The cache and the number of its live objects, if objects are still allocated or their pages are locked.
    #[expect(clippy::result_large_err, reason = "the handle goes back to its owner")]
    pub fn destroy(self) -> Result<(), (Self, LiveObjects)> {
        let (memory, slab) = (self.memory, self.slab);
        let back = |shape| Self { shape, memory, slab };
        match self.shape {
            CacheShape::Rseq(bound) => {
                bound.destroy().map_err(|(bound, live)| (back(CacheShape::Rseq(bound)), live))
            }
            CacheShape::Other(cache) => cache
                .destroy_boxed()
                .map_err(|(cache, live)| (back(CacheShape::Other(cache)), live)),
        }
    }

    /// How objects lie in slabs.
    pub fn geometry(&self) -> Geometry {
        self.calls().geometry()
    }

    /// What the cache did.
    pub fn stats(&self) -> CacheStats {
        self.calls().stats()
    }

    /// What the cache did on a node. `None` if the node is unknown.
    pub fn node_stats(&self, node: NodeId) -> Option<NodeStats> {
        let node = self.memory.topology().index_of(node)?;
        Some(self.calls().node_stats(node))
    }

    /// Walks the cache and changes nothing; see [`SlabAllocator::check`](nearpage_slab::SlabAllocator::check). Results may be
    /// inaccurate while other threads use the cache.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn check(&self) -> Result<SlabChecked, SlabCheckError> {
        self.calls().check()
    }

    /// The slab allocator that the cache belongs to.
    pub fn slab(&self) -> &'s SlabAllocator<'s> {
        self.slab
    }
}

/// The result of a free in pieces: so far, and of a piece of `pieces` objects.
fn add_up(
    so_far: Result<(), BulkObjectError>,
    before: usize,
    piece: Result<(), BulkObjectError>,
    pieces: usize,
) -> Result<(), BulkObjectError> {
    match (so_far, piece) {
        (Ok(()), Ok(())) => Ok(()),
        (Ok(()), Err(error)) => Err(BulkObjectError { freed: before + error.freed, ..error }),
        (Err(error), Ok(())) => Err(BulkObjectError { freed: error.freed + pieces, ..error }),
        (Err(a), Err(b)) => Err(BulkObjectError {
            freed: a.freed + b.freed,
            refused: a.refused + b.refused,
            first: a.first,
        }),
    }
}

impl std::fmt::Debug for KmemCache<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.calls().fmt(f)
    }
}
