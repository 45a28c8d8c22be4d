//! Memory of any size, from caches of some sizes and from pages: `kmalloc`.
//!
//! Sizes are 8 bytes to 8 KiB, the powers of two with 96 and 192 between (`mm/slab_common.c: kmalloc_info`). What
//! is larger is a block of pages. A pointer alone tells what it is of: the tag of its frame says the cache, and the
//! word of a block its order.

use core::fmt;

use nearpage::platform::Storage;
use nearpage::{Address, AllocError, FreeError, Gfp, NodeId, Order, Request};

use crate::allocator::SlabAllocator;
use crate::error::{CreateError, LiveObjects, ObjectError};
use crate::place::{Cache, CacheOptions, KmemCache};
use crate::platform::SlabPlatform;
use crate::storage::ObjectStorage;
use crate::tag::{Tag, owner_in};

/// Number of size classes.
pub const CLASSES: usize = 13;
/// Bytes of the largest size class.
pub const CLASS_BYTES_MAX: u64 = 8192;

const SIZES: [(&str, u64); CLASSES] = [
    ("kmalloc-8", 8),
    ("kmalloc-16", 16),
    ("kmalloc-32", 32),
    ("kmalloc-64", 64),
    ("kmalloc-96", 96),
    ("kmalloc-128", 128),
    ("kmalloc-192", 192),
    ("kmalloc-256", 256),
    ("kmalloc-512", 512),
    ("kmalloc-1k", 1024),
    ("kmalloc-2k", 2048),
    ("kmalloc-4k", 4096),
    ("kmalloc-8k", 8192),
];

/// The class of each size up to 192 bytes, by eights.
const SMALL: [u8; 25] = {
    let mut table = [0; 25];
    let mut at = 1;
    while at < table.len() {
        let mut class = 0;
        while SIZES[class].1 < at as u64 * 8 {
            class += 1;
        }
        table[at] = class as u8;
        at += 1;
    }
    table
};

/// The class of 256 bytes, 2^8.
const CLASS_OF_256: u32 = 7;

/// Why memory of some size was refused. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SizeError {
    /// No bytes were asked for.
    ZeroSize,
    /// The alignment is not a power of two.
    Alignment {
        /// The alignment.
        align: u64,
    },
    /// There are no pages.
    Pages(AllocError),
}

impl fmt::Display for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroSize => f.write_str("0 bytes were asked for; 1 is the least"),
            Self::Alignment { align } => write!(f, "alignment {align} is not a power of two"),
            Self::Pages(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for SizeError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Pages(error) => Some(error),
            _ => None,
        }
    }
}

impl From<AllocError> for SizeError {
    fn from(error: AllocError) -> Self {
        Self::Pages(error)
    }
}

/// Why a free by address alone was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SizeFreeError {
    /// It is of a slab.
    Object(ObjectError),
    /// It is not, and not a block of pages either.
    Pages(FreeError),
}

impl fmt::Display for SizeFreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(error) => error.fmt(f),
            Self::Pages(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for SizeFreeError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Object(error) => Some(error),
            Self::Pages(error) => Some(error),
        }
    }
}

impl From<ObjectError> for SizeFreeError {
    fn from(error: ObjectError) -> Self {
        Self::Object(error)
    }
}

/// A cache for each size class. They take 13 of the allocator's places for caches until they are
/// [destroyed](SlabAllocator::destroy_classes), whether this is dropped or not.
pub struct SizeClasses<'m, P: SlabPlatform> {
    caches: [KmemCache<'m, P>; CLASSES],
}

impl<P: SlabPlatform> core::fmt::Debug for SizeClasses<'_, P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SizeClasses").field("caches", &self.caches).finish_non_exhaustive()
    }
}

/// The class of `size` bytes; sizes above the largest class have none, nor has 0.
#[inline(always)]
fn class_of(size: u64) -> Option<usize> {
    match size {
        0 => None,
        1..=192 => Some(SMALL[size.div_ceil(8) as usize] as usize),
        193..=CLASS_BYTES_MAX => {
            Some((CLASS_OF_256 + (size - 1).ilog2().saturating_sub(7)) as usize)
        }
        _ => None,
    }
}

/// The class of `size` bytes aligned to `align`: objects of power-of-two classes are aligned to their size, others
/// to the largest power of two in it.
fn aligned_class_of(size: u64, align: u64) -> Option<usize> {
    let first = class_of(size.max(1))?;
    (first..CLASSES).find(|&class| natural_align(SIZES[class].1) >= align)
}

const fn natural_align(size: u64) -> u64 {
    1 << size.trailing_zeros()
}

