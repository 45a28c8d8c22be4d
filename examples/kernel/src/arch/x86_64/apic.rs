//! The local APIC: the timer of each CPU, and interrupts from CPU to CPU.

use core::ptr::{read_volatile, write_volatile};

use super::{idt, phys_to_virt};

const BASE: u64 = 0xfee0_0000;
const END_OF_INTERRUPT: u64 = 0xb0;
const SPURIOUS: u64 = 0xf0;
const COMMAND_LOW: u64 = 0x300;
const COMMAND_HIGH: u64 = 0x310;
const TIMER: u64 = 0x320;
const TIMER_COUNT: u64 = 0x380;
const TIMER_DIVISOR: u64 = 0x3e0;

const PENDING: u32 = 1 << 12;

fn write(register: u64, value: u32) {
    // SAFETY: a register of this CPU's APIC, which only this file uses.
    unsafe { write_volatile(phys_to_virt(BASE + register).cast(), value) };
}

fn read(register: u64) -> u32 {
    // SAFETY: as above.
    unsafe { read_volatile(phys_to_virt(BASE + register).cast()) }
}

/// Lets interrupts through to this CPU.
pub fn enable() {
    const ON: u32 = 1 << 8;
    write(SPURIOUS, ON | u32::from(idt::SPURIOUS_VECTOR));
}

/// Interrupts this CPU every `ticks` ticks of the bus: nanoseconds, in emulation.
pub fn start_timer(ticks: u32) {
    const PERIODIC: u32 = 1 << 17;
    const UNDIVIDED: u32 = 0b1011;
    write(TIMER_DIVISOR, UNDIVIDED);
    write(TIMER, PERIODIC | u32::from(idt::TIMER_VECTOR));
    write(TIMER_COUNT, ticks);
}

/// The handler is done.
pub fn end_of_interrupt() {
    write(END_OF_INTERRUPT, 0);
}

/// Interrupts a CPU whether it has interrupts off or not.
pub fn interrupt_unmaskably(apic_id: u64) {
    const NMI: u32 = 0b100 << 8 | 1 << 14;
    send(apic_id, NMI);
}

/// Lets a CPU begin at page `page` of memory.
pub fn send_startup(apic_id: u64, page: u8, mut pause: impl FnMut()) {
    const INIT: u32 = 0b101 << 8 | 1 << 14;
    const STARTUP: u32 = 0b110 << 8 | 1 << 14;
    send(apic_id, INIT);
    pause();
    for _ in 0..2 {
        send(apic_id, STARTUP | u32::from(page));
        pause();
    }
}

fn send(apic_id: u64, command: u32) {
    write(COMMAND_HIGH, (apic_id as u32) << 24);
    write(COMMAND_LOW, command);
    while read(COMMAND_LOW) & PENDING != 0 {
        core::hint::spin_loop();
    }
}
