//! A place for a reference that changes while others read it.
#![allow(unsafe_code)]

use core::marker::PhantomData;
use core::ptr;

use crate::sync::{AtomicPtr, Ordering};

/// A shared reference, replaced as a whole.
#[derive(Debug)]
pub struct Slot<'m, T> {
    pointer: AtomicPtr<T>,
    referent: PhantomData<&'m T>,
}

impl<'m, T> Slot<'m, T> {
    /// A slot that holds `referent`.
    pub const fn new(referent: &'m T) -> Self {
        let pointer = AtomicPtr::new(ptr::from_ref(referent).cast_mut());
        Self { pointer, referent: PhantomData }
    }

    /// What is in the slot now.
    #[inline(always)]
    pub fn get(&self) -> &'m T {
        // Acquire pairs with the Release in `set`: what the referent was made of is visible.
        let pointer = self.pointer.load(Ordering::Acquire);
        // SAFETY: the pointer was a `&'m T` in `new` or `set`. To say that it is not null saves the fast path a
        // branch.
        unsafe {
            core::hint::assert_unchecked(!pointer.is_null());
            &*pointer
        }
    }

    /// Replaces what is in the slot.
    pub fn set(&self, referent: &'m T) {
        self.pointer.store(ptr::from_ref(referent).cast_mut(), Ordering::Release);
    }
}

// SAFETY: a slot holds nothing but a `&'m T`, which may be sent if `T` may be shared.
unsafe impl<T: Sync> Send for Slot<'_, T> {}
// SAFETY: sharing a slot shares the `&'m T` in it; the pointer itself is atomic.
unsafe impl<T: Sync> Sync for Slot<'_, T> {}

/// Slots by number. Numbers past the end wrap around: so a look-up needs no comparison, and who takes numbers from
/// elsewhere sees by what is in a slot whether it is the right one.
#[derive(Debug)]
pub struct SlotRing<'m, T> {
    slots: &'m [Slot<'m, T>],
    /// One less than there are slots.
    mask: usize,
}

impl<'m, T> SlotRing<'m, T> {
    /// # Panics
    /// If the number of slots is not a power of two.
    pub fn new(slots: &'m [Slot<'m, T>]) -> Self {
        assert!(slots.len().is_power_of_two());
        Self { slots, mask: slots.len() - 1 }
    }

    /// The slot of a number.
    #[inline(always)]
    pub fn slot(&self, number: usize) -> &'m Slot<'m, T> {
        let at = number & self.mask;
        // SAFETY: the length is a power of two (`new`), so one less is the mask of all indexes. To say so saves
        // the fast path a branch.
        unsafe { core::hint::assert_unchecked(at < self.slots.len()) };
        &self.slots[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_wrap_around() {
        let values = [1, 2, 3, 4];
        let slots = core::array::from_fn::<_, 4, _>(|at| Slot::new(&values[at]));
        let ring = SlotRing::new(&slots);
        let found = [0, 3, 4, 7, usize::MAX].map(|number| *ring.slot(number).get());
        assert_eq!(found, [1, 4, 1, 4, 4]);
    }

    #[test]
    fn a_slot_holds_what_was_set() {
        let (one, two) = (1, 2);
        let slot = Slot::new(&one);
        assert_eq!(slot.get(), &1);
        slot.set(&two);
        assert_eq!(slot.get(), &2);
    }
}
