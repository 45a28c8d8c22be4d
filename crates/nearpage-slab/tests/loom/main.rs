//! The slab allocator itself in all interleavings of its locks: `cargo xtask loom`. Here runs the whole core, page allocator
//! included, on the platform of the core's own models.
#![cfg(loom)]

#[path = "../../../nearpage/tests/loom/explore.rs"]
mod explore;
#[path = "../../../nearpage/tests/loom/host.rs"]
mod host;
#[path = "../../../nearpage/tests/loom/model_lock.rs"]
mod model_lock;
mod slab;
