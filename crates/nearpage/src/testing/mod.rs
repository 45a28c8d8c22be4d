//! Naive models, generators and conformance suites (feature `testing`).

pub mod sections;
