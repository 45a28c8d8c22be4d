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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_holds_what_was_set() {
        let (one, two) = (1, 2);
        let slot = Slot::new(&one);
        assert_eq!(slot.get(), &1);
        slot.set(&two);
        assert_eq!(slot.get(), &2);
    }
}
