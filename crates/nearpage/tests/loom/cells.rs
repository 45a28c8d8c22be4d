//! The core's seams on loom's cells.

use std::marker::PhantomData;

use loom::sync::atomic::{AtomicU32, AtomicU64, fence};
use nearpage::internals::{Cell32, Cell64};
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

/// A cell of 64 bits that does what it should.
pub struct Honest64(AtomicU64);

impl From<u64> for Honest64 {
    fn from(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }
}

impl Cell64 for Honest64 {
    /// Loom gives loads in one order with all others no more than acquiring ones: a value that was overwritten since. What is
    /// exchanged is the last one.
    fn load(&self, order: Ordering) -> u64 {
        match order {
            Ordering::SeqCst => self.0.fetch_or(0, order),
            _ => self.0.load(order),
        }
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

    fn set(&self, bits: u64, order: Ordering) -> u64 {
        self.0.fetch_or(bits, order)
    }

    fn clear(&self, bits: u64, order: Ordering) -> u64 {
        self.0.fetch_and(!bits, order)
    }
}

/// What a canary does otherwise than [`Honest64`].
pub trait Mutation64: 'static {
    /// The order that is taken for another.
    fn order(order: Ordering) -> Ordering {
        order
    }

    fn load(cell: &Honest64, order: Ordering) -> u64 {
        cell.load(order)
    }

    fn replace(cell: &Honest64, current: u64, new: u64, orders: [Ordering; 2]) -> Result<u64, u64> {
        cell.replace(current, new, orders[0], orders[1])
    }

    fn set(cell: &Honest64, bits: u64, order: Ordering) -> u64 {
        cell.set(bits, order)
    }
}

/// A cell of 64 bits with a mistake in it.
pub struct Mutant64<M>(Honest64, PhantomData<fn() -> M>);

impl<M> From<u64> for Mutant64<M> {
    fn from(value: u64) -> Self {
        Self(value.into(), PhantomData)
    }
}

impl<M: Mutation64> Cell64 for Mutant64<M> {
    fn load(&self, order: Ordering) -> u64 {
        M::load(&self.0, M::order(order))
    }

    fn replace(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        M::replace(&self.0, current, new, [M::order(success), M::order(failure)])
    }

    fn swap(&self, new: u64, order: Ordering) -> u64 {
        self.0.swap(new, M::order(order))
    }

    fn set(&self, bits: u64, order: Ordering) -> u64 {
        M::set(&self.0, bits, M::order(order))
    }

    fn clear(&self, bits: u64, order: Ordering) -> u64 {
        self.0.clear(bits, M::order(order))
    }
}

/// Neither acquires nor releases.
pub struct Relaxed;

impl Mutation64 for Relaxed {
    fn order(_: Ordering) -> Ordering {
        Ordering::Relaxed
    }
}

/// Acquires and releases, in no one order with the other cells: a look may come too early.
pub struct InNoOneOrder;

impl Mutation64 for InNoOneOrder {
    fn load(cell: &Honest64, _: Ordering) -> u64 {
        cell.load(Ordering::Acquire)
    }
}

/// An exchange that takes no notice of what was there.
pub struct Overwrites;

impl Mutation64 for Overwrites {
    fn replace(cell: &Honest64, current: u64, new: u64, orders: [Ordering; 2]) -> Result<u64, u64> {
        cell.swap(new, orders[0]);
        Ok(current)
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
