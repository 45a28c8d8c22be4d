//! Reclaim: callbacks that free memory when it gets short.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::time::Duration;

use nearpage::{NodeId, PageCount};
use nearpage_linux::{ReclaimOptions, Shrinker};

use crate::error::{Failure, call};
use crate::memory::{nearpage_memory, the};

/// Frees about `pages` pages, of `node` if possible, and returns how many it freed. The background thread calls it, and so
/// does a thread whose request finds no memory: it may only try locks that the program holds while it allocates. What it
/// allocates itself asks no shrinker: it is there or refused.
#[expect(non_camel_case_types, reason = "the name in C")]
pub type nearpage_shrink_fn =
    Option<unsafe extern "C" fn(context: *mut c_void, node: u32, pages: u64) -> u64>;

struct Callback {
    shrink: unsafe extern "C" fn(*mut c_void, u32, u64) -> u64,
    context: *mut c_void,
}

// SAFETY: whoever adds it promises that any thread may call it with this context.
unsafe impl Send for Callback {}
// SAFETY: as for Send.
unsafe impl Sync for Callback {}

impl Shrinker for Callback {
    fn shrink(&self, NodeId(node): NodeId, PageCount(pages): PageCount) -> PageCount {
        // SAFETY: whoever added it promised this.
        PageCount(unsafe { (self.shrink)(self.context, node, pages) })
    }
}

/// Adds a callback that can free memory. It stays until the memory ends.
///
/// Errors: -EINVAL if `shrink` is NULL.
///
/// # Safety
/// * `memory` is a memory. Any thread may call `shrink` with this `context`, as long as the memory lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearpage_shrinker_add(
    memory: *const nearpage_memory,
    shrink: nearpage_shrink_fn,
    context: *mut c_void,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let memory = unsafe { the(memory) }?;
        let shrink = shrink.ok_or_else(|| Failure::invalid("the callback is NULL"))?;
        memory.reclaim.add_shrinker(Arc::new(Callback { shrink, context }));
        Ok(())
    })
}

/// Starts the background thread, which calls the callbacks when a node is short, lets caches decay and gives free memory
/// back to the kernel every `interval_ms` milliseconds. A child of a fork has none until it starts one.
///
/// Errors: -EINVAL for an interval of 0, -EAGAIN if no thread can be started.
///
/// # Safety
/// * `memory` is a memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearpage_reclaim_start(
    memory: *const nearpage_memory,
    interval_ms: u32,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let memory = unsafe { the(memory) }?;
        let interval = Duration::from_millis(interval_ms.into());
        let options = ReclaimOptions { interval, ..ReclaimOptions::default() };
        let thread = memory
            .reclaim
            .start(&memory.memory, options)
            .map_err(|error| Failure::new(error.raw_os_error().unwrap_or(libc::EINVAL), error))?;
        *memory.thread.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(thread);
        Ok(())
    })
}
