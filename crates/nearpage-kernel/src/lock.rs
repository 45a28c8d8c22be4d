//! A ticket lock that keeps interrupts off: fair, and never wanted by a handler that interrupted its holder.
//!
//! ```text
//! next     the ticket that the next who comes draws
//! serving  the ticket whose holder may go in
//! holder   the CPU in there and 1, where locks are checked; 0 is nobody
//! ```
//!
//! A CPU draws a ticket and waits until it is served, so CPUs go in as they came. Interrupts go off before the ticket is
//! drawn and come back after the next is served: a CPU that waits cannot be interrupted between its turn and its work.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering};

use nearpage::CpuId;
use nearpage::platform::Lock;

use crate::order::{IS_CHECKED, Kind, LockFault, ORDER};
use crate::seam::{InterruptsOff, Kernel};

/// No CPU in a lock's `holder`. With it a lock is all zeroes, so that a static one takes no bytes of a kernel's image.
const NOBODY: u32 = 0;

/// A CPU in a lock's `holder`.
fn as_holder(cpu: CpuId) -> u32 {
    cpu.0.wrapping_add(1)
}

/// A fair spin lock around a value, whose holder has interrupts off.
///
/// The allocator's own locks are of this type. A kernel may use it for its own data, from interrupt handlers too:
///
/// ```
/// # use nearpage::CpuId;
/// # use nearpage_kernel::{Interrupts, Kernel, TicketLock};
/// # struct Mine;
/// # // SAFETY: one thread plays the only CPU, and nothing interrupts it.
/// # unsafe impl Kernel for Mine {
/// #     type Rules = nearpage::rules::Places;
/// #     fn this_cpu() -> CpuId { CpuId(0) }
/// #     fn interrupts_off() -> Interrupts { Interrupts(0) }
/// #     fn interrupts_restore(_: Interrupts) {}
/// #     fn now_ns() -> u64 { 0 }
/// #     fn phys_to_virt(address: u64) -> *mut u8 { std::ptr::without_provenance_mut(address as usize) }
/// # }
/// static COUNT: TicketLock<Mine, u64> = TicketLock::new(0);
/// *COUNT.lock() += 1;
/// assert_eq!(*COUNT.try_lock().expect("nobody has it"), 1);
/// ```
pub struct TicketLock<K, T> {
    next: AtomicU32,
    serving: AtomicU32,
    holder: AtomicU32,
    kernel: PhantomData<fn() -> K>,
    value: UnsafeCell<T>,
}

// SAFETY: the lock lets one thread at a time at the value.
unsafe impl<K, T: Send> Sync for TicketLock<K, T> {}
// SAFETY: the lock owns the value, and has nothing else that stays with a thread.
unsafe impl<K, T: Send> Send for TicketLock<K, T> {}

impl<K: Kernel, T> TicketLock<K, T> {
    /// An unlocked lock.
    pub const fn new(value: T) -> Self {
        Self {
            next: AtomicU32::new(0),
            serving: AtomicU32::new(0),
            holder: AtomicU32::new(NOBODY),
            kernel: PhantomData,
            value: UnsafeCell::new(value),
        }
    }

    /// Switches interrupts off and waits for the lock.
    #[inline]
    pub fn lock(&self) -> TicketGuard<'_, K, T> {
        let off = InterruptsOff::new();
        let kind = self.note_wanted(&off);
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        // Acquire pairs with the Release of the guard before: we see what it did.
        while self.serving.load(Ordering::Acquire) != ticket {
            K::pause();
        }
        self.enter(off, kind)
    }

    /// Takes the lock if nobody has it: never waits, so it may be called where the holder may have been interrupted.
    #[inline]
    pub fn try_lock(&self) -> Option<TicketGuard<'_, K, T>> {
        let off = InterruptsOff::new();
        let serving = self.serving.load(Ordering::Relaxed);
        // Acquire pairs with the Release of the guard before. Who draws the ticket that is served goes in at once.
        let drawn = self.next.compare_exchange(
            serving,
            serving.wrapping_add(1),
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        // What is never waited for cannot be waited for in a wrong order.
        drawn.ok().map(|_| self.enter(off, None))
    }

    /// Whether somebody has the lock, as of a moment ago.
    pub fn is_locked(&self) -> bool {
        self.serving.load(Ordering::Relaxed) != self.next.load(Ordering::Relaxed)
    }

    #[inline]
    fn enter(&self, off: InterruptsOff<K>, kind: Option<Kind>) -> TicketGuard<'_, K, T> {
        if IS_CHECKED {
            self.holder.store(as_holder(off.cpu()), Ordering::Relaxed);
        }
        TicketGuard { lock: self, kind, _off: off }
    }

    /// Says if this CPU would wait for itself, or takes locks in a wrong order.
    #[inline]
    fn note_wanted(&self, off: &InterruptsOff<K>) -> Option<Kind> {
        if !IS_CHECKED {
            return None;
        }
        let (cpu, name) = (off.cpu(), core::any::type_name::<T>());
        if self.is_locked() && self.holder.load(Ordering::Relaxed) == as_holder(cpu) {
            K::lock_fault(&LockFault::Deadlock { cpu, kind: crate::order::short(name) });
        }
        let (kind, fault) = ORDER.take(cpu, name);
        if let Some(fault) = fault {
            K::lock_fault(&fault);
        }
        Some(kind)
    }
}

impl<K: Kernel, T> Lock<T> for TicketLock<K, T> {
    type Guard<'a>
        = TicketGuard<'a, K, T>
    where
        T: 'a;

    fn new(value: T) -> Self {
        Self::new(value)
    }

    #[inline]
    fn lock(&self) -> TicketGuard<'_, K, T> {
        self.lock()
    }
}

impl<K, T> core::fmt::Debug for TicketLock<K, T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("TicketLock")
            .field("next", &self.next)
            .field("serving", &self.serving)
            .finish_non_exhaustive()
    }
}

/// The lock, held. Dropping it serves the next ticket, and then brings interrupts back as they were.
pub struct TicketGuard<'a, K: Kernel, T> {
    lock: &'a TicketLock<K, T>,
    kind: Option<Kind>,
    // Dropped after the next ticket is served: fields go after the value itself.
    _off: InterruptsOff<K>,
}

impl<K: Kernel, T> Deref for TicketGuard<'_, K, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard's ticket is the one that is served.
        unsafe { &*self.lock.value.get() }
    }
}

impl<K: Kernel, T> DerefMut for TicketGuard<'_, K, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and `self` is borrowed alone.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<K: Kernel, T> Drop for TicketGuard<'_, K, T> {
    #[inline]
    fn drop(&mut self) {
        if IS_CHECKED {
            self.lock.holder.store(NOBODY, Ordering::Relaxed);
            if let Some(kind) = self.kind {
                ORDER.give_back(CpuId(K::this_cpu().0), kind);
            }
        }
        // Only the holder writes it. Release pairs with the Acquire of who comes next.
        let served = self.lock.serving.load(Ordering::Relaxed);
        self.lock.serving.store(served.wrapping_add(1), Ordering::Release);
    }
}

impl<K: Kernel, T: core::fmt::Debug> core::fmt::Debug for TicketGuard<'_, K, T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        (**self).fmt(f)
    }
}
