//! How files are packed: tar archives, and streams that gzip, bzip2, xz or zstd compressed.
//!
//! This is the one door for packed input. A stream may unpack to [`FREE_BYTES`] and to [`RATIO_MAX`] times its own
//! length beyond that. An archive has at most [`HEADERS_BYTES_MAX`] between two members, where long names are, and at most
//! [`KEPT_BYTES_MAX`] of it are kept.

use std::cell::Cell;
use std::error::Error;
use std::io::{self, ErrorKind, Read};
use std::ops::ControlFlow;
use std::path::{Component, Path};
use std::rc::Rc;

use lzma_rust2::XzReader;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

/// How much longer than itself a stream may unpack to. deflate cannot do more; texts of kernels shrink to a tenth.
pub const RATIO_MAX: u64 = 1000;
/// A stream may unpack to so much at any ratio.
pub const FREE_BYTES: u64 = 64 << 20;
/// What may stand between the content of a member of an archive and that of the next: headers and long names.
pub const HEADERS_BYTES_MAX: u64 = 256 << 10;
/// What is kept of an archive's members. Captures of the largest machines have half of that.
pub const KEPT_BYTES_MAX: u64 = 64 << 20;
/// Memory for a stream of xz: its dictionary, of which `xz -9` takes 64 MiB.
const XZ_KIBIBYTES_MAX: u32 = 96 << 10;
/// A member that is kept costs so much beside its name and content.
const KEPT_MEMBER_BYTES: u64 = 256;

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
    /// xz, of one stream or several.
    Xz,
}

impl Packing {
    /// Recognises an archive by its first bytes.
    pub fn of(content: &[u8]) -> Option<Packing> {
        const TAR_MAGIC_OFFSET: usize = 257;
        match content {
            [0x1f, 0x8b, ..] => Some(Packing::Gzip),
            [b'B', b'Z', b'h', b'1'..=b'9', ..] => Some(Packing::Bzip2),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Packing::Zstd),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Packing::Xz),
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
            Packing::Xz => "xz",
        }
    }

    /// Unpacks a stream; a plain tar archive is passed on as it is.
    ///
    /// # Errors
    ///
    /// The stream cannot be read or does not begin as it should. While it is read: it unpacks to more than
    /// [`FREE_BYTES`] and [`RATIO_MAX`] times its length.
    pub fn stream<'a>(self, packed: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
        let packed_bytes = Rc::new(Cell::new(0));
        let packed = Counted { stream: packed, bytes: Rc::clone(&packed_bytes) };
        let stream: Box<dyn Read + 'a> = match self {
            Packing::Tar => return Ok(Box::new(packed)),
            Packing::Gzip => Box::new(flate2::read::MultiGzDecoder::new(packed)),
            Packing::Bzip2 => Box::new(bzip2::read::MultiBzDecoder::new(packed)),
            Packing::Xz => Box::new(XzReader::new_mem_limit(packed, true, XZ_KIBIBYTES_MAX)),
            Packing::Zstd => {
                let decoder = StreamingDecoder::new(packed).map_err(|error| in_words(&error))?;
                Box::new(ZstdStream(decoder))
            }
        };
        Ok(Box::new(Bounded { stream, packed_bytes, bytes: 0 }))
    }
}

/// A stream whose bytes are counted.
struct Counted<R> {
    stream: R,
    bytes: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(buffer)?;
        self.bytes.set(self.bytes.get() + read as u64);
        Ok(read)
    }
}

/// An unpacked stream that ends with an error where it grows beyond its budget.
struct Bounded<R> {
    stream: R,
    packed_bytes: Rc<Cell<u64>>,
    bytes: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(buffer)?;
        self.bytes += read as u64;
        if self.bytes.saturating_sub(FREE_BYTES) > self.packed_bytes.get().saturating_mul(RATIO_MAX)
        {
            let message = format!(
                "it unpacks to more than {} MiB and {RATIO_MAX} times its length, the most that is unpacked; unpack it yourself \
                 if you trust it",
                FREE_BYTES >> 20
            );
            return Err(io::Error::new(ErrorKind::FileTooLarge, message));
        }
        Ok(read)
    }
}

