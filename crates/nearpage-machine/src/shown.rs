//! Texts of strangers as they are shown.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;

/// Whether a character commands a terminal, turns a line around or hides in a text, instead of being shown: control characters but
/// the newline and the tab; the Unicode categories Cf (format, with changes of direction and tags), Zl and Zp; what else is ignored by
/// default, such as variation selectors and fillers.
pub fn commands_terminal(c: char) -> bool {
    if c < '\u{ad}' {
        return c.is_control() && c != '\n' && c != '\t';
    }
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}' | '\u{891}' | '\u{8e2}'
        | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
    )
}

/// A text in which such characters are escaped, as JSON escapes them: `\u001b`.
///
/// ```
/// use nearpage_machine::escaped;
///
/// assert_eq!(escaped("a\tb\n"), "a\tb\n");
/// assert_eq!(escaped("\x1b[31mred"), "\\u001b[31mred");
/// assert_eq!(escaped("a tag\u{e0041}"), "a tag\\udb40\\udc41");
/// ```
pub fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(commands_terminal) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match commands_terminal(c) {
            true => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
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

    /// Ranges as the Unicode Character Database has them: categories of 16.0, and Default_Ignorable_Code_Point.
    #[test]
    fn what_hides_in_a_text_is_escaped() {
        for (first, last) in [
            (0x0, 0x8),
            (0xb, 0x1f),
            (0x7f, 0x9f),
            (0xad, 0xad),
            (0x34f, 0x34f),
            (0x600, 0x605),
            (0x61c, 0x61c),
            (0x6dd, 0x6dd),
            (0x70f, 0x70f),
            (0x890, 0x891),
            (0x8e2, 0x8e2),
            (0x115f, 0x1160),
            (0x17b4, 0x17b5),
            (0x180b, 0x180f),
            (0x200b, 0x200f),
            (0x2028, 0x202e),
            (0x2060, 0x206f),
            (0x3164, 0x3164),
            (0xfe00, 0xfe0f),
            (0xfeff, 0xfeff),
            (0xffa0, 0xffa0),
            (0xfff0, 0xfffb),
            (0x110bd, 0x110bd),
            (0x110cd, 0x110cd),
            (0x13430, 0x1343f),
            (0x1bca0, 0x1bca3),
            (0x1d173, 0x1d17a),
            (0xe0000, 0xe0fff),
        ] {
            let within = (first..=last).filter_map(char::from_u32);
            within.for_each(|c| assert!(commands_terminal(c), "{c:?}"));
            for outside in [last + 1].into_iter().chain(u32::checked_sub(first, 1)) {
                let c = char::from_u32(outside).unwrap();
                assert!(!commands_terminal(c), "{c:?}");
            }
        }
        let shown = "ü\u{301} \u{1f600} \u{5d0}\u{4e00} ₂½";
        assert_eq!(escaped(shown), shown);
    }
}
