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
//! | know where processes have their memory | [`Sampler::with_processes`], [`Processes`], [`Placement`] |
//! | know what is wrong, and since when | [`marks`], [`Mark`], [`History`], [`passes`], [`gives`], [`WORDS`] |
//! | know when free blocks will be used up | [`Trends`] |
//! | know free blocks by type, for root | [`type_blocks`], [`TypeBlocks`] |
//! | count refills and drains of pagesets, where the kernel allows it | [`Traffic`] |
//! | keep hours in a file, and play it | [`TapeWriter`], [`Tape`] |
//! | print metrics | [`exposition`], [`Cardinality`] |
//! | serve them | [`Server`] |
//!
//! ```text
//! process, zoneinfo, processes --> sampler --> sample --> marks --> history, exposition --> server
//!                                                 |
//!                                                 `--> trends, tape
//! ```
//!
//! # Cost and limits
//!
//! A sample takes a millisecond on a small machine; [`Sampler::with_budget`] bounds it on large ones, and processes have a
//! budget of their own. A second of a small machine takes a few hundred bytes of a tape. Whatever a kernel
//! does not tell is left out. Files that change while they are read give figures of different moments.
#![warn(missing_debug_implementations)]

mod copy;
mod cpus;
mod exposition;
mod history;
mod marks;
mod number;
mod placement;
mod process;
mod processes;
mod sample;
mod sampler;
mod server;
mod tape;
mod traffic;
mod trends;
mod types;
mod words;
mod zoneinfo;

pub use copy::{CopyError, ProcessCopy};
pub use exposition::{Cardinality, Format, exposition};
pub use history::{Change, History};
pub use marks::{ASKERS, Asker, Mark, gives, marks, passes};
pub use placement::{Placement, ProcessSample, Processes};
pub use process::{ProcessError, ProcessTree};
pub use sample::{EVENTS, NUMA, NodeSample, PagesetSample, Sample, ZoneSample, rate};
pub use sampler::Sampler;
pub use server::{Limits, ServeError, Server};
pub use tape::{Tape, TapeError, TapeWriter};
pub use traffic::{CpuTraffic, Traffic};
pub use trends::Trends;
pub use types::{TypeBlocks, type_blocks};
pub use words::{WORDS, Word};
pub use zoneinfo::Pagesets;
