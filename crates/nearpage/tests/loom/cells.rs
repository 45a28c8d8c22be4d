//! The core's seams on loom's cells.

use std::marker::PhantomData;

use loom::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, fence};
use loom::sync::{Mutex, MutexGuard};
use nearpage::internals::{Cell16, Cell32, Cell64};
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

/// What a canary does otherwise than [`Honest`].
pub trait Mutation: 'static {
    fn replace(cell: &Honest, current: u32, new: u32, orders: [Ordering; 2]) -> Result<u32, u32> {
        cell.replace(current, new, orders[0], orders[1])
    }

    fn clear(cell: &Honest, bit: u32, order: Ordering) -> bool {
        cell.clear(bit, order)
    }

    fn store(cell: &Honest, value: u32, order: Ordering) {
        cell.store(value, order);
    }
}

/// A cell of 16 bits that does what it should.
pub struct Honest16(AtomicU16);

impl Cell16 for Honest16 {
    fn new(value: u16) -> Self {
        Self(AtomicU16::new(value))
    }

    fn load(&self, order: Ordering) -> u16 {
        self.0.load(order)
    }

    fn store(&self, value: u16, order: Ordering) {
        self.0.store(value, order);
    }

    fn swap(&self, new: u16, order: Ordering) -> u16 {
        self.0.swap(new, order)
    }
}

/// A canary: what it says does not come before anything. Which of the two it forgets is in `RELEASES`: to acquire, or to
/// release.
pub struct Forgetful16<const RELEASES: bool>(Honest16);

impl<const RELEASES: bool> Forgetful16<RELEASES> {
    fn order(order: Ordering) -> Ordering {
        match (order, RELEASES) {
            (Ordering::Acquire, true) | (Ordering::Release, false) => Ordering::Relaxed,
            _ => order,
        }
    }
}

impl<const RELEASES: bool> Cell16 for Forgetful16<RELEASES> {
    fn new(value: u16) -> Self {
        Self(Honest16::new(value))
    }

    fn load(&self, order: Ordering) -> u16 {
        self.0.load(Self::order(order))
    }

    fn store(&self, value: u16, order: Ordering) {
        self.0.store(value, Self::order(order));
    }

    fn swap(&self, new: u16, order: Ordering) -> u16 {
        self.0.swap(new, Self::order(order))
    }
}

/// A cell of 16 bits whose exchange is a look and a store.
pub struct Torn16(Honest16);

impl Cell16 for Torn16 {
    fn new(value: u16) -> Self {
        Self(Honest16::new(value))
    }

    fn load(&self, order: Ordering) -> u16 {
        self.0.load(order)
    }

    fn store(&self, value: u16, order: Ordering) {
        self.0.store(value, order);
    }

    fn swap(&self, new: u16, order: Ordering) -> u16 {
        let before = self.0.load(order);
        self.0.store(new, Ordering::Relaxed);
        before
    }
}

/// A cell of 64 bits that does what it should.
pub struct Honest64(AtomicU64);

impl From<u64> for Honest64 {
    fn from(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }
}

impl Cell64 for Honest64 {
    /// Loom lets others come between where a word is exchanged, and not where it is only read: so this is an exchange.
    fn load(&self, order: Ordering) -> u64 {
        self.0.fetch_or(0, order)
    }

    fn replace(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        self.0.compare_exchange(current, new, success, failure)
    }

    fn swap(&self, new: u64, order: Ordering) -> u64 {
        self.0.swap(new, order)
    }
}

/// A canary: neither acquires nor releases.
pub struct Relaxed64(Honest64);

impl From<u64> for Relaxed64 {
    fn from(value: u64) -> Self {
        Self(value.into())
    }
}

impl Cell64 for Relaxed64 {
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }

    fn replace(&self, current: u64, new: u64, _: Ordering, _: Ordering) -> Result<u64, u64> {
        self.0.replace(current, new, Ordering::Relaxed, Ordering::Relaxed)
    }

    fn swap(&self, new: u64, _: Ordering) -> u64 {
        self.0.swap(new, Ordering::Relaxed)
    }
}

/// A canary: an exchange that takes no notice of what was there.
pub struct Overwriting64(Honest64);

impl From<u64> for Overwriting64 {
    fn from(value: u64) -> Self {
        Self(value.into())
    }
}

impl Cell64 for Overwriting64 {
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }

    fn replace(&self, current: u64, new: u64, success: Ordering, _: Ordering) -> Result<u64, u64> {
        self.0.swap(new, success);
        Ok(current)
    }

    fn swap(&self, new: u64, order: Ordering) -> u64 {
        self.0.swap(new, order)
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
        M::store(&self.0, value, order);
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

    fn swap(&self, new: u32, order: Ordering) -> u32 {
        self.0.swap(new, order)
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
