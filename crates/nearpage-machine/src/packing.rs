//! How files are packed: tar archives, and streams that gzip, bzip2, xz or zstd compressed.
//!
//! This is the one door for packed input. All that unpacks out of one file, layer within layer, is counted together by an
//! [`Unpacking`]. An archive has at most [`Budget::HEADERS_BYTES`] between two members, where long names are, and at most
//! so much of it is [`Kept`].

use std::cell::Cell;
use std::error::Error;
use std::io::{self, ErrorKind, Read};
use std::ops::ControlFlow;
use std::path::{Component, Path};
use std::rc::Rc;

use lzma_rust2::XzReader;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

use crate::budget::Budget;
use crate::size;

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
}

/// The unpacking of one file, with all that is packed within it: what its bytes may become together.
#[derive(Clone, Debug)]
pub struct Unpacking {
    budget: Budget,
    counts: Rc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    /// Whether a reader of the file counts.
    has_file: Cell<bool>,
    /// What was read of the file.
    file_bytes: Cell<u64>,
    /// What that became, in all layers.
    unpacked_bytes: Cell<u64>,
}

impl Unpacking {
    /// Of a file that nobody has begun to read.
    pub fn new(budget: &Budget) -> Unpacking {
        Unpacking { budget: *budget, counts: Rc::default() }
    }

    /// What it is held to.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// A reader of the file. Whatever is asked for later lies within it.
    pub fn file<'a>(&self, file: impl Read + 'a) -> impl Read + 'a {
        let counts = (!self.counts.has_file.replace(true)).then(|| Rc::clone(&self.counts));
        Counted { stream: file, counts }
    }

    /// Counts a file of a folder, of which there is no reader for all: its bytes lie there as they are.
    pub fn add_file(&self, bytes: u64) {
        if !self.counts.has_file.get() {
            self.counts.file_bytes.update(|all| all + bytes);
        }
    }

    /// Unpacks the file, or what is packed within it; a plain tar archive is passed on as it is.
    ///
    /// # Errors
    ///
    /// The stream cannot be read or does not begin as it should. While it is read: all layers together unpack to more than
    /// [`Budget::unpacked_bytes`] and [`Budget::RATIO`] times the file's length.
    pub fn stream<'a>(
        &self,
        packing: Packing,
        packed: impl Read + 'a,
    ) -> io::Result<Box<dyn Read + 'a>> {
        let packed = self.file(packed);
        let stream: Box<dyn Read + 'a> = match packing {
            Packing::Tar => return Ok(Box::new(packed)),
            Packing::Gzip => Box::new(flate2::read::MultiGzDecoder::new(packed)),
            Packing::Bzip2 => Box::new(bzip2::read::MultiBzDecoder::new(packed)),
            Packing::Xz => {
                // The decoder has some memory beside the window.
                let kibibytes = (self.budget.window_bytes >> 10).saturating_add(32 << 10);
                let most = u32::try_from(kibibytes).unwrap_or(u32::MAX);
                Box::new(XzReader::new_mem_limit(packed, true, most))
            }
            Packing::Zstd => {
                let packed = self.zstd_in_window(packed)?;
                let decoder = StreamingDecoder::new(packed).map_err(|error| in_words(&error))?;
                Box::new(ZstdStream(decoder))
            }
        };
        Ok(Box::new(self.counted(stream)))
    }

    /// A stream of zstd, if its window is not too large.
    fn zstd_in_window<'a>(&self, mut packed: impl Read + 'a) -> io::Result<impl Read + 'a> {
        let mut head = Vec::new();
        packed.by_ref().take(ZSTD_HEAD_BYTES).read_to_end(&mut head)?;
        let window = zstd_window(&head).unwrap_or(0);
        if window > self.budget.window_bytes {
            let message = format!(
                "its window has {}, the most is {}; --limit SIZE raises it",
                size::format(window),
                size::format(self.budget.window_bytes)
            );
            return Err(io::Error::new(ErrorKind::FileTooLarge, message));
        }
        Ok(io::Cursor::new(head).chain(packed))
    }

    /// What another decoder unpacks, counted with the rest.
    pub fn counted<'a>(&self, stream: impl Read + 'a) -> impl Read + 'a {
        Bounded { stream, unpacking: self.clone() }
    }
}

