//! Locks of pages. A waiter sleeps in the kernel.

use std::ffi::{c_int, c_void};
use std::time::Duration;

use nearpage::Pfn;
use nearpage_pagelock::PageLockError;

use crate::error::{Failure, call};
use crate::memory::{nearpage_memory, the};

/// # Safety
/// * `memory` is null or a memory.
unsafe fn with(
    memory: *const nearpage_memory,
    page: *const c_void,
    act: impl FnOnce(&nearpage_linux::Memory, Pfn) -> Result<(), PageLockError>,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let memory = unsafe { the(memory) }?;
        act(&memory.memory, Pfn(page.addr() as u64 >> 12)).map_err(Failure::from)
    })
}

/// Locks the page at an address; waits until it can.
///
/// Errors: -EINVAL if the page is not allocated, -EFAULT if the address is of no node's range.
///
/// # Safety
/// * `memory` is a memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearpage_page_lock(
    memory: *const nearpage_memory,
    page: *const c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { with(memory, page, |memory, page| memory.lock_page(page)) }
}

/// Locks a page; waits at most `timeout_ns` nanoseconds.
///
/// Errors: -ETIMEDOUT, and those of nearpage_page_lock.
///
/// # Safety
/// * `memory` is a memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearpage_page_lock_timeout(
    memory: *const nearpage_memory,
    page: *const c_void,
    timeout_ns: u64,
) -> c_int {
    let timeout = Duration::from_nanos(timeout_ns);
    // SAFETY: the caller's promise.
    unsafe { with(memory, page, |memory, page| memory.lock_page_timeout(page, timeout)) }
}

/// Locks a page if nobody has locked it. Returns 1 if it is locked now, 0 if somebody else has it.
///
/// Errors: as nearpage_page_lock.
///
/// # Safety
/// * `memory` is a memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearpage_page_trylock(
    memory: *const nearpage_memory,
    page: *const c_void,
) -> c_int {
    let mut locked = false;
    let keep = |memory: &nearpage_linux::Memory, page| {
        locked = memory.try_lock_page(page)?;
        Ok(())
    };
    // SAFETY: the caller's promise.
    match unsafe { with(memory, page, keep) } {
        0 => c_int::from(locked),
        error => error,
    }
}

/// Unlocks a page and wakes who waits for it.
///
/// Errors: -EPERM if it is not locked.
///
/// # Safety
/// * `memory` is a memory. The caller has locked the page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearpage_page_unlock(
    memory: *const nearpage_memory,
    page: *const c_void,
) -> c_int {
    // SAFETY: the caller's promises.
    unsafe { with(memory, page, |memory, page| memory.unlock_page(page)) }
}

/// Waits until a page is unlocked, at most `timeout_ns` nanoseconds.
///
/// Errors: as nearpage_page_lock_timeout.
///
/// # Safety
/// * `memory` is a memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearpage_page_wait(
    memory: *const nearpage_memory,
    page: *const c_void,
    timeout_ns: u64,
) -> c_int {
    let timeout = Duration::from_nanos(timeout_ns);
    // SAFETY: the caller's promise.
    unsafe { with(memory, page, |memory, page| memory.wait_on_page_timeout(page, timeout)) }
}
