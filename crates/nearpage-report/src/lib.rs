//! Reports as pages: one HTML file each, with all that it needs inside it. It opens from disk, asks nobody for anything, and can be read
//! without scripts: plots are SVG. With scripts, plots of lines can be zoomed into, tables sort, and a sweep has sliders.
//!
//! Use it to show what the lab or a replay found to somebody who has neither. A program should read the JSON of
//! [`nearpage_lab`]'s and [`nearpage_replay`]'s results instead: what a page looks like may change.
//!
//! ```
#![doc = include_str!("../examples/page.rs")]
//! ```
//!
//! | to | use |
//! |---|---|
//! | show scenarios of the lab | [`lab::page_of`] |
//! | show a replay, with a what-if beside it | [`replay::page_of_report`] |
//! | show what a kernel's log says of refused memory | [`explain::ExplainPage`] |
//! | show a program that ran under nearpage's malloc | [`run::RunPage`] |
//! | show a what-if, or what was swept | [`whatif::page_of`], [`WhatIfPage`](whatif::WhatIfPage) |
//! | show HTML of your own in the same frame | [`framed`] |
//! | draw the machine of either | [`MachineView`] |
//! | say where the figures come from | [`Origin`] |
//! | write a page, or leave the older one as it was | [`file::PageFile`] |
//!
//! ```text
//! results --> lab, replay --tables, bars, lines, machine--> page --> file
//! ```
//!
//! **Escaping.** Whatever comes from outside (names, commands, text of a trace) goes through maud, or through the SVG
//! writer of plotters: both escape it. Only style sheets, finished SVG, the two scripts (uPlot, and our own) and JSON without `<` are
//! inserted as they are. The page's policy lets those two scripts run, by their hashes, and nothing else.
//!
//! **Light and dark.** Text and axes have the colour of the page's text, by style sheet; marks of a plot have colours of
//! medium lightness that stand out on both grounds.
//!
//! **Cost.** A page is a string in memory until it is written; the page of a scenario takes milliseconds. **Limits.** A
//! plot shows what it is given: thinning long series is up to the caller. The feature
//! `lab`, on by default, adds pages of the lab; `file` is there on Unix.
#![warn(missing_debug_implementations)]
#![forbid(unsafe_code)]

mod charts;
pub mod explain;
#[cfg(unix)]
pub mod file;
#[cfg(feature = "lab")]
pub mod lab;
mod machine;
mod page;
pub mod replay;
pub mod run;
#[cfg(feature = "lab")]
mod samples;
mod timeline;
pub mod whatif;
pub mod yardstick;

pub use charts::{Lines, Series, Shade};
pub use machine::MachineView;
pub use page::{Origin, framed};