/// The longest head of a frame of zstd. `RFC 8878: 3.1.1`.
const ZSTD_HEAD_BYTES: u64 = 18;

/// The window that the head of a frame asks for; `None` if it is cut off, which the decoder tells.
fn zstd_window(head: &[u8]) -> Option<u64> {
    let (&flags, rest) = head.get(4..)?.split_first()?;
    if flags & 0x20 == 0 {
        let &window = rest.first()?;
        let base = 1_u64 << (10 + (window >> 3));
        return Some(base + base / 8 * u64::from(window & 7));
    }
    // One segment: as long as its content.
    let of_dictionary = [0, 1, 2, 4][usize::from(flags & 3)];
    let rest = rest.get(of_dictionary..)?;
    let number = |bytes: usize| {
        let digits = rest.get(..bytes)?.iter().rev();
        Some(digits.fold(0_u64, |number, digit| number << 8 | u64::from(*digit)))
    };
    match flags >> 6 {
        0 => number(1),
        1 => number(2).map(|length| length + 256),
        2 => number(4),
        _ => number(8),
    }
}

/// What of one file is kept in memory, counted as it grows: files name the same place over and over, lengths are as they
/// say, and what is small when it is packed is not small.
#[derive(Clone, Debug)]
pub struct Kept {
    unpacking: Unpacking,
    bytes: u64,
}

impl Kept {
    /// Nothing yet.
    pub fn new(unpacking: &Unpacking) -> Kept {
        Kept { unpacking: unpacking.clone(), bytes: 0 }
    }

    /// The most, as far as the file was read.
    fn most(&self) -> u64 {
        let Unpacking { budget, counts } = &self.unpacking;
        let times = counts.file_bytes.get().saturating_mul(Budget::KEPT_RATIO);
        budget.kept_bytes.saturating_add(times)
    }

    /// How many bytes it may still grow.
    pub fn left(&self) -> u64 {
        self.most().saturating_sub(self.bytes)
    }

    /// Keeps more bytes.
    ///
    /// # Errors
    ///
    /// They are more than [`Budget::kept_bytes`] and [`Budget::KEPT_RATIO`] times the file.
    pub fn add(&mut self, bytes: u64) -> io::Result<()> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes <= self.most() {
            return Ok(());
        }
        let message = format!(
            "more than {} and {} times its length are to be kept in memory; --limit SIZE raises it",
            size::format(self.unpacking.budget.kept_bytes),
            Budget::KEPT_RATIO
        );
        Err(io::Error::new(ErrorKind::FileTooLarge, message))
    }

    /// The same of a member, with a name and what it costs beside.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    pub fn add_member(&mut self, bytes: usize) -> io::Result<()> {
        self.add((bytes as u64).saturating_add(Budget::MEMBER_BYTES))
    }

    /// Some are kept no longer.
    pub fn give_back(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// A stream whose bytes are counted, if it is of the file itself.
struct Counted<R> {
    stream: R,
    counts: Option<Rc<Counts>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(buffer)?;
        if let Some(counts) = &self.counts {
            counts.file_bytes.update(|bytes| bytes + read as u64);
        }
        Ok(read)
    }
}

