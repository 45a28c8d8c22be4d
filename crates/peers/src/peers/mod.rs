//! What nearpage is compared with, one file each.
//!
//! Each peer is set up as its users would for speed: asked through its own functions and not as the
//! global allocator, told to keep freed memory rather than give it back to the kernel, and, if it
//! needs a lock around it, locked once for a whole bulk request. Four of them (mimalloc, jemalloc,
//! snmalloc and DPDK) are compiled C or C++: each of their calls is a call, as for any Rust user.
//!
//! All live in one process. The harness and `buddy_system`'s trees use glibc's malloc, so that peer
//! shares its heap with them; the others share nothing but address space and caches of the CPU.

mod bitmap;
mod buddy_slab;
mod buddy_system;
mod dpdk;
mod floor;
mod glibc;
mod heap;
mod jemalloc;
mod mimalloc;
mod mmap;
mod snmalloc;

use crate::contestant::Contestant;

/// How a contestant comes to be: `Err` says why it cannot take part on this machine.
pub type Build = fn() -> Result<Box<dyn Contestant>, String>;

/// An allocator by name.
#[derive(Clone, Copy)]
pub struct Entry {
    /// The `allocator` of its rows.
    pub name: &'static str,
    /// Sets it up.
    pub build: Build,
}

/// Those that never touch their pages, with room for [`Effort::large_pages`](crate::timing::Effort::large_pages).
pub fn large() -> Vec<Entry> {
    vec![Entry { name: "bitmap-allocator", build: bitmap::build_large }]
}

/// All peers.
pub fn all() -> Vec<Entry> {
    let entry = |name, build| Entry { name, build };
    vec![
        entry("buddy_system_allocator", buddy_system::build as Build),
        entry("bitmap-allocator", bitmap::build),
        entry("buddy-slab-allocator", buddy_slab::build),
        entry("mimalloc", mimalloc::build),
        entry("jemalloc", jemalloc::build),
        entry("snmalloc", snmalloc::build),
        entry("dpdk", dpdk::build),
        entry("glibc", glibc::build),
        entry("mmap", mmap::build),
        entry("harness-floor", floor::build),
    ]
}
