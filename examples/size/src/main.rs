//! Kernels that do nothing but boot on nearpage and use it, to weigh them: by features, from pages alone to all that there is.
//!
//! With the heap it is the file of `examples/kernel` that the book shows, so that this also compiles it for processors on
//! which that kernel does not boot.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(all(target_os = "none", feature = "heap"))]
extern crate alloc;

#[cfg(target_os = "none")]
mod arch;
#[cfg(all(target_os = "none", feature = "all"))]
mod everything;
#[cfg(all(target_os = "none", not(feature = "heap")))]
#[path = "pages.rs"]
mod mine;
#[cfg(all(target_os = "none", feature = "heap"))]
#[path = "../../kernel/src/mine.rs"]
mod mine;
#[cfg(target_os = "none")]
mod run;

#[cfg(target_os = "none")]
pub use run::refused;

#[cfg(not(target_os = "none"))]
fn main() {
    println!("this is a kernel: cargo xtask kernel --sizes builds it for bare metal and weighs it");
}
