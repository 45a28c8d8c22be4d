//! Messages on standard error.

use std::fmt::Display;
use std::io::{self, Write};

/// Writes a line. Where nobody listens the program goes on: `eprintln!` would panic.
pub(crate) fn tell(line: impl Display) {
    // One write, so that lines of threads do not mix.
    _ = io::stderr().write_all(format!("nearpage: {line}\n").as_bytes());
}