impl<'m, P: SlabPlatform> SizeClasses<'m, P> {
    /// Makes the caches. There is one such set an allocator at a time: its caches have names.
    ///
    /// # Errors
    /// [`CreateError`]; the caches that were made are destroyed.
    pub fn new(slab: &SlabAllocator<'_, 'm, P>) -> Result<Self, CreateError> {
        let mut made: [Option<KmemCache<'m, P>>; CLASSES] = [const { None }; CLASSES];
        for (place, (name, size)) in made.iter_mut().zip(SIZES) {
            match slab.create(CacheOptions::new(name, size).align(natural_align(size))) {
                Ok(cache) => *place = Some(cache),
                Err(error) => {
                    // They have no objects.
                    made.into_iter().flatten().for_each(|cache| drop(slab.destroy(cache)));
                    return Err(error);
                }
            }
        }
        Ok(Self { caches: made.map(|cache| cache.expect("all places were filled")) })
    }

    /// The caches, smallest first.
    pub fn caches(&self) -> &[KmemCache<'m, P>; CLASSES] {
        &self.caches
    }
}

impl<'m, P: SlabPlatform> SlabAllocator<'_, 'm, P> {
    /// Destroys the caches and gives up their places. Blocks of pages, which larger sizes are, are not of the caches: they
    /// stay with who has them, and [`free_bytes`](Self::free_bytes) frees them as before.
    ///
    /// # Errors
    /// All caches, none of them destroyed, and [`LiveObjects`] of all together as those of `kmalloc-*`, if somebody
    /// still has objects.
    #[expect(clippy::result_large_err, reason = "the handles go back to their owner")]
    pub fn destroy_classes(
        &self,
        classes: SizeClasses<'m, P>,
    ) -> Result<(), (SizeClasses<'m, P>, LiveObjects)> {
        match self.destroy_all("kmalloc-*", &classes.caches) {
            Ok(()) => Ok(()),
            Err(live) => Err((classes, live)),
        }
    }

    /// Allocates `size` bytes near the CPU that asks, aligned to 8 bytes at least and to the size if that is a
    /// power of two.
    ///
    /// # Errors
    /// [`SizeError`].
    #[inline(always)]
    pub fn alloc_bytes(
        &self,
        classes: &SizeClasses<'m, P>,
        size: u64,
        gfp: Gfp,
    ) -> Result<Address, SizeError> {
        match class_of(size) {
            Some(class) => Ok(self.alloc(&classes.caches[class], gfp)?),
            None => self.alloc_large(size, 1, gfp, None),
        }
    }

    /// Allocates `size` bytes aligned to `align`, on a node or near the CPU that asks.
    ///
    /// # Errors
    /// [`SizeError`].
    pub fn alloc_bytes_aligned(
        &self,
        classes: &SizeClasses<'m, P>,
        size: u64,
        align: u64,
        gfp: Gfp,
        node: Option<NodeId>,
    ) -> Result<Address, SizeError> {
        if !align.is_power_of_two() {
            return Err(SizeError::Alignment { align });
        }
        if size == 0 {
            return Err(SizeError::ZeroSize);
        }
        match (aligned_class_of(size, align), node) {
            (Some(class), None) => Ok(self.alloc(&classes.caches[class], gfp)?),
            (Some(class), Some(node)) => Ok(self.alloc_node(&classes.caches[class], gfp, node)?),
            (None, node) => self.alloc_large(size, align, gfp, node),
        }
    }

    #[cold]
    #[inline(never)]
    fn alloc_large(
        &self,
        size: u64,
        align: u64,
        gfp: Gfp,
        node: Option<NodeId>,
    ) -> Result<Address, SizeError> {
        if size == 0 {
            return Err(SizeError::ZeroSize);
        }
        let bytes = size.max(align);
        let page_shift = self.frames.page_shift;
        let pages = bytes.div_ceil(1 << page_shift).checked_next_power_of_two();
        let order = pages.map(u64::trailing_zeros).filter(|&order| order <= Order::MAX.0 as u32);
        let order = Order(order.ok_or(AllocError::SizeOverflow { bytes })? as u8);
        let pfn = self.pages.alloc(Request { order, gfp, node })?;
        Ok(Address::from_pfn(pfn, page_shift))
    }

    /// Frees memory of any size, or an object of any cache, by its address.
    ///
    /// # Errors
    /// [`SizeFreeError`]; then nothing is changed, and the host was told.
    #[inline(always)]
    pub fn free_bytes(&self, address: Address) -> Result<(), SizeFreeError> {
        let storage = self.storage();
        let cpu = storage.current_cpu();
        if let Some(note) = self.pages.note(address.to_pfn(self.pages.page_shift()))
            && let tag = Tag::of(note)
            && let Some(cache) = self.cache_of(tag)
            && let code = self.code_of(cache)
            && let Some(entry) = code.entry(address)
            && let Some(stack) = cache.stacks.get(cpu.0 as usize)
            && tag == stack.tag()
        {
            if P::HARDENED {
                self.take_back(cache, code, entry, note.number())?;
            }
            if let Some(on) = storage.enter(cpu, stack.exclusion)
                && (P::Storage::CHECKS_CPU || tag == stack.tag())
                && storage.push_object(&on, &stack.stack, entry).is_done()
            {
                return Ok(());
            }
            self.place(cache, code, tag.node(), entry);
            return Ok(());
        }
        self.free_bytes_slow(address)
    }

