//! Recordings of machines: what a kernel printed, and what a kernel module answered.
//!
//! There are four kinds of recordings. All are read into a [`Recording`]:
//!
//! | kind | what it is | its captures |
//! |---|---|---|
//! | bundle | a folder with `meta.json`, or a tar of one | `before`, `cmdend`, `after` |
//! | oracle | one JSON file of one boot, plain or compressed | `boot`, `sysctl`, `phase_…`, `restored`, … |
//! | root | a folder, or a tar of one, with `proc/` and `sys/` | `root` |
//! | this machine | `/` | `root` |
//!
//! Every kind of capture is a tree of files, so one reader understands them all; messages name the place in the
//! recording. The files of a capture are read when its machine is asked for.

mod buddyinfo;
mod data;
mod error;
mod folder;
mod log;
mod machine;
pub mod module;
mod open;
mod oracle;
mod pagetypeinfo;
mod tree;

pub use buddyinfo::{FreeBlocks, parse_buddyinfo};
pub use data::{Capture, Computed, Recording, RecordingKind};
pub use error::BundleError;
pub use log::{KernelLog, LateMemory};
pub use machine::{RecordedMachine, RecordedNode};
pub use pagetypeinfo::{Pageblocks, TypeBlocks, TypeCounts, parse_pagetypeinfo};
