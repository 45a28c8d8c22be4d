//! The peers: each by its shortest way for a size that is known.

use std::ffi::c_void;

use super::source::ObjectSource;
use super::work::{Contestant, enlist};

/// How a contestant comes to be.
pub type Build = fn() -> Result<Box<dyn Contestant>, String>;

/// An allocator by name.
#[derive(Clone, Copy)]
pub struct Entry {
    /// The `allocator` of its rows.
    pub name: &'static str,
    /// Sets it up.
    pub build: Build,
}

/// All peers.
pub fn all() -> Vec<Entry> {
    let entry = |name, build| Entry { name, build };
    vec![
        entry("mimalloc", (|| Ok(enlist(Mimalloc))) as Build),
        entry("jemalloc", || Ok(enlist(Jemalloc))),
        entry("snmalloc", || Ok(enlist(Snmalloc))),
        entry("glibc", || Ok(enlist(Glibc))),
        entry("harness-floor", || Ok(enlist(Floor::default()))),
    ]
}

struct Mimalloc;

impl ObjectSource for Mimalloc {
    #[inline(always)]
    fn alloc<const SIZE: usize>(&self) -> *mut u8 {
        // SAFETY: any size may be asked for.
        unsafe { libmimalloc_sys::mi_malloc(SIZE).cast() }
    }

    #[inline(always)]
    unsafe fn free<const SIZE: usize>(&self, object: *mut u8) {
        // SAFETY: passed on from the caller.
        unsafe { libmimalloc_sys::mi_free(object.cast()) };
    }
}

struct Jemalloc;

impl ObjectSource for Jemalloc {
    #[inline(always)]
    fn alloc<const SIZE: usize>(&self) -> *mut u8 {
        // SAFETY: the size is not zero.
        unsafe { tikv_jemalloc_sys::mallocx(SIZE, 0).cast() }
    }

    #[inline(always)]
    unsafe fn free<const SIZE: usize>(&self, object: *mut u8) {
        // SAFETY: passed on from the caller.
        unsafe { tikv_jemalloc_sys::sdallocx(object.cast(), SIZE, 0) };
    }
}

struct Snmalloc;

impl ObjectSource for Snmalloc {
    #[inline(always)]
    fn alloc<const SIZE: usize>(&self) -> *mut u8 {
        // SAFETY: 16 is a power of two.
        unsafe { snmalloc_sys::sn_rust_alloc(16, SIZE).cast() }
    }

    #[inline(always)]
    unsafe fn free<const SIZE: usize>(&self, object: *mut u8) {
        // SAFETY: passed on from the caller; alignment and size are those of the allocation.
        unsafe { snmalloc_sys::sn_rust_dealloc(object.cast::<c_void>(), 16, SIZE) };
    }
}

struct Glibc;

impl ObjectSource for Glibc {
    #[inline(always)]
    fn alloc<const SIZE: usize>(&self) -> *mut u8 {
        // SAFETY: any size may be asked for.
        unsafe { libc::malloc(SIZE).cast() }
    }

    #[inline(always)]
    unsafe fn free<const SIZE: usize>(&self, object: *mut u8) {
        // SAFETY: passed on from the caller.
        unsafe { libc::free(object.cast()) };
    }
}

/// No allocator: always the same line, so that what is left is the benchmark.
#[derive(Default)]
struct Floor(std::sync::atomic::AtomicU64);

impl ObjectSource for Floor {
    #[inline(always)]
    fn alloc<const SIZE: usize>(&self) -> *mut u8 {
        self.0.as_ptr().cast()
    }

    #[inline(always)]
    unsafe fn free<const SIZE: usize>(&self, object: *mut u8) {
        std::hint::black_box(object);
    }
}
