//! The core's seams on loom's cells.

use std::marker::PhantomData;

use loom::sync::atomic::{AtomicU32, fence};
use loom::sync::{Mutex, MutexGuard};
use nearpage::internals::Cell32;
use nearpage::platform::Lock;
use std::sync::atomic::Ordering;

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

/// What a canary does otherwise than [`Honest`].
pub trait Mutation: 'static {
    fn replace(cell: &Honest, current: u32, new: u32, orders: [Ordering; 2]) -> Result<u32, u32> {
        cell.replace(current, new, orders[0], orders[1])
    }

    fn clear(cell: &Honest, bit: u32, order: Ordering) -> bool {
        cell.clear(bit, order)
    }
}

/// A cell with a mistake in it.
pub struct Mutant<M>(Honest, PhantomData<M>);

impl<M: Mutation> Cell32 for Mutant<M> {
    fn new(value: u32) -> Self {
        Self(Honest::new(value), PhantomData)
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
        M::replace(&self.0, current, new, [success, failure])
    }

    fn set(&self, bit: u32, order: Ordering) -> bool {
        self.0.set(bit, order)
    }

    fn clear(&self, bit: u32, order: Ordering) -> bool {
        M::clear(&self.0, bit, order)
    }

    fn full_fence() {
        Honest::full_fence();
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
