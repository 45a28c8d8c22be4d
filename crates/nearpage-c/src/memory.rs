//! A memory, with all that hangs on it.

use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use nearpage_linux::{Memory, Reclaim, ReclaimThread, SizeClasses, SlabAllocator, StatsServer};
use nearpage_slab::SlabConfig;

use crate::error::{Failure, call};
use crate::growing::Growing;
use crate::large::LargeBytes;
use crate::options::{nearpage_memory_options, sized};

/// A memory: pages, objects and their counters.
#[expect(non_camel_case_types, reason = "the name in C")]
#[derive(Debug)]
pub struct nearpage_memory {
    // Ended in this order by `Drop`: size classes borrow the slab allocator, which borrows the memory.
    pub(crate) classes: OnceLock<ManuallyDrop<SizeClasses<'static>>>,
    pub(crate) slab: OnceLock<ManuallyDrop<Box<SlabAllocator<'static>>>>,
    pub(crate) thread: Mutex<Option<ReclaimThread>>,
    pub(crate) stats: Mutex<Option<StatsServer>>,
    pub(crate) reclaim: Reclaim,
    pub(crate) memory: ManuallyDrop<Arc<Memory>>,
    pub(crate) large: LargeBytes,
    /// Caches that a program has made and not destroyed.
    pub(crate) caches: AtomicUsize,
    /// One thread makes the slab allocator or the size classes.
    pub(crate) making: Mutex<()>,
}

impl nearpage_memory {
    /// The slab allocator, made by its first use.
    pub(crate) fn slab(&self) -> Result<&'static SlabAllocator<'static>, Failure> {
        let _making = self.making.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if self.slab.get().is_none() {
            // SAFETY: the memory lies behind an `Arc` and is dropped after the slab allocator, in `Drop`.
            let memory: &'static Memory = unsafe { &*Arc::as_ptr(&self.memory) };
            let slab = Box::new(memory.slab(SlabConfig::default().with_caches_max(256))?);
            let _ = self.slab.set(ManuallyDrop::new(slab));
        }
        let slab: &SlabAllocator<'static> = self.slab.get().expect("it was just made");
        // SAFETY: it lies in a box that lives until `Drop`, which no cache and no size class outlives.
        Ok(unsafe { &*std::ptr::from_ref(slab) })
    }

    /// The size classes, made by their first use.
    pub(crate) fn classes(&self) -> Result<&SizeClasses<'static>, Failure> {
        if let Some(classes) = self.classes.get() {
            return Ok(classes);
        }
        let slab = self.slab()?;
        let _making = self.making.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if self.classes.get().is_none() {
            let _ = self.classes.set(ManuallyDrop::new(slab.size_classes()?));
        }
        Ok(self.classes.get().expect("it was just made"))
    }
}

impl Drop for nearpage_memory {
    fn drop(&mut self) {
        drop(self.thread.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take());
        drop(self.stats.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take());
        if let Some(classes) = self.classes.take() {
            // Objects that live keep their slabs: the memory behind them goes away all the same.
            if let Err((classes, _)) = ManuallyDrop::into_inner(classes).destroy() {
                std::mem::forget(classes);
            }
        }
        if let Some(slab) = self.slab.take() {
            drop(ManuallyDrop::into_inner(slab));
        }
        // SAFETY: it is not used again.
        unsafe { ManuallyDrop::drop(&mut self.memory) };
    }
}

/// The memory behind a handle.
///
/// # Safety
/// * `memory` is null, or comes from `nearpage_memory_create` and is not destroyed.
#[inline]
pub(crate) unsafe fn the<'a>(
    memory: *const nearpage_memory,
) -> Result<&'a nearpage_memory, Failure> {
    // SAFETY: the caller's promise.
    unsafe { memory.as_ref() }.ok_or_else(|| Failure::invalid("the memory is NULL"))
}

/// A place for a result.
#[inline]
pub(crate) fn place<T>(out: *mut T) -> Result<NonNull<T>, Failure> {
    given(out, "the place for the result")
}

/// What a caller must give.
#[inline]
pub(crate) fn given<T>(argument: *const T, name: &str) -> Result<NonNull<T>, Failure> {
    NonNull::new(argument.cast_mut()).ok_or_else(|| Failure::invalid(format!("{name} is NULL")))
}

/// Makes a memory. `options` may be NULL for the defaults.
///
/// Errors: -EINVAL for options that mean nothing, -ENOMEM if the kernel gives no memory.
///
/// # Safety
/// * `options` is null or points to options; `out` points to a place for the memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearpage_memory_create(
    options: *const nearpage_memory_options,
    out: *mut *mut nearpage_memory,
) -> c_int {
    call(|| {
        let out = place(out)?;
        // SAFETY: the caller's promise.
        let options = unsafe { sized(options, "nearpage_memory_options") }?;
        let reclaim = Reclaim::new();
        let environment = options.environment()?;
        let stats = environment.stats.clone();
        let is_strict = environment.strict;
        let growing = options.growing(&environment);
        let pressure = Growing::new(reclaim.clone());
        let build = |options: nearpage_memory_options| -> Result<Memory, Failure> {
            Ok(options.builder(environment.clone())?.pressure(pressure.clone()).build()?)
        };
        // Where there is no room for growth that nobody asked for, there is a memory all the same.
        let grown = growing.and_then(|options| build(options).ok());
        let memory = Arc::new(grown.map_or_else(|| build(options), Ok)?);
        pressure.set(&memory);
        let stats = match stats.map(|path| memory.serve_stats(path)) {
            Some(Err(error)) if is_strict => {
                return Err(Failure::invalid(format!("NEARPAGE_STATS: {error}")));
            }
            // As all that the environment asks for in vain: the program works without.
            served => served.and_then(Result::ok),
        };
        let made = Box::new(nearpage_memory {
            classes: OnceLock::new(),
            slab: OnceLock::new(),
            thread: Mutex::new(None),
            stats: Mutex::new(stats),
            reclaim,
            memory: ManuallyDrop::new(memory),
            large: LargeBytes::new(),
            caches: AtomicUsize::new(0),
            making: Mutex::new(()),
        });
        // SAFETY: the caller's promise.
        unsafe { out.write(Box::into_raw(made)) };
        Ok(())
    })
}

/// Ends a memory. All its pages and objects are gone with it. NULL is accepted.
///
/// Errors: -EBUSY if a cache of it is not destroyed; the memory then stays.
///
/// # Safety
/// * `memory` is null or a memory that no other thread uses, now or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearpage_memory_destroy(memory: *mut nearpage_memory) -> c_int {
    call(|| {
        if memory.is_null() {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        let caches = unsafe { the(memory) }?.caches.load(Ordering::Acquire);
        if caches != 0 {
            let message = format!("{caches} caches of the memory are not destroyed");
            return Err(Failure::new(libc::EBUSY, message));
        }
        // SAFETY: the caller's promise; it came from a box.
        drop(unsafe { Box::from_raw(memory) });
        Ok(())
    })
}
