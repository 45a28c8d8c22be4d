//! A cache of values of one type.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use nearpage::{AllocError, Gfp};
use nearpage_slab::{CacheOptions, CreateError, LiveObjects};

use super::allocator::SlabAllocator;
use super::cache::KmemCache;

/// A cache of values of one type: see [`SlabAllocator`] for an example.
#[derive(Debug)]
pub struct TypedCache<'s, T> {
    cache: KmemCache<'s>,
    values: PhantomData<fn() -> T>,
}

impl SlabAllocator<'_> {
    /// Makes a cache of values.
    ///
    /// # Errors
    /// [`CreateError`], also for types without a size.
    pub fn typed<T>(&self, name: &'static str) -> Result<TypedCache<'_, T>, CreateError> {
        TypedCache::create(self, name)
    }
}

impl<'s, T> TypedCache<'s, T> {
    pub(super) fn create(
        slab: &'s SlabAllocator<'_>,
        name: &'static str,
    ) -> Result<Self, CreateError> {
        let options = CacheOptions::new(name, size_of::<T>() as u64).align(align_of::<T>() as u64);
        Ok(Self { cache: KmemCache::create(slab, options)?, values: PhantomData })
    }

    /// Allocates an object near the calling thread's CPU and moves a value into it.
    ///
    /// # Errors
    /// [`AllocError`]; the value is dropped then.
    pub fn alloc(&self, value: T) -> Result<ObjectBox<'_, T>, AllocError> {
        let object = self.cache.alloc(Gfp::KERNEL)?.cast::<T>();
        // SAFETY: the object is ours alone, as large as a `T` and aligned for it (`create`).
        unsafe { object.write(value) };
        Ok(ObjectBox { object, cache: &self.cache, value: PhantomData })
    }

    /// Destroys the cache.
    ///
    /// # Errors
    /// The cache and the number of its live objects, if some are still allocated: boxes that were forgotten, or objects that
    /// were allocated through [`cache`](Self::cache).
    #[expect(clippy::result_large_err, reason = "the handle goes back to its owner")]
    pub fn destroy(self) -> Result<(), (Self, LiveObjects)> {
        let back = |(cache, live)| (Self { cache, values: PhantomData }, live);
        self.cache.destroy().map_err(back)
    }

    /// The cache below.
    pub fn cache(&self) -> &KmemCache<'s> {
        &self.cache
    }
}

/// The owner of a value in an object. Dropping it drops the value and frees the object.
pub struct ObjectBox<'c, T> {
    object: NonNull<T>,
    cache: &'c KmemCache<'c>,
    value: PhantomData<T>,
}

// SAFETY: a box owns its value, and any thread may free an object.
unsafe impl<T: Send> Send for ObjectBox<'_, T> {}
// SAFETY: sharing a box shares its value.
unsafe impl<T: Sync> Sync for ObjectBox<'_, T> {}

impl<T> Deref for ObjectBox<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the value was written by `alloc` and lives until the box is dropped.
        unsafe { self.object.as_ref() }
    }
}

impl<T> DerefMut for ObjectBox<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and the box is borrowed mutably.
        unsafe { self.object.as_mut() }
    }
}

impl<T> Drop for ObjectBox<'_, T> {
    fn drop(&mut self) {
        // Also if the end of the value panics.
        let _freed_after = Freed { object: self.object.cast(), cache: self.cache };
        // SAFETY: the box owns the value, and its end is the end of all use of it.
        unsafe { self.object.drop_in_place() };
    }
}

/// An object without a value; dropping it frees it.
struct Freed<'c> {
    object: NonNull<u8>,
    cache: &'c KmemCache<'c>,
}

impl Drop for Freed<'_> {
    fn drop(&mut self) {
        // SAFETY: the object was a box's alone, whose end this is.
        let freed = unsafe { self.cache.free(self.object) };
        // An error means that somebody freed it behind our back; it has been reported.
        debug_assert!(freed.is_ok());
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for ObjectBox<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}
