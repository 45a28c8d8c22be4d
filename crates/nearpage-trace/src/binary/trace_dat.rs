//! `trace.dat`: trace-cmd.dat.v6(5) and trace-cmd.dat.v7(5).
//!
//! Version 6 is a sequence: descriptions, options, then for each CPU where its pages lie. In version 7 options lead to all
//! other parts, which may be compressed in chunks.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Read};

use nearpage_machine::{Kept, Unpacking};

use super::super::head;
use super::Lines;
use super::description::{Formats, Tasks, read_start, skip_headers};
use super::format::LineHead;
use super::ring::Page;
use super::source::{Cursor, Order, Source, damaged, keep};
use super::symbols::Symbols;
use super::{MAGIC_BYTES, TRACE_DAT};

/// CPUs of a file.
const CPUS_MAX: u64 = 1 << 14;
/// Bytes of a chunk, unpacked. trace-cmd makes them of some pages.
const CHUNK_BYTES_MAX: u64 = 64 << 20;
/// What a page of a ring buffer may have.
const PAGE_BYTES: std::ops::RangeInclusive<u64> = 64..=1 << 20;
/// Options that are followed: each section leads to the next.
const SECTIONS_MAX: usize = 4096;

/// A file that is read.
pub(super) struct TraceDat {
    source: Source,
    formats: Formats,
    tasks: Tasks,
    cpus: Vec<CpuPages>,
    /// CPUs by the time of their next record.
    next: BinaryHeap<Reverse<(u64, usize)>>,
    is_begun: bool,
    /// Sections, and chunks of CPUs.
    kept: Kept,
    unpacking: Unpacking,
    /// What CPUs may still have.
    cpus_left: u64,
    /// The release of the kernel.
    kernel: Option<String>,
}

/// The pages of a CPU, and the one that is read.
struct CpuPages {
    cpu: u32,
    page_bytes: u64,
    /// What is left: a range of the file, of pages or of chunks.
    at: u64,
    end: u64,
    chunks: Option<Chunks>,
    /// The numbers of the pages, if they lie anywhere.
    places: Option<std::vec::IntoIter<u32>>,
    page: Option<Page>,
    /// The next record: its time and data.
    record: Option<(u64, Vec<u8>)>,
    lost: Option<u64>,
}

/// Chunks that are not unpacked yet, and the one that is.
struct Chunks {
    packing: Packing,
    left: u64,
    unpacked: Vec<u8>,
    taken: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Packing {
    None,
    Zlib,
    Zstd,
}

impl TraceDat {
    pub fn open(source: Source, unpacking: &Unpacking) -> io::Result<TraceDat> {
        // The descriptions of version 6 have no length of their own, and come first.
        let start = source.part(0, source.bytes().min(4096))?;
        let behind = start.get(MAGIC_BYTES..).filter(|_| start.starts_with(TRACE_DAT));
        let behind = behind.ok_or_else(|| damaged(0, "no trace.dat"))?;
        let (version, formats, page, used) = read_start(behind, MAGIC_BYTES as u64)?;
        let at = (MAGIC_BYTES + used) as u64;
        let (cpus_left, kept) = (source.bytes(), Kept::new(unpacking));
        let mut file = TraceDat {
            source,
            formats,
            tasks: Tasks::default(),
            cpus: Vec::new(),
            next: BinaryHeap::new(),
            is_begun: false,
            kept,
            unpacking: unpacking.clone(),
            cpus_left,
            kernel: None,
        };
        match version {
            6 => file.read_6(at, page)?,
            7 => file.read_7(at)?,
            other => {
                let found = format!("trace.dat of version {other}; versions 6 and 7 are read");
                return Err(damaged(MAGIC_BYTES as u64, found));
            }
        }
        Ok(file)
    }

