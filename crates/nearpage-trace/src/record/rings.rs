//! The rings of an instance, one for each CPU, and the file to which their pages are taken.
//!
//! A ring is left alone until it is half full: a short recording is not disturbed. Then the pages of all are read as the
//! kernel has them. A page of a ring in the file costs four bytes of memory.
//!
//! A recording that keeps what happened last has windows: when one begins, pages of the window before the former are room for new ones.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::error::RecordError;
use crate::binary::{self, Addresses};

/// Pages that are written at once.
const PAGES_AT_ONCE: usize = 64;
/// One ring is read for so many pages before the next has its turn.
const PAGES_A_TURN: u32 = 4096;

/// What a CPU's buffer says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub(super) struct BufferStats {
    pub entries: u64,
    overrun: u64,
    commit_overrun: u64,
    dropped: u64,
    pub read: u64,
    pub bytes: u64,
}

impl BufferStats {
    /// What happened since, of what is counted; what the ring holds is as it is.
    pub(super) fn since(self, before: BufferStats) -> BufferStats {
        BufferStats {
            overrun: self.overrun - before.overrun.min(self.overrun),
            commit_overrun: self.commit_overrun - before.commit_overrun.min(self.commit_overrun),
            dropped: self.dropped - before.dropped.min(self.dropped),
            read: self.read - before.read.min(self.read),
            ..self
        }
    }

    fn parse(text: &str) -> BufferStats {
        let number = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
            line.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
        };
        BufferStats {
            entries: number("entries"),
            overrun: number("overrun"),
            commit_overrun: number("commit overrun"),
            dropped: number("dropped events"),
            read: number("read events"),
            bytes: number("bytes"),
        }
    }

    /// Events that the ring had no room for.
    pub(super) fn lost(self) -> u64 {
        self.overrun + self.commit_overrun + self.dropped
    }
}

/// The rings of an instance. All files are open until this is dropped, so the kernel keeps the instance as long.
pub(super) struct Rings {
    rings: Vec<Ring>,
    file: File,
    page_bytes: usize,
    /// Pages that the file has, and those of them that hold nothing any more.
    pages: u32,
    unused: Vec<u32>,
    pages_max: u32,
    /// Why nothing more is taken.
    ended: Option<Full>,
    saved_cmdlines: PathBuf,
    tasks: Vec<Vec<u8>>,
    /// Those of the former window.
    former_tasks: usize,
    buffer: Vec<u8>,
}

struct Ring {
    cpu: u32,
    raw: File,
    stats: File,
    places: Vec<u32>,
    /// Those of the former window.
    former: usize,
}

/// Why events were left in the rings.
#[derive(Debug, thiserror::Error)]
pub(super) enum Full {
    /// As many bytes were taken as were asked for.
    #[error("the trace has as many bytes as it may")]
    Asked,
    /// The file cannot be written.
    #[error("the file for the trace cannot be written: {0}")]
    Disk(io::Error),
}

