//! Naive models, generators and conformance suites (feature `testing`).

pub mod generate;
pub mod machine;
pub mod naive_allocator;
#[cfg(test)]
pub(crate) mod naive_buddy;
pub mod naive_list;
pub mod plain;
pub mod random;
pub mod sections;
pub mod storage;
