//! The core's seams on loom's cells.

use loom::sync::atomic::{AtomicU32, fence};
use loom::sync::{Mutex, MutexGuard};
use nearpage::platform::Lock;
use nearpage::sync::{Cell32, Ordering};

/// A cell that does what it should.
pub struct Honest(AtomicU32);

impl Cell32 for Honest {
    fn new(value: u32) -> Self {
        Self(AtomicU32::new(value))
    }

    fn load(&self, order: Ordering) -> u32 {
        self.0.load(order)
    }

    fn store(&self, value: u32, order: Ordering) {
        self.0.store(value, order);
    }

    fn replace(
        &self,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32> {
        self.0.compare_exchange(current, new, success, failure)
    }

    fn set(&self, bit: u32, order: Ordering) -> bool {
        self.0.fetch_or(bit, order) & bit != 0
    }

    fn clear(&self, bit: u32, order: Ordering) -> bool {
        self.0.fetch_and(!bit, order) & bit != 0
    }

    fn full_fence() {
        fence(Ordering::SeqCst);
    }
}

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
