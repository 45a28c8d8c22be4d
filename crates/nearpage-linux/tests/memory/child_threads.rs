//! Threads of a forked child.
//!
//! A thread of Rust's standard library begins and ends under a lock of that library (on its table of stacks). If a
//! thread of the parent held it at the fork, nobody in the child ever gives it back, and the child's first thread waits
//! for ever. So what a child starts are threads of the C library alone, whose locks a fork sets anew.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;

/// Threads that are waited for when this is dropped.
struct Started(Vec<libc::pthread_t>);

impl Drop for Started {
    fn drop(&mut self) {
        for thread in self.0.drain(..) {
            // SAFETY: the thread was started, and is waited for once.
            let joined = unsafe { libc::pthread_join(thread, ptr::null_mut()) };
            assert_eq!(joined, 0, "pthread_join");
        }
    }
}

extern "C" fn run<W: Fn() + Sync>(work: *mut c_void) -> *mut c_void {
    // SAFETY: `beside` passes a `W`, which outlives its threads.
    let work = unsafe { &*work.cast::<W>() };
    // A panic ends the process: this function may not unwind.
    work();
    ptr::null_mut()
}

/// Runs `work` in so many threads, and `here` in this one meanwhile.
pub fn beside<W: Fn() + Sync>(threads: usize, work: W, here: impl FnOnce()) {
    let mut started = Started(Vec::new());
    for _ in 0..threads {
        let mut thread = MaybeUninit::uninit();
        // SAFETY: `started` waits for the thread before `work` goes.
        let error = unsafe {
            let work = (&raw const work).cast_mut().cast::<c_void>();
            libc::pthread_create(thread.as_mut_ptr(), ptr::null(), run::<W>, work)
        };
        assert_eq!(error, 0, "pthread_create");
        // SAFETY: it was written.
        started.0.push(unsafe { thread.assume_init() });
    }
    here();
}
