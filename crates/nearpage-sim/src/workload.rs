//! Building blocks: what programs ask of an allocator.

pub mod hog;
pub mod messages;
pub mod slab_messages;
pub mod ticks;
