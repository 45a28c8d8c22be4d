//! Simulated NUMA machines that run the nearpage core unchanged.
//!
//! A [`Machine`] is data: nodes, CPUs, distances, memory, page size. Its virtual CPUs are coroutines that a
//! [`Scheduler`](scheduler::Scheduler) picks from: in *virtual time* the one whose clock is lowest, for questions
//! of performance; at random, for bugs in interleavings. What time an operation takes comes from a table of
//! [`Costs`], in which each figure has a source. Same seed, same bytes, on any machine.
//!
//! Bottom to top: [`machine`], [`costs`], [`lines`] (where each cache line is), [`scheduler`], [`world`] (the state of
//! a run), [`executor`] (tasks on virtual CPUs), [`platform`] (what the core sees), [`sim`] (all of it put
//! together), [`workload`] (building blocks), [`pool`] (independent runs on threads).
//!
//! ```
//! use nearpage::{Config, Request};
//! use nearpage::Gfp;
//! use nearpage::{CpuId, Order};
//! use nearpage_sim::costs::Costs;
//! use nearpage_sim::executor::Tasks;
//! use nearpage_sim::machine::Machine;
//! use nearpage_sim::scheduler::VirtualTime;
//! use nearpage_sim::sim::{self, Setup};
//!
//! let machine = Machine::uniform(2, 1, 64 << 20);
//! let setup = Setup { machine: &machine, costs: &Costs::flat(), config: Config::default(), slab: None };
//! let elapsed_ns = sim::with(&setup, Box::new(VirtualTime::default()), |sim| {
//!     let mut tasks = Tasks::default();
//!     for cpu in [CpuId(0), CpuId(1)] {
//!         tasks.add(cpu, || {
//!             let request = Request::new(Order(0), Gfp::KERNEL);
//!             let page = sim.allocator.alloc(request).unwrap();
//!             sim.world.charge_ns(1000.0);
//!             sim.allocator.free(page, Order(0)).unwrap();
//!         });
//!     }
//!     sim.run(tasks).unwrap();
//!     sim.world.now_ns()
//! });
//! assert!(elapsed_ns.unwrap() >= 1000);
//! ```
#![deny(unsafe_code)]

pub mod costs;
pub mod executor;
pub mod lines;
pub mod machine;
pub mod platform;
pub mod pool;
pub mod samples;
pub mod scheduler;
pub mod sim;
pub mod storage;
pub mod workload;
pub mod world;

pub use costs::Costs;
pub use machine::Machine;
pub use samples::Samples;
pub use sim::Sim;