impl Rings {
    /// Opens those of an instance of the tracefs. Their pages go to `file`, up to so many bytes.
    ///
    /// # Errors
    ///
    /// A file of the kernel cannot be opened or read.
    pub(super) fn open(
        instance: &Path,
        tracefs: &Path,
        file: File,
        bytes_max: Option<u64>,
    ) -> Result<Rings, RecordError> {
        let layout = instance.join("events/header_page");
        let layout = if layout.exists() { layout } else { tracefs.join("events/header_page") };
        // The kernel gives what fits into the first read, and no more.
        let mut text = [0; 4096];
        let got = File::open(&layout).and_then(|mut file| file.read(&mut text));
        let got = got.map_err(RecordError::file(&layout, "read it"))?;
        let page_bytes = page_bytes(&String::from_utf8_lossy(&text[..got])).ok_or_else(|| {
            let found = io::Error::new(ErrorKind::InvalidData, "no field data with its size");
            RecordError::file(&layout, "read it")(found)
        })?;
        let folder = instance.join("per_cpu");
        let entries = fs::read_dir(&folder).map_err(RecordError::file(&folder, "read it"))?;
        let mut rings = Vec::new();
        for entry in entries.flatten() {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("cpu"));
            let Some(cpu) = number.and_then(|number| number.parse().ok()) else { continue };
            let open = |name: &str| {
                let path = entry.path().join(name);
                let mut options = OpenOptions::new();
                let opened = options.read(true).custom_flags(libc::O_NONBLOCK).open(&path);
                opened.map_err(RecordError::file(&path, "open it"))
            };
            let (raw, stats) = (open("trace_pipe_raw")?, open("stats")?);
            rings.push(Ring { cpu, raw, stats, places: Vec::new(), former: 0 });
        }
        rings.sort_by_key(|ring| ring.cpu);
        let pages = bytes_max.unwrap_or(u64::MAX) / page_bytes as u64;
        Ok(Rings {
            rings,
            file,
            page_bytes,
            pages: 0,
            unused: Vec::new(),
            pages_max: u32::try_from(pages).unwrap_or(u32::MAX),
            ended: None,
            saved_cmdlines: tracefs.join("saved_cmdlines"),
            tasks: Vec::new(),
            former_tasks: 0,
            buffer: vec![0; page_bytes * PAGES_AT_ONCE],
        })
    }

    /// Become readable when a ring is half full, as long as more is taken.
    pub(super) fn half_full(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let rings = if self.ended.is_none() { &self.rings[..] } else { &[] };
        rings.iter().map(|ring| ring.raw.as_fd())
    }

    /// Takes what the rings have, a turn of each.
    ///
    /// # Errors
    ///
    /// A ring cannot be read. A full disk is no error: events are lost from then on, and counted.
    pub(super) fn take(&mut self) -> io::Result<Taken> {
        let mut taken = Taken::All;
        for index in 0..self.rings.len() {
            if self.take_ring(index)? == Taken::Some {
                taken = Taken::Some;
            }
        }
        // Names change hands when there are many tasks.
        if let Ok(names) = fs::read(&self.saved_cmdlines)
            && self.tasks.last() != Some(&names)
        {
            self.tasks.push(names);
        }
        Ok(taken)
    }

    fn take_ring(&mut self, index: usize) -> io::Result<Taken> {
        let mut turn = 0;
        while self.ended.is_none() {
            if turn >= PAGES_A_TURN {
                return Ok(Taken::Some);
            }
            let room = self.pages_max - self.pages + self.unused.len() as u32;
            let room = room.min(PAGES_AT_ONCE as u32) as usize;
            let mut pages = 0;
            while pages < room {
                let page = &mut self.buffer[pages * self.page_bytes..][..self.page_bytes];
                match self.rings[index].raw.read(page) {
                    Ok(0) => break,
                    Ok(got) => {
                        page[got..].fill(0);
                        pages += 1;
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            if room == 0 {
                self.ended = Some(Full::Asked);
            } else if pages == 0 {
                return Ok(Taken::All);
            }
            if let Err(error) = self.keep(index, pages) {
                self.ended = Some(Full::Disk(error));
                return Ok(Taken::All);
            }
            turn += pages as u32;
        }
        Ok(Taken::All)
    }

    /// Writes the first pages of the buffer to the file. Those that hold nothing any more have room for one each, its end for all.
    fn keep(&mut self, index: usize, pages: usize) -> io::Result<()> {
        let page_bytes = self.page_bytes;
        let place = |page: u32| u64::from(page) * page_bytes as u64;
        let places = &mut self.rings[index].places;
        let mut left = &self.buffer[..pages * page_bytes];
        while !left.is_empty()
            && let Some(page) = self.unused.pop()
        {
            let (content, rest) = left.split_at(page_bytes);
            self.file.write_all_at(content, place(page))?;
            places.push(page);
            left = rest;
        }
        // A part that was written is written over by nobody, since nothing more is taken.
        self.file.write_all_at(left, place(self.pages))?;
        let end = self.pages + (left.len() / page_bytes) as u32;
        places.extend(self.pages..end);
        self.pages = end;
        Ok(())
    }

    /// Begins a window: what was taken since the last call is the former one, and what was taken before is forgotten.
    pub(super) fn next_window(&mut self) {
        for ring in &mut self.rings {
            self.unused.extend(ring.places.drain(..ring.former));
            ring.former = ring.places.len();
        }
        // The names that are known last hold for the next window, too.
        self.tasks.drain(..self.former_tasks);
        self.former_tasks = self.tasks.len().saturating_sub(1);
        if matches!(self.ended, Some(Full::Asked)) && !self.unused.is_empty() {
            self.ended = None;
        }
    }

    /// What each ring holds and lost, of those that were used.
    ///
    /// # Errors
    ///
    /// One cannot be read.
    pub(super) fn stats(&mut self) -> io::Result<Vec<(u32, BufferStats)>> {
        let mut all = Vec::new();
        let mut text = String::new();
        for ring in &mut self.rings {
            text.clear();
            ring.stats.rewind()?;
            ring.stats.read_to_string(&mut text)?;
            let stats = BufferStats::parse(&text);
            if stats.lost() + stats.entries + stats.read > 0 {
                all.push((ring.cpu, stats));
            }
        }
        Ok(all)
    }

    /// Bytes that were taken and are not forgotten.
    pub(super) fn bytes(&self) -> u64 {
        (u64::from(self.pages) - self.unused.len() as u64) * self.page_bytes as u64
    }

    /// Why nothing more is taken, if so.
    pub(super) fn ended(&self) -> Option<&Full> {
        self.ended.as_ref()
    }

    /// What was taken, as text.
    pub(super) fn into_text(
        self,
        formats: Vec<Vec<u8>>,
        addresses: Addresses,
        symbols: Vec<u8>,
    ) -> impl Read {
        let Rings { rings, file, page_bytes, tasks, .. } = self;
        let cpus = rings.into_iter().map(|ring| (ring.cpu, ring.places)).collect();
        let page_bytes = page_bytes as u64;
        binary::Rings { file, page_bytes, cpus, formats, tasks, addresses, symbols }.text()
    }
}

/// How much of the rings was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Taken {
    All,
    Some,
}

/// The bytes of a ring's page: `field: char data; offset:16; size:4080; signed:1;` is its last field.
fn page_bytes(layout: &str) -> Option<usize> {
    let data = layout.lines().find(|line| line.contains("char data;"))?;
    let number = |key: &str| {
        let value = data.split(';').find_map(|part| part.trim().strip_prefix(key))?;
        value.parse::<usize>().ok()
    };
    let bytes = number("offset:")?.checked_add(number("size:")?)?;
    (64..=1 << 20).contains(&bytes).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn what_a_buffer_says_is_read() {
        let text = "entries: 7\noverrun: 1\ncommit overrun: 2\nbytes: 99\noldest event ts:     1.5\n\
            now ts:     2.5\ndropped events: 3\nread events: 4\n";
        let stats = BufferStats::parse(text);
        let (overrun, commit_overrun, dropped) = (1, 2, 3);
        let expected =
            BufferStats { entries: 7, overrun, commit_overrun, dropped, read: 4, bytes: 99 };
        assert_eq!((stats, stats.lost()), (expected, 6));
    }

    /// Rings as a folder has them: what is read ends with the end of a file.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        fs::create_dir(path.join("events")).unwrap();
        let layout = "\tfield: char data;\toffset:16;\tsize:112;\tsigned:1;\n";
        fs::write(path.join("events/header_page"), layout).unwrap();
        for (cpu, pages) in [(0, 3), (11, 70)] {
            let ring = path.join(format!("per_cpu/cpu{cpu}"));
            fs::create_dir_all(&ring).unwrap();
            fs::write(ring.join("trace_pipe_raw"), vec![cpu; 128 * pages]).unwrap();
            fs::write(ring.join("stats"), "entries: 0\nread events: 5\ndropped events: 2\n")
                .unwrap();
        }
        folder
    }

    #[test]
    fn pages_are_taken_and_bounded() {
        let folder = folder();
        for (max, expected) in [(None, [3, 70]), (Some(128 * 5 + 1), [3, 2]), (Some(0), [0, 0])] {
            let file = tempfile::tempfile().unwrap();
            let mut rings = Rings::open(folder.path(), folder.path(), file, max).unwrap();
            assert_eq!(rings.take().unwrap(), Taken::All);
            let places: Vec<usize> = rings.rings.iter().map(|ring| ring.places.len()).collect();
            assert_eq!(places, expected, "{max:?}");
            assert_eq!(rings.bytes(), 128 * expected.iter().sum::<usize>() as u64);
            assert_eq!(rings.ended().is_some(), max.is_some());
            assert_eq!(rings.half_full().count(), if max.is_some() { 0 } else { 2 });
            assert_eq!(rings.stats().unwrap().iter().map(|(_, of)| of.lost()).sum::<u64>(), 4);
        }
    }

    #[test]
    fn the_last_two_windows_are_kept_in_the_room_of_earlier_ones() {
        let folder = folder();
        let file = tempfile::tempfile().unwrap();
        let mut rings = Rings::open(folder.path(), folder.path(), file, Some(128 * 8)).unwrap();
        let raw = folder.path().join("per_cpu/cpu0/trace_pipe_raw");
        fs::write(folder.path().join("per_cpu/cpu11/trace_pipe_raw"), "").unwrap();
        fs::write(&raw, "").unwrap();
        let mut append = OpenOptions::new().append(true).open(&raw).unwrap();
        let content = |rings: &Rings| -> Vec<u8> {
            let place = |page: &u32| {
                let mut byte = [0];
                rings.file.read_exact_at(&mut byte, u64::from(*page) * 128).unwrap();
                byte[0]
            };
            rings.rings[0].places.iter().map(place).collect()
        };
        for (window, expected) in [
            (1, &[1; 3][..]),
            (2, &[1, 1, 1, 2, 2, 2]),
            (3, &[2, 2, 2, 3, 3, 3]),
            (4, &[3, 3, 3, 4, 4, 4]),
        ] {
            append.write_all(&[window; 3 * 128]).unwrap();
            assert_eq!(rings.take().unwrap(), Taken::All);
            assert_eq!(content(&rings), expected);
            assert_eq!(rings.bytes(), 128 * expected.len() as u64);
            rings.next_window();
        }
        assert!(rings.pages <= 6 && rings.ended().is_none(), "{} pages", rings.pages);
        // What has no room is left in the ring, and a window later there is room.
        append.write_all(&[5; 6 * 128]).unwrap();
        rings.take().unwrap();
        assert!(rings.ended().is_some());
        assert_eq!(content(&rings), [4, 4, 4, 5, 5, 5, 5, 5]);
        rings.next_window();
        assert_eq!((rings.ended().is_none(), rings.take().unwrap()), (true, Taken::All));
        assert_eq!(content(&rings), [5; 6]);
    }

    #[test]
    fn a_full_disk_ends_the_taking_alone() {
        let folder = folder();
        // Every write to it fails.
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut rings = Rings::open(folder.path(), folder.path(), full, None).unwrap();
        assert_eq!(rings.take().unwrap(), Taken::All);
        assert!(matches!(rings.ended(), Some(Full::Disk(_))), "{:?}", rings.ended());
        assert_eq!((rings.bytes(), rings.half_full().count()), (0, 0));
    }

    #[test]
    fn the_size_of_a_page_is_read() {
        let text = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
            \tfield: char data;\toffset:16;\tsize:4080;\tsigned:1;\n";
        assert_eq!(page_bytes(text), Some(4096));
        for damaged in ["", "field: char data; offset:16;", "char data; offset:99; size:99999999"] {
            assert_eq!(page_bytes(damaged), None, "{damaged}");
        }
    }
}
