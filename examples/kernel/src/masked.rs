//! How long interrupts are off: the longest stretch of this CPU since somebody asked last. In builds that count it alone.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::arch;

static BEGUN: AtomicU64 = AtomicU64::new(0);
static LONGEST: AtomicU64 = AtomicU64::new(0);

/// They went off, and were on.
pub fn begin() {
    BEGUN.store(arch::now_ns(), Ordering::Relaxed);
}

/// They are about to come on.
pub fn end() {
    let stretch = arch::now_ns() - BEGUN.load(Ordering::Relaxed);
    LONGEST.store(LONGEST.load(Ordering::Relaxed).max(stretch), Ordering::Relaxed);
}

/// The longest stretch, in nanoseconds of the emulator's clock: instructions. Forgets it.
pub fn take_longest() -> u64 {
    LONGEST.swap(0, Ordering::Relaxed)
}
