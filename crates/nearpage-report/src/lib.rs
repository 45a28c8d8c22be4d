//! Reports as pages: one HTML file each, with its plots inside it as SVG, without scripts, and without anything from
//! elsewhere. It opens from disk.
//!
//! ```text
//! commands --results--> lab, replay --tables, bars, lines, machine--> page --> file
//! ```
//!
//! **Escaping.** Whatever comes from outside (names, commands, text of a trace) goes through maud, or through the SVG
//! writer of plotters: both escape it. Only the style sheet and finished SVG are inserted as they are.
//!
//! **Light and dark.** Text and axes have the colour of the page's text, by style sheet; marks of a plot have colours of
//! medium lightness that stand out on both grounds.

mod charts;
pub mod file;
pub mod lab;
mod machine;
mod page;
pub mod replay;
mod samples;

pub use charts::{Lines, Series, Shade};
pub use machine::MachineView;
pub use page::Origin;
