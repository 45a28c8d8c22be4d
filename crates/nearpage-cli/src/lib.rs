//! nearpage on the command line.

pub mod bundle;
pub mod commands;
pub mod doctor;
pub mod lab;
pub mod plan;
pub mod predict;
pub mod record;
pub mod replay;
pub mod report;
pub mod room;
pub mod topology;
pub mod trace;
