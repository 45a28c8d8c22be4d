//! The lock of the others: a flag, with interrupts off while it is held. It is not fair: where the host takes a CPU away, a
//! ticket lock would let all that come later wait for the one that is away.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicBool, Ordering};

use nearpage_kernel::{InterruptsOff, Kernel};

/// A value under a spin lock.
pub(crate) struct Spin<K, T> {
    is_held: AtomicBool,
    kernel: PhantomData<fn() -> K>,
    value: UnsafeCell<T>,
}

// SAFETY: the lock lets one thread at a time at the value.
unsafe impl<K, T: Send> Sync for Spin<K, T> {}

impl<K: Kernel, T> Spin<K, T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { is_held: AtomicBool::new(false), kernel: PhantomData, value: UnsafeCell::new(value) }
    }

    /// Calls `work` with the value, interrupts off.
    #[inline(always)]
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let _off = InterruptsOff::<K>::new();
        // Acquire pairs with the Release below.
        while self.is_held.swap(true, Ordering::Acquire) {
            while self.is_held.load(Ordering::Relaxed) {
                K::pause();
            }
        }
        // SAFETY: the flag was not set, and is now.
        let result = work(unsafe { &mut *self.value.get() });
        self.is_held.store(false, Ordering::Release);
        result
    }
}
