//! Interrupts and exceptions: one table for all CPUs.

use core::arch::asm;
use core::cell::UnsafeCell;

use super::{apic, out8};

pub const TIMER_VECTOR: u8 = 0x40;
pub const SPURIOUS_VECTOR: u8 = 0xff;
const NMI_VECTOR: usize = 2;

#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Gate([u64; 2]);

struct Table(UnsafeCell<[Gate; 256]>);

// SAFETY: the first CPU writes it before there are others, and nobody does later.
unsafe impl Sync for Table {}

static TABLE: Table = Table(UnsafeCell::new([Gate([0; 2]); 256]));

unsafe extern "C" {
    fn timer_entry();
    fn nmi_entry();
    fn spurious_entry();
    fn exception_entries();
}

/// Fills the table, on the first CPU.
pub fn fill() {
    // SAFETY: there is no other CPU yet, and no interrupt comes.
    let table = unsafe { &mut *TABLE.0.get() };
    let exceptions = (exception_entries as *const ()).addr() as u64;
    for (vector, gate) in table.iter_mut().enumerate().take(32) {
        *gate = gate_to(exceptions + 16 * vector as u64);
    }
    table[NMI_VECTOR] = gate_to((nmi_entry as *const ()).addr() as u64);
    table[usize::from(TIMER_VECTOR)] = gate_to((timer_entry as *const ()).addr() as u64);
    table[usize::from(SPURIOUS_VECTOR)] = gate_to((spurious_entry as *const ()).addr() as u64);
}

/// Masks the interrupts of the old controllers, which would come at the vectors of exceptions.
pub fn mask_old_controllers() {
    // SAFETY: the mask registers of the two controllers, which nothing else uses.
    unsafe {
        out8(0x21, 0xff);
        out8(0xa1, 0xff);
    }
}

/// A gate that switches interrupts off.
fn gate_to(entry: u64) -> Gate {
    const CODE_SELECTOR: u64 = 0x08;
    const PRESENT_INTERRUPT_GATE: u64 = 0x8e;
    let low = entry & 0xffff | CODE_SELECTOR << 16 | PRESENT_INTERRUPT_GATE << 40;
    Gate([low | (entry >> 16 & 0xffff) << 48, entry >> 32])
}

/// Lets this CPU use the table.
pub fn load() {
    #[repr(C, packed)]
    struct Pointer {
        limit: u16,
        base: u64,
    }
    let base = TABLE.0.get().expose_provenance() as u64;
    let pointer = Pointer { limit: (size_of::<[Gate; 256]>() - 1) as u16, base };
    // SAFETY: the table is filled, and lives for ever.
    unsafe {
        asm!("lidt [{}]", in(reg) &raw const pointer, options(readonly, nostack, preserves_flags))
    };
}

#[unsafe(no_mangle)]
extern "C" fn timer_interrupt() {
    // Before the work, so that the next may come while this one still runs, with interrupts off.
    apic::end_of_interrupt();
    crate::interrupt::timer();
}

#[unsafe(no_mangle)]
extern "C" fn nmi_interrupt() {
    crate::interrupt::unmaskable();
}

#[unsafe(no_mangle)]
extern "C" fn exception_interrupt(vector: u32, stack: *const u64) -> ! {
    let address: u64;
    // SAFETY: reads a register; and the stack that the processor pushed its frame to.
    let words = unsafe {
        asm!("mov {}, cr2", out(reg) address, options(nomem, nostack, preserves_flags));
        [*stack, *stack.add(1), *stack.add(2)]
    };
    panic!("exception {vector}: on the stack {words:x?}, address {address:#x}");
}
