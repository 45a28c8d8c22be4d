//! Calls of the firmware. Source: the RISC-V Supervisor Binary Interface Specification 1.0, chapters 3, 6 and 9.

use core::arch::asm;

/// What it answers: 0, or an error below 0.
fn call(extension: u64, function: u64, [first, second, third]: [u64; 3]) -> i64 {
    let error;
    // SAFETY: the firmware changes a0 and a1 alone, and what it does is told by who calls this. No `nomem`: a CPU that it starts
    // reads what was written before.
    unsafe {
        asm!(
            "ecall",
            inout("a0") first => error,
            inout("a1") second => _,
            in("a2") third,
            in("a6") function,
            in("a7") extension,
            options(nostack)
        );
    }
    error
}

/// The timer's interrupt of this CPU comes when its counter is there.
pub fn set_timer(ticks: u64) {
    const TIME: u64 = 0x5449_4d45;
    call(TIME, 0, [ticks, 0, 0]);
}

/// Another CPU begins at `entry` with its number and `context`.
pub fn start_hart(hart: u64, entry: u64, context: u64) -> i64 {
    const HSM: u64 = 0x48_534d;
    call(HSM, 0, [hart, entry, context])
}
