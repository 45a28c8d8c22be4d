//! What makes a CPU's pagesets exclusive: interrupts off on that CPU, and a flag for those who come from elsewhere.
//!
//! With interrupts off nothing else of the CPU runs, but an NMI or a panic, and another CPU that drains this one. Those find
//! the flag set and go away: nobody ever waits for a pageset.

use core::marker::PhantomData;
use core::sync::atomic::{AtomicBool, Ordering};

use nearpage::CpuId;
use nearpage::platform::{CurrentCpu, Exclusion};

use crate::seam::{InterruptsOff, Kernel};

/// Pagesets by interrupts-off on the own CPU.
pub struct ByInterrupts<K>(PhantomData<fn() -> K>);

impl<K> Default for ByInterrupts<K> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<K> core::fmt::Debug for ByInterrupts<K> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("ByInterrupts")
    }
}

/// The flag of one CPU, alone on its line: set while somebody is at its pagesets.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct CpuFlag(AtomicBool);

/// A CPU's pagesets, held. Dropping it clears the flag, and then brings interrupts back as they were.
pub struct HeldCpu<'a, K: Kernel> {
    flag: &'a CpuFlag,
    _off: InterruptsOff<K>,
}

impl<K: Kernel> Drop for HeldCpu<'_, K> {
    #[inline(always)]
    fn drop(&mut self) {
        // Release pairs with the Acquire in `enter`: the next holder sees our lists.
        self.flag.0.store(false, Ordering::Release);
    }
}

impl<K: Kernel> core::fmt::Debug for HeldCpu<'_, K> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("HeldCpu").field("flag", &self.flag).finish()
    }
}

impl<K: Kernel> CurrentCpu for ByInterrupts<K> {
    #[inline(always)]
    fn current_cpu(&self) -> CpuId {
        K::this_cpu()
    }
}

impl<K: Kernel> Exclusion for ByInterrupts<K> {
    type PerCpu = CpuFlag;
    type OnCpu<'a> = HeldCpu<'a, K>;

    #[inline(always)]
    fn enter<'a>(&'a self, flag: &'a CpuFlag) -> Option<HeldCpu<'a, K>> {
        let off = InterruptsOff::new();
        // Acquire pairs with the Release of the holder before.
        let was_free = !flag.0.swap(true, Ordering::Acquire);
        was_free.then(|| HeldCpu { flag, _off: off })
    }
}
