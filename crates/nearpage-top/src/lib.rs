//! A NUMA machine on a terminal, live or recorded: nodes, zones, free blocks, pagesets, processes, events, and marks for what
//! is wrong.
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
//! | draw a sample | [`View`], [`Shown`], [`Past`] |
//! | run the panes on the terminal until `q` | [`run`], [`Feed`] |
//! | take keys and the mouse yourself | [`View::handle`], [`Asked`] |
//!
//! ```text
//! shown --> panes (a table each), details (of a row) --> view (what is shown, keys, mouse) --> run (terminal)
//! feed (a machine now, or a recording) --------------------------------------------------------^
//! ```
//!
//! # Cost and limits
//!
//! A screen is drawn once for each sample and each key; lines are made for the rows that fit on it, not for the machine's.
//! A terminal that is smaller than 20 columns or 4 lines shows what fits. Only ASCII is written.
#![warn(missing_debug_implementations)]
#![forbid(unsafe_code)]

mod details;
mod feed;
mod panes;
mod run;
mod shown;
mod table;
mod terminal;
mod view;
mod words;

pub use feed::{Feed, Lines};
pub use run::{Signals, TopError, run};
pub use shown::{Pane, Past, Shown};
pub use view::{Asked, View};
