//! From the first instruction to the first line of the kernel, on each CPU.

use core::arch::global_asm;
use core::sync::atomic::{AtomicU64, Ordering};

use nearpage::CpuId;
use nearpage_kernel::boot::{EarlyMemory, pvh};
use nearpage_kernel::firmware::{Machine, Physical, acpi};

use super::{apic, idt, now_ns, phys_to_virt, set_cpu_number};
use crate::{Described, log};

global_asm!(include_str!("boot.s"), options(att_syntax, raw));

unsafe extern "C" {
    static kernel_start: u8;
    static kernel_end: u8;
    static trampoline: u8;
    static trampoline_end: u8;
    static trampoline_arguments: u8;
    static page_tables: u8;
}

/// Where `boot.s` says that its trampoline runs: below 1 MiB, where startup IPIs lead to.
const TRAMPOLINE: u64 = 0x8000;

/// What QEMU left for us.
static START_INFO: AtomicU64 = AtomicU64::new(0);

#[unsafe(no_mangle)]
extern "C" fn first_cpu(start_info: u32) -> ! {
    START_INFO.store(u64::from(start_info), Ordering::Relaxed);
    set_cpu_number(CpuId(0));
    idt::fill();
    idt::mask_old_controllers();
    idt::load();
    apic::enable();
    crate::first_cpu()
}

extern "C" fn other_cpu(cpu: u32) -> ! {
    set_cpu_number(CpuId(cpu));
    idt::load();
    apic::enable();
    crate::other_cpu()
}

/// All memory is mapped where it is, so firmware's tables can be looked into.
struct Mapped;

impl Physical for Mapped {
    fn bytes(&self, address: u64, length: usize) -> Option<&[u8]> {
        const MAPPED: u64 = 512 << 30;
        let end = address.checked_add(length as u64)?;
        let is_mapped = address > 0 && end <= MAPPED;
        // SAFETY: it is mapped, any bytes are bytes, and nobody writes to the firmware's tables.
        is_mapped.then(|| unsafe { core::slice::from_raw_parts(phys_to_virt(address), length) })
    }
}

/// Reads what the boot and the firmware say of the machine.
pub fn describe(machine: &mut Machine, memory: &mut EarlyMemory) -> Described {
    let start_info = START_INFO.load(Ordering::Relaxed);
    let told = pvh::read(&Mapped, start_info, memory).unwrap_or_else(|error| panic!("{error}"));
    let image = (&raw const kernel_start).addr() as u64..(&raw const kernel_end).addr() as u64;
    let taken = memory.reserve(image.start, image.end - image.start);
    // Page 0, where a null pointer leads; and the trampoline.
    let taken = taken.and_then(|()| memory.reserve(0, 0x1000));
    taken.and_then(|()| memory.reserve(TRAMPOLINE, 0x1000)).expect("room for three ranges");
    if let Err(error) = acpi::read(&Mapped, told.rsdp, machine) {
        log!("firmware: {error}; one node");
    }
    Described { command_line: told.command_line(&Mapped) }
}

/// Lets another CPU begin, on a stack that ends at `stack_end`.
pub fn start_cpu(apic_id: u64, cpu: CpuId, stack_end: *mut u8) {
    let pause = |ns: u64| {
        let end = now_ns() + ns;
        while now_ns() < end {
            core::hint::spin_loop();
        }
    };
    // SAFETY: the page is reserved, and the CPU that used it last has gone on: it has said so.
    unsafe {
        let code = &raw const trampoline;
        let length = (&raw const trampoline_end).offset_from_unsigned(code);
        let place = phys_to_virt(TRAMPOLINE);
        place.copy_from_nonoverlapping(code, length);
        let arguments = place.add((&raw const trampoline_arguments).offset_from_unsigned(code));
        arguments.cast::<[u64; 4]>().write_unaligned([
            (&raw const page_tables).addr() as u64,
            // A function is entered with the return address below a multiple of 16.
            stack_end.addr() as u64,
            u64::from(cpu.0),
            (other_cpu as *const ()).addr() as u64,
        ]);
    }
    apic::send_startup(apic_id, (TRAMPOLINE >> 12) as u8, || pause(200_000));
}
