//! The one door for atomics: no other file names `core::sync::atomic`.
//!
//! Nearly all atomics here are `Relaxed`: frame words, free-list links and per-CPU state are written
//! by one CPU or under one lock at a time, and readers from elsewhere only want a recent value. An
//! ordering stronger than `Relaxed` says at its place which access it pairs with.

pub use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence,
};

/// A 32-bit word that threads share, as far as the protocols on packed words need one: they are generic over it,
/// so that they run unchanged on the atomics of a model checker.
pub trait Cell32 {
    /// A word with this value.
    fn new(value: u32) -> Self;
    /// The value now.
    fn load(&self, order: Ordering) -> u32;
    /// Overwrites the value.
    fn store(&self, value: u32, order: Ordering);
    /// Puts `new` in the place of `current`, or returns what was there instead.
    ///
    /// # Errors
    /// What was there, if it was not `current`.
    fn replace(
        &self,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32>;
    /// Puts `new` in the place of what was there, and returns that.
    fn swap(&self, new: u32, order: Ordering) -> u32;
    /// Sets one bit; returns whether it was set before.
    fn set(&self, bit: u32, order: Ordering) -> bool;
    /// Clears one bit; returns whether it was set before.
    fn clear(&self, bit: u32, order: Ordering) -> bool;
    /// A sequentially consistent fence: nothing after it is seen before anything before it.
    fn full_fence();
}

impl Cell32 for AtomicU32 {
    fn new(value: u32) -> Self {
        Self::new(value)
    }

    #[inline(always)]
    fn load(&self, order: Ordering) -> u32 {
        self.load(order)
    }

    #[inline(always)]
    fn store(&self, value: u32, order: Ordering) {
        self.store(value, order);
    }

    #[inline(always)]
    fn replace(
        &self,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32> {
        self.compare_exchange(current, new, success, failure)
    }

    #[inline(always)]
    fn swap(&self, new: u32, order: Ordering) -> u32 {
        self.swap(new, order)
    }

    // With one bit asked for, compilers for x86 know an instruction that does it: no loop, no look before.
    #[inline(always)]
    fn set(&self, bit: u32, order: Ordering) -> bool {
        self.fetch_or(bit, order) & bit != 0
    }

    #[inline(always)]
    fn clear(&self, bit: u32, order: Ordering) -> bool {
        self.fetch_and(!bit, order) & bit != 0
    }

    #[inline(always)]
    fn full_fence() {
        fence(Ordering::SeqCst);
    }
}

/// A 16-bit word that threads share, as [`Cell32`].
pub trait Cell16 {
    /// A word with this value.
    fn new(value: u16) -> Self;
    /// The value now.
    fn load(&self, order: Ordering) -> u16;
    /// Overwrites the value.
    fn store(&self, value: u16, order: Ordering);
    /// Puts `new` in the place of what was there, and returns that.
    fn swap(&self, new: u16, order: Ordering) -> u16;
}

impl Cell16 for AtomicU16 {
    fn new(value: u16) -> Self {
        Self::new(value)
    }

    #[inline(always)]
    fn load(&self, order: Ordering) -> u16 {
        self.load(order)
    }

    #[inline(always)]
    fn store(&self, value: u16, order: Ordering) {
        self.store(value, order);
    }

    #[inline(always)]
    fn swap(&self, new: u16, order: Ordering) -> u16 {
        self.swap(new, order)
    }
}

/// A 64-bit word that threads share, as [`Cell32`].
pub trait Cell64 {
    /// The value now.
    fn load(&self, order: Ordering) -> u64;
    /// Puts `new` in the place of `current`, or returns what was there instead.
    ///
    /// # Errors
    /// What was there, if it was not `current`.
    fn replace(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64>;
    /// Puts `new` in the place of what was there, and returns that.
    fn swap(&self, new: u64, order: Ordering) -> u64;
    /// Sets bits; returns what was there before.
    fn set(&self, bits: u64, order: Ordering) -> u64;
    /// Clears bits; returns what was there before.
    fn clear(&self, bits: u64, order: Ordering) -> u64;
}

impl Cell64 for AtomicU64 {
    #[inline(always)]
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }

    #[inline(always)]
    fn replace(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        self.compare_exchange(current, new, success, failure)
    }

    #[inline(always)]
    fn swap(&self, new: u64, order: Ordering) -> u64 {
        self.swap(new, order)
    }

    #[inline(always)]
    fn set(&self, bits: u64, order: Ordering) -> u64 {
        self.fetch_or(bits, order)
    }

    #[inline(always)]
    fn clear(&self, bits: u64, order: Ordering) -> u64 {
        self.fetch_and(!bits, order)
    }
}

/// Where a thread is about to read or write a word that another CPU may write without a lock: there a model checker lets
/// others come between. Nothing elsewhere.
#[inline(always)]
pub fn point() {
    #[cfg(loom)]
    model::POINT.get().inspect(|point| point());
}

/// What a model checker that runs the whole core puts in.
#[cfg(loom)]
pub mod model {
    use std::sync::OnceLock;

    /// What [`point`](super::point) calls.
    pub static POINT: OnceLock<fn()> = OnceLock::new();
}

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

    /// Adds, for counters that several threads write at once.
    #[inline]
    pub fn add_atomically(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
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

/// A counter that several threads write at once, and that loses no update.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct SharedCounter(AtomicU64);

impl SharedCounter {
    /// A counter at zero.
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds `n`, wrapping.
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// The value now.
    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
