//! nearpage on the command line.

pub mod commands;
pub mod plan;
pub mod topology;
