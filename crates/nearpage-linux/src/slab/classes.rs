//! Memory of any size: `kmalloc`.

use std::ptr::NonNull;

use nearpage::gfp::Gfp;
use nearpage::slab::classes::{SizeError, SizeFreeError};
use nearpage::slab::{CreateError, LiveObjects};
use nearpage::units::{Address, NodeId};

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

/// A cache for each size class, and pages for what is larger than 8 KiB.
///
/// ```
/// use nearpage::gfp::Gfp;
/// use nearpage::slab::SlabConfig;
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
/// Dropped without [`destroy`](Self::destroy), it leaves its objects and the 13 places of its caches in the allocator as
/// they are.
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

    /// Allocates `size` bytes near the CPU that asks. They are anything, or zeroes with `__GFP_ZERO`.
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

    /// Memory that nobody else has yet, cleared to its end if that was asked for.
    #[inline(always)]
    fn cleared(&self, address: Address, gfp: Gfp) -> NonNull<u8> {
        let memory = self.memory.pointer(address);
        if gfp.has(Gfp::ZERO) {
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

    /// Allocates `size` bytes aligned to `align`, a power of two, near the CPU that asks or on a node.
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
    /// [`SizeFreeError`]; then nothing is changed.
    ///
    /// # Safety
    /// * The caller has the memory, and nobody uses it any more.
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

    /// Destroys the caches, so that their places can be had again. Memory that is larger than 8 KiB is not of the
    /// caches: it stays allocated, and size classes that are made later free it.
    ///
    /// # Errors
    /// All of it, and what is alive in all caches together as of `kmalloc-*`, if somebody still has objects.
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

    /// Bytes that may be used from the beginning of what was allocated on; `None` if nothing begins there.
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
