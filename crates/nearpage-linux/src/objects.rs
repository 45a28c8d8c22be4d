//! The place in a memory where its slab allocator is found. The background thread reaps the slab allocator, a request that
//! finds no memory takes pages back from it, and the memory tells it when memory or CPUs come and go.
//!
//! A slab allocator borrows its memory, so the memory cannot own it. The slab allocator takes the place when it is made and
//! leaves it when it is dropped. A slab allocator that is never dropped (`mem::forget`) stays in the place while its memory
//! may move. Each caller therefore passes the current address of the memory's platform, and finds nothing if that has
//! changed.
//!
//! Locks: the place's comes before all of the core, also around a fork. A fork holds it whether or not the place is taken:
//! who only looks at an empty place has the lock too.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nearpage::PageCount;
use nearpage_slab::REAP_PERIOD_NS;

use crate::fork::Hold;

const REAP_PERIOD: Duration = Duration::from_nanos(REAP_PERIOD_NS);

/// What a memory asks of its slab allocator. Each call skips CPUs whose stacks are busy; the next reap does those.
pub(crate) trait Upkeep: Send {
    /// Brings all free objects home and gives all free slabs back; returns pages.
    fn shrink_all(&self) -> PageCount;
    /// A round of reaping for each CPU.
    fn reap(&self);
    /// Deals a changed budget out to the stacks.
    fn apply_budget(&self);
    /// Empties all stacks: memory is about to come, or to become private.
    fn flush_stacks(&self);
    /// Computes the nodes of all CPUs anew, and which CPUs are on.
    fn refresh_nodes(&self);
    /// Writes the text of `/proc/slabinfo`.
    #[cfg(feature = "stats")]
    fn write_slabinfo(&self, out: &mut String) -> fmt::Result;
}

/// The place of a memory's slab allocator.
#[derive(Clone, Default)]
pub(crate) struct Objects(Arc<Mutex<Option<Kept>>>);

struct Kept {
    allocator: Box<dyn Upkeep>,
    /// Address of the platform.
    platform: usize,
    reaped: Instant,
}

/// A slab allocator in its place, until this is dropped.
pub(crate) struct Place {
    objects: Objects,
}

impl Place {
    /// Takes the place. `platform` is the address of the platform of the memory that `allocator` borrows.
    pub fn take(objects: &Objects, allocator: Box<dyn Upkeep + '_>, platform: usize) -> Self {
        // SAFETY: the allocator is used only while the memory that it borrows is where it was (`Objects::with`), by
        // callers who have that memory.
        let allocator =
            unsafe { std::mem::transmute::<Box<dyn Upkeep + '_>, Box<dyn Upkeep>>(allocator) };
        *objects.lock() = Some(Kept { allocator, platform, reaped: Instant::now() });
        Self { objects: objects.clone() }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Waits for whoever uses it.
        *self.objects.lock() = None;
    }
}

impl Objects {
    fn lock(&self) -> MutexGuard<'_, Option<Kept>> {
        // Reports of the host may panic; what is here does not change meanwhile.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `act` with the slab allocator of the memory whose platform is at this address, if there is one.
    pub fn with<R: Default>(&self, platform: usize, act: impl FnOnce(&dyn Upkeep) -> R) -> R {
        let kept = self.lock();
        let here = kept.as_ref().filter(|kept| kept.platform == platform);
        here.map(|kept| act(&*kept.allocator)).unwrap_or_default()
    }

    /// A round of reaping, if its time has come.
    pub fn reap(&self, platform: usize) {
        let mut kept = self.lock();
        let Some(kept) = kept.as_mut().filter(|kept| kept.platform == platform) else { return };
        if kept.reaped.elapsed() >= REAP_PERIOD {
            kept.reaped = Instant::now();
            kept.allocator.reap();
        }
    }
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Objects").field("is_taken", &self.lock().is_some()).finish()
    }
}

impl Hold for Objects {
    fn hold(&self) -> Box<dyn Any> {
        // SAFETY: who asks drops the answer before `self`, which keeps the mutex.
        let objects: &'static Objects = unsafe { &*std::ptr::from_ref(self) };
        Box::new(objects.lock())
    }
}
