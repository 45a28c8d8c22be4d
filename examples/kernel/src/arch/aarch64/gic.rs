//! The interrupt controller (GICv3) and the timer of each CPU. Source: Arm IHI 0069, chapters 8.9 to 8.12.

use core::arch::asm;
use core::ptr::{read_volatile, write_volatile};
use core::sync::atomic::{AtomicU64, Ordering};

use super::{phys_to_virt, ticks_a_second};

const DISTRIBUTOR: u64 = 0x0800_0000;
const REDISTRIBUTORS: u64 = 0x080a_0000;
const REDISTRIBUTOR_BYTES: u64 = 0x2_0000;
/// Where the registers of a redistributor's own interrupts begin.
const OWN: u64 = 0x1_0000;
/// The interrupt of the virtual timer.
const TIMER: u64 = 27;

static TICKS: AtomicU64 = AtomicU64::new(0);

fn write(address: u64, value: u32) {
    // SAFETY: a register of the controller, which only this file uses.
    unsafe { write_volatile(phys_to_virt(address).cast(), value) };
}

fn read(address: u64) -> u32 {
    // SAFETY: as above.
    unsafe { read_volatile(phys_to_virt(address).cast()) }
}

/// Lets the controller work, on the first CPU.
pub fn fill() {
    const GROUPS_BY_AFFINITY: u32 = 1 << 4 | 0b11;
    write(DISTRIBUTOR, GROUPS_BY_AFFINITY);
}

/// Lets the timer's interrupts through to this CPU.
pub fn enable() {
    let affinity = super::start::affinity();
    let packed = (affinity >> 8 & 0xff00_0000 | affinity & 0x00ff_ffff) as u32;
    let all = (0..256).map(|at| REDISTRIBUTORS + at * REDISTRIBUTOR_BYTES);
    const LAST: u32 = 1 << 4;
    let mut mine = REDISTRIBUTORS;
    for base in all {
        mine = base;
        if read(base + 12) == packed || read(base + 8) & LAST != 0 {
            break;
        }
    }
    const WAKER: u64 = 0x14;
    const SLEEPS: u32 = 1 << 1;
    const CHILDREN_SLEEP: u32 = 1 << 2;
    write(mine + WAKER, read(mine + WAKER) & !SLEEPS);
    while read(mine + WAKER) & CHILDREN_SLEEP != 0 {
        core::hint::spin_loop();
    }
    write(mine + OWN + 0x80, u32::MAX);
    write(mine + OWN + 0x400 + TIMER / 4 * 4, 0x8080_8080);
    write(mine + OWN + 0x100, 1 << TIMER);
    // SAFETY: registers of this CPU's interface: system registers on, all priorities, group 1.
    unsafe {
        asm!("msr S3_0_C12_C12_5, {}", "isb", in(reg) 7_u64, options(nostack));
        asm!("msr S3_0_C4_C6_0, {}", in(reg) 0xff_u64, options(nostack));
        asm!("msr S3_0_C12_C12_7, {}", "isb", in(reg) 1_u64, options(nostack));
    }
}

/// Interrupts this CPU every `ns` nanoseconds.
pub fn start_timer(ns: u32) {
    let ticks = (u64::from(ns) * ticks_a_second() / 1_000_000_000).max(1);
    TICKS.store(ticks, Ordering::Relaxed);
    arm();
}

fn arm() {
    let ticks = TICKS.load(Ordering::Relaxed);
    // SAFETY: the registers of this CPU's timer.
    unsafe {
        asm!("msr cntv_tval_el0, {}", "msr cntv_ctl_el0, {}", "isb", in(reg) ticks, in(reg) 1_u64, options(nostack));
    }
}

#[unsafe(no_mangle)]
extern "C" fn timer_interrupt() {
    let which: u64;
    // SAFETY: acknowledges this CPU's interrupt.
    unsafe { asm!("mrs {}, S3_0_C12_C12_0", out(reg) which, options(nostack)) };
    if which != TIMER {
        return;
    }
    arm();
    // SAFETY: ends the interrupt that was acknowledged. Before the work, as on a PC: it runs with interrupts off.
    unsafe { asm!("msr S3_0_C12_C12_1, {}", "isb", in(reg) which, options(nostack)) };
    crate::interrupt::timer();
}
