//! NUMA machines as data: where descriptions of them come from, what an allocator makes of them, and the texts in
//! which kernels and tools print them.
//!
//! Use it to read a machine from a copy of its /sys and /proc, from `numactl --hardware`, from hwloc's XML, or
//! from a line of text; to compute the zones, watermarks and fallback orders that a kernel has on it; and to write those in the
//! kernel's own formats. It allocates no pages: [`nearpage`] does, and `nearpage-linux` does on real memory. Recordings of a running
//! kernel are read by `nearpage-bundle`.
//!
//! ```
#![doc = include_str!("../examples/plan.rs")]
//! ```
//!
//! # Map
//!
//! | to | use |
//! |---|---|
//! | read a machine of any kind | [`MachineDescription`], [`MachineInput`] |
//! | take a machine by its name | [`catalog`] |
//! | describe a machine yourself | [`Machine::new`], [`short_form`], [`table`] (TOML) |
//! | read /sys and /proc from a folder, an archive or memory | [`FileTree`], [`open_tree`], [`read_machine`] |
//! | read single files of theirs, such as /proc/zoneinfo | [`sysfs`], [`idlist`] |
//! | compute zones, watermarks, pagesets and zonelists | [`Plan`], [`plan`] |
//! | write zoneinfo, `numactl --hardware`, hwloc's XML or a graph | [`text`], [`Plan::fallback_lines`] |
//! | write JSON | [`MachineDocument`], [`Replaced`] |
//! | read and write sizes, read ranges of settings, show paths | [`size`], [`over`], [`shown`] |
//! | watch and stop long work | [`work`] |
//! | say how much is read of a stranger's input | [`Budget`], [`read_within`] |
//! | the language of a program's statistics socket | [`stats_socket`] |
//!
//! # Features
//!
//! | feature | adds | default |
//! |---|---|---|
//! | `archive` | tar archives as input, plain or compressed by gzip, bzip2, xz or zstd | yes |
//! | `catalog` | [`catalog`] and [`table`] | yes |
//! | `hwloc` | the XML of hwloc (`lstopo --of xml`) as input | yes |
//! | `serde` | [`MachineDocument`] | yes |
//!
//! # Cost and limits
//!
//! Where there is no Unix (WebAssembly), machines are read from content alone: no file is opened, and [`stats_socket`] and
//! [`OutputFolder`] are not there.
//!
//! Reading a machine costs some system calls a node and CPU. A machine has at most [`NODES_MAX`] nodes and 4 PiB of
//! memory. [`Budget`] has what is read of an input. Fallback orders and zonelists grow with the
//! square of the nodes; the text of zoneinfo grows with nodes times CPUs and is written as it is made.
//!
//! Errors name the file, the line and the column, what stands there, and what is accepted. What a running kernel can
//! print because it changes between two reads is no error but a [`Note`].
#![warn(missing_debug_implementations)]

#[cfg_attr(not(unix), path = "no_files.rs")]
mod beneath;
mod budget;
#[cfg(feature = "catalog")]
pub mod catalog;
#[cfg(unix)]
mod created;
mod description;
#[cfg(feature = "serde")]
mod document;
mod error;
#[cfg(feature = "hwloc")]
mod hwloc;
pub mod idlist;
mod input;
mod machine;
mod numactl;
pub mod over;
#[cfg(feature = "archive")]
mod packing;
pub mod plan;
#[cfg(feature = "serde")]
mod replaced;
pub mod short_form;
mod shown;
pub mod size;
mod sos;
#[cfg(unix)]
pub mod stats_socket;
pub mod sysfs;
#[cfg(feature = "catalog")]
pub mod table;
pub mod text;
mod tree;
pub mod tunable;
pub mod work;

pub use beneath::open_beneath;
pub use budget::{Budget, read_at_most, read_within};
#[cfg(unix)]
pub use created::{OutputFolder, Owner, open_found};
pub use description::{DescriptionError, DescriptionProblem, Place};
#[cfg(feature = "serde")]
pub use document::MachineDocument;
pub use error::{InputError, InputProblem};
pub use input::{Addresses, MachineDescription, MachineInput, open_tree, read_tree};
pub use machine::{
    KernelSettings, LastLevelCache, Machine, MachineNode, NODES_MAX, Note, ZoneExtent,
};
#[cfg(feature = "archive")]
pub use packing::{Kept, Packing, Unpacking, each_tar_file, read_kept, read_tar_files};
pub use plan::{Lists, Plan};
#[cfg(feature = "serde")]
pub use replaced::{Replaced, WithSet};
pub use shown::{Shown, commands_terminal, escaped, shown};
pub use sysfs::{SysfsError, read_machine, read_this_machine};
pub use tree::{FileTree, FolderTree, MemoryTree, is_machine_file};
