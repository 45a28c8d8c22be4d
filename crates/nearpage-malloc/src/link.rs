//! Free objects as lists: the first word of each is the address of the next.
//!
//! In hardened mode the second word is a check of the first. It tells whether somebody wrote to the object after its free.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::misuse::{self, MisuseKind};

/// A free object.
#[repr(C)]
pub(crate) struct Object {
    next: *mut Object,
    check: usize,
}

static IS_HARDENED: AtomicBool = AtomicBool::new(false);
static KEY: AtomicUsize = AtomicUsize::new(0);

/// From now on links have checks, with a key that a program cannot guess.
pub(crate) fn harden(key: usize) {
    KEY.store(key, Ordering::Relaxed);
    IS_HARDENED.store(true, Ordering::Relaxed);
}

#[inline(always)]
pub(crate) fn is_hardened() -> bool {
    IS_HARDENED.load(Ordering::Relaxed)
}

/// Makes `object` the one before `next`, on the fast path of a malloc that is not hardened.
///
/// # Safety
/// * `object` is free, and the caller's.
#[inline(always)]
pub(crate) unsafe fn link_fast(object: *mut Object, next: *mut Object) {
    // SAFETY: the caller's promise.
    unsafe { (*object).next = next };
}

/// The one behind `object`, on the fast path of a malloc that is not hardened.
///
/// # Safety
/// * `object` is free, and the caller's.
#[inline(always)]
pub(crate) unsafe fn next_fast(object: *mut Object) -> *mut Object {
    // SAFETY: the caller's promise.
    unsafe { (*object).next }
}

/// The same in hardened mode.
///
/// # Safety
/// * `object` is free, and the caller's.
#[inline(always)]
pub(crate) unsafe fn link_checked(object: *mut Object, next: *mut Object) {
    // SAFETY: the caller's promise; the least object has two words.
    unsafe {
        (*object).next = next;
        (*object).check = check(object, next);
    }
}

/// The same in hardened mode; `None` if somebody wrote to the object.
///
/// # Safety
/// * `object` is free, and the caller's.
#[inline(always)]
pub(crate) unsafe fn next_checked(object: *mut Object) -> Option<*mut Object> {
    // SAFETY: the caller's promise; the least object has two words.
    unsafe {
        let next = (*object).next;
        ((*object).check == check(object, next)).then_some(next)
    }
}

/// Makes `object` the one before `next`.
///
/// # Safety
/// * `object` is free, and the caller's.
#[inline]
pub(crate) unsafe fn link(object: *mut Object, next: *mut Object) {
    // SAFETY: the caller's promise.
    unsafe {
        match is_hardened() {
            true => link_checked(object, next),
            false => link_fast(object, next),
        }
    }
}

/// The one behind `object`. An object that was written to ends its list: what is behind it is lost, but not followed.
///
/// # Safety
/// * `object` is free, and the caller's.
#[inline]
pub(crate) unsafe fn next(object: *mut Object, size: usize) -> *mut Object {
    // SAFETY: the caller's promise.
    unsafe {
        if !is_hardened() {
            return next_fast(object);
        }
        next_checked(object).unwrap_or_else(|| {
            misuse::report(MisuseKind::WrittenAfterFree, object.addr(), size, "malloc");
            std::ptr::null_mut()
        })
    }
}

#[inline]
fn check(object: *mut Object, next: *mut Object) -> usize {
    (object.addr().rotate_left(17) ^ next.addr() ^ KEY.load(Ordering::Relaxed))
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