    #[inline(always)]
    fn cache_of(&self, tag: Tag) -> Option<&'m Cache<'m, P>> {
        if tag.is_slab() { self.caches.get(tag.cache() as usize) } else { None }
    }

    #[cold]
    #[inline(never)]
    fn free_bytes_slow(&self, address: Address) -> Result<(), SizeFreeError> {
        if let Some(cache) = self.cache_at(address) {
            return Ok(self.free_slow(cache, self.code_of(cache), address)?);
        }
        let (pfn, order) =
            self.block_at(address).unwrap_or((address.to_pfn(self.frames.page_shift), Order(0)));
        if !self.is_first_byte(address) {
            return Err(self.refuse(ObjectError::NotOfSlab { address }).into());
        }
        self.pages.free(pfn, order).map_err(SizeFreeError::Pages)
    }

    fn is_first_byte(&self, address: Address) -> bool {
        address.0.trailing_zeros() >= self.frames.page_shift
    }

    fn cache_at(&self, address: Address) -> Option<&'m Cache<'m, P>> {
        self.cache_of(Tag::of(self.pages.note(address.to_pfn(self.frames.page_shift))?))
    }

    /// The allocated block that begins in the frame of an address.
    fn block_at(&self, address: Address) -> Option<(nearpage::Pfn, Order)> {
        let pfn = address.to_pfn(self.frames.page_shift);
        Some((pfn, self.pages.allocated_order(pfn)?))
    }

    /// Bytes that may be used from the beginning of an object or a block on; `None` if neither begins there. The
    /// answer takes the same time whatever there is.
    pub fn usable_size(&self, address: Address) -> Option<u64> {
        if self.cache_at(address).is_some() {
            let owner = self.owner(address)?;
            return (owner.start == address).then_some(owner.size);
        }
        let (_, order) = self.block_at(address).filter(|_| self.is_first_byte(address))?;
        Some(order.pages().to_bytes(self.frames.page_shift))
    }

    /// The cache and the object that an address is of, whether it is in somebody's hands or not; `None` if it is of
    /// no slab, or between objects.
    pub fn owner(&self, address: Address) -> Option<ObjectOwner> {
        let owner = owner_in(self.pages.note(address.to_pfn(self.frames.page_shift))?)?;
        let info = self.cache_of(owner.tag)?.info()?;
        let first = self.descriptors.find(owner.slab)?.first() as u64;
        let slab = Address::from_pfn(self.frames.pfn(owner.slab), self.frames.page_shift);
        let offset = address.0.checked_sub(slab.0)?.checked_sub(first)?;
        let size = info.geometry.size as u64;
        let index = offset / size;
        (index < info.geometry.objects as u64).then_some(ObjectOwner {
            cache: info.options.name,
            node: self.pages.topology().nodes().get(owner.tag.node().0 as usize)?.id,
            start: Address(slab.0 + first + index * size),
            size,
        })
    }
}

/// What an address is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectOwner {
    /// The cache.
    pub cache: &'static str,
    /// The node that the object lies on.
    pub node: NodeId,
    /// Where the object begins.
    pub start: Address,
    /// Its bytes.
    pub size: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_the_smallest_that_fit() {
        for size in 1..=CLASS_BYTES_MAX {
            let class = class_of(size).expect("there is a class");
            assert!(SIZES[class].1 >= size, "{size}");
            assert!(class == 0 || SIZES[class - 1].1 < size, "{size}");
        }
        assert_eq!((class_of(0), class_of(CLASS_BYTES_MAX + 1)), (None, None));
    }

    #[test]
    fn aligned_classes_are_aligned() {
        for size in [1, 24, 65, 96, 97, 150, 192, 5000] {
            for align in [1, 8, 16, 32, 64, 128, 4096, 8192] {
                let class = aligned_class_of(size, align).expect("there is a class");
                let (_, bytes) = SIZES[class];
                assert!(bytes >= size && bytes % align == 0, "{size} to {align}: {bytes}");
            }
        }
        assert_eq!(aligned_class_of(8, 16_384), None);
        assert_eq!(SIZES[aligned_class_of(96, 32).expect("a class")].1, 96);
        assert_eq!(SIZES[aligned_class_of(96, 64).expect("a class")].1, 128);
    }
}
