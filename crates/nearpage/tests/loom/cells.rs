//! Cells of 64 bits of the core's protocols, on loom's.

use std::marker::PhantomData;
use std::sync::atomic::Ordering;

use loom::sync::atomic::AtomicU64;
use nearpage::internals::Cell64;

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
