//! Replay: the core in the start state of a recorded machine, driven by the allocations and frees of its trace, and
//! what it does compared with what the kernel logged.
//!
//! ```text
//! before/ --start--> layout --machine--> core on plain storage, one thread playing all CPUs
//! trace   --read---> alloc, free, bulk --> run: the same, on the same CPU, in the same order
//!                    refills, drains ...--> recorded
//!                          run and recorded --> fidelity: rows, one score
//! ```
//!
//! **What is predicted.** Zones of allocations, refills, drains, sizes of pagesets, free pages: from `before`, the
//! events of the window `before begin` to `after begin` that say who allocated and freed, and the times of the markers.
//! Nothing that is compared goes into it.
//!
//! **Blocks.** A frame of the trace names a block and nothing else: the core hands out frames of its own, and a map
//! leads from the one to the other until the block is freed. A block that was allocated before the window is one of
//! those that the core's zone does not have free at the start.
//!
//! **Unknown start.** Sizes of pagesets are recorded, not what is in them. Four runs go side by side over one pass of
//! the trace: a guess, and all order-0 movable, all order-0 unmovable, all that is asked for later; see [`guess`].
//!
//! **Open loop.** What the kernel would have done differently (reclaim, other CPUs, other tasks) had the allocator
//! answered otherwise is not in a trace: it stays as it was recorded.

mod blocks;
mod bundle;
mod cpus;
mod error;
mod events;
mod explain;
mod fidelity;
mod flow;
mod guess;
mod layout;
mod machine;
mod objects;
mod old;
mod old_pages;
mod outcome;
mod packed;
mod platform;
mod recorded;
mod replay;
mod report;
mod run;
mod samples;
mod series;
mod session;
mod start;
mod strays;
mod survey;
mod sweep;
mod ticks;
mod totals;
mod tunable;
mod watch;
mod whatif;
mod zones;

pub use bundle::Bundle;
pub use cpus::CpuRule;
pub use error::ReplayError;
pub use explain::{Subject, SubjectError};
pub use fidelity::{Fidelity, Row};
pub use objects::{ObjectTotals, Objects};
pub use replay::{Options, Replay};
pub use report::{Machine, OPEN_LOOP, Report, TraceFacts, WhatIf};
pub use series::{PagesetSeries, Point as SeriesPoint, Series, ZoneSeries};
pub use session::ZoneChoice;
pub use sweep::{CombinationError, Combinations, Point, Sweep};
pub use totals::{Costs, Totals};
pub use tunable::{Tunable, TunableError, TunableKey};
pub use whatif::Wish;
