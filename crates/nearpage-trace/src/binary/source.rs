//! The bytes of a file: numbers of either order, at places that are checked.

use std::io::{self, ErrorKind, Read};

use crate::scratch::Scratch;

use nearpage_machine::Kept;

/// The longest part that is read at once: descriptions of all events of a kernel have some megabytes.
const PART_BYTES_MAX: u64 = 256 << 20;

/// A damaged place.
pub(super) fn damaged(offset: u64, what: impl std::fmt::Display) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("byte {offset} of the file: {what}"))
}

/// A whole file.
pub(super) struct Source(Scratch);

impl Source {
    /// Keeps what comes from a stream.
    pub fn keep(stream: impl Read) -> io::Result<Source> {
        Scratch::keep(stream).map(Source)
    }

    /// A file of so many bytes.
    #[cfg(unix)]
    pub fn of(file: std::fs::File, bytes: u64) -> Source {
        Source(Scratch::of(file, bytes))
    }

    pub fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// The bytes of a place.
    pub fn part(&self, offset: u64, bytes: u64) -> io::Result<Vec<u8>> {
        let end = offset.checked_add(bytes).filter(|end| *end <= self.bytes());
        if end.is_none() || bytes > PART_BYTES_MAX {
            let found = format!("a part of {bytes} bytes, in a file of {}", self.bytes());
            return Err(damaged(offset, found));
        }
        let mut part = vec![0; bytes as usize];
        self.0.read_exact_at(&mut part, offset)?;
        Ok(part)
    }
}

/// Keeps more bytes, for what is at a place of the file.
pub(super) fn keep(kept: &mut Kept, bytes: u64, offset: u64) -> io::Result<()> {
    kept.add(bytes).map_err(|error| damaged(offset, error))
}

/// The order of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    Little,
    Big,
}

impl Order {
    /// A number of 1, 2, 4 or 8 bytes.
    pub fn number(self, bytes: &[u8]) -> Option<u64> {
        if !matches!(bytes.len(), 1 | 2 | 4 | 8) {
            return None;
        }
        let digit = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        Some(match self {
            Order::Little => bytes.iter().rev().fold(0, digit),
            Order::Big => bytes.iter().fold(0, digit),
        })
    }
}

/// Bytes of a page descriptor on 64-bit machines.
pub(crate) const DESCRIPTOR_BYTES: u64 = 64;

/// Where a kernel has some things, as far as it is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Addresses {
    /// Where the descriptor of frame 0 would be.
    pub descriptors: Option<u64>,
    /// The function that does the once-a-second work.
    pub upkeep: Option<u64>,
}

impl Addresses {
    /// The descriptor of a frame; the frame itself where that is not known.
    pub fn descriptor(self, pfn: u64) -> u64 {
        self.descriptors.map_or(pfn, |first| first.wrapping_add(pfn.wrapping_mul(DESCRIPTOR_BYTES)))
    }
}

/// Bytes that are read from front to back.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Where the bytes begin in the file, for messages.
    offset: u64,
    order: Order,
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8], offset: u64, order: Order) -> Cursor<'a> {
        Cursor { bytes, at: 0, offset, order }
    }

    /// Where it is in the file.
    pub fn offset(&self) -> u64 {
        self.offset + self.at as u64
    }

    pub fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    pub fn take(&mut self, bytes: u64) -> io::Result<&'a [u8]> {
        let left = &self.bytes[self.at..];
        let taken = usize::try_from(bytes).ok().and_then(|bytes| left.get(..bytes));
        let taken = taken.ok_or_else(|| {
            damaged(self.offset(), format!("{bytes} bytes are announced and {} follow", left.len()))
        })?;
        self.at += taken.len();
        Ok(taken)
    }

    pub fn number(&mut self, bytes: u64) -> io::Result<u64> {
        let order = self.order;
        let taken = self.take(bytes)?;
        Ok(order.number(taken).unwrap_or_default())
    }

    /// Up to a zero, which is passed over.
    pub fn text(&mut self) -> io::Result<&'a [u8]> {
        let left = &self.bytes[self.at..];
        let end = memchr::memchr(0, left)
            .ok_or_else(|| damaged(self.offset(), "a text without a zero at its end"))?;
        self.at += end + 1;
        Ok(&left[..end])
    }

    /// What must stand here.
    pub fn expect(&mut self, text: &[u8]) -> io::Result<()> {
        let offset = self.offset();
        let found = self.take(text.len() as u64)?;
        if found == text {
            return Ok(());
        }
        let (found, text) = (String::from_utf8_lossy(found), String::from_utf8_lossy(text));
        Err(damaged(offset, format!("found {found:?}, expected {text:?}")))
    }
}
