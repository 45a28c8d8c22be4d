//! Plays a tape.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nearpage_machine::read_at_most;
use rustix::fs::OFlags;

use super::figures::{ReadTexts, unflatten};
use super::{
    BYTES_MOST, HEADER_BYTES, Header, SLOT_HEADER_BYTES, TapeError, delta, frame_at, slot_sequence,
};
use crate::sample::Sample;

/// The samples of a file, oldest first.
#[derive(Debug)]
pub struct Tape {
    content: Vec<u8>,
    source: String,
    frames: Vec<Frame>,
    /// The frame that was read last, and what the next one is a difference to.
    last: Option<(usize, State)>,
}

/// Where a sample is.
#[derive(Clone, Copy, Debug)]
struct Frame {
    time_ms: u64,
    /// Its place in `content`, which is no longer than 2 GiB.
    begin: u32,
    end: u32,
    /// The first frame of its slot.
    key: u32,
}

impl Frame {
    fn of(self, content: &[u8]) -> &[u8] {
        &content[self.begin as usize..self.end as usize]
    }
}

/// What the frames of a slot made so far.
#[derive(Clone, Debug)]
struct State {
    numbers: Vec<u64>,
    texts: ReadTexts,
    growth: usize,
}

/// Texts of a slot: names of tasks and lists of CPUs, each once. In memory each takes tens of times the byte that it has in a file.
const TEXTS_MOST: usize = 1 << 17;

impl State {
    fn new() -> State {
        State { numbers: Vec::new(), texts: Vec::new(), growth: delta::GROWTH_MOST }
    }

    /// Applies a frame.
    fn follow(&mut self, mut content: &[u8]) -> Option<()> {
        for _ in 0..delta::take(&mut content)? {
            let length = usize::try_from(delta::take(&mut content)?).ok()?;
            let text = content.get(..length)?;
            content = &content[length..];
            if self.texts.len() == TEXTS_MOST {
                return None;
            }
            self.texts.push(String::from_utf8_lossy(text).into());
        }
        delta::decode(&mut content, &mut self.numbers, &mut self.growth)
    }
}

impl Tape {
    /// Opens a file. One that is cut off, or is written to, is played up to the last whole sample.
    ///
    /// # Errors
    ///
    /// It cannot be read, is something else, is of a later version, or has no sample.
    pub fn open(path: &Path) -> Result<Tape, TapeError> {
        let name = nearpage_machine::shown(path).to_string();
        let io = |error| TapeError::Io { name: name.clone(), error };
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(OFlags::NONBLOCK.bits() as i32);
        let file = options.open(path).map_err(io)?;
        if !file.metadata().map_err(io)?.is_file() {
            return Err(TapeError::NoFile { name });
        }
        let content = read_at_most(file, BYTES_MOST + HEADER_BYTES as u64).map_err(io)?;
        Tape::of_bytes(&name, content)
    }

    /// The same, of a file's content; `name` is for messages.
    ///
    /// # Errors
    ///
    /// As of [`Tape::open`].
    pub fn of_bytes(name: &str, content: Vec<u8>) -> Result<Tape, TapeError> {
        if content.len() as u64 > BYTES_MOST + HEADER_BYTES as u64 {
            return Err(TapeError::TooLarge { name: name.into(), what: "longer than 1 GiB" });
        }
        let header = Header::decode(name, &content)?;
        let mut slots: Vec<(u64, usize, usize)> = (0..header.slots)
            .filter_map(|slot| {
                let begin = usize::try_from(header.slot_begin(slot)).ok()?;
                let end = (begin + header.slot_bytes as usize).min(content.len());
                Some((slot_sequence(content.get(begin..end)?)?, begin, end))
            })
            .collect();
        slots.sort_unstable();
        let mut frames = Vec::new();
        for (sequence, begin, end) in slots {
            frames_of_slot(&content, begin, end, sequence, &mut frames);
        }
        match frames.is_empty() {
            true => Err(TapeError::Empty { name: name.into() }),
            false => Ok(Tape { content, source: header.source, frames, last: None }),
        }
    }

    /// The machine that it is of, as whoever recorded it called it.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// How many samples it has: at least one.
    #[expect(clippy::len_without_is_empty, reason = "a tape without samples is refused")]
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// When a sample was taken, in milliseconds since 1970.
    ///
    /// # Panics
    ///
    /// There is no such sample.
    pub fn time_ms(&self, at: usize) -> u64 {
        self.frames[at].time_ms
    }

    /// A sample. The next one, and the same again, take a few microseconds; others take the way from the begin of a
    /// sixteenth of the file. One that nobody wrote, with a checksum that is right by design, is empty.
    ///
    /// # Panics
    ///
    /// There is no such sample.
    pub fn sample(&mut self, at: usize) -> Sample {
        let key = self.frames[at].key as usize;
        let (mut next, mut state) = match self.last.take() {
            Some((last, state)) if (key..=at).contains(&last) => (last + 1, state),
            _ => (key, State::new()),
        };
        while next <= at {
            if state.follow(self.frames[next].of(&self.content)).is_none() {
                return Sample::default();
            }
            next += 1;
        }
        let sample = unflatten(&state.numbers, &state.texts).unwrap_or_default();
        self.last = Some((at, state));
        sample
    }
}

/// Adds the frames of a slot, up to the first that is none.
fn frames_of_slot(
    content: &[u8],
    begin: usize,
    end: usize,
    sequence: u64,
    frames: &mut Vec<Frame>,
) {
    let slot = &content[begin..end];
    let key = frames.len();
    let (mut at, mut time_ms) = (SLOT_HEADER_BYTES, 0);
    while let Some((frame, next)) = frame_at(slot, sequence, at) {
        let Some(time) = time_of(frame, time_ms) else { break };
        time_ms = time;
        let place = |at| u32::try_from(at).ok();
        let end = begin + next;
        let (Some(begin), Some(end), Some(key)) =
            (place(end - frame.len()), place(end), place(key))
        else {
            break;
        };
        frames.push(Frame { time_ms, begin, end, key });
        at = next;
    }
}

/// The time of a frame, by that of the one before: the first of its numbers, behind its texts.
fn time_of(mut content: &[u8], before: u64) -> Option<u64> {
    for _ in 0..delta::take(&mut content)? {
        let length = usize::try_from(delta::take(&mut content)?).ok()?;
        content = content.get(length..)?;
    }
    delta::decode_first(&mut content, before)
}
