//! As much of a processor as a kernel needs to be linked. It is weighed, and never runs.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use nearpage::CpuId;
use nearpage_kernel::Interrupts;

static CPU: AtomicU32 = AtomicU32::new(0);
static TICKS: AtomicU64 = AtomicU64::new(0);

pub fn cpu_number() -> CpuId {
    CpuId(CPU.load(Ordering::Relaxed))
}

#[inline(always)]
pub fn interrupts_off() -> Interrupts {
    #[cfg(target_arch = "x86_64")]
    {
        let flags: usize;
        // SAFETY: reads the flags, and clears the one of interrupts.
        unsafe { core::arch::asm!("pushfq", "pop {}", "cli", out(reg) flags) };
        Interrupts(flags)
    }
    #[cfg(not(target_arch = "x86_64"))]
    Interrupts(0)
}

#[inline(always)]
pub fn interrupts_restore(before: Interrupts) {
    #[cfg(target_arch = "x86_64")]
    if before.0 & 1 << 9 != 0 {
        // SAFETY: they were on.
        unsafe { core::arch::asm!("sti", options(nostack)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = before;
}

pub fn now_ns() -> u64 {
    TICKS.load(Ordering::Relaxed)
}

pub fn pause() {
    core::hint::spin_loop();
}

pub fn phys_to_virt(address: u64) -> *mut u8 {
    core::ptr::with_exposed_provenance_mut(address as usize)
}
