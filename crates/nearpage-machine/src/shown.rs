//! Texts of strangers as they are shown.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;

/// Whether a character commands a terminal or turns a line around, instead of being shown: control characters but the newline
/// and the tab, and those that change the direction of text.
pub fn commands_terminal(c: char) -> bool {
    (c.is_control() && c != '\n' && c != '\t')
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A text in which such characters are escaped, as JSON escapes them: `\u001b`.
///
/// ```
/// use nearpage_machine::escaped;
///
/// assert_eq!(escaped("a\tb\n"), "a\tb\n");
/// assert_eq!(escaped("\x1b[31mred"), "\\u001b[31mred");
/// ```
pub fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(commands_terminal) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match commands_terminal(c) {
            true => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// A path with its control characters escaped. A newline in a name would make two messages of one, and an escape
/// character would command the terminal.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a>(&'a Path);

/// A path as messages show it.
pub fn shown(path: &(impl AsRef<Path> + ?Sized)) -> Shown<'_> {
    Shown(path.as_ref())
}

/// In a path the newline and the tab are escaped, too.
fn is_escaped(c: char) -> bool {
    c.is_control() || commands_terminal(c)
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in self.0.to_string_lossy().split_inclusive(is_escaped) {
            match part.char_indices().next_back() {
                Some((at, last)) if is_escaped(last) => {
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
