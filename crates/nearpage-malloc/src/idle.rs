//! The lock of the heaps without a thread, and what it guards.

use std::ptr::null_mut;

use crate::lock::Lock;

/// Heaps without a thread.
pub(crate) struct Pool {
    /// The first; each leads to the next.
    pub idle: *mut (),
    /// Heaps that were made; the first has the id 1.
    pub made: u16,
}

// SAFETY: whoever has the lock has the heaps without a thread.
unsafe impl Send for Pool {}

pub(crate) static POOL: Lock<Pool> = Lock::new(Pool { idle: null_mut(), made: 0 });
