//! A NUMA machine over time: nodes, zones, free blocks, pagesets and events, read from /proc and /sys without root.
//!
//! Use it to watch a machine, or copies of its files that somebody took. It changes nothing, and judges a moment and the
//! one before it; settings are for `nearpage_doctor` to judge.
//!
//! ```
#![doc = include_str!("../examples/once.rs")]
//! ```
//!
//! # Map
//!
//! | to | use |
//! |---|---|
//! | read a machine | [`Sampler`], [`Sample`] |
//! | read a process that serves the figures of its allocator | [`ProcessTree`], [`ProcessCopy`] |
//! | know what is wrong | [`marks`], [`Mark`], [`passes`] |
//! | print metrics | [`exposition`], [`Cardinality`] |
//! | serve them | [`Server`] |
//!
//! ```text
//! process, zoneinfo --> sampler --> sample --> marks, exposition --> server
//! ```
//!
//! # Cost and limits
//!
//! A sample takes a millisecond on a small machine; [`Sampler::with_budget`] bounds it on large ones. Whatever a kernel
//! does not tell is left out. Files that change while they are read give figures of different moments.
#![warn(missing_debug_implementations)]

mod copy;
mod exposition;
mod marks;
mod process;
mod sample;
mod sampler;
mod server;
mod zoneinfo;

pub use copy::{CopyError, ProcessCopy};
pub use exposition::{Cardinality, Format, exposition};
pub use marks::{Mark, marks, passes};
pub use process::{ProcessError, ProcessTree};
pub use sample::{EVENTS, NUMA, NodeSample, PagesetSample, Sample, ZoneSample, rate};
pub use sampler::Sampler;
pub use server::{Limits, ServeError, Server};
pub use zoneinfo::Pagesets;
