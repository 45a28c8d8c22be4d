//! Building blocks: what programs ask of an allocator.

pub mod block_requests;
pub mod fill;
pub mod hog;
pub mod lifetimes;
pub mod messages;
pub mod page_locks;
pub mod slab_messages;
pub mod ticks;