    /// What was taken from the rings of a running kernel.
    #[cfg(unix)]
    pub fn taken(rings: super::Rings) -> TraceDat {
        let super::Rings {
            file,
            page_bytes,
            cpus,
            formats: texts,
            tasks: names,
            addresses,
            symbols,
        } = rings;
        let native = if cfg!(target_endian = "big") { Order::Big } else { Order::Little };
        let mut formats = Formats::new(native, size_of::<usize>() as u64);
        formats.addresses = addresses;
        formats.symbols = Symbols::read(symbols);
        texts.iter().for_each(|text| formats.add(text));
        let mut tasks = Tasks::default();
        names.iter().for_each(|text| tasks.read(text));
        let unpacking = Unpacking::new(&nearpage_machine::Budget::DEFAULT);
        // Some pages may be of no CPU any more.
        let last = cpus.iter().flat_map(|(_, places)| places).max();
        let pages = last.map_or(0, |last| u64::from(*last) + 1);
        let cpus = cpus.into_iter().map(|(cpu, places)| CpuPages {
            cpu,
            page_bytes,
            at: 0,
            end: 0,
            chunks: None,
            places: Some(places.into_iter()),
            page: None,
            record: None,
            lost: None,
        });
        TraceDat {
            source: Source::of(file, pages * page_bytes),
            formats,
            tasks,
            cpus: cpus.collect(),
            next: BinaryHeap::new(),
            is_begun: false,
            kept: Kept::new(&unpacking),
            unpacking,
            cpus_left: 0,
            kernel: None,
        }
    }

    fn order(&self) -> Order {
        self.formats.order
    }

    fn read_6(&mut self, at: u64, page_bytes: u64) -> io::Result<()> {
        let most = (self.source.bytes() - at).min(256 << 20);
        let head = self.source.part(at, most)?;
        let mut cursor = Cursor::new(&head, at, self.order());
        skip_headers(&mut cursor)?;
        self.formats.read_ftrace(&mut cursor)?;
        self.formats.read_events(&mut cursor)?;
        let bytes = cursor.number(4)?;
        self.formats.symbols = Symbols::read(cursor.take(bytes)?.to_vec());
        // The texts of trace_printk.
        let bytes = cursor.number(4)?;
        cursor.take(bytes)?;
        let bytes = cursor.number(8)?;
        self.tasks.read(cursor.take(bytes)?);
        let cpus = cursor.number(4)?;
        let kind = cursor.take(10)?;
        let mut kind = kind.to_vec();
        if kind == b"options  \0" {
            loop {
                let (id, bytes) = (cursor.number(2)?, 0);
                if id == 0 {
                    break;
                }
                let bytes = cursor.number(4)? + bytes;
                self.note_option(id, cursor.take(bytes)?, cursor.offset())?;
            }
            kind = cursor.take(10)?.to_vec();
        }
        if kind != b"flyrecord\0" {
            let found = String::from_utf8_lossy(&kind).into_owned();
            return Err(damaged(
                cursor.offset(),
                format!("found {found:?}, expected \"flyrecord\""),
            ));
        }
        if cpus > CPUS_MAX {
            return Err(damaged(cursor.offset(), format!("{cpus} CPUs")));
        }
        for cpu in 0..cpus {
            let (offset, bytes) = (cursor.number(8)?, cursor.number(8)?);
            self.add_cpu(cpu as u32, page_bytes, offset, bytes, Packing::None)?;
        }
        Ok(())
    }

    fn read_7(&mut self, at: u64) -> io::Result<()> {
        let bytes = self.source.part(at, (self.source.bytes() - at).min(256))?;
        let mut cursor = Cursor::new(&bytes, at, self.order());
        let packing = match cursor.text()? {
            b"none" => Packing::None,
            b"zlib" => Packing::Zlib,
            b"zstd" => Packing::Zstd,
            other => {
                let found = String::from_utf8_lossy(other).into_owned();
                return Err(damaged(
                    at,
                    format!("compressed by {found:?}; zlib and zstd are read"),
                ));
            }
        };
        cursor.text()?;
        let mut next = cursor.number(8)?;
        // Names of tasks and formats may come after the buffers that need them: buffers wait.
        for _ in 0..SECTIONS_MAX {
            if next == 0 {
                return Ok(());
            }
            let (content, offset) = self.section(next, packing)?;
            next = self.read_options(&content, offset, packing)?;
        }
        Err(damaged(next, "options that lead to more options without an end"))
    }

