//! What about a machine helps or hinders an allocator: settings of its kernel, its nodes and CPUs, and what a process
//! may do there.
//!
//! Use it to look at a machine before a program is blamed for being slow on it, or at a copy of its /sys and /proc.
//! It changes nothing, and it judges settings, not a running program: where the memory of a program lies is for
//! `nearpage_linux::Memory::verify_placement` to say. [`VerifiedPlacement`] tries out where memory of its own would lie.
//!
//! ```
#![doc = include_str!("../examples/judge.rs")]
//! ```
//!
//! # Map
//!
//! | to | use |
//! |---|---|
//! | read what a machine tells | [`Facts`], [`Process`], [`Allowed`] |
//! | judge it | [`findings`], [`Finding`], [`Level`] |
//! | hand all of it to a program | [`Report`] |
//! | ask how much memory may still be taken | [`Room`] |
//! | try whether the kernel puts memory where it is asked to | [`VerifiedPlacement`] |
//!
//! # Cost and limits
//!
//! Some dozens of small files are read. A file that cannot be understood is a finding itself, and the others are judged
//! all the same. What a copy does not have is not judged.
#![warn(missing_debug_implementations)]
#![forbid(unsafe_code)]

mod allowed;
mod facts;
mod finding;
mod kernel;
mod machine;
mod nodes;
mod placement;
mod process;
mod reader;
mod report;
mod room;
mod rules;

pub use allowed::Allowed;
pub use facts::{Facts, Process};
pub use finding::{Finding, Level};
pub use placement::{NodePlacement, PagesOn, PlacementError, VerifiedPlacement};
pub use report::Report;
pub use room::Room;
pub use rules::findings;
