//! Recordings of machines: read, predicted and compared.

pub mod predict;
pub mod recording;

pub use recording::*;
