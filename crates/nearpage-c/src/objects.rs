//! Objects smaller than a page: caches of one size, and memory of any size.

use std::collections::HashSet;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use nearpage::NodeId;
use nearpage_linux::KmemCache;
use nearpage_slab::CacheOptions;

use crate::error::{Failure, call};
use crate::large::BLOCK_BYTES_MAX;
use crate::memory::{given, nearpage_memory, place, the};
use crate::options::{NEARPAGE_ANY_NODE, NEARPAGE_ZERO, node, object_gfp};
use crate::pages::frame_of;

/// A cache of objects of one size.
#[expect(non_camel_case_types, reason = "the name in C")]
#[derive(Debug)]
pub struct nearpage_cache {
    cache: ManuallyDrop<KmemCache<'static>>,
    memory: NonNull<nearpage_memory>,
}

/// The name of a cache lives as long as the process. One name costs once, however often a cache has it.
fn forever(name: &str) -> &'static str {
    static NAMES: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let names = names.get_or_insert_default();
    if let Some(known) = names.get(name) {
        return known;
    }
    let name = String::leak(name.to_owned());
    names.insert(name);
    name
}

/// Makes a cache of objects of `bytes` bytes. `align` is a power of two, or 0 for 8. The name must not be that of another
/// cache of the memory.
///
/// Errors: -EINVAL for a size, an alignment or a name that cannot be, -EEXIST for a taken name, -ENOSPC with too many
/// caches.
///
/// # Safety
/// * `memory` is a memory, `name` a string, `out` points to a place for the cache.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearpage_cache_create(
    memory: *mut nearpage_memory,
    name: *const c_char,
    bytes: u64,
    align: u64,
    out: *mut *mut nearpage_cache,
) -> c_int {
    call(|| {
        let out = place(out)?;
        // SAFETY: the caller's promise.
        let owner = unsafe { the(memory) }?;
        let name = given(name, "the name")?;
        // SAFETY: the caller's promise.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) };
        let name = name.to_str().map_err(|error| Failure::invalid(format!("the name: {error}")))?;
        let mut options = CacheOptions::new(forever(name), bytes);
        if align != 0 {
            options = options.align(align);
        }
        let cache = ManuallyDrop::new(owner.slab()?.create(options)?);
        owner.caches.fetch_add(1, Ordering::AcqRel);
        let cache = Box::new(nearpage_cache { cache, memory: NonNull::from(owner) });
        // SAFETY: the caller's promise.
        unsafe { out.write(Box::into_raw(cache)) };
        Ok(())
    })
}

/// Ends a cache. NULL is accepted.
///
/// Errors: -EBUSY if objects of it are allocated; the cache then stays.
///
/// # Safety
/// * `cache` is null or a cache that no other thread uses; its memory is not destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearpage_cache_destroy(cache: *mut nearpage_cache) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let Some(owner) = (unsafe { cache.as_mut() }) else { return Ok(()) };
        // SAFETY: it is put back or never used again.
        let taken = unsafe { ManuallyDrop::take(&mut owner.cache) };
        if let Err((back, live)) = taken.destroy() {
            owner.cache = ManuallyDrop::new(back);
            return Err(Failure::new(libc::EBUSY, live));
        }
        // SAFETY: a memory with caches is not destroyed.
        unsafe { owner.memory.as_ref() }.caches.fetch_sub(1, Ordering::AcqRel);
        // SAFETY: it came from a box, and nobody uses it any more.
        drop(unsafe { Box::from_raw(cache) });
        Ok(())
    })
}

/// Allocates an object near the calling thread's CPU, or on node `on`.
///
/// Errors: -ENOMEM without memory, -EINVAL for an unknown flag or node.
///
/// # Safety
/// * `cache` is a cache; `out` points to a place for the address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearpage_cache_alloc(
    cache: *const nearpage_cache,
    flags: u32,
    on: i32,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let (Some(cache), Some(out)) = (unsafe { cache.as_ref() }, NonNull::new(out)) else {
        return Failure::invalid("the cache or the place for the result is NULL").answer();
    };
    let object = if flags == 0 && on == NEARPAGE_ANY_NODE {
        cache.cache.alloc(nearpage::Gfp::KERNEL).map_err(Failure::from)
    } else {
        alloc_otherwise(cache, flags, on)
    };
    match object {
        // SAFETY: the caller's promise.
        Ok(object) => unsafe {
            out.write(object.as_ptr().cast());
            0
        },
        Err(failure) => failure.answer(),
    }
}

#[cold]
fn alloc_otherwise(cache: &nearpage_cache, flags: u32, on: i32) -> Result<NonNull<u8>, Failure> {
    let gfp = object_gfp(flags)?;
    Ok(match node(on)? {
        Some(node) => cache.cache.alloc_node(gfp, node)?,
        None => cache.cache.alloc(gfp)?,
    })
}

