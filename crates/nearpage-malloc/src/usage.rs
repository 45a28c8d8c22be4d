//! How much is in use and how much is free but resident, and who is told when the kernel should have some of it.
//!
//! The target is a ratio: what is resident to what lives. What was in use since the last look but one may stay in any case: a
//! program whose use swings keeps its pages, and one that has shrunk does not. What is free below the target goes back by age
//! (`background`).

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::lock;

/// Bytes that may be free and resident in any case.
const SPARE_MIN: u64 = 4 << 20;
/// The time between two looks.
pub(crate) const INTERVAL_NS: u64 = 400_000_000;
/// Of the target, what may be above it before a free does not wait for the thread.
const EXCESS_SHARE: u64 = 32;

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

/// Bytes of spans and blocks in use, the most since the last look, and the most in the time before that.
static USED: AtomicU64 = AtomicU64::new(0);
static RECENT: AtomicU64 = AtomicU64::new(0);
static BEFORE: AtomicU64 = AtomicU64::new(0);
/// Bytes that live: those that large blocks were asked for, and what of spans usually is in objects.
static LIVE: AtomicU64 = AtomicU64::new(0);
/// Bytes that are free and may be resident.
static DIRTY: AtomicI64 = AtomicI64::new(0);
/// The target, in thousandths of what lives.
static TARGET: AtomicU64 = AtomicU64::new(1250);

/// Sets the target, in thousandths.
pub(crate) fn set_target(target: u64) {
    TARGET.store(target, Ordering::Relaxed);
}

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

/// Pages of so many bytes are in use, of which `live` are.
pub(crate) fn note_taken(bytes: u64, live: u64) {
    LIVE.fetch_add(live, Ordering::Relaxed);
    let used = USED.fetch_add(bytes, Ordering::Relaxed) + bytes;
    if used > RECENT.load(Ordering::Relaxed) {
        RECENT.fetch_max(used, Ordering::Relaxed);
    }
}

/// The same pages are not any more.
pub(crate) fn note_given_back(bytes: u64, live: u64) {
    LIVE.fetch_sub(live, Ordering::Relaxed);
    USED.fetch_sub(bytes, Ordering::Relaxed);
}

/// So many bytes more are free and may be resident.
pub(crate) fn note_dirty(bytes: i64) {
    DIRTY.fetch_add(bytes, Ordering::Relaxed);
}

/// Bytes that are free and may be resident.
pub(crate) fn dirty() -> u64 {
    DIRTY.load(Ordering::Relaxed).max(0) as u64
}

/// Bytes that may be resident.
pub(crate) fn target() -> u64 {
    let most = BEFORE.load(Ordering::Relaxed).max(RECENT.load(Ordering::Relaxed));
    let ratio = u128::from(TARGET.load(Ordering::Relaxed));
    let of_live = u128::from(LIVE.load(Ordering::Relaxed)) * ratio / 1000;
    (of_live as u64).max(most).max(USED.load(Ordering::Relaxed) + SPARE_MIN)
}

/// Bytes that the kernel should have now.
pub(crate) fn excess() -> u64 {
    (USED.load(Ordering::Relaxed) + dirty()).saturating_sub(target())
}

/// Something was freed: wakes the thread if it has something to do. Returns whether the caller should give back in its place.
pub(crate) fn must_give_back() -> bool {
    if dirty() < SPARE_MIN {
        return false;
    }
    match STATE.load(Ordering::Relaxed) {
        LOOKS => {}
        SLEEPS => wake(),
        _ => look_if_due(),
    }
    excess() > (target() / EXCESS_SHARE).max(SPARE_MIN)
}

/// Without a thread whoever frees looks.
#[cold]
fn look_if_due() {
    static LOOKED_AT: AtomicU64 = AtomicU64::new(0);
    let (now, last) = (lock::now_ns(), LOOKED_AT.load(Ordering::Relaxed));
    if now.saturating_sub(last) >= INTERVAL_NS
        && LOOKED_AT.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    {
        note_look();
    }
}

/// What is most in use is counted anew.
pub(crate) fn note_look() {
    BEFORE.store(RECENT.swap(USED.load(Ordering::Relaxed), Ordering::Relaxed), Ordering::Relaxed);
}

/// What was in use until now does not count any more.
pub(crate) fn forget() {
    BEFORE.store(0, Ordering::Relaxed);
    RECENT.store(USED.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// Whether somebody should look again.
pub(crate) fn is_pending() -> bool {
    dirty() >= SPARE_MIN
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
    fn what_was_in_use_in_the_last_two_looks_may_stay() {
        // The counters are the process's, and this is the only test here that uses them: other tests allocate nothing.
        let mib = |mib: u64| mib << 20;
        let (take, give) = (|mib| note_taken(mib, mib), |mib| note_given_back(mib, mib));
        take(mib(100));
        assert_eq!((target(), excess(), is_pending()), (mib(125), 0, false));
        give(mib(80));
        note_dirty(80 << 20);
        assert_eq!((target(), excess(), is_pending()), (mib(100), 0, true));
        note_look();
        note_look();
        assert_eq!((target(), excess()), (mib(25), mib(75)));
        take(mib(60));
        note_dirty(-(60 << 20));
        assert_eq!((target(), excess()), (mib(100), 0));
        give(mib(60));
        note_dirty(60 << 20);
        forget();
        assert_eq!(excess(), mib(75));
        set_target(2000);
        assert_eq!(excess(), mib(60));
        give(mib(20));
        forget();
        assert_eq!((target(), excess()), (SPARE_MIN, mib(76)));
        note_dirty(-(80 << 20));
        note_taken(mib(16), mib(8));
        assert_eq!(target(), mib(20), "pages that nobody uses do not live");
    }
}
