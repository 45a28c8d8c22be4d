//! From the memory that a boot reports to an allocator.
//!
//! [`EarlyMemory`] takes ranges and reservations in any order, overlapping or not. [`EarlyMemory::begin`] makes a topology of
//! them and of what the firmware says ([`Machine`](crate::firmware::Machine)); [`Boot`] makes the allocator, whose metadata
//! lies in each node's own memory, and brings memory online; [`Deferred`] does the rest of that later.

mod deferred;
mod early;
mod handover;
pub mod linux;
pub mod loaders;
pub mod pvh;
pub(crate) mod spans;
#[cfg(test)]
mod tests;

pub use deferred::Deferred;
pub use early::{EarlyError, EarlyMemory};
pub use handover::{ADDRESS_MAP, Boot};
pub use spans::LeftOut;
