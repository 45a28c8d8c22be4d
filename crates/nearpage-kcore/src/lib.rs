//! The page allocator of a Linux kernel, read out of the kernel's memory.
//!
//! # When to use it, and when not
//!
//! [`Kernel::running`] reads `/proc/kcore`, [`Kernel::open`] an ELF dump: what QEMU's `dump-guest-memory`, `virsh dump
//! --memory-only` or kdump write. Use it to see what no file of `/proc` has: which frames a pageset holds in which list and
//! order, how often its refills have doubled, the order of free lists. For counts alone `/proc/zoneinfo` is the shorter way.
//!
//! # Example
//!
//! ```no_run
//! use nearpage_kcore::Kernel;
//!
//! let kernel = Kernel::open("vmcore".as_ref())?;
//! for node in kernel.state()?.nodes {
//!     for zone in &node.zones {
//!         for pageset in &zone.pagesets {
//!             println!("node {} {} CPU {}: {:?}", node.id, zone.name, pageset.cpu, pageset.lists);
//!         }
//!     }
//! }
//! # Ok::<(), nearpage_kcore::KcoreError>(())
//! ```
//!
//! # How it works
//!
//! The kernel describes itself, so no offset of a version is here, and no file with debug symbols is needed:
//!
//! ```text
//! file --segments--> VMCOREINFO --page tables--> memory by the kernel's addresses
//!                        `------- kallsyms ----> symbols --> BTF --> members of structures
//!                                                   `----------------> nodes, zones, lists
//! ```
//!
//! VMCOREINFO is a note of the file, or is looked for in memory: QEMU has the note only with `-device vmcoreinfo`. BTF of
//! another kernel is refused by the sizes that VMCOREINFO has, too.
//!
//! # The modules, bottom to top
//!
//! | modules | own |
//! |---|---|
//! | `error`, `state` | why memory cannot be read; what is read |
//! | `image`, `vmcoreinfo`, `btf` | a file; a text; a description of types |
//! | `memory`, `symbols` | memory by the kernel's addresses; its variables |
//! | `kernel`, `lists`, `pageblocks`, `zones` | a kernel that is open; lists of frames; bits of pageblocks; all of it |
//!
//! # Cost and limits
//!
//! A dump of 1 GiB took 0.1 s of user time and 2.6 s of the system's on two loaded CPUs, most of it to find VMCOREINFO
//! without a note. Whatever the file says, memory is bounded: 16 MiB of headers, 16 MiB of notes,
//! 64 MiB of BTF, four million symbols; no list has more blocks than its zone has pages, and a list that leads in a circle or
//! not back is cut there, and told. A running kernel goes on meanwhile: a list that does not fit is read three times.
//!
//! x86-64 with CONFIG_SPARSEMEM_VMEMMAP, kernels since 6.0 (those before do not tell where their symbols are). Compressed
//! kdump files are not read: `makedumpfile -E` writes ELF.
#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

#[cfg(unix)]
mod btf;
mod error;
#[cfg(unix)]
mod files;
#[cfg(unix)]
mod image;
#[cfg(unix)]
mod kernel;
#[cfg(unix)]
mod lists;
#[cfg(unix)]
mod log;
#[cfg(unix)]
mod memory;
#[cfg(unix)]
mod pageblocks;
mod state;
#[cfg(unix)]
mod symbols;
#[cfg(unix)]
mod vmcoreinfo;
#[cfg(unix)]
mod zones;

pub use error::KcoreError;
#[cfg(unix)]
pub use kernel::Kernel;
pub use state::{FreeArea, Limits, NodeState, PagesetState, State, ZoneState};
