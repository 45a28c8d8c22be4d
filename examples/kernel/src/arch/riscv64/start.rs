//! From the first instruction to the first line of the kernel, on each CPU.

use core::arch::global_asm;
use core::sync::atomic::{AtomicU64, Ordering};

use nearpage::CpuId;
use nearpage_kernel::boot::EarlyMemory;
use nearpage_kernel::firmware::{Machine, devicetree};

use super::{phys_to_virt, sbi, set_cpu_number};
use crate::{Described, log};

global_asm!(include_str!("boot.s"), options(raw));

unsafe extern "C" {
    static kernel_start: u8;
    static kernel_end: u8;
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
    let devicetree = DEVICETREE.load(Ordering::Relaxed);
    // SAFETY: the firmware left it there, nobody writes to it, and the length is the devicetree's own.
    let blob: &'static [u8] = unsafe {
        let bytes = |length| core::slice::from_raw_parts(phys_to_virt(devicetree), length);
        bytes(devicetree::size(bytes(8)).expect("the firmware leaves a devicetree"))
    };
    if let Err(error) = devicetree::read(blob, machine, memory) {
        log!("firmware: {error}; one node");
    }
    let image = (&raw const kernel_start).addr() as u64..(&raw const kernel_end).addr() as u64;
    let taken = memory.reserve(image.start, image.end - image.start);
    let taken = taken.and_then(|()| memory.reserve(devicetree, blob.len() as u64));
    taken.expect("room for two ranges");
    Described { command_line: devicetree::command_line(blob) }
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
