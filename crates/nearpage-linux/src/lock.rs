//! The lock of a zone in a Linux process.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use nearpage::platform::Lock;

/// The lock of a zone: the standard library's, which sleeps on a futex, so that a holder that lost its CPU
/// does not stall whoever waits. Before that it is tried for a while: a hold is of at most 2016 pages, some
/// microseconds, and to be put to sleep and woken costs several times as much.
///
/// Each try takes the line of the lock from the holder, so what the holder works on lies on other lines: on other pairs
/// of lines, since processors fetch the second of a pair with the first.
#[derive(Debug)]
pub struct HostLock<T>(Mutex<OwnLines<T>>);

#[derive(Debug)]
#[repr(align(128))]
struct OwnLines<T>(T);

/// Proof of holding a [`HostLock`].
#[derive(Debug)]
pub struct HostGuard<'a, T>(MutexGuard<'a, OwnLines<T>>);

impl<T> Deref for HostGuard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0.0
    }
}

impl<T> DerefMut for HostGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0.0
    }
}

impl<T> Lock<T> for HostLock<T> {
    type Guard<'a>
        = HostGuard<'a, T>
    where
        T: 'a;

    fn new(value: T) -> Self {
        Self(Mutex::new(OwnLines(value)))
    }

    fn lock(&self) -> HostGuard<'_, T> {
        // A pause is 10 to 50 ns. A wait of two long holds, or about what a sleep and a wake-up cost on a virtual
        // machine; with a third of it every third acquisition of two busy threads slept.
        const TRIES: u32 = 1000;
        // The core's own assertions may panic under the lock; they panic before they change anything.
        for _ in 0..TRIES {
            match self.0.try_lock() {
                Ok(guard) => return HostGuard(guard),
                Err(TryLockError::Poisoned(poisoned)) => return HostGuard(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
            }
        }
        HostGuard(self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
