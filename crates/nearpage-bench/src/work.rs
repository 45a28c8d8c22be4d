//! The benchmarks: each file has the steps of one.

pub mod bulk;
pub mod cross;
pub mod fragmentation;
pub mod held;
pub mod mixed;
pub mod order9;
pub mod orders;
pub mod pagelock;
pub mod pairs;
pub mod random;
pub mod replace;
pub mod slab;
pub mod tails;
pub mod zonelist;
