//! Files as text.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::str;

use nearpage_machine::{FILE_BYTES_MAX, open_beneath};

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

/// A file, as [`read_all`].
pub(crate) fn read(path: &str) -> Result<Vec<u8>, LabError> {
    let file = File::open(path).map_err(|error| LabError::Read { path: path.into(), error })?;
    read_all(path, file)
}

/// A file that a scenario names, which may be a stranger's: it is one of the current folder, or below it. `None` if there is none.
pub(crate) fn read_named(name: &str) -> Result<Option<Vec<u8>>, LabError> {
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
    file.map(|file| read_all(name, file)).transpose()
}

/// All bytes of a scenario, a table of costs or a trace, which [`FILE_BYTES_MAX`] limits; `name` is the name that errors begin
/// with.
///
/// # Errors
///
/// [`LabError::Read`].
pub fn read_all(name: &str, content: impl Read) -> Result<Vec<u8>, LabError> {
    let mut bytes = Vec::new();
    let read = content.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
    let read = read.and_then(|read| match read as u64 > FILE_BYTES_MAX {
        true => Err(io::Error::other(format!("longer than {} MiB", FILE_BYTES_MAX >> 20))),
        false => Ok(()),
    });
    read.map_err(|error| LabError::Read { path: name.into(), error })?;
    Ok(bytes)
}
