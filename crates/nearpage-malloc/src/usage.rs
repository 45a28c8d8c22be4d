//! How much is in use, and who is told when so much came back that the kernel should have it.
//!
//! What was in use at some time since the last look is not given back: a program whose use swings keeps its pages.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Bytes that are worth a trim.
const SPARE_MIN: u64 = 4 << 20;

/// There is no thread that gives memory back, see `background`.
const NONE: u32 = 0;
/// There is a thread, and it looks from time to time.
pub(crate) const LOOKS: u32 = 1;
/// There is a thread, and it sleeps until somebody wakes it.
pub(crate) const SLEEPS: u32 = 2;
/// There shall be none.
const OFF: u32 = 3;

pub(crate) static STATE: AtomicU32 = AtomicU32::new(NONE);
/// What makes the thread, or 0.
static MAKER: AtomicUsize = AtomicUsize::new(0);

/// Bytes of spans and blocks in use, the most since the last look, and the most since the last trim.
static USED: AtomicU64 = AtomicU64::new(0);
static RECENT: AtomicU64 = AtomicU64::new(0);
static HIGH: AtomicU64 = AtomicU64::new(0);
/// Bytes that came back since the last trim.
static GIVEN_BACK: AtomicU64 = AtomicU64::new(0);

/// `make` makes the thread, once somebody wants it.
pub(crate) fn set_maker(make: fn()) {
    MAKER.store(make as usize, Ordering::Relaxed);
}

/// Whether there is a thread, or will be when somebody wants it.
pub(crate) fn has_thread() -> bool {
    MAKER.load(Ordering::Relaxed) != 0 && STATE.load(Ordering::Relaxed) != OFF
}

/// No thread shall be made.
pub(crate) fn forbid() {
    STATE.store(OFF, Ordering::Relaxed);
}

/// The child of a fork has no thread but its own.
pub(crate) fn is_forked() {
    let _ = STATE
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |state| (state != OFF).then_some(NONE));
}

pub(crate) fn note_taken(bytes: u64) {
    let used = USED.fetch_add(bytes, Ordering::Relaxed) + bytes;
    if used > RECENT.load(Ordering::Relaxed) {
        RECENT.fetch_max(used, Ordering::Relaxed);
    }
}

/// Returns whether so much came back that somebody should look.
pub(crate) fn note_given_back(bytes: u64) -> bool {
    let used = USED.fetch_sub(bytes, Ordering::Relaxed) - bytes;
    GIVEN_BACK.store(GIVEN_BACK.load(Ordering::Relaxed).wrapping_add(bytes), Ordering::Relaxed);
    let high = HIGH.load(Ordering::Relaxed).max(RECENT.load(Ordering::Relaxed));
    let is_worth = high.saturating_sub(used) >= SPARE_MIN;
    if is_worth && STATE.load(Ordering::Relaxed) == SLEEPS {
        wake();
    }
    is_worth
}

/// Bytes that nobody used since the last call, though somebody did since the last trim. `None` if they are not worth one.
pub(crate) fn spare() -> Option<u64> {
    let used = USED.load(Ordering::Relaxed);
    let recent = RECENT.swap(used, Ordering::Relaxed).max(used);
    let high = HIGH.fetch_max(recent, Ordering::Relaxed).max(recent);
    let spare = high - recent;
    (spare >= SPARE_MIN).then_some(spare)
}

/// Bytes that came back since the last trim; with several threads about as many.
pub(crate) fn given_back() -> u64 {
    GIVEN_BACK.load(Ordering::Relaxed)
}

/// After a trim: what is used now is the most.
pub(crate) fn note_trim() {
    GIVEN_BACK.store(0, Ordering::Relaxed);
    HIGH.store(RECENT.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// Whether somebody should look again.
pub(crate) fn is_pending() -> bool {
    let high = HIGH.load(Ordering::Relaxed).max(RECENT.load(Ordering::Relaxed));
    high.saturating_sub(USED.load(Ordering::Relaxed)) >= SPARE_MIN
}

#[cold]
#[inline(never)]
fn wake() {
    if STATE.compare_exchange(SLEEPS, LOOKS, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
        // SAFETY: the word lives.
        unsafe {
            let wake = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
            libc::syscall(libc::SYS_futex, STATE.as_ptr(), wake, 1);
        }
    }
}

/// Makes the thread, or wakes it. Without one the next free that is large looks.
#[inline]
pub(crate) fn want() {
    match STATE.load(Ordering::Relaxed) {
        NONE => make(),
        SLEEPS => wake(),
        _ => {}
    }
}

#[cold]
fn make() {
    let maker = MAKER.load(Ordering::Relaxed);
    if maker == 0
        || STATE.compare_exchange(NONE, LOOKS, Ordering::Relaxed, Ordering::Relaxed).is_err()
    {
        return;
    }
    // SAFETY: `set_maker` stored a function of this type.
    let maker = unsafe { std::mem::transmute::<usize, fn()>(maker) };
    maker();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_since_the_last_look_is_not_spare() {
        // The counters are the process's, and this is the only test here that uses them: other tests allocate nothing.
        note_taken(100 << 20);
        assert_eq!(spare(), None, "it is in use");
        assert!(note_given_back(80 << 20) && is_pending());
        assert_eq!(spare(), None, "it was in use since the last look");
        assert_eq!(spare(), Some(80 << 20));
        note_taken(60 << 20);
        assert_eq!(spare(), Some(20 << 20));
        note_trim();
        assert_eq!((spare(), is_pending(), given_back()), (None, false, 0));
        note_given_back(80 << 20);
    }
}
