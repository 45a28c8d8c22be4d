//! The processors that the kernel runs on: what each gives has the same names.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "riscv64")]
mod riscv64;
#[cfg(not(target_arch = "x86_64"))]
mod virt;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub use aarch64::*;
#[cfg(target_arch = "riscv64")]
pub use riscv64::*;
#[cfg(not(target_arch = "x86_64"))]
pub use virt::{interrupt_unmaskably, plugged_memory};
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;
