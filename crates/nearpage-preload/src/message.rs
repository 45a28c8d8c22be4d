//! A line of text without an allocation.

use std::fmt::{self, Write};

/// Text of bounded length.
pub(crate) struct Line<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Line<N> {
    pub fn new() -> Self {
        Self { bytes: [0; N], length: 0 }
    }

    /// Writes all of it to a descriptor.
    pub fn write_to(&self, descriptor: i32) {
        let mut left = &self.bytes[..self.length];
        while !left.is_empty() {
            // SAFETY: the bytes are there.
            let written = unsafe { libc::write(descriptor, left.as_ptr().cast(), left.len()) };
            if written <= 0 {
                return;
            }
            left = &left[written as usize..];
        }
    }
}

impl<const N: usize> Write for Line<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.bytes[self.length..];
        let copied = text.len().min(room.len());
        room[..copied].copy_from_slice(&text.as_bytes()[..copied]);
        self.length += copied;
        Ok(())
    }
}

/// Tells something on standard error.
pub(crate) fn tell(message: fmt::Arguments<'_>) {
    let mut line = Line::<1024>::new();
    let _ = writeln!(line, "nearpage-malloc: {message}");
    line.write_to(2);
}
