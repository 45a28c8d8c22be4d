//! From the first instruction to the first line of the kernel, on each CPU.

use core::arch::global_asm;
use core::sync::atomic::{AtomicU64, Ordering};

use nearpage::CpuId;
use nearpage_kernel::boot::EarlyMemory;
use nearpage_kernel::firmware::Machine;

use super::{sbi, set_cpu_number};
use crate::Described;
use crate::arch::virt::describe_by;

global_asm!(include_str!("boot.s"), options(raw));

unsafe extern "C" {
    fn other_start();
}

/// Where the firmware says that the devicetree is.
static DEVICETREE: AtomicU64 = AtomicU64::new(0);

#[unsafe(no_mangle)]
extern "C" fn first_start(devicetree: u64) -> ! {
    set_cpu_number(CpuId(0));
    DEVICETREE.store(devicetree, Ordering::Relaxed);
    crate::first_cpu()
}

#[unsafe(no_mangle)]
extern "C" fn other_cpu_start(cpu: u64) -> ! {
    set_cpu_number(CpuId(cpu as u32));
    crate::other_cpu()
}

#[unsafe(no_mangle)]
extern "C" fn exception(cause: u64, from: u64, value: u64) -> ! {
    panic!("exception {cause} at {from:#x}, value {value:#x}");
}

/// Reads what the boot and the firmware say of the machine.
pub fn describe(machine: &mut Machine, memory: &mut EarlyMemory) -> Described {
    describe_by(DEVICETREE.load(Ordering::Relaxed), machine, memory)
}

/// Lets another CPU begin, on a stack that ends at `stack_end`.
pub fn start_cpu(hardware_id: u64, cpu: CpuId, stack_end: *mut u8) {
    // The new CPU reads two words at the top of its stack.
    let context = stack_end.wrapping_sub(16).cast::<[u64; 2]>();
    // SAFETY: the stack is the new CPU's, and nobody uses it yet.
    unsafe { context.write([context.addr() as u64, u64::from(cpu.0)]) };
    let entry = (other_start as *const ()).addr() as u64;
    let answer = sbi::start_hart(hardware_id, entry, context.addr() as u64);
    assert_eq!(answer, 0, "the firmware starts CPU {cpu}");
}
