//! Paths as messages show them.

use std::fmt;
use std::path::Path;

/// A path with its control characters escaped. A newline in a name would make two messages of one, and an escape
/// character would command the terminal.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a>(&'a Path);

/// A path as messages show it.
pub fn shown(path: &(impl AsRef<Path> + ?Sized)) -> Shown<'_> {
    Shown(path.as_ref())
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in self.0.to_string_lossy().split_inclusive(char::is_control) {
            match part.char_indices().next_back() {
                Some((at, last)) if last.is_control() => {
                    write!(f, "{}{}", &part[..at], last.escape_default())?;
                }
                _ => f.write_str(part)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn control_characters_are_escaped_and_nothing_else() {
        assert_eq!(shown("a b/\"ü\"/c\\d.tar").to_string(), "a b/\"ü\"/c\\d.tar");
        assert_eq!(shown("a\nb\r\u{1b}[31m\u{9b}\t").to_string(), "a\\nb\\r\\u{1b}[31m\\u{9b}\\t");
        assert_eq!(shown("").to_string(), "");
        assert_eq!(shown(OsStr::from_bytes(b"a\xff\n")).to_string(), "a\u{fffd}\\n");
    }
}
