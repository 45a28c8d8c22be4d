//! Plays a tape.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

use super::figures::{Texts, unflatten};
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
    /// Its place in `content`.
    begin: usize,
    end: usize,
    /// The first frame of its slot.
    key: usize,
}

/// What the frames of a slot made so far.
#[derive(Clone, Debug, Default)]
struct State {
    numbers: Vec<u64>,
    texts: Texts,
}

impl State {
    /// Applies a frame.
    fn follow(&mut self, mut content: &[u8]) -> Option<()> {
        for _ in 0..delta::take(&mut content)? {
            let length = usize::try_from(delta::take(&mut content)?).ok()?;
            let text = content.get(..length)?;
            content = &content[length..];
            self.texts.push(String::from_utf8_lossy(text).into_owned());
        }
        delta::decode(&mut content, &mut self.numbers)
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
        let mut content = Vec::new();
        let most = BYTES_MOST + HEADER_BYTES as u64;
        file.take(most + 1).read_to_end(&mut content).map_err(io)?;
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
    /// sixteenth of the file.
    ///
    /// # Panics
    ///
    /// There is no such sample.
    pub fn sample(&mut self, at: usize) -> Sample {
        let key = self.frames[at].key;
        let (mut next, mut state) = match self.last.take() {
            Some((last, state)) if (key..=at).contains(&last) => (last + 1, state),
            _ => (key, State::default()),
        };
        while next <= at {
            let frame = self.frames[next];
            // They were all followed when the tape was opened.
            let followed = state.follow(&self.content[frame.begin..frame.end]);
            debug_assert!(followed.is_some());
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
    let (mut at, mut state) = (SLOT_HEADER_BYTES, State::default());
    while let Some((frame, next)) = frame_at(slot, sequence, at) {
        // A checksum can be right by design: whoever made the file may not have been us.
        if state.follow(frame).is_none() || unflatten(&state.numbers, &state.texts).is_none() {
            break;
        }
        let time_ms = state.numbers.first().copied().unwrap_or(0);
        let begin = begin + next - frame.len();
        frames.push(Frame { time_ms, begin, end: begin + frame.len(), key });
        at = next;
    }
}
