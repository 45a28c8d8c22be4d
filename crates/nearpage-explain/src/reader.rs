//! Reports out of a stream of lines, of any length, in bounded memory.

use std::collections::VecDeque;
use std::io::{self, BufRead};

use crate::open::Open;
use crate::piece::{self, Piece};
use crate::prefix::{Line, uncoloured};
use crate::report::Report;
use crate::rows;

/// Bytes of a line that are looked at; what follows up to its end is passed over.
const LINE_BYTES_MOST: usize = 64 << 10;
/// Bytes at the beginning among which a NUL between bytes that are no text says that the input is no log.
const TEXT_BYTES: u64 = 4 << 10;
/// Reports that may be unfinished at once: more CPUs than that do not print over each other.
const OPEN_MOST: usize = 16;
/// Lines of others that may stand within a report, such as the table of tasks of a large machine.
const GAP_MOST: u64 = 400;

/// Why a log cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The source failed.
    #[error("line {line}: {source}")]
    Read {
        /// The line that could not be read, from 1.
        line: u64,
        /// What the system says.
        source: io::Error,
    },
    /// It is no text.
    #[error(
        "line {line}: most bytes are no text, with a NUL byte at column {column}; accepted: a log as text, as dmesg or journalctl -k print it"
    )]
    Binary {
        /// The line, from 1.
        line: u64,
        /// The byte within it, from 1.
        column: usize,
    },
    /// It has the entries of a journal as JSON.
    #[error(
        "line {line}: an entry of a journal as JSON; accepted: a log as text, or journalctl -o export"
    )]
    Json {
        /// The line, from 1.
        line: u64,
    },
}

/// Reads the reports of a log, one at a time, as they end.
///
/// Bytes that are no UTF-8 are replaced, and lines of more than 64 KiB are cut: the memory it takes does not depend on
/// the length of the log. What is no part of a report is passed over. NUL bytes are left out:
/// serial consoles print some, and crashes leave them in log files. A line with some within the first 4 KiB of which most
/// other bytes are no text says that the input is no log.
///
/// `journalctl -o export` writes fields that are no plain text with their size in eight bytes in front: the messages among
/// them are read, the others passed over.
///
/// ```
/// use nearpage_explain::Reader;
///
/// let log = "[1.0] imap: page allocation failure: order:4, mode:0xcc0(GFP_KERNEL), nodemask=(null)\n";
/// let reports: Vec<_> = Reader::new(log.as_bytes()).collect::<Result<_, _>>()?;
/// assert_eq!((reports[0].process.as_str(), reports[0].order), ("imap", Some(4)));
/// # Ok::<(), nearpage_explain::ReadError>(())
/// ```
#[derive(Debug)]
pub struct Reader<R> {
    source: R,
    line: u64,
    bytes: u64,
    buffer: Vec<u8>,
    open: Vec<Open>,
    closed: VecDeque<Report>,
    /// What ended the reading, until the reports before it are told.
    failure: Option<ReadError>,
    kernel: Option<String>,
    has_ended: bool,
    /// Whether `journalctl -o export` wrote it.
    is_export: bool,
    /// Whether the first line is a brace alone, as `journalctl -o json-pretty` begins.
    is_brace_first: bool,
    /// `Node 0` alone.
    broken_node: Option<String>,
}

impl<R: BufRead> Reader<R> {
    /// A reader of a log.
    pub fn new(source: R) -> Reader<R> {
        Reader {
            source,
            line: 0,
            bytes: 0,
            buffer: Vec::new(),
            open: Vec::new(),
            closed: VecDeque::new(),
            failure: None,
            kernel: None,
            has_ended: false,
            is_export: false,
            is_brace_first: false,
            broken_node: None,
        }
    }

    /// Lines read so far.
    pub fn lines(&self) -> u64 {
        self.line
    }

    /// What the source has next; empty at the end.
    fn chunk(&mut self) -> Result<&[u8], ReadError> {
        loop {
            // Asked anew for the answer: what is borrowed here would be borrowed until it returns.
            match self.source.fill_buf() {
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(ReadError::Read { line: self.line + 1, source }),
            }
        }
        self.source.fill_buf().map_err(|source| ReadError::Read { line: self.line + 1, source })
    }