/// An unpacked stream that ends with an error where it grows beyond its budget.
struct Bounded<R> {
    stream: R,
    unpacking: Unpacking,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(buffer)?;
        let Unpacking { budget, counts } = &self.unpacking;
        counts.unpacked_bytes.update(|bytes| bytes.saturating_add(read as u64));
        let beyond = counts.unpacked_bytes.get().saturating_sub(budget.unpacked_bytes);
        if beyond > counts.file_bytes.get().saturating_mul(Budget::RATIO) {
            let message = format!(
                "it unpacks to more than {} and {} times its length, the most that is unpacked; --limit SIZE raises it",
                size::format(budget.unpacked_bytes),
                Budget::RATIO
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
/// The archive cannot be read, has more than [`Budget::HEADERS_BYTES`] of headers before a member, or `each` fails.
pub fn each_tar_file(
    content: impl Read,
    mut each: impl FnMut(&str, &mut dyn Read) -> io::Result<ControlFlow<()>>,
) -> io::Result<()> {
    let end = Cell::new(Budget::HEADERS_BYTES);
    let mut archive = tar::Archive::new(UpTo { stream: content, at: 0, end: &end });
    for entry in archive.entries()? {
        let mut entry = entry?;
        let kind = entry.header().entry_type();
        let stored = if kind.is_gnu_sparse() { sparse_bytes(&mut entry)? } else { entry.size() };
        let next = entry.raw_file_position().saturating_add(stored);
        end.set(next.saturating_add(BLOCK_BYTES + Budget::HEADERS_BYTES));
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

/// The bytes that an archive has of a sparse file: fewer than the file's size.
fn sparse_bytes(entry: &mut tar::Entry<'_, impl Read>) -> io::Result<u64> {
    for key in entry.pax_extensions()?.into_iter().flatten() {
        if key?.key_bytes() == b"size" {
            // Two sizes: where the next header stands depends on who reads.
            let message = "a sparse file with a size of its own in a pax header";
            return Err(io::Error::new(ErrorKind::InvalidData, message));
        }
    }
    entry.header().entry_size()
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
                Budget::HEADERS_BYTES >> 10
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
/// path below the archive's root. A file is read to [`Budget::file_bytes`]. It loses the zeros at its end: files of /sys say that
/// they have 4096 bytes, and tar fills up what they lack. `keep` gets its path and its content.
///
/// # Errors
///
/// The archive cannot be read, or what is kept is more than [`Kept`] has.
pub fn read_tar_files(
    content: impl Read,
    unpacking: &Unpacking,
    mut name: impl FnMut(&str) -> Option<String>,
    mut keep: impl FnMut(String, Vec<u8>),
) -> io::Result<()> {
    let mut kept = Kept::new(unpacking);
    each_tar_file(content, |path, content| {
        let Some(name) = name(path) else { return Ok(ControlFlow::Continue(())) };
        let mut file = read_kept(content, unpacking.budget.file_bytes, &kept)?;
        kept.add_member(file.len() + name.len())?;
        file.truncate(file.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1));
        // A short archive may unpack to many files of zeros.
        file.shrink_to_fit();
        keep(name, file);
        Ok(ControlFlow::Continue(()))
    })
}

/// Reads what unpacks out of a file to `bytes_max`, and no further than one byte more than may be kept.
///
/// # Errors
///
/// It cannot be read.
pub fn read_kept(content: &mut dyn Read, bytes_max: u64, kept: &Kept) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // More of it may be kept as more of the file is read.
    loop {
        let left = kept.left().saturating_add(1).saturating_sub(bytes.len() as u64);
        let most = bytes_max.saturating_sub(bytes.len() as u64).min(left);
        if (&mut *content).take(most).read_to_end(&mut bytes)? == 0 {
            return Ok(bytes);
        }
    }
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
        let unpacking = Unpacking::new(&Budget::DEFAULT);
        let read = read_tar_files(
            unpacking.file(content),
            &unpacking,
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

    /// The header says that the next one is 32 GB away, a pax header that it follows at once.
    #[test]
    fn a_sparse_file_makes_no_room_for_names() {
        let record = b"10 size=0\n";
        let sparse = |bytes| {
            let mut header = tar::Header::new_gnu();
            header.set_path("sparse").unwrap();
            header.set_size(bytes);
            header.set_entry_type(tar::EntryType::GNUSparse);
            header.as_gnu_mut().unwrap().set_real_size(0);
            header.set_cksum();
            io::Cursor::new(header.as_bytes().to_vec())
        };
        let mut pax = Vec::new();
        member(b'x', "pax", 10, 0).read_to_end(&mut pax).unwrap();
        pax[512..512 + record.len()].copy_from_slice(record);
        let bomb = io::Cursor::new(pax).chain(sparse(1 << 35));
        let bomb = bomb.chain(member(b'L', "././@LongLink", 1 << 42, b'n'));
        assert!(names(bomb).unwrap_err().contains("a sparse file with a size of its own"));
        let bomb = sparse(0).chain(member(b'L', "././@LongLink", 1 << 42, b'n'));
        assert!(names(bomb).unwrap_err().contains("256 KiB"));
    }

    /// Members that are packed to nothing: what is kept does not grow with what they unpack to.
    #[test]
    fn what_is_kept_of_many_files_has_a_budget() {
        let refused = |members: &dyn Fn() -> Box<dyn Read>, count: usize| {
            let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            (0..count).for_each(|_| _ = io::copy(&mut members(), &mut packed).unwrap());
            let packed = packed.finish().unwrap();
            let unpacking = Unpacking::new(&Budget::DEFAULT);
            let stream = unpacking.stream(Packing::Gzip, &*packed).unwrap();
            let (mut kept, name) = (0, |path: &str| Some(path.to_owned()));
            let read = read_tar_files(stream, &unpacking, name, |path, file| {
                kept += path.len() + file.len();
            });
            let error = read.unwrap_err().to_string();
            assert!(error.contains("more than 24 MiB and 16 times its length"), "{error}");
            assert!(kept as u64 <= (24 << 20) + 16 * packed.len() as u64, "{kept}");
        };
        refused(&|| Box::new(member(b'0', "a", 1 << 20, b'x')), 64);
        // Empty files cost their names.
        refused(&|| Box::new(member(b'0', "a", 0, 0)), 200_000);
    }

    #[test]
    fn windows_are_as_large_as_a_budget_allows() {
        let window = |head: &[u8]| zstd_window(&[&[0x28, 0xb5, 0x2f, 0xfd], head].concat());
        assert_eq!(window(&[0, 16 << 3]), Some(64 << 20));
        assert_eq!(window(&[0, 16 << 3 | 1]), Some(72 << 20));
        assert_eq!(window(&[0x20, 7]), Some(7));
        assert_eq!(window(&[0x61, 9, 1, 1]), Some(513));
        assert_eq!(window(&[0xe3, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]), Some(1 << 32));
        assert_eq!(window(&[0xe3, 0, 0]), None);
        let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 17 << 3, 0x01, 0x00, 0x00];
        let error = |budget: &Budget| {
            let stream = Unpacking::new(budget).stream(Packing::Zstd, &frame[..]);
            stream.err().map(|error| error.to_string())
        };
        let told = "its window has 128 MiB, the most is 64 MiB; --limit SIZE raises it";
        assert_eq!(error(&Budget::DEFAULT).as_deref(), Some(told));
        assert_eq!(error(&Budget::DEFAULT.raised_to(1 << 30)), None);
    }

    #[test]
    fn a_stream_unpacks_to_its_ratio() {
        // Blocks of one byte that is repeated 128 KiB: four bytes become 131072.
        let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58];
        let block = [0x02, 0x00, 0x10, b'x'];
        let bomb = frame.into_iter().chain(block.into_iter().cycle().take(4 * 10_000));
        let bomb: Vec<u8> = bomb.collect();
        let mut stream = Unpacking::new(&Budget::DEFAULT).stream(Packing::Zstd, &*bomb).unwrap();
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
        assert!(
            read <= Budget::DEFAULT.unpacked_bytes + bomb.len() as u64 * Budget::RATIO,
            "{read}"
        );
    }
}
