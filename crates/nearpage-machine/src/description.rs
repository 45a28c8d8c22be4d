//! Machines described by hand instead of by /sys and /proc.
//!
//! A reader of such a text collects nodes and distances in a [`Draft`], each with the [`Place`] where it stands, so
//! that every error can name it.

mod draft;
mod error;

pub(crate) use draft::Draft;
pub use error::{DescriptionError, DescriptionProblem, Place};
