//! Recordings of machines: reading them, predicting what their kernels printed, and comparing the two.
//!
//! A recording is what somebody took along from a running Linux: a copy of /sys and /proc, a bundle of such copies
//! around a trace, or one JSON file of a boot. Use this crate to read any of them, and to compute from its sizes and
//! settings every field that the kernel derives from them. `nearpage-trace` makes bundles and reads their traces,
//! `nearpage-replay` replays those. A machine that is only described, not recorded, needs `nearpage-machine` alone.
//!
//! ```
#![doc = include_str!("../examples/verify.rs")]
//! ```
//!
//! # Map
//!
//! | to | use |
//! |---|---|
//! | read a recording of any kind | [`Recording::read`], [`Recording::read_from`] |
//! | read the machine of one of its moments | [`Recording::capture`], [`Capture::machine`], [`RecordedMachine`] |
//! | predict what the kernel printed | [`predict::Prediction`] |
//! | compare a prediction field by field | [`predict::compare`] |
//! | compare many recordings at once | [`verify`] |
//! | read single texts of a kernel | [`parse_buddyinfo`], [`parse_pagetypeinfo`], [`KernelLog`] |
//! | read the answers of the oracle's kernel module | [`module`] |
//!
//! # Cost and limits
//!
//! An archive is read once, from front to back, so a pipe will do; a trace in it is passed over. Captures may have up to
//! 64 MiB a file and 256 MiB together. Predicting and comparing a capture of 4 nodes takes a few milliseconds.
//!
//! The rules are those of Linux 6.1, 6.12 and 6.18, of 6.6 for pagesets. Another kernel gets the nearest rules, and
//! [`predict::KernelModel`] says so. Zones of 32-bit processors (HighMem) are refused.
#![warn(missing_debug_implementations)]
#![forbid(unsafe_code)]

pub mod predict;
mod recording;
pub mod verify;

pub use recording::module;
pub use recording::{
    BundleError, Capture, Computed, FreeBlocks, KernelLog, LateMemory, Pageblocks, RecordedMachine,
    RecordedNode, Recording, RecordingKind, TypeBlocks, TypeCounts, parse_buddyinfo,
    parse_pagetypeinfo,
};
