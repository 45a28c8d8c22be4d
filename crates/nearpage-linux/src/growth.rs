//! One lock serializes growing and shrinking a memory. A thread that grows it finds the end of its online part, makes memory
//! usable there, and hands it to the core; two threads at once would hand over the same frames. A trim and a prefault need
//! their memory to stay online: they share the lock, for one piece at a time.

use std::any::Any;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::fork::{Hold, Registration};

/// The lock. It comes before all locks of the core, and forks hold it.
#[derive(Debug)]
pub(crate) struct Growth {
    lock: Arc<RwLock<()>>,
    _registration: Registration,
}

impl Growth {
    /// Must be made after the allocator takes part in forks: a fork takes the locks of what was made last first.
    pub fn new() -> Self {
        let lock = Arc::<RwLock<()>>::default();
        let _registration = Registration::of(Box::new(HeldGrowth(lock.clone())));
        Self { lock, _registration }
    }

    /// Keeps other threads from growing or shrinking the memory until the guard is dropped.
    pub fn hold(&self) -> RwLockWriteGuard<'_, ()> {
        self.lock.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps online memory online until the guard is dropped. Other threads cannot grow the memory or fork meanwhile, so the
    /// guard should not live long. No thread may have two: the second would wait for a writer that waits for the first.
    pub fn keep(&self) -> RwLockReadGuard<'_, ()> {
        self.lock.read().unwrap_or_else(PoisonError::into_inner)
    }
}

struct HeldGrowth(Arc<RwLock<()>>);

impl Hold for HeldGrowth {
    fn hold(&self) -> Box<dyn Any> {
        // SAFETY: who asks drops the answer before `self`, which keeps the lock.
        let lock: &'static RwLock<()> = unsafe { &*Arc::as_ptr(&self.0) };
        Box::new(lock.write().unwrap_or_else(PoisonError::into_inner))
    }
}
