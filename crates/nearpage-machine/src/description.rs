//! Machines described by hand instead of by /sys and /proc.
//!
//! A reader of such a text ([`short_form`]) collects nodes and distances in a [`Draft`], each with the
//! [`Place`] where it stands, so that every error can name it.

mod draft;
mod error;
pub mod short_form;
pub mod size;

pub use draft::{Draft, NODES_MAX};
pub use error::{DescriptionError, Place, Problem};

/// Bytes of a page: descriptions do not tell.
const PAGE_BYTES: u64 = 4096;