    /// The content of a section, unpacked, and where it begins in the file.
    fn section(&mut self, offset: u64, packing: Packing) -> io::Result<(Vec<u8>, u64)> {
        let (flags, bytes) = self.section_head(offset)?;
        let begin = offset + 16;
        keep(&mut self.kept, bytes, offset)?;
        let content = self.source.part(begin, bytes)?;
        if flags & 1 == 0 {
            return Ok((content, begin));
        }
        let mut cursor = Cursor::new(&content, begin, self.order());
        let mut unpacked = Vec::new();
        while !cursor.is_at_end() {
            let (packed, whole) = (cursor.number(4)?, cursor.number(4)?);
            let at = cursor.offset();
            keep(&mut self.kept, whole, at)?;
            unpacked.extend(unpack(packing, &self.unpacking, cursor.take(packed)?, whole, at)?);
        }
        Ok((unpacked, begin))
    }

    fn section_head(&self, offset: u64) -> io::Result<(u64, u64)> {
        let head = self.source.part(offset, 16)?;
        let mut cursor = Cursor::new(&head, offset, self.order());
        let (_id, flags, _name) = (cursor.number(2)?, cursor.number(2)?, cursor.number(4)?);
        Ok((flags, cursor.number(8)?))
    }

    /// Reads options and what they lead to; returns where the next options are, or 0.
    fn read_options(&mut self, content: &[u8], offset: u64, packing: Packing) -> io::Result<u64> {
        let mut cursor = Cursor::new(content, offset, self.order());
        while !cursor.is_at_end() {
            let (id, bytes) = (cursor.number(2)?, cursor.number(4)?);
            let at = cursor.offset();
            let mut option = Cursor::new(cursor.take(bytes)?, at, self.order());
            match id {
                0 => return if option.is_at_end() { Ok(0) } else { option.number(8) },
                3 => self.read_buffer(&mut option, packing)?,
                17 | 18 | 19 | 21 => {
                    let (content, begin) = self.section(option.number(8)?, packing)?;
                    let mut part = Cursor::new(&content, begin, self.order());
                    match id {
                        17 => self.formats.read_ftrace(&mut part)?,
                        18 => self.formats.read_events(&mut part)?,
                        19 => {
                            let bytes = part.number(4)?;
                            self.formats.symbols = Symbols::read(part.take(bytes)?.to_vec());
                        }
                        _ => {
                            let bytes = part.number(8)?;
                            self.tasks.read(part.take(bytes)?);
                        }
                    }
                }
                id => self.note_option(id, option.take(bytes)?, at)?,
            }
        }
        Ok(0)
    }

    fn note_option(&mut self, id: u64, content: &[u8], offset: u64) -> io::Result<()> {
        match id {
            CLOCKS => check_clock(content, offset)?,
            // The system, the machine's name, the release, the kind of machine.
            SYSTEM => {
                let text = String::from_utf8_lossy(content);
                self.kernel = text.split_whitespace().nth(2).map(ToOwned::to_owned);
            }
            _ => {}
        }
        Ok(())
    }

    fn read_buffer(&mut self, option: &mut Cursor<'_>, packing: Packing) -> io::Result<()> {
        let section = option.number(8)?;
        let (flags, _) = self.section_head(section)?;
        option.text()?;
        let clock = option.text()?;
        check_clock(&[b"[", clock, b"]"].concat(), option.offset())?;
        let (page_bytes, cpus) = (option.number(4)?, option.number(4)?);
        if cpus > CPUS_MAX {
            return Err(damaged(option.offset(), format!("{cpus} CPUs")));
        }
        let packing = if flags & 1 == 0 { Packing::None } else { packing };
        for _ in 0..cpus {
            let (cpu, offset, bytes) = (option.number(4)?, option.number(8)?, option.number(8)?);
            self.add_cpu(cpu as u32, page_bytes, offset, bytes, packing)?;
        }
        Ok(())
    }

