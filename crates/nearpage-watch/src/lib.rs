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
//! | know where processes have their memory | [`Sampler::with_processes`], [`Processes`], [`Placement`] |
//! | know what is wrong, and since when | [`marks`], [`Mark`], [`History`], [`passes`], [`WORDS`] |
//! | keep hours in a file, and play it | [`TapeWriter`], [`Tape`] |
//! | print metrics | [`exposition`], [`Cardinality`] |
//! | serve them | [`Server`] |
//!
//! ```text
//! zoneinfo, processes --> sampler --> sample --> marks --> history, exposition --> server
//!                                        |
//!                                        `-- tape
//! ```
//!
//! # Cost and limits
//!
//! A sample takes a millisecond on a small machine; [`Sampler::with_budget`] bounds it on large ones, and processes have a
//! budget of their own. A second of a small machine takes a few hundred bytes of a tape. Whatever a kernel
//! does not tell is left out. Files that change while they are read give figures of different moments.
#![warn(missing_debug_implementations)]

mod cpus;
mod exposition;
mod history;
mod marks;
mod process;
mod processes;
mod sample;
mod sampler;
mod server;
mod tape;
mod words;
mod zoneinfo;

pub use exposition::{Cardinality, Format, exposition};
pub use history::{Change, History};
pub use marks::{Mark, marks, passes};
pub use process::{Placement, ProcessSample, Processes};
pub use sample::{EVENTS, NUMA, NodeSample, PagesetSample, Sample, ZoneSample, rate};
pub use sampler::Sampler;
pub use server::{Limits, ServeError, Server};
pub use tape::{Tape, TapeError, TapeWriter};
pub use words::{WORDS, Word};
pub use zoneinfo::Pagesets;
