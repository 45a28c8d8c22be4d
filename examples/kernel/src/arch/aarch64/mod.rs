//! What the kernel needs of QEMU's board `virt`: one CPU's registers, interrupts, a clock, a serial line, and a way out.

mod gic;
mod start;

use core::arch::asm;
use core::ptr::{read_volatile, write_volatile};

use nearpage::CpuId;
use nearpage_kernel::Interrupts;

pub use gic::start_timer;
pub use start::{describe, start_cpu};

/// The name of the processor.
pub const NAME: &str = "aarch64";

/// The CPU that runs this: one instruction.
#[inline(always)]
pub fn cpu_number() -> CpuId {
    let number: u64;
    // SAFETY: `set_cpu_number` put it there before anything else ran on this CPU.
    unsafe { asm!("mrs {}, tpidr_el1", out(reg) number, options(nostack, preserves_flags)) };
    CpuId(number as u32)
}

/// From now on, this CPU is `cpu`.
fn set_cpu_number(cpu: CpuId) {
    // SAFETY: nothing else uses the register.
    unsafe {
        asm!("msr tpidr_el1, {}", in(reg) u64::from(cpu.0), options(nostack, preserves_flags))
    };
}

/// The flag that masks interrupts.
#[cfg(feature = "bounds")]
const MASKED: usize = 1 << 7;

/// Switches interrupts off, and says what the flags were.
#[inline(always)]
pub fn interrupts_off() -> Interrupts {
    let flags: usize;
    // SAFETY: reads the flags and sets one of them. No `nomem`: what follows stays behind it.
    unsafe { asm!("mrs {}, daif", "msr daifset, #2", out(reg) flags) };
    #[cfg(feature = "bounds")]
    if flags & MASKED == 0 {
        crate::masked::begin();
    }
    Interrupts(flags)
}

/// Brings the flags back as they were.
#[inline(always)]
pub fn interrupts_restore(before: Interrupts) {
    #[cfg(feature = "bounds")]
    if before.0 & MASKED == 0 {
        crate::masked::end();
    }
    // SAFETY: the flags are those that `interrupts_off` read.
    unsafe { asm!("msr daif, {}", in(reg) before.0, options(nostack)) };
}

/// Switches interrupts on.
pub fn interrupts_on() {
    // SAFETY: handlers are set before a CPU calls this.
    unsafe { asm!("msr daifclr, #2", options(nostack)) };
}

/// Passes a moment. Rust's own hint is an `isb` here, by which an emulator of several CPUs on one of the host's does not go on
/// to the next: each that waits for a lock would wait its whole turn out, a tenth of a second.
#[inline(always)]
pub fn pause() {
    // SAFETY: changes nothing.
    unsafe { asm!("yield", options(nomem, nostack, preserves_flags)) };
}

/// Sleeps until an interrupt comes.
pub fn wait() {
    // SAFETY: changes nothing.
    unsafe { asm!("wfi", options(nomem, nostack)) };
}

fn ticks_a_second() -> u64 {
    let frequency: u64;
    // SAFETY: a register that every CPU has.
    unsafe {
        asm!("mrs {}, cntfrq_el0", out(reg) frequency, options(nomem, nostack, preserves_flags))
    };
    frequency.max(1)
}

/// The board's counter, in nanoseconds.
pub fn now_ns() -> u64 {
    let ticks: u64;
    // SAFETY: as above.
    unsafe { asm!("isb", "mrs {}, cntvct_el0", out(reg) ticks, options(nostack, preserves_flags)) };
    (u128::from(ticks) * 1_000_000_000 / u128::from(ticks_a_second())) as u64
}

/// Where physical memory is: the page table of `boot.s` maps it where it is.
#[inline(always)]
pub fn phys_to_virt(address: u64) -> *mut u8 {
    core::ptr::with_exposed_provenance_mut(address as usize)
}

/// One byte to the serial line.
pub fn put(byte: u8) {
    const UART: u64 = 0x0900_0000;
    const FLAGS: u64 = 0x18;
    const IS_FULL: u32 = 1 << 5;
    // SAFETY: the registers of the board's serial line, which nothing else uses.
    unsafe {
        while read_volatile(phys_to_virt(UART + FLAGS).cast::<u32>()) & IS_FULL != 0 {
            core::hint::spin_loop();
        }
        write_volatile(phys_to_virt(UART).cast::<u32>(), u32::from(byte));
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
            "mov {end}, sp",
            "sub {at}, {end}, {room}",
            "2: str {paint}, [{at}], #8",
            "cmp {at}, {end}",
            "b.lo 2b",
            end = out(reg) end,
            at = out(reg) _,
            paint = in(reg) PAINT,
            room = in(reg) ROOM,
        );
    }
    end
}

/// Ends the machine, by semihosting; the emulator's exit code is `code`.
pub fn exit(code: u8) -> ! {
    const EXIT_EXTENDED: u64 = 0x20;
    const APPLICATION_EXIT: u64 = 0x2_0026;
    let arguments = [APPLICATION_EXIT, u64::from(code)];
    // SAFETY: the emulator takes the instruction for itself.
    unsafe { asm!("hlt #0xf000", in("x0") EXIT_EXTENDED, in("x1") &raw const arguments) };
    loop {
        interrupts_off();
        wait();
    }
}
