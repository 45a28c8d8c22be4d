//! Page locks and their wait tables in all interleavings: `cargo xtask loom`. What runs here is the crate's own code, on other
//! cells and locks.
#![cfg(loom)]

#[path = "../../../nearpage/tests/loom/cell32.rs"]
mod cell32;
#[path = "../../../nearpage/tests/loom/explore.rs"]
mod explore;
#[path = "../../../nearpage/tests/loom/model_lock.rs"]
mod model_lock;
mod mutant;
mod page_lock;
mod wait_table;
