//! The text of a recording that kept what happened last: marks of the window with which its bundle begins are those of the bundle.

use std::io::{self, BufRead, BufReader, Read};

use memchr::memmem;

/// A trace whose marks `nearpage: window N TEXT` are `nearpage: TEXT`, of one N. Those of a later window tell a reader nothing.
pub(super) struct Windowed<R> {
    source: BufReader<R>,
    mark: Vec<u8>,
    line: Vec<u8>,
    given: usize,
}

const MARK: &[u8] = b"tracing_mark_write: nearpage: ";

impl<R: Read> Windowed<R> {
    pub(super) fn new(source: R, window: u32) -> Windowed<R> {
        let mark = [MARK, format!("window {window} ").as_bytes()].concat();
        Windowed { source: BufReader::new(source), mark, line: Vec::new(), given: 0 }
    }
}

impl<R: Read> Read for Windowed<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.given == self.line.len() {
            self.line.clear();
            self.given = 0;
            self.source.read_until(b'\n', &mut self.line)?;
            if let Some(at) = memmem::find(&self.line, &self.mark) {
                self.line.drain(at + MARK.len()..at + self.mark.len());
            }
        }
        let length = out.len().min(self.line.len() - self.given);
        out[..length].copy_from_slice(&self.line[self.given..self.given + length]);
        self.given += length;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_one_window_are_the_bundles() {
        let text = " a-1 [000] 1.0: tracing_mark_write: nearpage: window 3 before begin\n\
                    a-1 [000] 1.1: mm_page_free: page=1 pfn=0x2 order=0\n\
                    a-1 [000] 1.2: tracing_mark_write: nearpage: window 4 before begin\n\
                    a-1 [000] 1.3: tracing_mark_write: nearpage: after begin";
        let mut read = String::new();
        Windowed::new(text.as_bytes(), 3).read_to_string(&mut read).unwrap();
        assert_eq!(read, text.replace("window 3 ", ""));
    }
}
