//! The one door for atomics: no other file names `core::sync::atomic`.
//!
//! Nearly all atomics here are `Relaxed`: frame words, free-list links and per-CPU state are written
//! by one CPU or under one lock at a time, and readers from elsewhere only want a recent value. An
//! ordering stronger than `Relaxed` says at its place which access it pairs with.

pub use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence,
};

/// A counter that only its owner (one CPU, or the holder of one lock) writes and anybody reads:
/// a plain load and store, never a locked instruction. An update is lost if a second writer comes
/// between; where that can happen, the owner of the counter says what it means.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct OwnedCounter(AtomicU64);

impl OwnedCounter {
    /// A counter at zero.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds `n`, wrapping.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Raises the counter to `n` if it is lower.
    #[inline]
    pub fn raise_to(&self, n: u64) {
        if n > self.0.load(Ordering::Relaxed) {
            self.0.store(n, Ordering::Relaxed);
        }
    }

    /// The value now.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Overwrites the value.
    #[inline]
    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }
}
