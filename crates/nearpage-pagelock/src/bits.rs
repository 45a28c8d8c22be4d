//! The lock bits of a frame's word: pure transitions, and their application to a cell.

use core::sync::atomic::Ordering;

use nearpage::internals::{Cell32, LOCKED, WAITERS};
use nearpage::rules::WaitersBit;

const fn mask(bit: WaitersBit) -> u32 {
    match bit {
        WaitersBit::On => WAITERS,
        WaitersBit::Off => 0,
    }
}

/// The word of a frame, as far as the lock is concerned; the other bits stay as they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockBits(pub u32);

impl LockBits {
    /// Whether the page is locked.
    #[inline(always)]
    pub const fn is_locked(self) -> bool {
        self.0 & LOCKED != 0
    }

    /// Whether somebody waits.
    #[inline(always)]
    pub const fn has_waiters(self) -> bool {
        self.0 & WAITERS != 0
    }

    /// The word while nobody has or wants the lock.
    pub const fn idle(self) -> u32 {
        self.0 & !(LOCKED | WAITERS)
    }

    /// What somebody who wants the lock makes of it: locked, or waited for.
    pub const fn locked_or_waited_for(self, bit: WaitersBit) -> LockBits {
        if self.is_locked() { LockBits(self.0 | mask(bit)) } else { LockBits(self.0 | LOCKED) }
    }

    /// What somebody who waits for an unlock makes of it: as it was, or waited for.
    pub const fn read_or_waited_for(self, bit: WaitersBit) -> LockBits {
        if self.is_locked() { LockBits(self.0 | mask(bit)) } else { self }
    }
}

/// Reads the bits.
#[inline(always)]
pub(super) fn read<C: Cell32>(cell: &C) -> LockBits {
    // Acquire pairs with the Release of an unlock: who finds the page unlocked sees what its holder wrote.
    LockBits(cell.load(Ordering::Acquire))
}

/// Sets the lock bit; returns whether it was clear.
#[inline(always)]
pub(super) fn lock<C: Cell32>(cell: &C) -> bool {
    // Acquire pairs with the Release of the unlock before.
    !cell.set(LOCKED, Ordering::Acquire)
}

/// Clears the lock bit; returns whether it was set.
#[inline(always)]
pub(super) fn unlock<C: Cell32>(cell: &C) -> bool {
    // Release pairs with the Acquire of whoever locks or reads the page next.
    cell.clear(LOCKED, Ordering::Release)
}

/// Locks a page whose word is `idle` while nobody has or wants the lock; returns whether it was so. The word is exchanged
/// as a whole, so that there is nothing to look at before or after.
#[inline(always)]
pub fn lock_idle<C: Cell32>(cell: &C, idle: u32) -> bool {
    // Acquire pairs with the Release of the unlock before.
    cell.replace(idle, idle | LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok()
}

/// Unlocks such a page, if it is locked and nobody waits; returns whether it was so.
#[inline(always)]
pub fn unlock_idle<C: Cell32>(cell: &C, idle: u32) -> bool {
    // Release pairs with the Acquire of whoever locks or reads the page next.
    cell.replace(idle | LOCKED, idle, Ordering::Release, Ordering::Relaxed).is_ok()
}

/// Replaces the bits by `next` of them, in one exchange, until nobody comes between; returns what they were.
pub(super) fn update<C: Cell32>(cell: &C, next: impl Fn(LockBits) -> LockBits) -> LockBits {
    let mut seen = cell.load(Ordering::Relaxed);
    loop {
        // Acquire pairs with the Release of the unlock before.
        match cell.replace(seen, next(LockBits(seen)).0, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return LockBits(seen),
            Err(found) => seen = found,
        }
    }
}

/// Says that nobody waits any more; under the lock of the bucket.
pub(super) fn clear_waiters<C: Cell32>(cell: &C) {
    cell.clear(WAITERS, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicU32;

    /// All four states of the lock, within words of all kinds of pages.
    #[test]
    fn transitions_change_the_lock_bits_alone() {
        for rest in [0, !(LOCKED | WAITERS), 1, 0x1234_5678 & !(LOCKED | WAITERS)] {
            let of = |lock: u32| LockBits(rest | lock);
            let (idle, locked, waited) = (of(0), of(LOCKED), of(LOCKED | WAITERS));
            let stale = of(WAITERS);
            for (before, after) in [(idle, locked), (stale, waited)] {
                let cell = AtomicU32::new(before.0);
                assert!(lock(&cell) && !lock(&cell));
                assert_eq!(read(&cell), after);
                assert!(unlock(&cell) && !unlock(&cell));
                assert_eq!(read(&cell), before);
                clear_waiters(&cell);
                assert_eq!(read(&cell), idle);
            }
            let want = |bit| [idle, locked, waited].map(|bits| bits.locked_or_waited_for(bit));
            assert_eq!(want(WaitersBit::On), [locked, waited, waited]);
            assert_eq!(want(WaitersBit::Off), [locked, locked, waited]);
            let read = |bit| [idle, locked, waited].map(|bits| bits.read_or_waited_for(bit));
            assert_eq!(read(WaitersBit::On), [idle, waited, waited]);
            assert_eq!(read(WaitersBit::Off), [idle, locked, waited]);
        }
    }
}