/// Hands the regular files of a tar archive to `each`, in their order, until it has seen enough: the path below the
/// archive's root, and the content.
///
/// # Errors
///
/// The archive cannot be read, has more than [`HEADERS_BYTES_MAX`] of headers before a member, or `each` fails.
pub fn each_tar_file(
    content: impl Read,
    mut each: impl FnMut(&str, &mut dyn Read) -> io::Result<ControlFlow<()>>,
) -> io::Result<()> {
    let end = Cell::new(HEADERS_BYTES_MAX);
    let mut archive = tar::Archive::new(UpTo { stream: content, at: 0, end: &end });
    for entry in archive.entries()? {
        let mut entry = entry?;
        let kind = entry.header().entry_type();
        // The size of a sparse file is not what the archive has of it.
        let stored = if kind.is_gnu_sparse() { entry.header().entry_size()? } else { entry.size() };
        let next = entry.raw_file_position().saturating_add(stored);
        end.set(next.saturating_add(BLOCK_BYTES + HEADERS_BYTES_MAX));
        if !kind.is_file() {
            continue;
        }
        let Some(path) = path_below_root(&entry.path()?) else { continue };
        if each(&path, &mut entry)?.is_break() {
            return Ok(());
        }
    }
    Ok(())
}

/// A tar archive consists of blocks of so many bytes.
const BLOCK_BYTES: u64 = 512;

/// A stream that is read up to an end, which moves on with the members of an archive.
struct UpTo<'a, R> {
    stream: R,
    at: u64,
    end: &'a Cell<u64>,
}

impl<R: Read> Read for UpTo<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.end.get().saturating_sub(self.at);
        if left == 0 && !buffer.is_empty() {
            let message = format!(
                "more than {} KiB of names and headers before a file, expected a path of at most 4096 bytes",
                HEADERS_BYTES_MAX >> 10
            );
            return Err(io::Error::new(ErrorKind::InvalidData, message));
        }
        let most = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = self.stream.read(&mut buffer[..most])?;
        self.at += read as u64;
        Ok(read)
    }
}

