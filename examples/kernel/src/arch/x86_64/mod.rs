//! What the kernel needs of a PC: one CPU's registers, interrupts, a clock, a serial line, and a way out.

mod apic;
mod idt;
mod plugged;
mod start;

use core::arch::asm;

use nearpage::CpuId;
use nearpage_kernel::Interrupts;

pub use apic::{interrupt_unmaskably, start_timer};
pub use plugged::plugged_memory;
pub use start::{describe, start_cpu};

/// The name of the processor.
pub const NAME: &str = "x86-64";

/// What each CPU finds at its GS base.
#[repr(C, align(64))]
struct PerCpu {
    number: u32,
}

const CPUS_MAX: usize = 64;

/// By number.
static PER_CPU: [PerCpu; CPUS_MAX] = {
    let mut all = [const { PerCpu { number: 0 } }; CPUS_MAX];
    let mut at = 0;
    while at < CPUS_MAX {
        all[at].number = at as u32;
        at += 1;
    }
    all
};

/// The CPU that runs this: one instruction.
#[inline(always)]
pub fn cpu_number() -> CpuId {
    let number: u32;
    // SAFETY: `set_cpu_number` made GS lead to a `PerCpu` before anything else ran on this CPU.
    unsafe {
        asm!("mov {:e}, gs:[0]", out(reg) number, options(nostack, preserves_flags, readonly))
    };
    CpuId(if cfg!(feature = "fault-shared-storage") { number & !1 } else { number })
}

/// From now on, this CPU is `cpu`.
fn set_cpu_number(cpu: CpuId) {
    const GS_BASE: u32 = 0xc000_0101;
    write_msr(GS_BASE, (&raw const PER_CPU[cpu.0 as usize]).addr() as u64);
}

const INTERRUPT_FLAG: usize = 1 << 9;

/// Switches interrupts off, and says what the flags were.
#[inline(always)]
pub fn interrupts_off() -> Interrupts {
    let flags: usize;
    // SAFETY: reads the flags and clears one of them. No `nomem`: what follows stays behind it.
    unsafe {
        asm!("pushfq", "pop {}", out(reg) flags);
        if !cfg!(feature = "fault-interrupts-on") {
            asm!("cli");
        }
    }
    #[cfg(feature = "bounds")]
    if flags & INTERRUPT_FLAG != 0 {
        crate::masked::begin();
    }
    Interrupts(flags)
}

/// Brings the interrupt flag back as it was.
#[inline(always)]
pub fn interrupts_restore(before: Interrupts) {
    if before.0 & INTERRUPT_FLAG != 0 {
        #[cfg(feature = "bounds")]
        crate::masked::end();
        interrupts_on();
    }
}

/// Switches interrupts on.
#[inline(always)]
pub fn interrupts_on() {
    // SAFETY: handlers are set before a CPU calls this. No `nomem`: what comes before stays before it.
    unsafe { asm!("sti", options(nostack)) };
}

/// Passes a moment: the other thread of the core goes on, or in emulation the next CPU.
#[inline(always)]
pub fn pause() {
    core::hint::spin_loop();
}

/// Sleeps until an interrupt comes.
pub fn wait() {
    // SAFETY: changes nothing.
    unsafe { asm!("hlt", options(nomem, nostack)) };
}

/// The time stamp counter, as nanoseconds: emulation counts 10^9 a second, other machines count a few times faster.
pub fn now_ns() -> u64 {
    // SAFETY: every x86-64 has the counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Where physical memory is: the page tables of `boot.s` map it where it is.
#[inline(always)]
pub fn phys_to_virt(address: u64) -> *mut u8 {
    core::ptr::with_exposed_provenance_mut(address as usize)
}

/// One byte to the serial line.
pub fn put(byte: u8) {
    const COM1: u16 = 0x3f8;
    const CAN_SEND: u8 = 0x20;
    // SAFETY: the ports of the first serial line, which nothing else uses.
    unsafe {
        while in8(COM1 + 5) & CAN_SEND == 0 {
            core::hint::spin_loop();
        }
        out8(COM1, byte);
    }
}

/// Paints the stack below its end, which it returns.
#[cfg(feature = "bounds")]
#[inline(always)]
pub fn paint() -> usize {
    use crate::painted::{PAINT, ROOM};
    let end;
    // SAFETY: below the end nobody has anything, and the stack has so much room.
    unsafe {
        asm!(
            "lea {end}, [rsp - {room}]",
            "2: mov [{end}], {paint}",
            "add {end}, 8",
            "cmp {end}, rsp",
            "jb 2b",
            end = out(reg) end,
            paint = in(reg) PAINT,
            room = const ROOM,
        );
    }
    end
}

/// Ends the machine; the emulator's exit code is `2 * code + 1`.
pub fn exit(code: u8) -> ! {
    const DEBUG_EXIT: u16 = 0xf4;
    // SAFETY: the port of the debug-exit device: it ends the machine, or is not there.
    unsafe { out8(DEBUG_EXIT, code) };
    loop {
        interrupts_off();
        wait();
    }
}

unsafe fn out8(port: u16, value: u8) {
    // SAFETY: the caller knows the port.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nostack, preserves_flags)) };
}

unsafe fn in8(port: u16) -> u8 {
    let value;
    // SAFETY: the caller knows the port.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nostack, preserves_flags)) };
    value
}

unsafe fn out32(port: u16, value: u32) {
    // SAFETY: the caller knows the port.
    unsafe {
        asm!("out dx, eax", in("dx") port, in("eax") value, options(nostack, preserves_flags))
    };
}

unsafe fn in32(port: u16) -> u32 {
    let value;
    // SAFETY: the caller knows the port.
    unsafe {
        asm!("in eax, dx", in("dx") port, out("eax") value, options(nostack, preserves_flags))
    };
    value
}

fn write_msr(register: u32, value: u64) {
    let (low, high) = (value as u32, (value >> 32) as u32);
    // SAFETY: callers in this folder name registers that every x86-64 has, with values that keep what Rust relies on.
    unsafe {
        asm!("wrmsr", in("ecx") register, in("eax") low, in("edx") high, options(nostack));
    }
}
