//! Objects on a memory: [`SlabAllocator`] and its caches.
//!
//! A [`KmemCache`] gives objects of one size as pointers, a [`TypedCache`] gives values that free themselves, and
//! [`SizeClasses`] memory of any size. Metadata lies on the node that it describes, as that of the pages does: a
//! line of 64 bytes for each frame, of which only those of slabs are ever touched.

mod address;
mod allocator;
mod cache;
mod calls;
mod classes;
mod hold;
mod typed;

pub use allocator::SlabAllocator;
pub use cache::KmemCache;
pub use classes::SizeClasses;
pub use typed::{ObjectBox, TypedCache};
