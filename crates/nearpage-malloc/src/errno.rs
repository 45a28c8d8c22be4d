//! `free` leaves `errno` as it was, as POSIX says: programs free on their way out of a call that failed.

/// Runs `act`, which may ask the kernel for something in vain.
#[inline]
pub(crate) fn kept<R>(act: impl FnOnce() -> R) -> R {
    // SAFETY: the thread's own place.
    unsafe {
        let place = libc::__errno_location();
        let before = *place;
        let result = act();
        *place = before;
        result
    }
}
