//! A slab allocator takes part in forks.

use std::any::Any;

use nearpage_slab::SlabPlatform;
use nearpage_slab::internals::{SlabHeld, SlabParts};

use crate::fork::{Hold, Patience, Registration};

struct HeldSlab<P: SlabPlatform + 'static> {
    parts: SlabParts<'static, P>,
    storage: P::Storage,
}

// SAFETY: references to what threads share (the parts of a slab allocator are made for that), and a storage that is
// `Send`.
unsafe impl<P: SlabPlatform + 'static> Send for HeldSlab<P> where P::Storage: Send {}

impl<P: SlabPlatform + 'static> Hold for HeldSlab<P>
where
    P::Storage: Send,
{
    fn hold(&self) -> Box<dyn Any> {
        // SAFETY: who asks drops the answer before `self`.
        let storage: &'static P::Storage = unsafe { &*std::ptr::from_ref(&self.storage) };
        let mut held: Vec<SlabHeld<'static, P>> = Vec::new();
        let patience = Patience::begin();
        let wait = || patience.is_left::<P::Storage>();
        self.parts.hold(storage, wait, |piece| held.push(piece));
        Box::new(held)
    }
}

/// Lets a slab allocator take part, whose metadata stays where it is until the answer is dropped. `storage` is one
/// like the platform's own; `place` is the registration of its place, whose lock comes before.
pub(super) fn register<P>(
    parts: SlabParts<'static, P>,
    storage: P::Storage,
    place: &Registration,
) -> Registration
where
    P: SlabPlatform + 'static,
    P::Storage: Send,
{
    Registration::inside(place, Box::new(HeldSlab { parts, storage }))
}
