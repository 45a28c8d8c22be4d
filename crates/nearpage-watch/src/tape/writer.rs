//! Writes a tape, or goes on with one.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use nearpage_machine::{OutputFolder, Owner, open_found};
use rustix::fs::{FlockOperation, OFlags, flock};

use super::figures::{Texts, flatten};
use super::{
    BYTES_MOST, FRAME_HEADER_BYTES, HEADER_BYTES, Header, SLOT_HEADER_BYTES, TapeError, delta,
    frame_crc, slot_header, slot_sequence,
};
use crate::placement::Processes;
use crate::sample::Sample;

/// Writes samples to a file of bounded size.
#[derive(Debug)]
pub struct TapeWriter {
    file: File,
    name: String,
    header: Header,
    /// The sequence of the slot that is written; 0 before the first.
    sequence: u64,
    /// Where the next frame begins in it.
    at: usize,
    numbers: Vec<u64>,
    texts: Texts,
    bytes: Vec<u8>,
}

impl TapeWriter {
    /// Makes a tape of at most `bytes` (1 MiB to 1 GiB), or goes on with the one that is there: then with its size, unless
    /// another one is asked for. `source` names the machine. A new tape is for its owner alone; it is of `owner`, who called
    /// `sudo`, where that user could have made it.
    ///
    /// ```
    /// use nearpage_watch::{Sample, Tape, TapeWriter};
    ///
    /// let path = std::env::temp_dir().join(format!("tape-{}", std::process::id()));
    /// let mut writer = TapeWriter::open(&path, None, None, "a box")?;
    /// writer.append(&Sample { time_ms: 1000, ..Sample::default() })?;
    /// writer.append(&Sample { time_ms: 2000, ..Sample::default() })?;
    /// let mut tape = Tape::open(&path)?;
    /// assert_eq!((tape.source(), tape.len()), ("a box", 2));
    /// assert_eq!(tape.sample(1).time_ms, 2000);
    /// # std::fs::remove_file(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The file cannot be opened, is something else, has another size, another process records to it, or another user may
    /// have planted it.
    pub fn open(
        path: &Path,
        owner: Option<Owner>,
        bytes: Option<u64>,
        source: &str,
    ) -> Result<TapeWriter, TapeError> {
        TapeWriter::on(TapeWriter::file(path, owner), path, bytes, source)
    }

    /// The file of a tape, which is made if there is none: what [`open`](Self::open) begins with.
    ///
    /// # Errors
    ///
    /// It cannot be opened or made, or another user may have planted it.
    pub fn file(path: &Path, owner: Option<Owner>) -> io::Result<File> {
        open_or_create(path, owner)
    }

