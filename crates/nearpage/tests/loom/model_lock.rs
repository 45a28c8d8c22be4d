//! A lock of loom's.

use loom::sync::{Mutex, MutexGuard};
use nearpage::platform::Lock;

/// The core's lock.
pub struct ModelLock<T>(Mutex<T>);

impl<T> Lock<T> for ModelLock<T> {
    type Guard<'a>
        = MutexGuard<'a, T>
    where
        T: 'a;

    fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().expect("nobody panics with it")
    }
}
