//! The lock of a zone in a Linux process.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use nearpage::platform::Lock;

/// The lock of a zone: a mutex of the standard library. A thread that waits sleeps on a futex, so it does not stall when the
/// holder has lost its CPU. Before it sleeps it tries the lock for a while: a hold takes some microseconds (at most 2016
/// pages), and sleeping and waking takes several times as long.
///
/// Each try takes the lock's line from the holder. The data under the lock therefore lies on other lines, and on other pairs
/// of lines: processors fetch the second line of a pair with the first.
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
