//! What stands in for `beneath.rs` where there is no Unix: no file of the host can be opened. Machines come as content
//! ([`MachineDescription::from_reader`](crate::MachineDescription::from_reader)).

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;

/// Opens a regular file of a folder to be read.
///
/// # Errors
///
/// Always: files are opened on Unix.
pub fn open_beneath(_: &Path, _: impl AsRef<Path>) -> io::Result<Option<File>> {
    Err(ErrorKind::Unsupported.into())
}

pub(crate) fn open_own(_: &Path) -> io::Result<File> {
    Err(ErrorKind::Unsupported.into())
}

pub(crate) fn names_beneath(_: &Path, _: &str) -> io::Result<Vec<String>> {
    Err(ErrorKind::Unsupported.into())
}

pub(crate) fn is_absent(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotFound
}

pub(crate) fn page_bytes() -> Option<u64> {
    None
}
