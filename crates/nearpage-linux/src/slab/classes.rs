//! Memory of any size: `kmalloc`.

use std::ptr::NonNull;

use nearpage::slab::{CreateError, LiveObjects, SizeError, SizeFreeError};
use nearpage::{Address, Gfp, NodeId, slab};

use super::{Core, Shape, SlabAllocator, address_of};
use crate::host::Host;
use crate::locked::LockedStorage;
use crate::memory::Memory;
use crate::rseq::RingStorage;

type CoreClasses<S, const HARDENED: bool> = slab::SizeClasses<'static, Host<S, HARDENED>>;

enum ClassesShape<'s> {
    Rseq(&'s Core<'s, RingStorage, false>, CoreClasses<RingStorage, false>),
    RseqHardened(&'s Core<'s, RingStorage, true>, CoreClasses<RingStorage, true>),
    Locked(&'s Core<'s, LockedStorage, false>, CoreClasses<LockedStorage, false>),
    LockedHardened(&'s Core<'s, LockedStorage, true>, CoreClasses<LockedStorage, true>),
}

macro_rules! with_classes {
    ($classes:expr, $core:ident, $kmalloc:ident => $body:expr) => {
        match &$classes.shape {
            ClassesShape::Rseq($core, $kmalloc) => $body,
            ClassesShape::RseqHardened($core, $kmalloc) => $body,
            ClassesShape::Locked($core, $kmalloc) => $body,
            ClassesShape::LockedHardened($core, $kmalloc) => $body,
        }
    };
}

/// A cache for each size class, and pages for what is larger than 8 KiB.
///
/// Dropped without [`destroy`](Self::destroy), it leaves its objects and the 13 places of its caches in the allocator as
/// they are.
pub struct SizeClasses<'s> {
    shape: ClassesShape<'s>,
    memory: &'s Memory,
}

impl<'s> SizeClasses<'s> {
    pub(super) fn create(slab: &'s SlabAllocator<'_>) -> Result<Self, CreateError> {
        let shape = match &slab.shape {
            Shape::Rseq(core) => ClassesShape::Rseq(core, slab::SizeClasses::new(core)?),
            Shape::RseqHardened(core) => {
                ClassesShape::RseqHardened(core, slab::SizeClasses::new(core)?)
            }
            Shape::Locked(core) => ClassesShape::Locked(core, slab::SizeClasses::new(core)?),
            Shape::LockedHardened(core) => {
                ClassesShape::LockedHardened(core, slab::SizeClasses::new(core)?)
            }
        };
        Ok(Self { shape, memory: slab.memory })
    }

    /// Allocates `size` bytes near the CPU that asks. They are anything, or zeroes with `__GFP_ZERO`.
    ///
    /// # Errors
    /// [`SizeError`].
    #[inline(always)]
    pub fn alloc(&self, size: usize, gfp: Gfp) -> Result<NonNull<u8>, SizeError> {
        let address = match &self.shape {
            ClassesShape::Rseq(core, classes) => core.alloc_bytes(classes, size as u64, gfp)?,
            _ => self.alloc_otherwise(size as u64, gfp)?,
        };
        Ok(self.cleared(address, gfp))
    }

    /// Memory that nobody else has yet, cleared to its end if that was asked for.
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
        with_classes!(self, core, classes => core.alloc_bytes(classes, size, gfp))
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
        let address = with_classes!(self, core, classes => {
            core.alloc_bytes_aligned(classes, size, align, gfp, node)
        })?;
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
            ClassesShape::Rseq(core, _) => core.free_bytes(address),
            _ => self.free_otherwise(address),
        }
    }

    #[cold]
    #[inline(never)]
    fn free_otherwise(&self, address: Address) -> Result<(), SizeFreeError> {
        with_classes!(self, core, _classes => core.free_bytes(address))
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
            ClassesShape::Rseq(core, classes) => core
                .destroy_classes(classes)
                .map_err(|(classes, live)| (back(ClassesShape::Rseq(core, classes)), live)),
            ClassesShape::RseqHardened(core, classes) => core
                .destroy_classes(classes)
                .map_err(|(classes, live)| (back(ClassesShape::RseqHardened(core, classes)), live)),
            ClassesShape::Locked(core, classes) => core
                .destroy_classes(classes)
                .map_err(|(classes, live)| (back(ClassesShape::Locked(core, classes)), live)),
            ClassesShape::LockedHardened(core, classes) => {
                core.destroy_classes(classes).map_err(|(classes, live)| {
                    (back(ClassesShape::LockedHardened(core, classes)), live)
                })
            }
        }
    }

    /// Bytes that may be used from the beginning of what was allocated on; `None` if nothing begins there.
    pub fn usable_size(&self, memory: *const u8) -> Option<usize> {
        let address = address_of(memory);
        with_classes!(self, core, _classes => core.usable_size(address)).map(|size| size as usize)
    }
}

impl std::fmt::Debug for SizeClasses<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SizeClasses").finish_non_exhaustive()
    }
}