    /// As [`open`](Self::open), on a file that somebody opened, whose path is for messages.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn on(
        file: io::Result<File>,
        path: &Path,
        bytes: Option<u64>,
        source: &str,
    ) -> Result<TapeWriter, TapeError> {
        let name = nearpage_machine::shown(path).to_string();
        let io = |error| TapeError::Io { name: name.clone(), error };
        let file = file.map_err(io)?;
        let metadata = file.metadata().map_err(io)?;
        if !metadata.is_file() {
            return Err(TapeError::NoFile { name });
        }
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(TapeError::Busy { name });
        }
        let mut begin = vec![0; HEADER_BYTES.min(metadata.len() as usize)];
        file.read_exact_at(&mut begin, 0).map_err(io)?;
        let (header, sequence) = if begin.is_empty() {
            let header = Header::new(bytes.unwrap_or(DEFAULT_BYTES), source);
            file.write_all_at(&header.encode(), 0).map_err(io)?;
            (header, 0)
        } else {
            let header = Header::decode(&name, &begin)?;
            if let Some(bytes) = bytes {
                let asked = Header::new(bytes, source);
                let room = |of: &Header| of.slot_begin(of.slots);
                if room(&asked) != room(&header) {
                    return Err(TapeError::OtherSize {
                        name,
                        found: room(&header),
                        asked: room(&asked),
                    });
                }
            }
            let last = last_sequence(&file, &header).map_err(io)?;
            (header, last)
        };
        Ok(TapeWriter {
            file,
            name,
            header,
            sequence,
            // The next frame begins a slot: what was the last one's state is not known.
            at: usize::MAX,
            numbers: Vec::new(),
            texts: Texts::default(),
            bytes: Vec::new(),
        })
    }

    /// Adds a sample. One that is larger than a slot is written without its pagesets and processes.
    ///
    /// # Errors
    ///
    /// The file cannot be written, or the machine is so large that its nodes and zones do not fit.
    pub fn append(&mut self, sample: &Sample) -> Result<(), TapeError> {
        let pagesets: usize = sample.zones.iter().map(|zone| zone.pagesets.len()).sum();
        let mut sample = sample.clone();
        if pagesets > PAGESETS_MOST {
            sample.zones.iter_mut().for_each(|zone| zone.pagesets.clear());
        }
        sample.processes.list.truncate(PROCESSES_MOST);
        if self.append_here(&sample)? || self.begin_slot(&sample)? {
            return Ok(());
        }
        sample.zones.iter_mut().for_each(|zone| zone.pagesets.clear());
        sample.processes = Processes { list: Vec::new(), ..sample.processes };
        match self.begin_slot(&sample)? {
            true => Ok(()),
            false => Err(TapeError::TooLarge {
                name: self.name.clone(),
                what: "a sample of this machine is larger than a sixteenth of the file",
            }),
        }
    }

    /// Adds the sample to the slot; false if there is no room, and nothing was changed.
    fn append_here(&mut self, sample: &Sample) -> Result<bool, TapeError> {
        if self.at == usize::MAX {
            return Ok(false);
        }
        let had = self.texts.len();
        let before = std::mem::take(&mut self.numbers);
        self.encode(sample, &before, had, self.at);
        let end = self.at + self.bytes.len();
        if end > self.header.slot_bytes as usize {
            return Ok(false);
        }
        self.write(self.sequence, self.at)?;
        self.at = end;
        Ok(true)
    }

    /// Begins the next slot with a sample that stands alone; false if it has no room there.
    fn begin_slot(&mut self, sample: &Sample) -> Result<bool, TapeError> {
        self.texts = Texts::default();
        let sequence = self.sequence + 1;
        let before = self.sequence;
        self.sequence = sequence;
        self.encode(sample, &[], 0, SLOT_HEADER_BYTES);
        let end = SLOT_HEADER_BYTES + self.bytes.len();
        if end > self.header.slot_bytes as usize {
            (self.sequence, self.at) = (before, usize::MAX);
            return Ok(false);
        }
        self.bytes.splice(..0, slot_header(sequence));
        self.write(sequence, 0)?;
        self.at = end;
        Ok(true)
    }

    /// A frame at a place of the slot, in `bytes`.
    fn encode(&mut self, sample: &Sample, before: &[u64], had: usize, at: usize) {
        flatten(sample.clone(), &mut self.numbers, &mut self.texts);
        let mut content = Vec::new();
        let texts = self.texts.since(had);
        delta::put(&mut content, texts.len() as u128);
        for text in texts {
            delta::put(&mut content, text.len() as u128);
            content.extend_from_slice(text.as_bytes());
        }
        delta::encode(&mut content, before, &self.numbers);
        let crc = frame_crc(self.sequence, at, &content);
        self.bytes.clear();
        self.bytes.reserve(FRAME_HEADER_BYTES + content.len());
        self.bytes.extend_from_slice(&(content.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(&crc.to_le_bytes());
        self.bytes.extend_from_slice(&content);
    }

    fn write(&mut self, sequence: u64, at: usize) -> Result<(), TapeError> {
        let slot = ((sequence - 1) % u64::from(self.header.slots)) as u32;
        let place = self.header.slot_begin(slot) + at as u64;
        self.file.write_all_at(&self.bytes, place).map_err(|error| {
            // A part of a frame may be there: the next one begins anew.
            self.at = usize::MAX;
            TapeError::Io { name: self.name.clone(), error }
        })
    }
}

/// The size of a tape for which none is asked: some hours of a machine with a few nodes.
const DEFAULT_BYTES: u64 = 4 << 20;
/// Pagesets of a sample that are kept.
const PAGESETS_MOST: usize = 4096;
/// Processes of a sample that are kept.
const PROCESSES_MOST: usize = 32;
const _: () = assert!(DEFAULT_BYTES <= BYTES_MOST);

/// A tape has names of all processes: a new one is for its owner alone.
fn open_or_create(path: &Path, owner: Option<Owner>) -> io::Result<File> {
    let (folder, name, found) = OutputFolder::behind_links(path, owner)?;
    // A FIFO must not wait for its reader.
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(OFlags::NONBLOCK.bits() as i32);
    match found {
        Some(found) => open_found(&found, &options),
        None => folder.create(&name),
    }
}

/// The newest slot's sequence; 0 if there is none.
fn last_sequence(file: &File, header: &Header) -> io::Result<u64> {
    let mut last = 0;
    for slot in 0..header.slots {
        let mut begin = [0; SLOT_HEADER_BYTES];
        match file.read_exact_at(&mut begin, header.slot_begin(slot)) {
            Ok(()) => last = last.max(slot_sequence(&begin).unwrap_or(0)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
            Err(error) => return Err(error),
        }
    }
    Ok(last)
}