/// Frees an object. NULL is accepted.
///
/// Errors: -EINVAL if it is no object of this cache, -EFAULT if it is of no cache. The call then changes nothing. A second free
/// of an object is refused only with NEARPAGE_MEMORY_HARDENED.
///
/// # Safety
/// * `cache` is a cache. Nobody uses the object any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearpage_cache_free(
    cache: *const nearpage_cache,
    object: *mut c_void,
) -> c_int {
    let Some(object) = NonNull::new(object.cast::<u8>()) else { return 0 };
    // SAFETY: the caller's promise.
    let Some(cache) = (unsafe { cache.as_ref() }) else {
        return Failure::invalid("the cache is NULL").answer();
    };
    // SAFETY: the caller's promise.
    match unsafe { cache.cache.free(object) } {
        Ok(()) => 0,
        Err(error) => Failure::from(error).answer(),
    }
}

/// Allocates up to `count` objects at once, near the calling thread's CPU; `*got` says how many there were, 0 after an error.
/// If there were fewer, call again for the rest, until it fails.
///
/// Errors: as nearpage_cache_alloc, if there was not even one.
///
/// # Safety
/// * `cache` is a cache, `objects` has room for `count` addresses, `got` points to a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearpage_cache_alloc_bulk(
    cache: *const nearpage_cache,
    flags: u32,
    count: usize,
    objects: *mut *mut c_void,
    got: *mut usize,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let cache =
            unsafe { cache.as_ref() }.ok_or_else(|| Failure::invalid("the cache is NULL"))?;
        let (objects, got) = (given(objects, "the array of objects")?, place(got)?);
        // SAFETY: the caller's promise.
        unsafe { got.write(0) };
        // SAFETY: the caller's promise; a pointer is a pointer.
        let objects = unsafe { std::slice::from_raw_parts_mut(objects.as_ptr().cast(), count) };
        let done = cache.cache.alloc_bulk(object_gfp(flags)?, objects)?;
        // SAFETY: the caller's promise.
        unsafe { got.write(done) };
        Ok(())
    })
}

/// Frees objects of one cache.
///
/// Errors: -EINVAL if some were refused; the others are free then.
///
/// # Safety
/// * `cache` is a cache, `objects` has `count` addresses of objects that nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearpage_cache_free_bulk(
    cache: *const nearpage_cache,
    count: usize,
    objects: *const *mut c_void,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let cache =
            unsafe { cache.as_ref() }.ok_or_else(|| Failure::invalid("the cache is NULL"))?;
        if count == 0 {
            return Ok(());
        }
        let objects = given(objects, "the array of objects")?;
        // SAFETY: the caller's promise; a pointer is a pointer.
        let objects = unsafe { std::slice::from_raw_parts(objects.as_ptr().cast(), count) };
        // SAFETY: the caller's promise.
        unsafe { cache.cache.free_bulk(objects) }.map_err(Failure::invalid)
    })
}

/// Allocates `bytes` bytes of any size, near the calling thread's CPU, or on node `on`. `align` is a power of two, or 0 for 8.
///
/// Up to 4 MiB they are of the memory. More are a mapping of their own, of zeroes, bound as the memory is; without a node its
/// pages come from where they are first touched. Hard limits and nearpage_in_use hear of it, watermarks and the kernel's texts
/// do not.
///
/// Errors: -EINVAL for a size of 0 or an alignment that is no power of two, -ENOMEM without memory or above a limit.
///
/// # Safety
/// * `memory` is a memory; `out` points to a place for the address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearpage_bytes_alloc(
    memory: *const nearpage_memory,
    bytes: usize,
    align: usize,
    flags: u32,
    on: i32,
    out: *mut *mut c_void,
) -> c_int {
    call(|| {
        let out = place(out)?;
        // SAFETY: the caller's promise.
        let bytes = bytes_of(unsafe { the(memory) }?, bytes, align, flags, node(on)?)?;
        // SAFETY: the caller's promise.
        unsafe { out.write(bytes.as_ptr().cast()) };
        Ok(())
    })
}

fn bytes_of(
    memory: &nearpage_memory,
    bytes: usize,
    align: usize,
    flags: u32,
    on: Option<NodeId>,
) -> Result<NonNull<u8>, Failure> {
    let gfp = object_gfp(flags & !NEARPAGE_ZERO)?;
    if bytes > BLOCK_BYTES_MAX || align > BLOCK_BYTES_MAX && bytes > 0 {
        return memory.large.alloc(&memory.memory, bytes, align, on);
    }
    let classes = memory.classes()?;
    let gfp = if flags & NEARPAGE_ZERO != 0 { gfp.union(nearpage::Gfp::ZERO) } else { gfp };
    if align <= 8 && on.is_none() && (align == 0 || align.is_power_of_two()) {
        return Ok(classes.alloc(bytes, gfp)?);
    }
    Ok(classes.alloc_aligned(bytes, align.max(1), gfp, on)?)
}

