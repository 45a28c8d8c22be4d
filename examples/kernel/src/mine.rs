//! The kernel's side of the allocator: what it gives, and the thirty lines that boot it.

use crate::arch;

// The thirty lines: the book shows them.
// ANCHOR: kernel
use nearpage::{Config, CpuId, FreeError};
use nearpage_kernel::boot::{ADDRESS_MAP, Deferred, EarlyError, EarlyMemory};
use nearpage_kernel::firmware::Machine;
use nearpage_kernel::{Heap, Interrupts, Kernel, Pages};
use nearpage_slab::{ObjectError, SlabConfig};

/// This kernel.
pub struct Mine;

// SAFETY: the functions do what the trait says: numbers are the CPUs' own, the flag is the processor's, and all
// memory is mapped where it is.
unsafe impl Kernel for Mine {
    type Rules = nearpage::rules::Places;
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
    fn misuse_of_object(error: &ObjectError) {
        crate::refused(error);
    }
}

#[global_allocator]
pub static HEAP: Heap<Mine, { 256 << 10 }> = Heap::new();

/// From what the boot and the firmware said to an allocator and a heap.
pub fn allocator(
    machine: &mut Machine,
    memory: &mut EarlyMemory,
) -> Result<(&'static Pages<'static, Mine>, &'static Deferred<Mine>), EarlyError> {
    // SAFETY: what was added is memory of this machine, and all that is in use was reserved.
    let mut boot = unsafe { memory.begin::<Mine>(machine, ADDRESS_MAP)? };
    let pages = boot.pages(Config::new())?;
    let room = |node, bytes| boot.metadata(node, bytes).unwrap_or_default();
    HEAP.start(pages, SlabConfig::default(), room).unwrap_or_else(|error| panic!("{error}"));
    let deferred = boot.finish(pages, 128 << 20)?;
    Ok((pages, deferred))
}
// ANCHOR_END: kernel
