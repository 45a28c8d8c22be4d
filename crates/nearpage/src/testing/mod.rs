//! Naive models, generators and conformance suites (feature `testing`).

pub mod naive_buddy;
pub mod sections;
