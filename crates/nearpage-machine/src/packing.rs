//! How files are packed: tar archives, and streams that gzip, bzip2 or zstd compressed.

use std::error::Error;
use std::io::{self, ErrorKind, Read};
use std::path::{Component, Path};

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

/// Hands those regular files of a tar archive to `keep`, in their order, that `name` has a name for. `name` gets the
/// path below the archive's root. A file is read to `bytes_max`. It loses the zeros at its end: files of /sys say that
/// they have 4096 bytes, and tar fills up what they lack. `keep` gets its path, its content, and the bytes that were
/// read with those zeros.
///
/// # Errors
///
/// The archive cannot be read, or `keep` fails.
pub fn read_tar_files(
    content: impl Read,
    bytes_max: u64,
    mut name: impl FnMut(&str) -> Option<String>,
    mut keep: impl FnMut(String, Vec<u8>, u64) -> io::Result<()>,
) -> io::Result<()> {
    let mut archive = tar::Archive::new(content);
    for entry in archive.entries()? {
        let entry = entry?;
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let Some(name) = path_below_root(&entry.path()?).and_then(|path| name(&path)) else {
            continue;
        };
        let mut file = Vec::new();
        let read = entry.take(bytes_max).read_to_end(&mut file)?;
        file.truncate(file.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1));
        // A short archive may unpack to many files of zeros.
        file.shrink_to_fit();
        keep(name, file, read as u64)?;
    }
    Ok(())
}

/// A path as `proc/meminfo`; `None` if it is no text.
fn path_below_root(path: &Path) -> Option<String> {
    let names: Option<Vec<&str>> = path
        .components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_str()),
            _ => None,
        })
        .collect();
    names.map(|names| names.join("/"))
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