    fn add_cpu(
        &mut self,
        cpu: u32,
        page_bytes: u64,
        offset: u64,
        bytes: u64,
        packing: Packing,
    ) -> io::Result<()> {
        if !PAGE_BYTES.contains(&page_bytes) {
            return Err(damaged(offset, format!("pages of {page_bytes} bytes")));
        }
        let end = offset.checked_add(bytes).filter(|end| *end <= self.source.bytes());
        let end = end.ok_or_else(|| {
            damaged(offset, format!("{bytes} bytes of CPU {cpu} end behind the file"))
        })?;
        self.cpus_left = self.cpus_left.checked_sub(bytes).ok_or_else(|| {
            damaged(offset, format!("CPU {cpu} and those before it have more bytes than the file"))
        })?;
        if bytes == 0 {
            return Ok(());
        }
        let (mut at, mut chunks) = (offset, None);
        if packing != Packing::None {
            let left = self.order().number(&self.source.part(offset, 4)?).unwrap_or_default();
            chunks = Some(Chunks { packing, left, unpacked: Vec::new(), taken: 0 });
            at += 4;
        }
        self.cpus.push(CpuPages {
            cpu,
            page_bytes,
            at,
            end,
            chunks,
            places: None,
            page: None,
            record: None,
            lost: None,
        });
        Ok(())
    }

    /// Makes a CPU's next record ready.
    fn advance(&mut self, index: usize) -> io::Result<()> {
        let (order, long_bytes) = (self.formats.order, self.formats.long_bytes);
        let cpu = &mut self.cpus[index];
        loop {
            if let Some(page) = &mut cpu.page
                && let Some((time, data)) = page.next()?
            {
                // The buffer of the one before is used again.
                let mut kept = cpu.record.take().map_or_else(Vec::new, |(_, kept)| kept);
                kept.clear();
                kept.extend_from_slice(data);
                cpu.record = Some((time, kept));
                self.next.push(Reverse((time, index)));
                return Ok(());
            }
            let Some((bytes, offset)) =
                cpu.next_page(&self.source, order, &self.unpacking, &mut self.kept)?
            else {
                cpu.record = None;
                return Ok(());
            };
            let page = Page::new(bytes, offset, order, long_bytes)?;
            cpu.lost = page.missed.or(cpu.lost);
            cpu.page = Some(page);
        }
    }
}

impl CpuPages {
    fn next_page(
        &mut self,
        source: &Source,
        order: Order,
        unpacking: &Unpacking,
        kept: &mut Kept,
    ) -> io::Result<Option<(Vec<u8>, u64)>> {
        if let Some(places) = &mut self.places {
            let Some(place) = places.next() else { return Ok(None) };
            let offset = u64::from(place) * self.page_bytes;
            return Ok(Some((source.part(offset, self.page_bytes)?, offset)));
        }
        let offset = self.at;
        let Some(chunks) = &mut self.chunks else {
            let bytes = self.page_bytes.min(self.end - self.at);
            self.at += bytes;
            return Ok(if bytes == 0 { None } else { Some((source.part(offset, bytes)?, offset)) });
        };
        if chunks.taken == chunks.unpacked.len() {
            kept.give_back(chunks.unpacked.len() as u64);
            (chunks.unpacked, chunks.taken) = (Vec::new(), 0);
            if chunks.left == 0 || self.at >= self.end {
                return Ok(None);
            }
            let head = source.part(self.at, 8)?;
            let mut cursor = Cursor::new(&head, self.at, order);
            let (packed, whole) = (cursor.number(4)?, cursor.number(4)?);
            // Each CPU has one at a time; a length is as the file says.
            keep(kept, whole, self.at)?;
            let content = source.part(self.at + 8, packed)?;
            chunks.unpacked = unpack(chunks.packing, unpacking, &content, whole, self.at)?;
            chunks.left -= 1;
            self.at += 8 + packed;
        }
        let left = &chunks.unpacked[chunks.taken..];
        let page = left[..left.len().min(self.page_bytes as usize)].to_vec();
        chunks.taken += page.len();
        Ok(if page.is_empty() { None } else { Some((page, offset)) })
    }
}

impl Lines for TraceDat {
    fn kernel(&self) -> Option<&str> {
        self.kernel.as_deref()
    }

