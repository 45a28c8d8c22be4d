//! zstd, as a stream.

use std::cell::RefCell;
use std::io::{self, ErrorKind, Read, Write};

use ruzstd::encoding::{CompressionLevel, compress};

/// Compresses all of `source` into `drain`.
///
/// # Errors
///
/// The first of either.
pub(super) fn zstd(source: &mut dyn Read, drain: &mut dyn Write) -> io::Result<()> {
    // The library panics on errors: they are kept from it, and what follows the first one is void.
    let failure = RefCell::new(None);
    let source = Reader { inner: source, failure: &failure };
    let drain = Writer { inner: drain, failure: &failure };
    compress(source, drain, CompressionLevel::Fastest);
    failure.into_inner().map_or(Ok(()), Err)
}

struct Reader<'a> {
    inner: &'a mut dyn Read,
    failure: &'a RefCell<Option<io::Error>>,
}

impl Read for Reader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.failure.borrow().is_none() {
            match self.inner.read(buffer) {
                Ok(got) => return Ok(got),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => *self.failure.borrow_mut() = Some(error),
            }
        }
        Ok(0)
    }
}

struct Writer<'a> {
    inner: &'a mut dyn Write,
    failure: &'a RefCell<Option<io::Error>>,
}

impl Write for Writer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.failure.borrow().is_none()
            && let Err(error) = self.inner.write_all(bytes)
        {
            *self.failure.borrow_mut() = Some(error);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unpacked;

    #[test]
    fn what_is_packed_is_unpacked() {
        let text: Vec<u8> =
            (0..300_000_u32).flat_map(|i| (i / 7).to_string().into_bytes()).collect();
        for length in [0, 1, 1 << 17, (1 << 17) + 1, text.len()] {
            let mut packed = Vec::new();
            zstd(&mut &text[..length], &mut packed).unwrap();
            let mut back = Vec::new();
            unpacked(&*packed, &nearpage_machine::Budget::DEFAULT)
                .unwrap()
                .read_to_end(&mut back)
                .unwrap();
            assert!(back == text[..length], "{length}");
        }
    }

    #[test]
    fn errors_of_either_side_are_told() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("source"))
            }
        }
        impl Write for Broken {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::Error::other("drain"))
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let told = |result: io::Result<()>| result.unwrap_err().to_string();
        assert_eq!(told(zstd(&mut Broken, &mut Vec::new())), "source");
        assert_eq!(told(zstd(&mut &[7; 1 << 20][..], &mut Broken)), "drain");
    }
}
