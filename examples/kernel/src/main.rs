//! A small kernel that boots on nearpage, and tests it there.
//!
//! `mine.rs` is what a kernel's author copies: the seam, and a boot in some thirty lines. `arch` is what any kernel has: the
//! first instructions, interrupts, other CPUs. `checks` is what this one is for. `cargo xtask kernel` builds and boots it.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
extern crate alloc;

#[cfg(target_os = "none")]
mod arch;
#[cfg(target_os = "none")]
mod checks;
#[cfg(target_os = "none")]
mod console;
#[cfg(target_os = "none")]
mod cpus;
#[cfg(target_os = "none")]
mod interrupt;
#[cfg(all(target_os = "none", feature = "bounds"))]
mod masked;
#[cfg(target_os = "none")]
mod mine;
#[cfg(target_os = "none")]
mod options;
#[cfg(all(target_os = "none", feature = "bounds"))]
mod painted;
#[cfg(target_os = "none")]
mod start;

#[cfg(target_os = "none")]
pub use start::{Described, first_cpu, other_cpu, refused};

#[cfg(not(target_os = "none"))]
fn main() {
    println!("this is a kernel: cargo xtask kernel builds it for bare metal and boots it in QEMU");
}
