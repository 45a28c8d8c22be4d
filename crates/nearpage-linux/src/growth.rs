//! One thread at a time brings a memory's parts online or takes them offline: it looks where what is online ends,
//! makes memory usable there, and hands it to the core. Two at once would hand the same frames over.

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::fork::{Hold, Registration};

/// The lock for that. It comes before all locks of the core, and is kept still around a fork.
#[derive(Debug)]
pub(crate) struct Growth {
    lock: Arc<Mutex<()>>,
    _registration: Registration,
}

impl Growth {
    /// To be made after the allocator takes part in forks: locks of what was made later are taken first.
    pub fn new() -> Self {
        let lock = Arc::<Mutex<()>>::default();
        let _registration = Registration::of(Box::new(HeldGrowth(lock.clone())));
        Self { lock, _registration }
    }

    /// Keeps others out until the answer is dropped.
    pub fn hold(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct HeldGrowth(Arc<Mutex<()>>);

impl Hold for HeldGrowth {
    fn hold(&self) -> Box<dyn Any> {
        // SAFETY: who asks drops the answer before `self`, which keeps the mutex.
        let lock: &'static Mutex<()> = unsafe { &*Arc::as_ptr(&self.0) };
        Box::new(lock.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