    fn more(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        if !self.is_begun {
            self.is_begun = true;
            (0..self.cpus.len()).try_for_each(|index| self.advance(index))?;
        }
        let Some(Reverse((time_ns, index))) = self.next.pop() else { return Ok(()) };
        let cpu = &mut self.cpus[index];
        match cpu.lost.take() {
            Some(0) => {
                out.extend_from_slice(format!("CPU:{} [EVENTS DROPPED]\n", cpu.cpu).as_bytes())
            }
            Some(lost) => {
                out.extend_from_slice(format!("CPU:{} [LOST {lost} EVENTS]\n", cpu.cpu).as_bytes())
            }
            None => {}
        }
        if let Some((_, record)) = &cpu.record {
            write_record(out, record, cpu.cpu, time_ns, &self.formats, &self.tasks).ok_or_else(
                || damaged(cpu.at, format!("a record of CPU {} that is too short", cpu.cpu)),
            )?;
        }
        self.advance(index)
    }
}

/// Writes the line of a record; `None` if the record is too short for its format.
fn write_record(
    out: &mut Vec<u8>,
    record: &[u8],
    cpu: u32,
    time_ns: u64,
    formats: &Formats,
    tasks: &Tasks,
) -> Option<()> {
    let Some(format) = formats.of(record) else {
        // An event that the file does not describe.
        out.extend_from_slice(b" => an event without a format\n");
        return Some(());
    };
    let pid = format.value("common_pid", record, formats.order)? as u32;
    LineHead { comm: tasks.name(pid), pid, cpu, time_ns }.write(out);
    let is_whole = format.write(record, formats.order, formats.addresses, out);
    out.push(b'\n');
    format.write_chain(record, formats.order, formats.long_bytes, &formats.symbols, out);
    is_whole.then_some(())
}

/// Options of which something is read: the clocks, of which one is chosen, and what the system is called.
const CLOCKS: u64 = 4;
const SYSTEM: u64 = 5;

/// Times are nanoseconds, but for three clocks.
fn check_clock(content: &[u8], offset: u64) -> io::Result<()> {
    let text = String::from_utf8_lossy(content);
    let Some(clock) = text.split('[').nth(1).and_then(|clock| clock.split(']').next()) else {
        return Ok(());
    };
    match head::why_no_time(clock) {
        Some(why) => Err(damaged(
            offset,
            format!("times of the clock {clock}: {why}; record with `trace-cmd record -C mono`"),
        )),
        None => Ok(()),
    }
}

fn unpack(
    packing: Packing,
    unpacking: &Unpacking,
    packed: &[u8],
    whole: u64,
    offset: u64,
) -> io::Result<Vec<u8>> {
    if whole > CHUNK_BYTES_MAX {
        return Err(damaged(offset, format!("a chunk of {whole} bytes")));
    }
    let mut unpacked = Vec::new();
    let mut read = |reader: &mut dyn Read| {
        unpacking.counted(reader).take(whole + 1).read_to_end(&mut unpacked)
    };
    let result = match packing {
        Packing::None => read(&mut &packed[..]),
        Packing::Zlib => read(&mut flate2::read::ZlibDecoder::new(packed)),
        Packing::Zstd => match ruzstd::decoding::StreamingDecoder::new(packed) {
            Ok(mut decoder) => read(&mut decoder),
            Err(error) => Err(io::Error::other(error.to_string())),
        },
    };
    result.map_err(|error| damaged(offset, format!("a chunk that cannot be unpacked: {error}")))?;
    if unpacked.len() as u64 != whole {
        let found = format!("a chunk of {} bytes that was to have {whole}", unpacked.len());
        return Err(damaged(offset, found));
    }
    Ok(unpacked)
}
