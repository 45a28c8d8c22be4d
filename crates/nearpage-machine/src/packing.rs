//! How files are packed: tar archives, and streams that gzip, bzip2 or zstd compressed.

use std::error::Error;
use std::io::{self, ErrorKind, Read};

use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

/// How an archive is packed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Packing {
    /// A tar archive as it is.
    Tar,
    /// gzip, of one member or several.
    Gzip,
    /// bzip2, of one stream or several.
    Bzip2,
    /// Zstandard.
    Zstd,
}

impl Packing {
    /// Recognises an archive by its first bytes.
    pub fn of(content: &[u8]) -> Option<Packing> {
        const TAR_MAGIC_OFFSET: usize = 257;
        match content {
            [0x1f, 0x8b, ..] => Some(Packing::Gzip),
            [b'B', b'Z', b'h', b'1'..=b'9', ..] => Some(Packing::Bzip2),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Packing::Zstd),
            _ if content.get(TAR_MAGIC_OFFSET..)?.starts_with(b"ustar") => Some(Packing::Tar),
            _ => None,
        }
    }

    /// What the packing is called in messages.
    pub fn name(self) -> &'static str {
        match self {
            Packing::Tar => "tar archive",
            Packing::Gzip => "gzip",
            Packing::Bzip2 => "bzip2",
            Packing::Zstd => "zstd",
        }
    }

    /// Unpacks a stream; a plain tar archive is passed on as it is.
    ///
    /// # Errors
    ///
    /// The stream cannot be read or does not begin as it should.
    pub fn stream<'a>(self, packed: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
        Ok(match self {
            Packing::Tar => Box::new(packed),
            Packing::Gzip => Box::new(flate2::read::MultiGzDecoder::new(packed)),
            Packing::Bzip2 => Box::new(bzip2::read::MultiBzDecoder::new(packed)),
            Packing::Zstd => {
                let decoder = StreamingDecoder::new(packed).map_err(|error| in_words(&error))?;
                Box::new(ZstdStream(decoder))
            }
        })
    }
}

/// A zstd stream with readable errors: those of the decoder contain debug texts of its types.
struct ZstdStream<R: Read>(StreamingDecoder<R, FrameDecoder>);

impl<R: Read> Read for ZstdStream<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer).map_err(|error| in_words(&error))
    }
}

/// Puts an error of the zstd decoder into words. Its source is an error of the stream that the decoder reads. An error
/// without a source means that the data are damaged.
fn in_words(error: &(dyn Error + 'static)) -> io::Error {
    let mut causes = std::iter::successors(error.source(), |&cause| cause.source());
    match causes.find_map(|cause| cause.downcast_ref::<io::Error>()) {
        Some(cause) if cause.kind() == ErrorKind::UnexpectedEof => {
            io::Error::new(ErrorKind::UnexpectedEof, "the packed data end early")
        }
        Some(cause) => io::Error::new(cause.kind(), cause.to_string()),
        None => io::Error::new(ErrorKind::InvalidData, "the packed data are damaged"),
    }
}
