//! nearpage itself: by caches and by size classes, and its variants.

use std::ptr::NonNull;

use nearpage::Gfp;
use nearpage_linux::{KmemCache, Memory, MemoryBuilder, SizeClasses, SlabAllocator};
use nearpage_slab::{CacheOptions, SlabConfig};

use super::peers::{Build, Entry};
use super::source::ObjectSource;
use super::work::{Contestant, enlist};
use crate::nearpage::builder;

/// Bytes of each node.
const NODE_BYTES: u64 = 1 << 30;

/// nearpage's variants.
pub fn all() -> Vec<Entry> {
    let entry = |name, build| Entry { name, build };
    vec![
        entry("nearpage", (|| caches(builder()?)) as Build),
        entry("nearpage-kmalloc", || classes(builder()?)),
        entry("nearpage-locked", || caches(builder()?.use_rseq(false))),
        entry("nearpage-hardened", || caches(builder()?.hardened(true))),
    ]
}

/// A slab allocator that lives as long as the process.
pub fn slab(
    builder: MemoryBuilder,
    config: SlabConfig,
) -> Result<&'static SlabAllocator<'static>, String> {
    let memory = builder.build().map_err(|error| error.to_string())?;
    let memory: &'static Memory = Box::leak(Box::new(memory));
    let slab = memory.slab(config).map_err(|error| error.to_string())?;
    Ok(Box::leak(Box::new(slab)))
}

/// A cache for each size of the benchmarks.
pub struct Caches([KmemCache<'static>; 3]);

impl Caches {
    /// Makes the caches.
    pub fn new(slab: &'static SlabAllocator<'static>) -> Result<Self, String> {
        let cache = |name, size| {
            slab.create(CacheOptions::new(name, size).align(64)).map_err(|error| error.to_string())
        };
        Ok(Self([cache("obj-64", 64)?, cache("obj-256", 256)?, cache("obj-1024", 1024)?]))
    }

    /// The cache for objects of `SIZE` bytes.
    #[inline(always)]
    pub fn of<const SIZE: usize>(&self) -> &KmemCache<'static> {
        match SIZE {
            64 => &self.0[0],
            256 => &self.0[1],
            _ => &self.0[2],
        }
    }
}

fn caches(builder: MemoryBuilder) -> Result<Box<dyn Contestant>, String> {
    let slab = slab(builder.bytes_per_node(NODE_BYTES), SlabConfig::default())?;
    Ok(enlist(Caches::new(slab)?))
}

impl ObjectSource for Caches {
    #[inline(always)]
    fn alloc<const SIZE: usize>(&self) -> *mut u8 {
        self.of::<SIZE>().alloc(Gfp::KERNEL).map_or(std::ptr::null_mut(), NonNull::as_ptr)
    }

    #[inline(always)]
    unsafe fn free<const SIZE: usize>(&self, object: *mut u8) {
        // SAFETY: no object of a source is null.
        let object = unsafe { NonNull::new_unchecked(object) };
        // SAFETY: passed on from the caller.
        let freed = unsafe { self.of::<SIZE>().free(object) };
        debug_assert_eq!(freed, Ok(()));
    }
}

struct Classes(SizeClasses<'static>);

fn classes(builder: MemoryBuilder) -> Result<Box<dyn Contestant>, String> {
    let slab = slab(builder.bytes_per_node(NODE_BYTES), SlabConfig::default())?;
    Ok(enlist(Classes(slab.size_classes().map_err(|error| error.to_string())?)))
}

impl ObjectSource for Classes {
    #[inline(always)]
    fn alloc<const SIZE: usize>(&self) -> *mut u8 {
        self.0.alloc(SIZE, Gfp::KERNEL).map_or(std::ptr::null_mut(), NonNull::as_ptr)
    }

    #[inline(always)]
    unsafe fn free<const SIZE: usize>(&self, object: *mut u8) {
        // SAFETY: no object of a source is null.
        let object = unsafe { NonNull::new_unchecked(object) };
        // SAFETY: passed on from the caller.
        let freed = unsafe { self.0.free(object) };
        debug_assert_eq!(freed, Ok(()));
    }
}
