//! Caches of objects of one type, made by a constructor of the kernel's choice.
//!
//! The slab allocator hands out memory and does not look into it, so an object is made when it is allocated, in its place,
//! and dropped when it is freed. An object frees itself: it cannot go to another cache, nor twice to its own.

use core::fmt;
use core::mem::MaybeUninit;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

use nearpage::{Address, AllocError, Gfp, NodeId};
use nearpage_slab::{CacheOptions, CreateError, KmemCache, LiveObjects};

use crate::heap::Objects;
use crate::platform::KernelPlatform;
use crate::seam::Kernel;

/// Makes an object in its place, and returns that place.
pub type Constructor<T> = fn(&mut MaybeUninit<T>) -> &mut T;

/// A cache of objects of type `T`.
///
/// ```
/// # use nearpage::CpuId;
/// # use nearpage_kernel::{Interrupts, Kernel};
/// # struct Mine;
/// # // SAFETY: one thread plays the only CPU, and nothing interrupts it.
/// # unsafe impl Kernel for Mine {
/// #     type Rules = nearpage::rules::Places;
/// #     fn this_cpu() -> CpuId { CpuId(0) }
/// #     fn interrupts_off() -> Interrupts { Interrupts(0) }
/// #     fn interrupts_restore(_: Interrupts) {}
/// #     fn now_ns() -> u64 { 0 }
/// #     fn phys_to_virt(address: u64) -> *mut u8 { std::ptr::without_provenance_mut(address as usize) }
/// # }
/// use nearpage_slab::CacheOptions;
/// use nearpage::{AllocError, Gfp};
/// use nearpage_kernel::{ObjectCache, Objects};
///
/// struct Task {
///     number: u64,
///     stack: [u8; 1024],
/// }
///
/// /// Of `Heap::objects`.
/// fn tasks(objects: &'static Objects<Mine>) -> Result<u64, Box<dyn std::error::Error>> {
///     let options = CacheOptions::new("task", 0).line_aligned();
///     let cache = ObjectCache::new(objects, options, |place| place.write(Task { number: 0, stack: [0; 1024] }))?;
///     let mut task = cache.alloc(Gfp::KERNEL)?;
///     task.number = 7;
///     Ok(task.number) // the task is freed, and the cache with it
/// }
/// ```
pub struct ObjectCache<K: Kernel, T> {
    objects: &'static Objects<K>,
    /// `None` while it is dropped.
    cache: Option<KmemCache<'static, KernelPlatform<K>>>,
    construct: Constructor<T>,
}

impl<K: Kernel, T> ObjectCache<K, T> {
    /// Makes a cache. Size and alignment are those of `T`, or what `options` ask for if that is more.
    ///
    /// # Errors
    /// [`CreateError`]: the name is taken or is no word, a flag is refused, `T` has no size or is too large.
    pub fn new(
        objects: &'static Objects<K>,
        options: CacheOptions,
        construct: Constructor<T>,
    ) -> Result<Self, CreateError> {
        let mut options = options;
        options.size = options.size.max(size_of::<T>() as u64);
        options.align = options.align.max(align_of::<T>() as u64);
        let cache = Some(objects.create(options)?);
        Ok(Self { objects, cache, construct })
    }

    /// Allocates an object near the CPU that asks, and makes it.
    ///
    /// # Errors
    /// [`AllocError`] of the pages for a new slab.
    ///
    /// # Panics
    /// If the constructor returns another place than it was given.
    pub fn alloc(&self, gfp: Gfp) -> Result<Object<'_, K, T>, AllocError> {
        self.objects.alloc(self.cache(), gfp).map(|address| self.construct(address))
    }

    /// Allocates an object on a node, and makes it.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc), and if there is no such node.
    ///
    /// # Panics
    /// As [`alloc`](Self::alloc).
    pub fn alloc_node(&self, gfp: Gfp, node: NodeId) -> Result<Object<'_, K, T>, AllocError> {
        self.objects.alloc_node(self.cache(), gfp, node).map(|address| self.construct(address))
    }

    /// Gives the cache's empty slabs back, and its place.
    ///
    /// # Errors
    /// The cache, and [`LiveObjects`], if an object of it was leaked.
    #[expect(clippy::result_large_err, reason = "the cache goes back to its owner")]
    pub fn destroy(mut self) -> Result<(), (Self, LiveObjects)> {
        let Some(cache) = self.cache.take() else { return Ok(()) };
        match self.objects.destroy(cache) {
            Ok(()) => Ok(()),
            Err((cache, live)) => {
                self.cache = Some(cache);
                Err((self, live))
            }
        }
    }

    fn cache(&self) -> &KmemCache<'static, KernelPlatform<K>> {
        // It is taken by `destroy` and `drop` alone, after which nobody has this any more.
        self.cache.as_ref().expect("the cache is there until it is dropped")
    }

    fn construct(&self, address: Address) -> Object<'_, K, T> {
        let place = K::phys_to_virt(address.0).cast::<MaybeUninit<T>>();
        // SAFETY: the slab allocator gives memory of this size and alignment that is nobody else's, and is mapped there.
        let made = NonNull::from((self.construct)(unsafe { &mut *place }));
        assert_eq!(
            made.as_ptr(),
            place.cast(),
            "a constructor returns the place that it was given"
        );
        Object { cache: self, address, made }
    }
}

impl<K: Kernel, T> Drop for ObjectCache<K, T> {
    fn drop(&mut self) {
        if let Some(cache) = self.cache.take() {
            // What was leaked keeps its slabs, and the cache its place.
            let _ = self.objects.destroy(cache);
        }
    }
}

impl<K: Kernel, T> fmt::Debug for ObjectCache<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectCache").field("cache", &self.cache().name()).finish_non_exhaustive()
    }
}

/// An object of a cache. It is dropped and freed when this is.
pub struct Object<'c, K: Kernel, T> {
    cache: &'c ObjectCache<K, T>,
    address: Address,
    made: NonNull<T>,
}

// SAFETY: the object is owned, as by a `Box`, and the cache has locks of its own.
unsafe impl<K: Kernel, T: Send> Send for Object<'_, K, T> {}
// SAFETY: a shared object gives shared references to `T` alone.
unsafe impl<K: Kernel, T: Sync> Sync for Object<'_, K, T> {}

impl<K: Kernel, T> Object<'_, K, T> {
    /// Where it is in physical memory, for hardware.
    pub fn address(&self) -> Address {
        self.address
    }
}

impl<K: Kernel, T> Deref for Object<'_, K, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the constructor made it, and it is not freed before this is dropped.
        unsafe { self.made.as_ref() }
    }
}

impl<K: Kernel, T> DerefMut for Object<'_, K, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and nobody else has it.
        unsafe { self.made.as_mut() }
    }
}

impl<K: Kernel, T> Drop for Object<'_, K, T> {
    fn drop(&mut self) {
        // SAFETY: it was made, and nobody looks at it any more.
        unsafe { self.made.drop_in_place() };
        // A refusal was told to the kernel (`Kernel::misuse_of_object`).
        let _ = self.cache.objects.free(self.cache.cache(), self.address);
    }
}

impl<K: Kernel, T: fmt::Debug> fmt::Debug for Object<'_, K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
