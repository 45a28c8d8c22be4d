//! A cell of 32 bits of the core's protocols, on loom's.

use std::sync::atomic::Ordering;

use loom::sync::atomic::{AtomicU32, fence};
use nearpage::internals::Cell32;

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

    fn swap(&self, new: u32, order: Ordering) -> u32 {
        self.0.swap(new, order)
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
