//! A kernel of forty lines: `kernel.rs`. `pc.rs` and `boot.s` are what any kernel has: the first instructions, a serial line.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
mod kernel;
#[cfg(target_os = "none")]
mod pc;

#[cfg(not(target_os = "none"))]
fn main() {
    println!("this is a kernel: `cargo run --release` in examples/smallest boots it in QEMU");
}
