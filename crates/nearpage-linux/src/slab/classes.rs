//! Memory of any size: `kmalloc`.

use std::ptr::NonNull;

use nearpage::{Address, Gfp, NodeId};
use nearpage_slab::{CreateError, LiveObjects, SizeError, SizeFreeError};

use super::address::address_of;
use super::allocator::{Shape, SlabAllocator};
use super::calls::{BoundClasses, ClassesCalls};
use crate::memory::Memory;
use crate::rseq::Sequences;

/// The core's size classes with their allocator: of the common type, or of any other.
#[expect(clippy::large_enum_variant, reason = "the common type is reached without a pointer")]
enum ClassesShape<'s> {
    Rseq(BoundClasses<'s, Sequences, false>),
    Other(Box<dyn ClassesCalls + 's>),
}

/// Memory of any size (`kmalloc`): a cache for each size class, and pages above 8 KiB.
///
/// ```
/// use nearpage::Gfp;
/// use nearpage_slab::SlabConfig;
/// use nearpage_linux::Memory;
///
/// let memory = Memory::builder().bytes_per_node(16 << 20).build()?;
/// let slab = memory.slab(SlabConfig::default())?;
/// let sizes = slab.size_classes()?;
/// let bytes = sizes.alloc(100, Gfp::KERNEL)?;
/// assert_eq!(sizes.usable_size(bytes.as_ptr()), Some(128));
/// // SAFETY: just allocated, and freed once.
/// unsafe { sizes.free(bytes) }?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Size classes that are dropped without [`destroy`](Self::destroy) keep their objects, and the 13 places of their caches in
/// the allocator.
pub struct SizeClasses<'s> {
    shape: ClassesShape<'s>,
    memory: &'s Memory,
}

impl SlabAllocator<'_> {
    /// Makes caches for all sizes.
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn size_classes(&self) -> Result<SizeClasses<'_>, CreateError> {
        SizeClasses::create(self)
    }
}

impl<'s> SizeClasses<'s> {
    pub(super) fn create(slab: &'s SlabAllocator<'_>) -> Result<Self, CreateError> {
        let shape = match slab.shape() {
            Shape::Rseq(core) => ClassesShape::Rseq(BoundClasses::new(core)?),
            Shape::Other(core) => ClassesShape::Other(core.size_classes()?),
        };
        Ok(Self { shape, memory: slab.memory() })
    }

    fn calls(&self) -> &(dyn ClassesCalls + 's) {
        match &self.shape {
            ClassesShape::Rseq(bound) => bound,
            ClassesShape::Other(classes) => &**classes,
        }
    }

    /// Allocates `size` bytes near the calling thread's CPU. `__GFP_ZERO` clears them; otherwise they are undefined.
    ///
    /// # Errors
    /// [`SizeError`].
    #[inline(always)]
    pub fn alloc(&self, size: usize, gfp: Gfp) -> Result<NonNull<u8>, SizeError> {
        let address = match &self.shape {
            ClassesShape::Rseq(bound) => {
                bound.core.alloc_bytes(&bound.classes, size as u64, gfp)?
            }
            _ => self.alloc_otherwise(size as u64, gfp)?,
        };
        Ok(self.cleared(address, gfp))
    }

    /// Clears new memory to its end if the request asked for that.
    #[inline(always)]
    fn cleared(&self, address: Address, gfp: Gfp) -> NonNull<u8> {
        let memory = self.memory.pointer(address);
        if gfp.contains(Gfp::ZERO) {
            self.clear(memory);
        }
        memory
    }

    #[cold]
    #[inline(never)]
    fn clear(&self, memory: NonNull<u8>) {
        let bytes = self.usable_size(memory.as_ptr()).expect("it was just allocated");
        // SAFETY: so many bytes may be used from there on, and their new owner does not have them yet.
        unsafe { memory.write_bytes(0, bytes) };
    }

    #[cold]
    #[inline(never)]
    fn alloc_otherwise(&self, size: u64, gfp: Gfp) -> Result<Address, SizeError> {
        self.calls().alloc(size, gfp)
    }

    /// Allocates `size` bytes aligned to `align`, a power of two, on a node or near the calling thread's CPU.
    ///
    /// # Errors
    /// [`SizeError`].
    pub fn alloc_aligned(
        &self,
        size: usize,
        align: usize,
        gfp: Gfp,
        node: Option<NodeId>,
    ) -> Result<NonNull<u8>, SizeError> {
        let (size, align) = (size as u64, align as u64);
        let address = self.calls().alloc_aligned(size, align, gfp, node)?;
        Ok(self.cleared(address, gfp))
    }

    /// Frees memory by its address.
    ///
    /// # Errors
    /// [`SizeFreeError`]; the call then changes nothing.
    ///
    /// # Safety
    /// * The caller owns the memory, and no thread uses it any more.
    #[inline(always)]
    pub unsafe fn free(&self, memory: NonNull<u8>) -> Result<(), SizeFreeError> {
        let address = address_of(memory.as_ptr());
        match &self.shape {
            ClassesShape::Rseq(bound) => bound.core.free_bytes(address),
            _ => self.free_otherwise(address),
        }
    }

    #[cold]
    #[inline(never)]
    fn free_otherwise(&self, address: Address) -> Result<(), SizeFreeError> {
        self.calls().free(address)
    }

    /// Destroys the caches and frees their places. Allocations above 8 KiB do not belong to a cache: they stay allocated, and
    /// size classes that are made later can free them.
    ///
    /// # Errors
    /// The size classes and the number of live objects in all caches (named `kmalloc-*`), if objects are still allocated.
    #[expect(clippy::result_large_err, reason = "the handle goes back to its owner")]
    pub fn destroy(self) -> Result<(), (Self, LiveObjects)> {
        let memory = self.memory;
        let back = |shape| Self { shape, memory };
        match self.shape {
            ClassesShape::Rseq(bound) => {
                bound.destroy().map_err(|(bound, live)| (back(ClassesShape::Rseq(bound)), live))
            }
            ClassesShape::Other(classes) => classes
                .destroy_boxed()
                .map_err(|(classes, live)| (back(ClassesShape::Other(classes)), live)),
        }
    }

    /// How many bytes an allocation has, which may be more than were asked for. `None` if none begins at this address.
    pub fn usable_size(&self, memory: *const u8) -> Option<usize> {
        let address = address_of(memory);
        self.calls().usable_size(address).map(|size| size as usize)
    }
}

impl std::fmt::Debug for SizeClasses<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SizeClasses").finish_non_exhaustive()
    }
}