    /// Reads the next line into the buffer; false at the end.
    fn next_line(&mut self) -> Result<bool, ReadError> {
        self.buffer.clear();
        let mut buffer = std::mem::take(&mut self.buffer);
        let (mut length, mut nul) = (0_u64, None);
        loop {
            let chunk = self.chunk()?;
            let (used, ends) = match chunk.iter().position(|&byte| byte == b'\n') {
                Some(at) => (at + 1, true),
                None => (chunk.len(), false),
            };
            let room = LINE_BYTES_MOST.saturating_sub(buffer.len());
            match chunk[..used].iter().position(|&byte| byte == 0) {
                None => buffer.extend_from_slice(&chunk[..used.min(room)]),
                Some(at) => {
                    nul = nul.or(Some(length + at as u64));
                    buffer.extend(chunk[..used].iter().filter(|&&byte| byte != 0).take(room));
                }
            }
            length += used as u64;
            self.source.consume(used);
            if ends || used == 0 {
                break;
            }
        }
        self.buffer = buffer;
        self.line += u64::from(length > 0);
        let at = nul.filter(|at| self.bytes + at < TEXT_BYTES && !self.is_export);
        if let Some(at) = at.filter(|_| is_garbage(&self.buffer)) {
            return Err(ReadError::Binary { line: self.line, column: at as usize + 1 });
        }
        let is_json = match self.line {
            1 => is_entry_in_json(&self.buffer),
            2 => self.is_brace_first && is_field_in_json(&self.buffer),
            _ => false,
        };
        if is_json {
            return Err(ReadError::Json { line: self.line });
        }
        self.is_brace_first |= self.line == 1 && self.buffer.trim_ascii() == b"{";
        self.bytes += length;
        self.is_export |= self.buffer.starts_with(b"__CURSOR=");
        Ok(length > 0)
    }

    /// Passes over what is no plain text after the name of a field: its size, and itself unless it is a message, whose
    /// lines come next.
    fn pass_sized_field(&mut self) -> Result<(), ReadError> {
        let name = self.buffer.trim_ascii_end();
        let is_name = |byte: &u8| matches!(byte, b'A'..=b'Z' | b'0'..=b'9' | b'_');
        if !self.is_export || name.is_empty() || name.len() > 64 || !name.iter().all(is_name) {
            return Ok(());
        }
        let is_message = name == b"MESSAGE";
        let mut size = [0; 8];
        let mut got = 0;
        self.pass(8, |byte| {
            size[got] = byte;
            got += 1;
        })?;
        if !is_message {
            self.pass(u64::from_le_bytes(size).saturating_add(1), |_| {})?;
        }
        Ok(())
    }

    /// Passes over bytes, as many as there are up to `most`, and counts the lines that end in them.
    fn pass(&mut self, most: u64, mut look: impl FnMut(u8)) -> Result<(), ReadError> {
        let mut left = most;
        while left > 0 {
            let chunk = self.chunk()?;
            let used = usize::try_from(left).map_or(chunk.len(), |left| left.min(chunk.len()));
            if used == 0 {
                break;
            }
            let mut lines = 0;
            for &byte in &chunk[..used] {
                lines += u64::from(byte == b'\n');
                look(byte);
            }
            self.source.consume(used);
            self.line += lines;
            self.bytes += used as u64;
            left -= used as u64;
        }
        Ok(())
    }

