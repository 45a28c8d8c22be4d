//! One thread at a time brings a memory's parts online or takes them offline: it looks where what is online ends,
//! makes memory usable there, and hands it to the core. Two at once would hand the same frames over. Who works on
//! memory that must stay online meanwhile, a trim or a prefault, holds on to it for a piece at a time.

use std::any::Any;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::fork::{Hold, Registration};

/// The lock for that. It comes before all locks of the core, and is kept still around a fork.
#[derive(Debug)]
pub(crate) struct Growth {
    lock: Arc<RwLock<()>>,
    _registration: Registration,
}

impl Growth {
    /// To be made after the allocator takes part in forks: locks of what was made later are taken first.
    pub fn new() -> Self {
        let lock = Arc::<RwLock<()>>::default();
        let _registration = Registration::of(Box::new(HeldGrowth(lock.clone())));
        Self { lock, _registration }
    }

    /// Keeps others out until the answer is dropped.
    pub fn hold(&self) -> RwLockWriteGuard<'_, ()> {
        self.lock.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is online stays so until the answer is dropped; nobody may change it or fork meanwhile, so not for long.
    /// No thread has two of these: the second would wait for who waits for the first.
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
