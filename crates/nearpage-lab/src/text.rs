//! Files as text.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::str;

use nearpage_machine::{Budget, open_beneath, read_at_most};

use crate::error::LabError;

/// The text that a file has. `file` is the name that an error begins with, `expected` what the file should have.
pub(crate) fn of<'a>(
    file: &str,
    bytes: &'a [u8],
    expected: &'static str,
) -> Result<&'a str, LabError> {
    str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        LabError::NoText { path: file.into(), at, expected }
    })
}

/// A scenario or a table of costs in a file, as [`read_all`].
pub(crate) fn read(path: &str) -> Result<Vec<u8>, LabError> {
    let file = File::open(path).map_err(|error| LabError::Read { path: path.into(), error })?;
    read_all(path, file)
}

/// A file that a scenario names, which may be a stranger's: it is one of the current folder, or below it. `None` if there is none.
pub(crate) fn read_named(name: &str, bytes_max: u64) -> Result<Option<Vec<u8>>, LabError> {
    let failed = |error: io::Error| {
        let error = match error.kind() {
            io::ErrorKind::InvalidInput => io::Error::other(format!(
                "{error}; a scenario names files of the current folder, and --costs any table"
            )),
            _ => error,
        };
        LabError::Read { path: name.into(), error }
    };
    let file = open_beneath(Path::new("."), name).map_err(failed)?;
    file.map(|file| read_at_most(file, bytes_max).map_err(failed)).transpose()
}

/// All bytes of a scenario or a table of costs, which [`Budget::SCENARIO_BYTES`] limits; `name` is the name that errors begin
/// with.
///
/// # Errors
///
/// [`LabError::Read`].
pub fn read_all(name: &str, content: impl Read) -> Result<Vec<u8>, LabError> {
    let read = read_at_most(content, Budget::SCENARIO_BYTES);
    read.map_err(|error| LabError::Read { path: name.into(), error })
}
