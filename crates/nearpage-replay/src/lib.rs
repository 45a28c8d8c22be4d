//! Replays the trace of a kernel's page allocator through the nearpage core: how exactly does the model predict what the
//! kernel did, and what would it have done under other rules, with other tunables, on another machine?
//!
//! # When to use it, and when not
//!
//! Use it with a [`Bundle`]: captures of a machine before and after a load, and the trace of its page allocator between.
//! `nearpage record` makes one on a live kernel; [`Replay::shipped`] is one to begin with.
//!
//! The replay is an **open loop**: allocations and frees come as they were recorded, whatever the model answers. Reclaim,
//! tasks and CPUs do not react. It tells what an allocator does with a given load, not how the load would change. For
//! loads that react, there is the simulated machine of `nearpage-lab`.
//!
//! # Example
//!
//! ```
//! use nearpage_machine::work::Unwatched;
//! use nearpage_replay::{Options, Replay};
//!
//! let report = Replay::shipped().run(&Options::default(), &Unwatched)?;
//! assert!(report.fidelity.percent > Some(94.0));
//! let drained = report.fidelity.over_all("drain_pages").expect("a row of each quantity");
//! println!("pages drained: predicted {:?}, recorded {:?}", drained.predicted, drained.recorded);
//! # Ok::<(), nearpage_replay::ReplayError>(())
//! ```
//!
//! [`Options`] ask for more: [`Options::explain`] for the life of a page or the decisions around a time,
//! [`Options::wish`] for a second run that is different. [`Replay::sweep`] runs all combinations of some [`Tunable`]s.
//! [`Report`] and [`Sweep`] serialize as the JSON of `nearpage replay`.
//!
//! # How it works
//!
//! ```text
//! before/ --start--> layout --machine--> core on plain storage, one thread playing all CPUs
//! trace   --read---> alloc, free, bulk --> run: the same, on the same CPU, in the same order
//!                    refills, drains ...--> recorded
//!                          run and recorded --> fidelity: rows, one score
//! ```
//!
//! **What is predicted.** Zones of allocations, refills, drains, sizes of pagesets, free pages. A prediction uses
//! `before`, the events of the window `before begin` to `after begin` that say who allocated and freed, and the times of
//! the markers. It uses nothing that it is compared with.
//!
//! **Blocks.** A frame of the trace names a block and nothing else. The core hands out frames of its own, and a map
//! leads from the recorded frame to the core's block until the block is freed. A block that was allocated before the
//! window is represented by one that is not free in the core's zone at the start.
//!
//! **Known start.** Where a recording has the kernel's own lists (`before/kernel.json`), the core begins with them, frame by
//! frame, and is compared with those of `after/kernel.json`: [`StateReport`].
//!
//! **Unknown start.** Else sizes of pagesets are recorded, their content is not. Four runs go side by side over one pass of the
//! trace: from a likely start, which makes the prediction, and from three that are drawn among those that the recording leaves open
//! ([`Row::drawn_range`]).
//!
//! # The modules, bottom to top
//!
//! | modules | own |
//! |---|---|
//! | `packed`, `samples`, `source`, `bundle`, `watch`, `share` | the files of a bundle; passes over them that report and stop |
//! | `zones`, `layout`, `kernel_state`, `start` | the machine at the moment of `before`; places for its free blocks; the kernel's own lists |
//! | `strays`, `old_pages`, `guess`, `identity`, `survey` | the first pass: the window, what pagesets held, whether the trace is of this recording |
//! | `platform`, `machine` | the core in the start state |
//! | `blocks`, `old`, `flow`, `ticks`, `run` | one core driven by events |
//! | `explain`, `recorded`, `outcome`, `session` | the second pass: four runs, the kernel's log, explanations |
//! | `truth`, `fidelity`, `state_end`, `series`, `timeline` | predicted beside recorded |
//! | `cpus`, `whatif`, `alone`, `study`, `totals`, `objects` | other rules and machines; traces without captures; slab events |
//! | `bound`, `yardstick` | the fewest holds that any rules need, and how far some are from it |
//! | `drawing` | a bundle as a timeline for viewers |
//! | `report`, `sweep`, `replay` | the entry and its results |
//! | `blame` | what the model does for each call site or task |
//! | [`rules`] | sets of rules, compared over many bundles |
//! | [`twin`] | made-up loads on larger machines, after a recorded one |
//!
//! # Cost and limits
//!
//! The length of a trace costs time, and memory only where bounds are asked for ([`Replay::bound`], [`Replay::sweep`]: 8 bytes a
//! request): each pass reads it from the packed file. A replay makes two passes,
//! a what-if one more, the objects of a trace one more for each machine; 16 million events take some 11 s of CPU time.
//! What is measured many times reads the text once ([`rules::Prepared`], 7 bytes an event in a temporary file).
//! Traces are of kernels with pages of 4 KiB: pageblocks of order 9. CMA counts as movable. Memory policies are in no event ([`ZoneChoice::Recorded`]
//! goes by the recorded pages instead).
#![warn(missing_debug_implementations)]
#![forbid(unsafe_code)]

mod alone;
mod blame;
mod blocks;
pub mod bound;
mod bundle;
mod cpus;
mod drawing;
mod drawn;
mod error;
mod events;
mod explain;
mod fidelity;
mod findings;
mod first_seen;
mod flow;
mod guess;
mod identity;
mod kernel_state;
mod layout;
mod machine;
mod objects;
mod old;
mod outcome;
mod packed;
mod pilot;
mod places;
mod platform;
mod policies;
mod recorded;
mod replay;
mod report;
pub mod rules;
mod run;
mod samples;
mod series;
mod session;
mod share;
mod signs;
mod source;
mod start;
mod state_end;
mod strays;
mod study;
mod survey;
mod sweep;
mod ticks;
mod timeline;
mod totals;
mod truth;

#[cfg(unix)]
pub mod twin;
mod watch;
mod whatif;
mod yardstick;
mod zones;

pub use alone::{Input, LoneFacts, LoneTrace};
pub use bundle::Bundle;
pub use cpus::CpuRule;
pub use error::ReplayError;
pub use explain::{Subject, SubjectError};
pub use fidelity::{Fidelity, Row, Score, Starts, Worst};
pub use kernel_state::Gap;
pub use nearpage_machine::tunable::{Tunable, TunableError};
pub use objects::{ObjectTotals, Objects};
pub use places::FramePlaces;
pub use replay::{Options, Replay};
pub use report::{
    Machine, NO_WAITS, OPEN_LOOP, Report, RuleTotals, StateReport, TraceFacts, WhatIf,
};
pub use run::Causes;
pub use series::{PagesetSeries, Series, SeriesPoint, ZoneSeries};
pub use session::ZoneChoice;
pub use state_end::{FigureRow, ListRow, ListsCompared, StateEnd};
pub use study::{ALL_FREE, Alone, PlayedMachine, Ratio, Ratios, Study, StudyAnswer, Then};
pub use sweep::{CombinationError, Combinations, Point, Sweep};
pub use timeline::{Timeline, TimelineRun, ZoneLine, ZonePoint};
pub use totals::{Costs, Totals};
pub use truth::ChangedZone;
pub use whatif::{Change, Changes, OrderChange, OtherMachine, SettingChange, SizeChange, Wish};
pub use yardstick::{BoundPoint, COMPARED_AT, Question, Standing, Yardstick};
