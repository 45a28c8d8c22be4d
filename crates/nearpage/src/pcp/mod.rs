//! Per-CPU pagesets.

pub mod sizes;
pub mod tuning;
