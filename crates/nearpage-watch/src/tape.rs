//! Samples in a file: a ring of hours in a few MB.
//!
//! # Layout
//!
//! ```text
//! 0          512             512 + slot_bytes
//! | header   | slot 0        | slot 1        | ... at most `slots`
//!
//! header:  magic (16) version (4) slot_bytes (4) slots (4) length of source (2) source, zeroes, CRC at 508
//! slot:    sequence (8) CRC of it (4) frames
//! frame:   length (4) CRC (4) content
//! ```
//!
//! Numbers are little endian. The slot with the highest sequence is the newest; when the last one is full, the oldest is
//! written over. The first frame of a slot stands alone, the others are differences to the frame before (`figures.rs`,
//! `delta.rs`). A frame's CRC covers the slot's sequence and the frame's place too: what is left of an older round is no
//! frame. So any prefix of the file can be played, and a process that is killed while it writes loses one sample at most.
//! The kernel writes the file back when it likes: a machine that loses power loses up to half a minute.

mod delta;
mod error;
mod figures;
mod reader;
mod writer;

pub use error::TapeError;
pub use reader::Tape;
pub use writer::TapeWriter;

use crc32fast::Hasher;
use nearpage_machine::Budget;

/// Begins with what no text has, so that a file that was sent as one is refused.
const MAGIC: &[u8; 16] = b"\x89nearpage tape\r\n";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 512;
const SLOT_HEADER_BYTES: usize = 12;
const FRAME_HEADER_BYTES: usize = 8;
/// Slots of a tape that is made now.
const SLOTS: u32 = 16;
/// The smallest and the largest tape.
const BYTES_LEAST: u64 = 1 << 20;
const BYTES_MOST: u64 = Budget::TAPE_BYTES;

/// What the header says.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Header {
    slot_bytes: u32,
    slots: u32,
    source: String,
}

impl Header {
    fn new(bytes: u64, source: &str) -> Header {
        let bytes = bytes.clamp(BYTES_LEAST, BYTES_MOST);
        let slot_bytes = (bytes - HEADER_BYTES as u64) / u64::from(SLOTS);
        let mut source = source.to_owned();
        while source.len() > 400 {
            source.pop();
        }
        Header { slot_bytes: slot_bytes as u32, slots: SLOTS, source }
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend_from_slice(MAGIC);
        for number in [VERSION, self.slot_bytes, self.slots] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&(self.source.len() as u16).to_le_bytes());
        bytes.extend_from_slice(self.source.as_bytes());
        bytes.resize(HEADER_BYTES - 4, 0);
        let crc = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads the header of a file called `name`.
    fn decode(name: &str, file: &[u8]) -> Result<Header, TapeError> {
        let name = || name.to_owned();
        if file.len() < MAGIC.len() + 4 || !file.starts_with(MAGIC) {
            // What begins as one was cut off.
            return match MAGIC.starts_with(&file[..file.len().min(MAGIC.len())]) {
                true => Err(TapeError::Empty { name: name() }),
                false => Err(TapeError::NoTape { name: name() }),
            };
        }
        let version = le_u32(file, 16).unwrap_or(0);
        if version != VERSION {
            return Err(TapeError::Version { name: name(), found: version, known: VERSION });
        }
        let Some(header) = file.get(..HEADER_BYTES) else {
            return Err(TapeError::Empty { name: name() });
        };
        let damaged = |what| TapeError::Damaged { name: name(), what };
        if le_u32(header, HEADER_BYTES - 4) != Some(crc32fast::hash(&header[..HEADER_BYTES - 4])) {
            return Err(damaged("the checksum of its header"));
        }
        let (slot_bytes, slots) =
            (le_u32(header, 20).unwrap_or(0), le_u32(header, 24).unwrap_or(0));
        let bytes = u64::from(slot_bytes) * u64::from(slots);
        if slot_bytes < 4096 || slots < 2 || bytes > BYTES_MOST {
            return Err(damaged("the size of its slots"));
        }
        let length = usize::from(u16::from_le_bytes([header[28], header[29]]));
        let source = header.get(30..30 + length).ok_or_else(|| damaged("its source"))?;
        Ok(Header { slot_bytes, slots, source: String::from_utf8_lossy(source).into_owned() })
    }

    fn slot_begin(&self, slot: u32) -> u64 {
        HEADER_BYTES as u64 + u64::from(slot) * u64::from(self.slot_bytes)
    }
}

fn le_u32(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

fn slot_header(sequence: u64) -> [u8; SLOT_HEADER_BYTES] {
    let mut bytes = [0; SLOT_HEADER_BYTES];
    bytes[..8].copy_from_slice(&sequence.to_le_bytes());
    bytes[8..].copy_from_slice(&crc32fast::hash(&sequence.to_le_bytes()).to_le_bytes());
    bytes
}

/// The sequence of a slot, if one was written there.
fn slot_sequence(slot: &[u8]) -> Option<u64> {
    let sequence = u64::from_le_bytes(*slot.first_chunk()?);
    (sequence > 0 && slot.starts_with(&slot_header(sequence))).then_some(sequence)
}

/// The checksum of a frame at a place within the slot of this sequence.
fn frame_crc(sequence: u64, at: usize, content: &[u8]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(&sequence.to_le_bytes());
    hasher.update(&(at as u64).to_le_bytes());
    hasher.update(content);
    hasher.finalize()
}

/// The content of the frame at a place of a slot, and where the next begins; `None` behind the last.
fn frame_at(slot: &[u8], sequence: u64, at: usize) -> Option<(&[u8], usize)> {
    let length = le_u32(slot, at)? as usize;
    let crc = le_u32(slot, at + 4)?;
    let begin = at + FRAME_HEADER_BYTES;
    let content = slot.get(begin..begin.checked_add(length)?)?;
    (frame_crc(sequence, at, content) == crc).then_some((content, begin + length))
}

#[cfg(test)]
mod tests;
