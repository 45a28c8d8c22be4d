//! nearpage on the command line.

pub mod commands;
mod terminal;
