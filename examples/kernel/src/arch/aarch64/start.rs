//! From the first instruction to the first line of the kernel, on each CPU.

use core::arch::{asm, global_asm};

use nearpage::CpuId;
use nearpage_kernel::boot::EarlyMemory;
use nearpage_kernel::firmware::Machine;

use super::{gic, set_cpu_number};
use crate::Described;
use crate::arch::virt::describe_by;

global_asm!(include_str!("boot.s"), options(raw));

unsafe extern "C" {
    fn other_start();
}

/// Where QEMU puts the devicetree for an ELF file: at the beginning of memory.
const DEVICETREE: u64 = 0x4000_0000;

#[unsafe(no_mangle)]
extern "C" fn first_start() -> ! {
    set_cpu_number(CpuId(0));
    gic::fill();
    gic::enable();
    crate::first_cpu()
}

#[unsafe(no_mangle)]
extern "C" fn other_cpu_start(cpu: u64) -> ! {
    set_cpu_number(CpuId(cpu as u32));
    gic::enable();
    crate::other_cpu()
}

#[unsafe(no_mangle)]
extern "C" fn exception(syndrome: u64, from: u64, address: u64) -> ! {
    panic!("exception {syndrome:#x} at {from:#x}, address {address:#x}");
}

/// The affinity fields of this CPU.
pub fn affinity() -> u64 {
    let mpidr: u64;
    // SAFETY: a register that every CPU has.
    unsafe { asm!("mrs {}, mpidr_el1", out(reg) mpidr, options(nomem, nostack, preserves_flags)) };
    mpidr & 0xff_00ff_ffff
}

/// Reads what the boot and the firmware say of the machine.
pub fn describe(machine: &mut Machine, memory: &mut EarlyMemory) -> Described {
    describe_by(DEVICETREE, machine, memory)
}

/// Lets another CPU begin, on a stack that ends at `stack_end`.
pub fn start_cpu(hardware_id: u64, cpu: CpuId, stack_end: *mut u8) {
    const CPU_ON: u64 = 0xc400_0003;
    // The new CPU reads two words at the top of its stack, before it has caches.
    let context = stack_end.wrapping_sub(16).cast::<[u64; 2]>();
    let answer: u64;
    // SAFETY: the stack is the new CPU's, and nobody uses it yet. PSCI starts the CPU at a place that is made for it.
    unsafe {
        context.write([context.addr() as u64, u64::from(cpu.0)]);
        asm!("dsb sy", options(nostack));
        let entry = (other_start as *const ()).addr() as u64;
        asm!(
            "hvc #0",
            inout("x0") CPU_ON => answer,
            inout("x1") hardware_id => _,
            inout("x2") entry => _,
            inout("x3") context.addr() as u64 => _,
            options(nostack)
        );
    }
    assert_eq!(answer, 0, "PSCI starts CPU {cpu}");
}
