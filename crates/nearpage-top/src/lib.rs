//! A NUMA machine live on a terminal: nodes, zones, free blocks, pagesets, events, and marks for what is wrong.
//!
//! Use it to put these panes into a program. It needs no colour: what is wrong is said in words. A program that watches
//! machines should read the samples of `nearpage_watch` instead.
//!
//! ```
#![doc = include_str!("../examples/draw.rs")]
//! ```
//!
//! # Map
//!
//! | to | use |
//! |---|---|
//! | draw a sample | [`View`], [`Shown`] |
//! | run the panes on the terminal until `q` | [`run`] |
//!
//! ```text
//! shown --> rows (a table for each pane) --> view (what is shown, keys) --> run (the terminal)
//! ```
//!
//! # Cost and limits
//!
//! A screen is drawn once for each sample and each key; its cost follows what fits on it, not the machine. A terminal
//! that is smaller than 20 columns or 4 lines shows what fits.
#![warn(missing_debug_implementations)]

mod rows;
mod run;
mod shown;
mod view;

pub use run::{TopError, run};
pub use shown::{Pane, Shown};
pub use view::View;
