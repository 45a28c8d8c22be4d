//! What pages and objects cost on this machine's real memory.
//!
//! A [`Run`] measures benchmarks of [`nearpage_linux`]'s memories on pinned threads, beside the limit that restartable
//! sequences set, beside glibc and beside the kernel. [`comparison`] puts the table of the bulk page allocator of 2017
//! beside this machine's, and [`costs`] measures a table of costs for simulated machines.
//!
//! Use it to learn what an allocation costs here, and to compare two machines or two versions. It is no profiler of your
//! own program, and its figures are of this machine: for the question what another machine would do, see `nearpage-lab`.
//!
//! ```
#![doc = include_str!("../examples/pairs.rs")]
//! ```
//!
//! | module | what it has |
//! |---|---|
//! | root | what to measure ([`Options`], [`Bench`], [`SingleLoop`]), a [`Run`], and what it comes to ([`Measured`], [`Row`], [`Document`]) |
//! | [`published`] | the table of 2017 |
//! | [`comparison`] | that table beside this machine's, as a report of the lab |
//! | [`costs`] | a table of costs of this machine |
//!
//! **Cost.** All usual benchmarks in full take half a minute and reserve some 20 GiB of addresses, of which only
//! what is used becomes memory. **Limits.** Linux only. Figures of a busy machine mean little: median, min and max are over rounds
//! in which all allocators take turns, so that load hits all of them alike.
#![warn(missing_debug_implementations)]

mod addresses;
mod bench;
pub mod comparison;
mod contender;
pub mod costs;
mod counts;
mod document;
mod error;
mod field;
mod fit;
mod machine;
mod measure;
mod options;
pub mod published;
mod rows;
mod run;
mod seats;
mod source;
mod step;
mod threads;
mod ticks;
mod work;

pub use addresses::NoAddresses;
pub use bench::{Bench, UnknownBench};
pub use counts::Moves;
pub use document::Document;
pub use error::{BenchError, SizeError};
pub use machine::Machine;
pub use measure::Summary;
pub use options::Options;
pub use rows::{Key, Row, Tails, Work};
pub use run::{Measured, Run};
pub use step::StepError;
pub use work::bulk::SingleLoop;
pub use work::fragmentation::{Fragmentation, Shape};
pub use work::zonelist::Scans;

/// What sibling crates measure with, and the loads for allocators that this crate does not know (`bench/llfree`).
#[doc(hidden)]
pub mod internals {
    pub use crate::contender::{Contender, Rules, Setting};
    pub use crate::field::Effort;
    pub use crate::machine::cpu_model;
    pub use crate::measure::Clock;
    pub use crate::rows::round_ns;
    pub use crate::seats::{Seats, seat};
    pub use crate::source::Source;
    pub use crate::step::{Ended, Step, run_rounds};
    pub use crate::threads::{Cpus, Gate};
    pub use crate::ticks::Ticks;
    pub use crate::work::fragmentation::{Until, measure as fragmentation};
    pub use crate::work::mixed::step as mixed_step;
    pub use crate::work::order9::{SIZES as ORDER9_SIZES, step as order9_step};
    pub use crate::work::random::{LARGE, fresh_steps as random_steps};
    pub use crate::work::replace::fresh_steps as replace_steps;
    pub use crate::work::tails::steps as tails_steps;
}
