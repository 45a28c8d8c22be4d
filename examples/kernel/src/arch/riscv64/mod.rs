//! What the kernel needs of QEMU's board `virt` under its firmware: one CPU's registers, interrupts, a clock, a serial line, and a
//! way out.

mod sbi;
mod start;

use core::arch::asm;
use core::ptr::{read_volatile, write_volatile};
use core::sync::atomic::{AtomicU64, Ordering};

use nearpage::CpuId;
use nearpage_kernel::Interrupts;

pub use start::{describe, start_cpu};

/// The name of the processor.
pub const NAME: &str = "riscv64";

/// Ticks of the board's counter in a second.
const TICKS_A_SECOND: u64 = 10_000_000;

/// The CPU that runs this: one instruction.
#[inline(always)]
pub fn cpu_number() -> CpuId {
    let number: u64;
    // SAFETY: `set_cpu_number` put it there before anything else ran on this CPU; compiled code leaves the register alone.
    unsafe { asm!("mv {}, tp", out(reg) number, options(nomem, nostack, preserves_flags)) };
    CpuId(number as u32)
}

/// From now on, this CPU is `cpu`.
fn set_cpu_number(cpu: CpuId) {
    // SAFETY: the register is that of threads' own variables, of which this kernel has none.
    unsafe { asm!("mv tp, {}", in(reg) u64::from(cpu.0), options(nostack, preserves_flags)) };
}

/// The bit of `sstatus` that lets interrupts through.
const INTERRUPTS: usize = 1 << 1;

/// Switches interrupts off, and says what the flags were.
#[inline(always)]
pub fn interrupts_off() -> Interrupts {
    let flags: usize;
    // SAFETY: reads the flags and clears one of them. No `nomem`: what follows stays behind it.
    unsafe { asm!("csrrci {}, sstatus, 2", out(reg) flags, options(nostack)) };
    #[cfg(feature = "bounds")]
    if flags & INTERRUPTS != 0 {
        crate::masked::begin();
    }
    Interrupts(flags & INTERRUPTS)
}

/// Brings the flags back as they were.
#[inline(always)]
pub fn interrupts_restore(before: Interrupts) {
    #[cfg(feature = "bounds")]
    if before.0 != 0 {
        crate::masked::end();
    }
    // SAFETY: interrupts are on afterwards if `interrupts_off` found them on.
    unsafe { asm!("csrs sstatus, {}", in(reg) before.0, options(nostack)) };
}

/// Switches interrupts on.
pub fn interrupts_on() {
    // SAFETY: handlers are set before a CPU calls this.
    unsafe { asm!("csrsi sstatus, 2", options(nostack)) };
}

/// Passes a moment.
#[inline(always)]
pub fn pause() {
    core::hint::spin_loop();
}

/// Sleeps until an interrupt comes.
pub fn wait() {
    // SAFETY: changes nothing.
    unsafe { asm!("wfi", options(nomem, nostack)) };
}

fn ticks() -> u64 {
    let ticks: u64;
    // SAFETY: a register that every CPU has. No `nomem`: it is read where it stands.
    unsafe { asm!("rdtime {}", out(reg) ticks, options(nostack)) };
    ticks
}

/// The board's counter, in nanoseconds.
pub fn now_ns() -> u64 {
    ticks() * (1_000_000_000 / TICKS_A_SECOND)
}

/// Between two interrupts of a CPU's timer.
static BETWEEN_TICKS: AtomicU64 = AtomicU64::new(0);

/// Interrupts this CPU every `ns` nanoseconds.
pub fn start_timer(ns: u32) {
    let between = u64::from(ns) * TICKS_A_SECOND / 1_000_000_000;
    BETWEEN_TICKS.store(between.max(1), Ordering::Relaxed);
    arm();
}

fn arm() {
    sbi::set_timer(ticks() + BETWEEN_TICKS.load(Ordering::Relaxed));
}

#[unsafe(no_mangle)]
extern "C" fn interrupt(cause: u64) {
    const TIMER: u64 = 1 << 63 | 5;
    assert_eq!(cause, TIMER, "only the timer's are let through");
    // Before the work, as on a PC: it runs with interrupts off.
    arm();
    crate::interrupt::timer();
}

/// Where physical memory is: there is no other.
#[inline(always)]
pub fn phys_to_virt(address: u64) -> *mut u8 {
    core::ptr::with_exposed_provenance_mut(address as usize)
}

/// One byte to the serial line.
pub fn put(byte: u8) {
    const UART: u64 = 0x1000_0000;
    const STATUS: u64 = 5;
    const IS_EMPTY: u8 = 1 << 5;
    // SAFETY: the registers of the board's serial line, which nothing else uses.
    unsafe {
        while read_volatile(phys_to_virt(UART + STATUS)) & IS_EMPTY == 0 {
            core::hint::spin_loop();
        }
        write_volatile(phys_to_virt(UART), byte);
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
            "sub {end}, sp, {room}",
            "2: sd {paint}, 0({end})",
            "addi {end}, {end}, 8",
            "bltu {end}, sp, 2b",
            end = out(reg) end,
            paint = in(reg) PAINT,
            room = in(reg) ROOM,
        );
    }
    end
}

/// Ends the machine, by the board's device for it; the emulator's exit code is `code`.
pub fn exit(code: u8) -> ! {
    const DEVICE: u64 = 0x10_0000;
    const ENDS_WITH: u32 = 0x3333;
    // SAFETY: the register of a device, which nothing else uses.
    unsafe { write_volatile(phys_to_virt(DEVICE).cast(), u32::from(code) << 16 | ENDS_WITH) };
    loop {
        interrupts_off();
        wait();
    }
}
