//! Cells with mistakes in them.

use std::marker::PhantomData;
use std::sync::atomic::Ordering;

use nearpage::internals::Cell32;

use crate::cell32::Honest;

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
