//! A place for a reference that changes while others read it.
#![allow(unsafe_code)]

use core::marker::PhantomData;
use core::ptr;

use crate::sync::{AtomicPtr, Ordering};

/// A shared reference or none, replaced as a whole.
#[derive(Debug)]
pub struct Slot<'m, T> {
    pointer: AtomicPtr<T>,
    referent: PhantomData<&'m T>,
}

impl<'m, T> Slot<'m, T> {
    /// A slot with nothing in it.
    pub const fn empty() -> Self {
        Self { pointer: AtomicPtr::new(ptr::null_mut()), referent: PhantomData }
    }

    /// What is in the slot now.
    #[inline(always)]
    pub fn get(&self) -> Option<&'m T> {
        // Acquire pairs with the Release in `set`: what the referent was made of is visible.
        let pointer = self.pointer.load(Ordering::Acquire);
        // SAFETY: the pointer is null or was a `&'m T` in `set`.
        unsafe { pointer.as_ref() }
    }

    /// Replaces what is in the slot.
    pub fn set(&self, referent: Option<&'m T>) {
        let pointer =
            referent.map_or(ptr::null_mut(), |referent| ptr::from_ref(referent).cast_mut());
        self.pointer.store(pointer, Ordering::Release);
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
        let slot = Slot::empty();
        assert_eq!(slot.get(), None);
        slot.set(Some(&one));
        assert_eq!(slot.get(), Some(&1));
        slot.set(Some(&two));
        assert_eq!(slot.get(), Some(&2));
        slot.set(None);
        assert_eq!(slot.get(), None);
    }
}
