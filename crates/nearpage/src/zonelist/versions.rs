//! Versions of something that has two copies: one that is read, and one that the next version is written into.
//!
//! ```text
//! writer   begun = n+1; writes copy (n+1) mod 2; published = n+1
//! reader   n = published; reads copy n mod 2; what it read is version n if begun <= n+1 by then
//! ```
//!
//! A sequence count, but for one thing: nobody waits. The copy of version n stays whole until version n+2 is begun, so
//! only a reader who was overtaken twice has to begin anew, and a writer that lost its CPU holds nobody up.
//!
//! What is in the copies is stored with `Release` and loaded with `Acquire`: who sees anything of version n+2 then
//! sees that it was begun.

use crate::sync::{Cell32, Ordering};

/// Which version is in force, and which was begun. One writer at a time.
#[derive(Debug)]
pub struct Versions<C> {
    published: C,
    begun: C,
}

impl<C: Cell32> Versions<C> {
    /// Version 0.
    #[expect(clippy::new_without_default, reason = "cells have no default")]
    pub fn new() -> Self {
        Self { published: C::new(0), begun: C::new(0) }
    }

    /// Announces the next version; its copy may be written from now on.
    pub fn begin(&self) -> u32 {
        let next = self.published.load(Ordering::Relaxed).wrapping_add(1);
        self.begun.store(next, Ordering::Relaxed);
        next
    }

    /// Puts a version in force.
    pub fn publish(&self, version: u32) {
        // Pairs with the Acquire in `current`: who sees a version sees its copy.
        self.published.store(version, Ordering::Release);
    }

    /// The version in force.
    #[inline]
    pub fn current(&self) -> u32 {
        self.published.load(Ordering::Acquire)
    }

    /// Whether what was read of the copy of a version, before this, is of that version.
    #[inline]
    pub fn is_intact(&self, version: u32) -> bool {
        self.begun.load(Ordering::Relaxed).wrapping_sub(version) <= 1
    }

    /// The copy that a version is in.
    #[inline]
    pub const fn copy(version: u32) -> usize {
        (version & 1) as usize
    }
}
