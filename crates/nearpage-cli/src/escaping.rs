//! The one door for text to standard output: what would command a terminal is escaped.

use std::io::{self, Write};

use nearpage_machine::escaped;

/// The longest beginning of a character that waits for its rest.
const REST_BYTES: usize = 3;

/// A writer of text that escapes what commands a terminal ([`escaped`]). Nothing that this program writes to standard output
/// has colours of its own.
pub(crate) struct Escaping<W: Write> {
    output: W,
    /// The beginning of a character that the last write ended within.
    rest: Vec<u8>,
}

impl<W: Write> Escaping<W> {
    pub(crate) fn new(output: W) -> Escaping<W> {
        Escaping { output, rest: Vec::new() }
    }
}

impl<W: Write> Write for Escaping<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let plain = |byte: &u8| (b' '..0x7f).contains(byte) || *byte == b'\n' || *byte == b'\t';
        if self.rest.is_empty() && bytes.iter().all(plain) {
            self.output.write_all(bytes)?;
            return Ok(bytes.len());
        }
        let mut all = std::mem::take(&mut self.rest);
        all.extend_from_slice(bytes);
        for chunk in all.utf8_chunks() {
            self.output.write_all(escaped(chunk.valid()).as_bytes())?;
            let (wrong, at) = (chunk.invalid(), chunk.invalid().as_ptr_range().end);
            let is_cut =
                at == all.as_ptr_range().end && wrong.len() <= REST_BYTES && is_beginning(wrong);
            if is_cut {
                self.rest = wrong.to_vec();
            } else if !wrong.is_empty() {
                self.output.write_all("\u{fffd}".as_bytes())?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

/// Whether bytes may become a character by more of them.
fn is_beginning(bytes: &[u8]) -> bool {
    !bytes.is_empty() && std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_in_any_pieces_command_nothing() {
        let text = "a\u{1b}[31m\u{9b}2J\u{7f}\u{202e}ü\u{1f600}\t\r\n\u{0}".as_bytes();
        let expected = "a\\u001b[31m\\u009b2J\\u007f\\u202eü\u{1f600}\t\\u000d\n\\u0000";
        for step in 1..=text.len() {
            let mut out = Vec::new();
            let mut writer = Escaping::new(&mut out);
            for piece in text.chunks(step) {
                writer.write_all(piece).unwrap();
            }
            assert_eq!(String::from_utf8(out).unwrap(), expected, "in pieces of {step}");
        }
        let mut out = Vec::new();
        Escaping::new(&mut out).write_all(b"a\x9b\xff\xc2b").unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "a\u{fffd}\u{fffd}\u{fffd}b");
    }
}
