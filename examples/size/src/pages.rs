//! The lines of the book, for a kernel that has a heap of its own.

#[cfg(feature = "plain")]
use nearpage::Model;
use nearpage::{Config, CpuId, FreeError};
use nearpage_kernel::boot::{ADDRESS_MAP, Deferred, EarlyError, EarlyMemory};
use nearpage_kernel::firmware::Machine;
use nearpage_kernel::{Interrupts, Kernel, Pages};

use crate::arch;

pub struct Mine;

// SAFETY: as in `examples/kernel`; this one never runs.
unsafe impl Kernel for Mine {
    #[cfg(not(feature = "plain"))]
    type Rules = nearpage::rules::Places;
    #[cfg(feature = "plain")]
    type Rules = nearpage::rules::Linux;

    fn this_cpu() -> CpuId {
        arch::cpu_number()
    }
    fn interrupts_off() -> Interrupts {
        arch::interrupts_off()
    }
    fn interrupts_restore(before: Interrupts) {
        arch::interrupts_restore(before);
    }
    fn now_ns() -> u64 {
        arch::now_ns()
    }
    fn phys_to_virt(address: u64) -> *mut u8 {
        arch::phys_to_virt(address)
    }
    fn pause() {
        arch::pause();
    }
    fn misuse(error: &FreeError) {
        crate::refused(error);
    }
}

/// From what the boot and the firmware said to an allocator.
pub fn allocator(
    machine: &mut Machine,
    memory: &mut EarlyMemory,
) -> Result<(&'static Pages<'static, Mine>, &'static Deferred<Mine>), EarlyError> {
    // SAFETY: what was added is memory of this machine, and all that is in use was reserved.
    let mut boot = unsafe { memory.begin::<Mine>(machine, ADDRESS_MAP)? };
    let config = Config::new();
    #[cfg(feature = "plain")]
    let config = config.with_model(Model::LINUX_6_18);
    let pages = boot.pages(config)?;
    let deferred = boot.finish(pages, 128 << 20)?;
    Ok((pages, deferred))
}
