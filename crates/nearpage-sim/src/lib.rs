//! Simulated NUMA machines that run the nearpage core unchanged.
//!
//! A [`Machine`] is data: nodes, CPUs, distances, memory, page size. Its virtual CPUs are coroutines that a
//! [`Scheduler`](scheduler::Scheduler) picks from: in *virtual time* the one whose clock is lowest, for questions of
//! performance; at random, for bugs in interleavings. A table of [`Costs`], in which each figure names its source, says
//! what time an operation takes. The same seed gives the same bytes, on any machine.
//!
//! Use it to write a workload of your own for machines that you do not have, or to hunt for bugs in code that stands on
//! the core. To run published scenarios with verdicts, `nearpage-lab` has them ready; for real memory, `nearpage-linux`.
//!
//! ```
#![doc = include_str!("../examples/two_cpus.rs")]
//! ```
//!
//! | module | what it has |
//! |---|---|
//! | root | the parts of a run ([`Machine`], [`Costs`], [`Setup`]), the run ([`simulate`], [`Sim`], [`World`], [`Tasks`]), and what it leaves ([`LockCounts`], [`LineCounts`], [`Samples`]) |
//! | [`scheduler`] | who runs next: [`VirtualTime`](scheduler::VirtualTime), and those that hunt and replay |
//! | [`workload`] | building blocks: a memory hog, messages of pages and of objects, page locks, processes |
//! | [`pool`] | independent runs on threads |
//!
//! **Cost.** A switch between two CPUs takes some 100 ns, a touched line some 10 ns. A line that a run touches takes 8
//! bytes. **Limits.** At most 1024 nodes, 8192 CPUs and 2^28 pages. Between two points a CPU runs ahead of others by what it
//! charges there (see [`World`]). Prefetching and address translation are not modelled.
#![deny(unsafe_code)]
#![warn(missing_debug_implementations)]

mod costs;
mod executor;
mod lines;
mod machine;
mod platform;
pub mod pool;
mod samples;
pub mod scheduler;
mod sim;
mod storage;
pub mod workload;
mod world;

pub use costs::{Costs, CostsError, Figure, picoseconds};
pub use executor::{Deadlock, Tasks};
pub use lines::LineCounts;
pub use machine::{Machine, NodeSpec};
pub use platform::{Help, NoHelp, SimGuard, SimLock, SimPlatform};
pub use samples::{PagesetSample, Sample, Samples, ZoneSample};
pub use sim::{MachineError, Setup, Sim, check_machine, simulate, simulate_with_help};
pub use storage::SimStorage;
pub use world::{LockCounts, TaskId, World};