/// Hands those regular files of a tar archive to `keep`, in their order, that `name` has a name for. `name` gets the
/// path below the archive's root. A file is read to `bytes_max`. It loses the zeros at its end: files of /sys say that
/// they have 4096 bytes, and tar fills up what they lack. `keep` gets its path and its content.
///
/// # Errors
///
/// The archive cannot be read, or what is kept is more than [`KEPT_BYTES_MAX`].
pub fn read_tar_files(
    content: impl Read,
    bytes_max: u64,
    mut name: impl FnMut(&str) -> Option<String>,
    mut keep: impl FnMut(String, Vec<u8>),
) -> io::Result<()> {
    let mut left = KEPT_BYTES_MAX;
    each_tar_file(content, |path, content| {
        let Some(name) = name(path) else { return Ok(ControlFlow::Continue(())) };
        let mut file = Vec::new();
        content.take(bytes_max.min(left + 1)).read_to_end(&mut file)?;
        let cost = file.len() as u64 + name.len() as u64 + KEPT_MEMBER_BYTES;
        left = left.checked_sub(cost).ok_or_else(|| {
            let message = format!(
                "its files of /sys, /proc and captures are longer than {} MiB, the most that is kept of an archive",
                KEPT_BYTES_MAX >> 20
            );
            io::Error::new(ErrorKind::FileTooLarge, message)
        })?;
        file.truncate(file.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1));
        // A short archive may unpack to many files of zeros.
        file.shrink_to_fit();
        keep(name, file);
        Ok(ControlFlow::Continue(()))
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A member of a kind that has a text of so many bytes, all alike.
    fn member(kind: u8, name: &str, bytes: u64, byte: u8) -> impl Read {
        let mut header = tar::Header::new_gnu();
        header.set_path(name).unwrap();
        header.set_size(bytes);
        header.set_mode(0o644);
        header.set_entry_type(tar::EntryType::new(kind));
        header.set_cksum();
        let header = io::Cursor::new(header.as_bytes().to_vec());
        let pad = bytes.next_multiple_of(512) - bytes;
        header.chain(io::repeat(byte).take(bytes)).chain(io::repeat(0).take(pad))
    }

    fn names(content: impl Read) -> Result<Vec<(String, usize)>, String> {
        let mut names = Vec::new();
        let read = read_tar_files(
            content,
            1 << 20,
            |path| Some(path.into()),
            |path, file| {
                names.push((path, file.len()));
            },
        );
        read.map(|()| names).map_err(|error| error.to_string())
    }

    #[test]
    fn long_names_are_read_to_their_budget_and_no_further() {
        let file = || member(b'0', "short", 1000, b'x');
        let long = member(b'L', "././@LongLink", 300, b'n').chain(file()).chain(file());
        assert_eq!(names(long).unwrap(), [("n".repeat(300), 1000), ("short".into(), 1000)]);
        for kind in [b'L', b'K', b'x'] {
            // Endless, for all that memory has: the reader ends by itself.
            let bomb = member(kind, "././@LongLink", 1 << 42, b'n');
            assert!(names(bomb).unwrap_err().contains("256 KiB"), "{}", kind as char);
            let later = file().chain(member(kind, "././@LongLink", 1 << 42, b'n'));
            assert!(names(later).unwrap_err().contains("256 KiB"), "{}", kind as char);
        }
        // What is no file and is long is passed over; its length is no room for names behind it.
        let passed = member(b'5', "folder", 1 << 20, 0).chain(file());
        assert_eq!(names(passed).unwrap(), [("short".into(), 1000)]);
        let behind = member(b'0', "f", 1 << 20, 1).chain(member(b'L', "l", 1 << 20, b'n'));
        assert!(names(behind).unwrap_err().contains("256 KiB"));
    }

    #[test]
    fn what_is_kept_of_many_files_has_a_budget() {
        let one = || member(b'0', "a", 1 << 20, b'x');
        let full =
            (1..64).fold(Box::new(one()) as Box<dyn Read>, |all, _| Box::new(all.chain(one())));
        assert!(names(full).unwrap_err().contains("longer than 64 MiB"));
        // Empty files cost their names.
        let empty: Vec<u8> = {
            let mut one = Vec::new();
            member(b'0', "a", 0, 0).read_to_end(&mut one).unwrap();
            one
        };
        let count = KEPT_BYTES_MAX / KEPT_MEMBER_BYTES + 1;
        let many = (0..count).flat_map(|_| empty.iter().copied());
        struct Bytes<I>(I);
        impl<I: Iterator<Item = u8>> Read for Bytes<I> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let mut filled = 0;
                for (to, from) in buffer.iter_mut().zip(&mut self.0) {
                    *to = from;
                    filled += 1;
                }
                Ok(filled)
            }
        }
        assert!(names(Bytes(many)).unwrap_err().contains("longer than 64 MiB"));
    }

    #[test]
    fn a_stream_unpacks_to_its_ratio() {
        // Blocks of one byte that is repeated 128 KiB: four bytes become 131072.
        let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58];
        let block = [0x02, 0x00, 0x10, b'x'];
        let bomb = frame.into_iter().chain(block.into_iter().cycle().take(4 * 10_000));
        let bomb: Vec<u8> = bomb.collect();
        let mut stream = Packing::Zstd.stream(&*bomb).unwrap();
        let mut read = 0;
        let error = loop {
            let mut buffer = [0; 64 << 10];
            match stream.read(&mut buffer) {
                Ok(0) => panic!("all of it was unpacked"),
                Ok(length) => read += length as u64,
                Err(error) => break error.to_string(),
            }
        };
        assert!(error.contains("1000 times its length"), "{error}");
        assert!(read <= FREE_BYTES + (bomb.len() as u64) * RATIO_MAX, "{read}");
    }
}
