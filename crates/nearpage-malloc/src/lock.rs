//! A lock that forks can hold, and that its own thread may take again.
//!
//! A fork takes all locks, so that the child finds none half done. Its handlers allocate, and then take a lock again that
//! they hold: the lock counts. It is a futex: it works before anything else of the process does.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::errno;
use crate::thread;

/// How often threads waited for any of these locks, and how long in all.
static WAITS: AtomicU64 = AtomicU64::new(0);
static WAITED_NS: AtomicU64 = AtomicU64::new(0);

/// Waits for the malloc's locks so far, and their nanoseconds.
pub(crate) fn waits() -> (u64, u64) {
    (WAITS.load(Ordering::Relaxed), WAITED_NS.load(Ordering::Relaxed))
}

/// Nanoseconds of a clock that never goes back.
pub(crate) fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the place for the answer is there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The lock, with what it guards.
pub(crate) struct Lock<T> {
    /// 0: free. 1: taken. 2: taken, and somebody sleeps.
    word: AtomicU32,
    owner: AtomicUsize,
    /// How often the owner has it. Only the owner uses it.
    depth: UnsafeCell<u32>,
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time has the value, and `T` may go from thread to thread.
unsafe impl<T: Send> Sync for Lock<T> {}

pub(crate) struct Guard<'a, T>(&'a Lock<T>);

impl<T> Lock<T> {
    pub const fn new(value: T) -> Self {
        Self {
            word: AtomicU32::new(0),
            owner: AtomicUsize::new(0),
            depth: UnsafeCell::new(0),
            value: UnsafeCell::new(value),
        }
    }

    pub fn lock(&self) -> Guard<'_, T> {
        self.take();
        Guard(self)
    }

    /// Whether the calling thread has it.
    pub fn is_mine(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == thread::token()
    }

    /// Takes the lock until [`release`](Self::release).
    pub fn take(&self) {
        if self.is_mine() {
            // SAFETY: this thread has the lock.
            unsafe { *self.depth.get() += 1 };
            return;
        }
        if !(0..64).any(|_| self.tries()) {
            errno::kept(|| self.sleep());
        }
        self.owner.store(thread::token(), Ordering::Relaxed);
    }

    #[cold]
    fn sleep(&self) {
        let begun = now_ns();
        // From the first sleep on this thread leaves 2 behind, for it does not know whether others sleep too.
        while self.word.swap(2, Ordering::Acquire) != 0 {
            // SAFETY: the word lives; the call returns at once if it is not 2 any more.
            unsafe {
                let wait = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
                libc::syscall(libc::SYS_futex, self.word.as_ptr(), wait, 2, 0);
            }
        }
        WAITS.fetch_add(1, Ordering::Relaxed);
        WAITED_NS.fetch_add(now_ns().saturating_sub(begun), Ordering::Relaxed);
    }

    fn tries(&self) -> bool {
        let taken = self.word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if !taken {
            std::hint::spin_loop();
        }
        taken
    }

    /// Gives it back once.
    ///
    /// # Safety
    /// * The calling thread has it.
    pub unsafe fn release(&self) {
        // SAFETY: this thread has the lock.
        unsafe {
            if *self.depth.get() > 0 {
                *self.depth.get() -= 1;
                return;
            }
        }
        self.owner.store(0, Ordering::Relaxed);
        if self.word.swap(0, Ordering::Release) == 2 {
            // SAFETY: the word lives.
            unsafe {
                let wake = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
                libc::syscall(libc::SYS_futex, self.word.as_ptr(), wake, 1);
            }
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this thread has the lock.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this thread has the lock. No caller keeps a guard while it takes the lock once more.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: the guard is the proof.
        unsafe { self.0.release() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_and_its_owner_again() {
        static COUNT: Lock<u64> = Lock::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50_000 {
                        // SAFETY: the thread's own place.
                        unsafe { *libc::__errno_location() = libc::ECHILD };
                        COUNT.take();
                        // SAFETY: as above.
                        assert_eq!(unsafe { *libc::__errno_location() }, libc::ECHILD);
                        *COUNT.lock() += 1;
                        assert!(COUNT.is_mine());
                        // SAFETY: it was taken above.
                        unsafe { COUNT.release() };
                    }
                });
            }
        });
        assert_eq!(*COUNT.lock(), 200_000);
        assert!(!COUNT.is_mine());
    }
}
