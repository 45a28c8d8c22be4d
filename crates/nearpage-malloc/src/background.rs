//! Memory that a program has given back goes to the kernel within two seconds, also if the program makes no call again: a
//! thread of the malloc's own sees to it.
//!
//! The thread comes when a program has grown beyond what it starts with, or frees a mapping; small programs never have it. It
//! sleeps without a limit while there is nothing to give back. It blocks all signals, and has a small stack.
//!
//! What was in use at some time since the last look is not given back: a program whose use swings keeps its pages.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::kept::KEPT;
use crate::mapped;
use crate::pages;
use crate::pool;
use crate::thread;

/// The time between two looks.
const INTERVAL_NS: i64 = 400_000_000;
/// Bytes that are worth a trim.
pub(crate) const SPARE_MIN: u64 = 4 << 20;
const STACK: usize = 128 << 10;

const NONE: u32 = 0;
/// There is a thread, and it looks from time to time.
const LOOKS: u32 = 1;
/// There is a thread, and it sleeps until somebody wakes it.
const SLEEPS: u32 = 2;
/// There shall be none.
const OFF: u32 = 3;

static STATE: AtomicU32 = AtomicU32::new(NONE);

/// Bytes of spans and blocks in use, the most since the last look, and the most since the last trim.
static USED: AtomicU64 = AtomicU64::new(0);
static RECENT: AtomicU64 = AtomicU64::new(0);
static HIGH: AtomicU64 = AtomicU64::new(0);
/// Bytes that came back since the last trim.
static GIVEN_BACK: AtomicU64 = AtomicU64::new(0);

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

fn is_pending() -> bool {
    let used = USED.load(Ordering::Relaxed);
    HIGH.load(Ordering::Relaxed).max(RECENT.load(Ordering::Relaxed)) - used.min(u64::MAX / 2)
        >= SPARE_MIN
}

#[cold]
#[inline(never)]
pub(crate) fn wake() {
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
    if STATE.compare_exchange(NONE, LOOKS, Ordering::Relaxed, Ordering::Relaxed).is_err() {
        return;
    }
    let made = thread::inside(|| {
        // SAFETY: places for answers are there; signals of this thread are as before at the end. What the C library allocates
        // for the thread comes from the boot range: this thread is inside.
        unsafe {
            let (mut all, mut before) = std::mem::zeroed::<(libc::sigset_t, libc::sigset_t)>();
            libc::sigfillset(&raw mut all);
            let mut attributes = std::mem::zeroed::<libc::pthread_attr_t>();
            if libc::pthread_attr_init(&raw mut attributes) != 0 {
                return false;
            }
            libc::pthread_attr_setstacksize(&raw mut attributes, STACK);
            libc::pthread_attr_setdetachstate(&raw mut attributes, libc::PTHREAD_CREATE_DETACHED);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            let mut thread = 0;
            let answer =
                libc::pthread_create(&raw mut thread, &raw const attributes, works, null_mut());
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, null_mut());
            libc::pthread_attr_destroy(&raw mut attributes);
            answer == 0
        }
    });
    if !made {
        // Nobody tries again: what the kernel refuses once it refuses each time.
        forbid();
    }
}

extern "C" fn works(_: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: names this thread, for those who look at it.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"nearpage-trim".as_ptr()) };
    loop {
        let time = libc::timespec { tv_sec: 0, tv_nsec: INTERVAL_NS };
        // SAFETY: sleeps; nobody asks for the rest of the time.
        unsafe { libc::nanosleep(&raw const time, null_mut()) };
        let keeps = mapped::drop_old();
        if spare().is_some() {
            pool::release_idle();
            pages::trim();
        }
        if keeps || is_pending() {
            continue;
        }
        STATE.store(SLEEPS, Ordering::Relaxed);
        if is_pending() || KEPT.lock().bytes() > 0 {
            // It came between the look and the word.
            STATE.store(LOOKS, Ordering::Relaxed);
            continue;
        }
        while STATE.load(Ordering::Relaxed) == SLEEPS {
            // SAFETY: the word lives; the call returns at once if it is not SLEEPS any more.
            unsafe {
                let wait = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
                let none = null_mut::<libc::timespec>();
                libc::syscall(libc::SYS_futex, STATE.as_ptr(), wait, SLEEPS, none);
            }
        }
    }
}
