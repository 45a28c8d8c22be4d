//! The host looks after a slab allocator by itself: its background thread reaps it, and it gives back what it keeps
//! when memory is short.
//!
//! A slab allocator borrows its memory, and the background thread has the memory, so the way from there to the slab
//! allocator is this place in the memory, which the slab allocator takes when it is made and leaves when it is
//! dropped. One that is never dropped (`mem::forget`) stays there, while its memory may move: so whoever comes says
//! where the platform of the memory is, and finds nobody if it was elsewhere when the place was taken.
//!
//! Locks: the place's comes before all of the core, also around a fork.

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nearpage::PageCount;
use nearpage::platform::Platform;
use nearpage::slab::REAP_PERIOD_NS;

use super::Shape;
use crate::fork::{Hold, Registration};
use crate::memory::{Memory, with_allocator};

const REAP_PERIOD: Duration = Duration::from_nanos(REAP_PERIOD_NS);

/// The place of a memory's slab allocator.
#[derive(Clone, Default)]
pub(crate) struct Objects(Arc<Mutex<Option<Kept>>>);

struct Kept {
    shape: Shape<'static>,
    /// Address of the platform.
    platform: usize,
    reaped: Instant,
}

/// A slab allocator in its place, until this is dropped.
pub(super) struct Place {
    objects: Objects,
    _registration: Registration,
}

impl Place {
    /// Takes the place; to be done after the slab allocator takes part in forks: locks of what was made later are
    /// taken first.
    pub(super) fn take(objects: &Objects, shape: &Shape<'_>) -> Self {
        let platform = address(shape);
        // SAFETY: the shape is used only while the memory that it borrows is where it was (`Objects::with`), by those
        // who have that memory.
        let shape = unsafe { std::mem::transmute::<Shape<'_>, Shape<'static>>(shape.twin()) };
        *objects.lock() = Some(Kept { shape, platform, reaped: Instant::now() });
        let _registration = Registration::of(Box::new(objects.clone()));
        Self { objects: objects.clone(), _registration }
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
    fn with<R>(&self, platform: usize, act: impl FnOnce(&mut Kept) -> R) -> Option<R> {
        self.lock().as_mut().filter(|kept| kept.platform == platform).map(act)
    }

    /// Gives all back that caches keep; returns pages. `platform` is that of the memory.
    pub(crate) fn shrink<P: Platform>(&self, platform: &P) -> PageCount {
        let platform = std::ptr::from_ref(platform).addr();
        let shrink = |kept: &mut Kept| with_shape!(&kept.shape, core => core.shrink_all());
        self.with(platform, shrink).unwrap_or_default()
    }
}

impl Memory {
    /// A round of reaping for each CPU, if its time has come.
    pub(crate) fn reap_objects(&self) {
        let reap = |kept: &mut Kept| {
            if kept.reaped.elapsed() < REAP_PERIOD {
                return;
            }
            kept.reaped = Instant::now();
            // Stacks that cannot be had are reaped the next time.
            let _ = kept.shape.reap();
        };
        self.objects.with(self.platform_address(), reap);
    }

    /// Stacks of objects keep within a new budget.
    pub(crate) fn apply_object_budget(&self) {
        // Stacks that cannot be had are within it later.
        let apply = |kept: &mut Kept| {
            let _ = with_shape!(&kept.shape, core => core.apply_budget());
        };
        self.objects.with(self.platform_address(), apply);
    }

    /// Gives back what caches of objects keep; returns pages.
    pub(crate) fn shrink_objects(&self) -> PageCount {
        with_allocator!(self, allocator => self.objects.shrink(allocator.platform()))
    }

    fn platform_address(&self) -> usize {
        with_allocator!(self, allocator => std::ptr::from_ref(allocator.platform()).addr())
    }
}

fn address(shape: &Shape<'_>) -> usize {
    with_shape!(shape, core => std::ptr::from_ref(core.pages().platform()).addr())
}

impl Hold for Objects {
    fn hold(&self) -> Box<dyn Any> {
        // SAFETY: who asks drops the answer before `self`, which keeps the mutex.
        let objects: &'static Objects = unsafe { &*std::ptr::from_ref(self) };
        Box::new(objects.lock())
    }
}