/// Makes what nearpage_bytes_alloc gave larger or smaller: `*out` is where it is now, with what it held as far as there is room.
/// What is at `bytes` is gone then. NULL is accepted for `bytes`: then this is nearpage_bytes_alloc. With NEARPAGE_ZERO all is
/// zero that lies behind what nearpage_bytes_usable told.
///
/// Errors: as nearpage_bytes_alloc; -EINVAL if nothing begins at `bytes`. What is there stays then, and is the caller's still.
///
/// # Safety
/// * `memory` is a memory; `out` points to a place for the address. Nobody else uses the bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearpage_bytes_realloc(
    memory: *const nearpage_memory,
    bytes: *mut c_void,
    size: usize,
    align: usize,
    flags: u32,
    on: i32,
    out: *mut *mut c_void,
) -> c_int {
    call(|| {
        let out = place(out)?;
        // SAFETY: the caller's promise.
        let memory = unsafe { the(memory) }?;
        let on = node(on)?;
        let new = match NonNull::new(bytes.cast::<u8>()) {
            None => bytes_of(memory, size, align, flags, on)?,
            // SAFETY: the caller's promise.
            Some(old) => unsafe { resized(memory, old, size, align, flags, on) }?,
        };
        // SAFETY: the caller's promise.
        unsafe { out.write(new.as_ptr().cast()) };
        Ok(())
    })
}

/// Where bytes are that become larger or smaller.
///
/// # Safety
/// * Nobody else uses the old bytes, and nobody does if the answer is another place.
unsafe fn resized(
    memory: &nearpage_memory,
    old: NonNull<u8>,
    size: usize,
    align: usize,
    flags: u32,
    on: Option<NodeId>,
) -> Result<NonNull<u8>, Failure> {
    let usable = usable_at(memory, old.as_ptr())?
        .ok_or_else(|| Failure::invalid(format!("{old:p}: nothing was allocated there")))?;
    let is_aligned =
        align == 0 || align.is_power_of_two() && old.as_ptr().addr().is_multiple_of(align);
    if is_aligned && on.is_none() && size > usable / 2 && size <= usable {
        return Ok(old);
    }
    let new = bytes_of(memory, size, align, flags, on)?;
    // SAFETY: both are as long, and the new one is this call's; the caller's promise for the old one.
    unsafe {
        new.copy_from_nonoverlapping(old, usable.min(size));
        free_bytes(memory, old)?;
    }
    Ok(new)
}

/// Frees bytes of any size.
///
/// # Safety
/// * Nobody uses the bytes any more.
unsafe fn free_bytes(memory: &nearpage_memory, bytes: NonNull<u8>) -> Result<(), Failure> {
    if is_of_memory(memory, bytes.as_ptr()) || !memory.large.free(bytes.as_ptr()) {
        // SAFETY: the caller's promise.
        unsafe { memory.classes()?.free(bytes) }?;
    }
    Ok(())
}

fn is_of_memory(memory: &nearpage_memory, bytes: *const u8) -> bool {
    memory.memory.node_of(frame_of(bytes.cast())).is_some()
}

/// How many bytes may be used from an address on, if something was allocated there.
fn usable_at(memory: &nearpage_memory, bytes: *const u8) -> Result<Option<usize>, Failure> {
    match is_of_memory(memory, bytes) {
        true => Ok(memory.classes()?.usable_size(bytes)),
        false => Ok(memory.large.usable(bytes)),
    }
}

/// Frees what nearpage_bytes_alloc gave. NULL is accepted.
///
/// Errors: -EINVAL if nothing begins there, -EFAULT if the address is foreign. The call then changes nothing. A second free of
/// less than a page is refused only with NEARPAGE_MEMORY_HARDENED.
///
/// # Safety
/// * `memory` is a memory. Nobody uses the bytes any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearpage_bytes_free(
    memory: *const nearpage_memory,
    bytes: *mut c_void,
) -> c_int {
    let Some(bytes) = NonNull::new(bytes.cast::<u8>()) else { return 0 };
    call(|| {
        // SAFETY: the caller's promises.
        unsafe { free_bytes(the(memory)?, bytes) }
    })
}

/// How many bytes may be used from `bytes` on; 0 if nothing is allocated there.
///
/// # Safety
/// * `memory` is a memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearpage_bytes_usable(
    memory: *const nearpage_memory,
    bytes: *const c_void,
) -> usize {
    let mut usable = 0;
    call(|| {
        // SAFETY: the caller's promise.
        usable = usable_at(unsafe { the(memory) }?, bytes.cast())?.unwrap_or_default();
        Ok(())
    });
    usable
}
