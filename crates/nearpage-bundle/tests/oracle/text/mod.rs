//! Readers of the module's texts, one a kind of experiment.

pub mod buddy;
pub mod bulk;
pub mod lists;
pub mod pcp;
pub mod spill;
pub mod steal;
pub mod steal2;
