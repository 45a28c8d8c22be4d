//! Files as text.

use std::str;

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
