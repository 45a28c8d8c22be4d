//! The lab: scenarios on simulated machines, and what published tables say beside them.
//!
//! A [`Scenario`] is a file: a machine, the allocator's rules, a workload, what to calibrate, and a published table if
//! there is one. [`run`] makes a [`Report`] of it: rows with a verdict each, things that must hold, and counts. [`sweep`]
//! runs it under all combinations of some settings.
//!
//! Use it to learn what rules or settings would do on a machine that you do not have, and to check a model against what
//! somebody measured. Counts (locks, pages, lines) come from the core itself and are exact; times are model time, from a
//! table of costs in which each figure names its source. For what a recorded kernel did, see `nearpage-replay`; for real
//! memory, `nearpage-bench`.
//!
//! ```
#![doc = include_str!("../examples/own_scenario.rs")]
//! ```
//!
//! | module | what it has |
//! |---|---|
//! | root | [`run`], [`sweep`], their [`Options`], [`csv`] |
//! | [`catalog`] | scenarios and tables of costs by name |
//! | [`load`] | loads by name, on any machine |
//! | [`scenario`] | what a scenario file says |
//! | [`report`] | what a scenario came to |
//! | [`misses`] | published figures that the model is known not to reach, with reasons |
//!
//! **Cost.** A run takes a second to a minute of CPU time; independent runs go to [`Options::threads`]. A machine of 28
//! nodes and 96 GB takes some hundred MiB. **Limits.** LLC misses of the workload, prefetching, address translation and
//! reclaim are not modelled; a scenario's notes say what is calibrated and what is not claimed.
#![warn(missing_debug_implementations)]
#![forbid(unsafe_code)]

pub mod catalog;
mod csv;
mod error;
mod kind;
mod kinds;
pub mod load;
pub mod misses;
mod options;
pub mod report;
mod run;
pub mod scenario;
mod sweep;
mod text;

pub use csv::csv;
pub use error::LabError;
pub use options::Options;
pub use report::Report;
pub use run::run;
pub use scenario::Scenario;
pub use sweep::{ON_THE_FRONT, Over, OverError, run as sweep};
