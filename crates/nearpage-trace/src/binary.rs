//! Binary traces, read as the text that their own tools print of them: `trace.dat` of trace-cmd (versions 6 and 7), `perf.data` of
//! perf, and the events of ftrace in a trace of Perfetto.
//!
//! The first two keep the kernel's descriptions of its events beside the events themselves: where each field lies, and which names
//! stand for which bits of a set of flags. So nothing here depends on the version of the kernel, as a reader by fixed offsets
//! would.
//!
//! ```text
//! trace_dat: sections, pages of CPUs --> ring: a page's records --\
//! perf_data: samples, by time ----------------------------------> format: fields --> lines of text
//!                                        description: sections of formats --^  ^-- flags: names of bits
//! perfetto: bundles of CPUs, by time -----------------------------------------------> lines of text
//! ```
//!
//! By the published descriptions: trace-cmd.dat.v6(5), trace-cmd.dat.v7(5), `perf.data-file-format.txt` of perf, and the
//! formats that a kernel shows in tracefs. A file is kept in an unnamed temporary file if it comes through a pipe: its parts
//! are read where they lie. Memory holds a page or a chunk of each CPU, and the samples of a round of perf.

mod description;
mod flags;
mod format;
mod perf_data;
mod perfetto;
mod ring;
mod source;
mod symbols;
mod trace_dat;

#[cfg(unix)]
use std::fs::File;
use std::io::{self, Read};

use nearpage_machine::Unpacking;

use super::event::Sampling;
use super::head::{RELEASE_HEADING, sampling_heading};
use perf_data::PerfData;
use perfetto::Perfetto;
use source::Source;
#[cfg(unix)]
pub(super) use source::{Addresses, DESCRIPTOR_BYTES};
pub use symbols::Symbols;
use trace_dat::TraceDat;

/// Bytes by which a binary trace is known.
pub(super) const MAGIC_BYTES: usize = 10;

const TRACE_DAT: &[u8] = b"\x17\x08Dtracing";
const PERF_DATA: &[u8] = b"PERFILE2";
const PERF_DATA_SWAPPED: &[u8] = b"2ELIFREP";
/// Streams in either order of bytes, packets of metadata likewise, and metadata as text.
const CTF: [&[u8]; 5] = [
    &[0xc1, 0xfc, 0x1f, 0xc1],
    &[0xc1, 0x1f, 0xfc, 0xc1],
    &[0x75, 0xd1, 0x1d, 0x57],
    &[0x57, 0x1d, 0xd1, 0x75],
    b"/* CTF ",
];
/// Why a trace of LTTng is refused, in its own format.
pub const CTF_NOT_READ: &str = "CTF, which LTTng writes, is a language of its own for records; the text that `babeltrace2 FOLDER` prints of it is read";

/// The name of the function that does the once-a-second work of a CPU, in which pagesets decay.
pub(super) const UPKEEP: &str = "vmstat_update";

/// The kinds of binary traces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    TraceDat,
    PerfData,
    Perfetto,
    /// What LTTng writes: it is not read.
    Ctf,
}

impl Kind {
    /// What begins with these bytes.
    pub fn of(beginning: &[u8]) -> Option<Kind> {
        if beginning.starts_with(TRACE_DAT) {
            Some(Kind::TraceDat)
        } else if beginning.starts_with(PERF_DATA) || beginning.starts_with(PERF_DATA_SWAPPED) {
            Some(Kind::PerfData)
        } else if CTF.iter().any(|magic| beginning.starts_with(magic)) {
            Some(Kind::Ctf)
        } else if perfetto::begins(beginning) {
            Some(Kind::Perfetto)
        } else {
            None
        }
    }

    /// The text of a binary trace, in the order of time.
    ///
    /// # Errors
    ///
    /// It cannot be kept or read, or is damaged; the message has the byte.
    pub fn text<'a>(
        self,
        file: impl Read + 'a,
        unpacking: &Unpacking,
    ) -> io::Result<Box<dyn Read + 'a>> {
        let source = Source::keep(unpacking.file(file))?;
        Ok(match self {
            Kind::TraceDat => Box::new(Text::of(TraceDat::open(source, unpacking)?)),
            Kind::PerfData => Box::new(Text::of(PerfData::open(source, unpacking)?)),
            Kind::Perfetto => Box::new(Text::of(Perfetto::open(source, unpacking)?)),
            Kind::Ctf => return Err(io::Error::new(io::ErrorKind::InvalidData, CTF_NOT_READ)),
        })
    }
}

/// What was taken from the rings of a running kernel, page by page, in a file.
#[cfg(unix)]
#[derive(Debug)]
pub(super) struct Rings {
    pub file: File,
    pub page_bytes: u64,
    /// CPUs, with the numbers of their pages in the file.
    pub cpus: Vec<(u32, Vec<u32>)>,
    /// The formats of the events, as `events/*/*/format` has them.
    pub formats: Vec<Vec<u8>>,
    /// Texts of `saved_cmdlines`; later ones hold.
    pub tasks: Vec<Vec<u8>>,
    /// Where the kernel has what they tell of.
    pub addresses: Addresses,
    /// The text of `/proc/kallsyms`; empty if there are no call chains.
    pub symbols: Vec<u8>,
}

#[cfg(unix)]
impl Rings {
    /// Their text, in the order of time.
    pub fn text(self) -> impl Read {
        Text::of(TraceDat::taken(self))
    }
}

/// Gives the lines of a trace, one after the other.
trait Lines {
    /// The release of its kernel, if the file tells.
    fn kernel(&self) -> Option<&str>;

    /// An event of pages of which a part was recorded, if the file tells.
    fn sampled(&self) -> Option<(&str, Sampling)> {
        None
    }

    /// Writes some more lines to an empty buffer; none are left if it stays empty.
    fn more(&mut self, out: &mut Vec<u8>) -> io::Result<()>;
}

/// Lines as a stream of bytes.
struct Text<L> {
    lines: L,
    buffer: Vec<u8>,
    taken: usize,
}

/// Lines are made until so many bytes are there.
const TURN_BYTES: usize = 32 << 10;

impl<L: Lines> Text<L> {
    fn of(lines: L) -> Text<L> {
        let heading = lines.kernel().map(|release| {
            let release = release.bytes().filter(u8::is_ascii_graphic);
            RELEASE_HEADING.iter().copied().chain(release).chain(*b"\n").collect()
        });
        let mut buffer: Vec<u8> = heading.unwrap_or_default();
        if let Some((name, sampling)) = lines.sampled() {
            buffer.extend(sampling_heading(name, sampling).bytes());
        }
        Text { buffer, lines, taken: 0 }
    }
}

impl<L: Lines> Read for Text<L> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.buffer.len() {
            self.buffer.clear();
            self.taken = 0;
            while self.buffer.len() < TURN_BYTES {
                let before = self.buffer.len();
                self.lines.more(&mut self.buffer)?;
                if self.buffer.len() == before {
                    break;
                }
            }
        }
        let length = out.len().min(self.buffer.len() - self.taken);
        out[..length].copy_from_slice(&self.buffer[self.taken..self.taken + length]);
        self.taken += length;
        Ok(length)
    }
}

#[cfg(test)]
mod tests;
