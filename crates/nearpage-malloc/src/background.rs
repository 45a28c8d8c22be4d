//! Memory that a program has given back goes to the kernel within two seconds, also if the program makes no call again: a
//! thread of the malloc's own sees to it.
//!
//! The thread comes when a program has grown beyond what it starts with, or frees a mapping; small programs never have it. It
//! sleeps without a limit while there is nothing to give back. It blocks all signals, and has a small stack.

use std::ptr::null_mut;
use std::sync::atomic::Ordering;

use crate::kept::KEPT;
use crate::mapped;
use crate::pages;
use crate::pool;
use crate::thread;
use crate::usage::{self, INTERVAL_NS, LOOKS, SLEEPS, STATE};

const STACK: usize = 128 << 10;

/// The thread will be made when it is wanted first.
pub(crate) fn install() {
    usage::set_maker(make);
}

#[cold]
fn make() {
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
            let mut thread = std::mem::zeroed::<libc::pthread_t>();
            let answer =
                libc::pthread_create(&raw mut thread, &raw const attributes, works, null_mut());
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, null_mut());
            libc::pthread_attr_destroy(&raw mut attributes);
            answer == 0
        }
    });
    if !made {
        // Nobody tries again: what the kernel refuses once it refuses each time.
        usage::forbid();
    }
}

extern "C" fn works(_: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: names this thread, for those who look at it.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"nearpage-trim".as_ptr()) };
    loop {
        let time = libc::timespec { tv_sec: 0, tv_nsec: INTERVAL_NS as i64 };
        // SAFETY: sleeps; nobody asks for the rest of the time.
        unsafe { libc::nanosleep(&raw const time, null_mut()) };
        let keeps = mapped::drop_old();
        pool::release_idle();
        pages::look();
        if keeps || usage::is_pending() {
            continue;
        }
        STATE.store(SLEEPS, Ordering::Relaxed);
        if usage::is_pending() || KEPT.lock().bytes() > 0 {
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