    fn take_line(&mut self) {
        let text = String::from_utf8_lossy(&self.buffer);
        let text = uncoloured(&text);
        let mut line = Line::parse(&text);
        // Linux 4.9 broke rows: the node stands on a line before.
        let joined;
        if let Some(node) = self.broken_node.take().filter(|_| rows::is_zone(line.message)) {
            joined = format!("{node} {}", line.message);
            line.message = &joined;
        }
        if rows::is_node(line.message) {
            self.broken_node = Some(line.message.to_owned());
            return;
        }
        if let Some(rest) = line.message.strip_prefix("Linux version ") {
            self.kernel = rest.split(' ').next().map(|release| release.chars().take(128).collect());
        }
        let piece = match piece::classify(line.message) {
            Piece::Other if rows::is_blocks(line.message) => {
                Piece::MoreBlocks(line.message.to_owned())
            }
            Piece::Other => match rows::numbers(line.message).filter(|numbers| !numbers.is_empty())
            {
                Some(numbers) => Piece::Numbers(numbers),
                None => Piece::Other,
            },
            piece => piece,
        };
        if let Piece::Header(header) = piece {
            let mut open = Open::new(*header, self.line, line.time, line.caller);
            if let Some(cpuset) = piece::cpuset(line.message) {
                open.take(&cpuset, self.line, line.caller);
            }
            self.open_one(open);
            return;
        }
        let (number, caller) = (self.line, line.caller);
        let taken_by = match piece {
            Piece::Other => None,
            // Another task than the report's may reap the victim and print this line; the report's own is asked first.
            Piece::Killed(_) => {
                let is_own = |open: &Open| open.caller() == caller;
                let mut own = self.open.iter_mut();
                let own = own.position(|open| is_own(open) && open.take(&piece, number, caller));
                own.or_else(|| {
                    self.open.iter_mut().position(|open| open.take(&piece, number, caller))
                })
            }
            _ => self.open.iter_mut().position(|open| open.take(&piece, number, caller)),
        };
        let is_end = matches!(piece, Piece::Constraint(_) | Piece::Killed(_));
        let taken_by = match taken_by {
            // `grep -i oom` leaves the ends of reports.
            None if is_end => {
                let mut open = Open::without_head(number, line.time, caller);
                open.take(&piece, number, caller);
                self.open_one(open);
                return;
            }
            taken_by => taken_by,
        };
        let is_taken = taken_by.is_some();
        // A row may be that of any report which began since. A line about a victim names it.
        if let Some(at) = taken_by.filter(|at| at + 1 < self.open.len())
            && caller.is_none()
            && !matches!(piece, Piece::Killed(_))
        {
            self.open[at..].iter_mut().for_each(Open::note_mixed);
        }
        if let Some(word) = rows::unreadable(line.message) {
            let mut open = self.open.iter_mut();
            open.any(|open| open.note_unreadable(word, number, caller, is_taken));
        }
        if is_taken {
            return;
        }
        // What belongs to no report ends those that have all they need.
        self.close_where(|open| open.is_complete() || open.last_line() + GAP_MOST < number);
    }

    fn open_one(&mut self, open: Open) {
        self.close_where(Open::is_complete);
        if self.open.len() == OPEN_MOST {
            let oldest = self.open.remove(0);
            self.closed.push_back(oldest.close(self.kernel.as_deref()));
        }
        self.open.push(open);
    }

    fn close_where(&mut self, is_over: impl Fn(&Open) -> bool) {
        let mut at = 0;
        while at < self.open.len() {
            if is_over(&self.open[at]) {
                let open = self.open.remove(at);
                self.closed.push_back(open.close(self.kernel.as_deref()));
            } else {
                at += 1;
            }
        }
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Report, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(report) = self.closed.pop_front() {
                return Some(Ok(report));
            }
            if self.has_ended {
                return self.failure.take().map(Err);
            }
            let line = self.next_line().and_then(|is_line| {
                self.pass_sized_field()?;
                Ok(is_line)
            });
            match line {
                Ok(true) => self.take_line(),
                Ok(false) => {
                    self.has_ended = true;
                    self.close_where(|_| true);
                }
                Err(error) => {
                    self.has_ended = true;
                    self.failure = Some(error);
                    self.close_where(|_| true);
                }
            }
        }
    }
}

/// Whether a line is what `journalctl -o json`, `json-sse` or `json-seq` begins with.
fn is_entry_in_json(line: &[u8]) -> bool {
    const CURSOR: &[u8] = b"\"__CURSOR\"";
    let entry = line.strip_prefix(b"data: ").or_else(|| line.strip_prefix(b"\x1e"));
    entry.unwrap_or(line).starts_with(b"{\"")
        && line.windows(CURSOR.len()).any(|part| part == CURSOR)
}

/// Whether a line is a field of a journal's entry as `journalctl -o json-pretty` writes it.
fn is_field_in_json(line: &[u8]) -> bool {
    let name = line.strip_prefix(b"\t\"").and_then(|rest| rest.split(|&byte| byte == b'"').next());
    name.is_some_and(|name| {
        !name.is_empty() && name.iter().all(|byte| matches!(byte, b'A'..=b'Z' | b'0'..=b'9' | b'_'))
    })
}

/// Whether most characters of a line are none that a log has.
fn is_garbage(line: &[u8]) -> bool {
    let (mut text, mut other) = (0, 0);
    for character in String::from_utf8_lossy(line).chars() {
        let is_blank = matches!(character, '\t' | '\r' | '\n' | '\x1b');
        let is_text =
            is_blank || !character.is_control() && character != char::REPLACEMENT_CHARACTER;
        *(if is_text { &mut text } else { &mut other }) += 1;
    }
    other > text
}
