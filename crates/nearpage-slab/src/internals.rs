//! What the crates beside this one take from within it. Nothing here is promised to stay as it is.

pub use crate::hold::{SlabHeld, SlabParts};
pub use crate::tunables::{BATCH_IDLE, BATCH_MAX, Tunables, part_for};
