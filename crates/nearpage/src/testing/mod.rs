//! Naive models, generators and conformance suites (feature `testing`).

pub mod machine;
pub mod naive_buddy;
pub mod plain;
pub mod random;
pub mod sections;
