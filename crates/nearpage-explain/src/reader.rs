//! Reports out of a stream of lines, of any length, in bounded memory.

use std::collections::VecDeque;
use std::io::{self, BufRead};
use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use serde::Serialize;

use crate::anchor::{self, Shape};
use crate::beside::Beside;
use crate::cause::kib;
use crate::head;
use crate::joined::Message;
use crate::open::Open;
use crate::piece::{self, Piece};
use crate::prefix::{Line, Numbers, by_clocks, is_dated, uncoloured};
use crate::report::{Kind, Report, ZoneRow};
use crate::rows;
use crate::transport::Transport;

/// Bytes of a line that are looked at; what follows up to its end is passed over.
const LINE_BYTES_MOST: usize = 64 << 10;
/// Bytes at the beginning among which a NUL between bytes that are no text says that the input is no log.
const TEXT_BYTES: u64 = 4 << 10;
/// Reports that may be unfinished at once: more CPUs than that do not print over each other.
const OPEN_MOST: usize = 16;
/// Lines of others that may stand within a report, such as the table of tasks of a large machine.
const GAP_MOST: u64 = 400;
/// The same of rows of which nobody has told whose they are.
const HEADLESS_GAP_MOST: u64 = 8;
/// Lines of an answer within a first line.
const TORN_MOST: u64 = 64;

/// Reports that cannot be read of which a reader tells.
pub const UNREAD_MOST: usize = 64;
/// Bytes of the longest words that begin a report.
const PHRASE_MOST: usize = 24;
/// Bytes of a line in which the rest of a first line is looked for.
const HEAD_MOST: usize = 200;

/// Words of which a report's first line, or a report of one line, has some.
static PHRASES: LazyLock<AhoCorasick> = LazyLock::new(|| {
    const PHRASES: [&str; 27] = [
        "FAULT_INJECTION",
        "page alloc",
        "order alloc",
        "oom-kill",
        "alloc failure",
        "Allocation of length",
        "vmalloc",
        "vmap alloc",
        "SLUB: Unable",
        "illed process",
        "Kill process",
        "syncing: Out of",
        "no killable processes",
        "deadlocked on memory",
        "dump_header",
        ": usage ",
        "result of limit",
        "cgroup stats",
        "oom.group",
        "Linux version",
        "Mem-",
        "kB min:",
        " mapped:",
        "alloc failed, req-size: ",
        "lowmemorykiller: Kill",
        "systemd-oomd[",
        "earlyoom[",
    ];
    // Some programs keep words together by blanks of another kind.
    let phrases = PHRASES.map(|phrase| [phrase.to_owned(), phrase.replace(' ', "\u{a0}")]);
    AhoCorasick::new(phrases.concat()).expect("they are few")
});

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
    /// The process of the last report that names its kernel, and that.
    named: Option<(Option<u32>, String)>,
    has_ended: bool,
    /// Whether `journalctl -o export` wrote it.
    is_export: bool,
    /// `Node 0` alone.
    broken_node: Option<String>,
    /// What vmalloc lacked, if the line before says it.
    area: Option<String>,
    /// The beginning of a first line behind which somebody answers.
    torn: Option<Message>,
    transport: Transport,
    /// Of lines as they came, and of those that were within something else.
    numbers: [Numbers; 2],
    /// The prefix that nobody knows, as lines before had it.
    shape: Option<Shape>,
    /// The message that may go on in the next line.
    pending: Option<Message>,
    /// Characters of the longest line so far.
    longest: usize,
    /// The line before, as it came, while no report is unfinished.
    previous: Vec<u8>,
    /// The line before, as it came, within a report.
    raw: String,
    /// The line before, as it was written, within a report.
    last: String,
    unread: Vec<Unread>,
    /// The last line of memory's state that is no report's.
    state: Option<u64>,
    /// Rows of memory's state that came last, which a kill may follow.
    headless: Option<Open>,
    /// The last line by which a test of the kernel forced a failure, and its caller.
    forced: Option<(u64, Option<String>)>,
    beside: Beside,
}

/// A report that is seen and cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Unread {
    /// Its line, from 1.
    pub line: u64,
    /// Why it cannot be read, and what it tells.
    pub why: String,
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
            named: None,
            has_ended: false,
            is_export: false,
            broken_node: None,
            area: None,
            torn: None,
            transport: Transport::default(),
            numbers: Default::default(),
            shape: None,
            pending: None,
            longest: 0,
            previous: Vec::new(),
            raw: String::new(),
            last: String::new(),
            unread: Vec::new(),
            state: None,
            headless: None,
            forced: None,
            beside: Beside::default(),
        }
    }

    /// Lines read so far.
    pub fn lines(&self) -> u64 {
        self.line
    }

    /// Reports that were seen so far and cannot be read, at most [`UNREAD_MOST`].
    pub fn unread(&self) -> &[Unread] {
        &self.unread
    }

    /// What the log told of the machine so far beside reports.
    pub fn beside(&self) -> &Beside {
        &self.beside
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

    /// Takes a line as it came. While no report is unfinished nearly all are passed over.
    fn take_line(&mut self) {
        let is_idle = self.open.is_empty()
            && self.headless.is_none()
            && self.pending.is_none()
            && !self.transport.is_holding();
        let line = self.buffer.trim_ascii_end();
        self.beside.look(line, self.line);
        let begins = |bytes: &[u8]| PHRASES.is_match(bytes);
        if is_idle {
            if begins(line) {
                // The beginning of a first line may be the end of the line before.
                let is_head = |bytes: &[u8]| head::is_like(&String::from_utf8_lossy(bytes));
                let is_broken = !is_head(line) && self.is_broken(line, HEAD_MOST, is_head);
                if is_broken {
                    self.take_previous();
                }
            } else if line.first() == self.previous.first() && line.first() != Some(&b'>')
                || !self.is_broken(line, PHRASE_MOST, begins)
            {
                let length = line.len();
                std::mem::swap(&mut self.previous, &mut self.buffer);
                self.previous.truncate(length);
                self.raw.clear();
                return;
            } else {
                self.take_previous();
            }
        }
        self.previous.clear();
        let text = String::from_utf8_lossy(&self.buffer).into_owned();
        self.take_text(text.trim_end_matches(['\n', '\r']), self.line);
    }

    /// Whether the line before and the beginning of this one have together what neither has.
    fn is_broken(&self, line: &[u8], most: usize, has: impl Fn(&[u8]) -> bool) -> bool {
        let tail = &self.previous[self.previous.len().saturating_sub(PHRASE_MOST)..];
        // Quoted-printable.
        let tail = tail.strip_suffix(b"=").unwrap_or(tail);
        let is_quote = |byte: &u8| *byte == b'>' || byte.is_ascii_whitespace();
        let quote = line.iter().take_while(|byte| is_quote(byte)).count();
        let head = &line[quote..line.len().min(quote.saturating_add(most))];
        !tail.is_empty() && (has(&[tail, head].concat()) || has(&[tail, b" ", head].concat()))
    }

    fn take_previous(&mut self) {
        let previous = std::mem::take(&mut self.previous);
        self.take_text(&String::from_utf8_lossy(&previous), self.line - 1);
    }

    fn take_text(&mut self, text: &str, number: u64) {
        // A line twice is told twice, whatever is around it; one of more than a row is no chance of two CPUs.
        if text.len() >= 24 && text == self.raw && (self.open.len() < 2 || text.len() > 1000) {
            return;
        }
        text.clone_into(&mut self.raw);
        let text = self.numbers[0].strip(text).unwrap_or(text);
        let mut lines = Vec::new();
        self.transport.undo(&uncoloured(text), |line| lines.push(line.to_owned()));
        // What quotes a line that was made of several quotes all of them.
        let quotes = |text: &str| Line::parse(text).quotes;
        let quotes = lines.first().map_or(0, |line| quotes(line).min(quotes(text)));
        for line in &lines {
            let line = self.numbers[1].strip(line).unwrap_or(line);
            by_clocks(line).into_iter().for_each(|line| self.take_written(line, number, quotes));
        }
    }

    /// Takes a line as it was written: one message, a part of one, or several.
    fn take_written(&mut self, text: &str, number: u64, quotes: usize) {
        // A console and a log that are copied together have each line twice; two CPUs that print at once may, too.
        if text.len() >= 24 && text == self.last && self.open.len() < 2 {
            return;
        }
        let width = text.chars().count();
        let line = Line::parse(text);
        // Lines of others, or none, stand between the two copies.
        if !text.trim().is_empty() && !is_dated(line.message) {
            text.clone_into(&mut self.last);
        }
        // One blank is where a line was cut; more are an indent.
        let blanks = (text.starts_with(' ') && !text.starts_with("  "), text.ends_with(' '));
        let message = |text: &str, has_prefix: bool| Message {
            line: number,
            time: line.time.map(String::from),
            caller: line.caller.map(String::from),
            // A cell of a table ends with a mark.
            text: text.trim().trim_end_matches(" |").trim_end().into(),
            has_prefix,
            quotes: line.quotes.max(quotes),
            width,
            blanks,
        };
        let positions: Vec<usize> = match anchor::begins(line.message) && line.message.len() < 1000
        {
            true => Vec::new(),
            false => anchor::positions(line.message).collect(),
        };
        let Some(&first) = positions.first() else {
            let rest = self.shape.as_ref().and_then(|shape| shape.strip(line.message));
            let has_prefix = line.has_prefix || rest.is_some() || is_dated(line.message);
            return self.take_message(message(rest.unwrap_or(line.message), has_prefix));
        };
        // What stands before the first is a message of its own, or a prefix that nobody knows.
        let head = &line.message[..first];
        let own = Shape::of(&text[..text.find(line.message).unwrap_or(0)]);
        let is_message = head::is_like(head);
        if !is_message && first > 0 {
            let shape = Shape::of(head);
            self.shape = Some(shape).filter(Shape::is_telling).or(self.shape.take());
        }
        if is_message {
            self.take_message(message(own.cut_from_end(head), line.has_prefix));
        }
        let ends = positions.iter().skip(1).copied().chain([line.message.len()]);
        for (&from, to) in positions.iter().zip(ends) {
            let part = own.cut_from_end(&line.message[from..to]);
            let is_first = from == first && !is_message;
            self.take_message(message(part, line.has_prefix || first > 0 || !is_first));
        }
    }

    /// Takes a message, or a part of one: it waits for the next line, which may go on from it.
    fn take_message(&mut self, next: Message) {
        self.longest = self.longest.max(next.width);
        if let Some(mut message) = self.pending.take() {
            if message.goes_on_in(&next) {
                message.add(&next, self.longest);
                self.pending = Some(message);
                return;
            }
            self.take_whole(&message);
        }
        self.pending = Some(next);
    }

    fn take_pending(&mut self) {
        if let Some(message) = self.pending.take() {
            self.take_whole(&message);
        }
    }

    fn take_whole(&mut self, message: &Message) {
        let answered;
        let message = match self.torn.take_if(|torn| torn.has_rest(message, TORN_MOST)) {
            Some(torn) => {
                self.unread.retain(|unread| unread.line != torn.line);
                answered = torn.with_rest(message);
                &answered
            }
            None => message,
        };
        let number = message.line;
        let mut line = Line {
            time: message.time.as_deref(),
            caller: message.caller.as_deref(),
            message: &message.text,
            has_prefix: message.has_prefix,
            quotes: message.quotes,
        };
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
        if line.message.starts_with("FAULT_INJECTION: forcing a failure") {
            self.forced = Some((number, message.caller.clone()));
            return;
        }
        let area = self.area.take();
        self.area = head::area(line.message);
        if self.area.is_some() {
            return;
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
        if let Piece::Header(mut header) = piece {
            if header.kind == Kind::Failure && area.is_some() {
                (header.kind, header.failed) = (Kind::Vmalloc, area);
            }
            let at = self.open.iter_mut().position(|open| open.take_area(&header));
            let mut open = match at {
                Some(at) => self.open.remove(at),
                None => Open::new(*header, number, line.time, line.caller),
            };
            open.quotes = message.quotes;
            // The stack of who was made to fail stands between.
            const FORCED_MOST: u64 = 160;
            let is_forced = self.forced.take_if(|(at, caller)| {
                number.saturating_sub(*at) <= FORCED_MOST && caller.as_deref() == line.caller
            });
            if is_forced.is_some() {
                open.note_forced();
            }
            // Nothing is printed over it: such machines have few CPUs.
            if open.wants_length() {
                self.close_where(|_| true);
            }
            if let Some(cpuset) = piece::cpuset(line.message) {
                open.take(&cpuset, number, line.caller);
            }
            self.open_one(open);
            return;
        }
        let caller = line.caller;
        let taken_by = match self.taker(&piece, message) {
            // `grep -i oom` leaves the ends of reports.
            None if piece.proves_a_kill(!self.open.is_empty()) => {
                let open = self.memory_before(&piece, number);
                let mut open =
                    open.unwrap_or_else(|| Open::without_head(number, line.time, caller));
                open.quotes = message.quotes;
                open.take(&piece, number, caller);
                self.open_one(open);
                return;
            }
            taken_by => taken_by.or_else(|| self.taker_of_lost_zone(&piece, message)),
        };
        let is_taken = taken_by.is_some();
        // A row may be that of any report which began since. A line about a victim names it.
        if let Some(at) = taken_by.filter(|at| at + 1 < self.open.len())
            && caller.is_none()
            && !matches!(piece, Piece::Killed(..))
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
        self.note_unread(&piece, message);
        self.keep_headless(&piece, message);
        // Another process, or another kernel: what comes now is not of those that told theirs.
        self.close_where(|open| {
            open.quotes == message.quotes && open.is_over(&piece, message.time.as_deref(), caller)
        });
        // What belongs to no report ends those that have all they need.
        self.close_where(|open| {
            let is_over = open.is_complete() && !open.is_group_kill();
            is_over || open.last_line() + GAP_MOST < number
        });
    }

    /// The report that takes a piece: one whose it is likely, else the oldest that can. Kills come one after the other: what is of one
    /// is the newest one's.
    fn taker(&mut self, piece: &Piece, message: &Message) -> Option<usize> {
        let (caller, time) = (message.caller.as_deref(), message.time.as_deref());
        let mut taker = |is_likely: &dyn Fn(&Open) -> bool| {
            let take = |open: &mut Open| {
                open.quotes == message.quotes
                    && is_likely(open)
                    && open.take(piece, message.line, caller)
            };
            let mut open = self.open.iter_mut();
            match piece.is_of_kill() {
                true => open.rposition(take),
                false => open.position(take),
            }
        };
        let likely = match piece {
            Piece::Other => return None,
            // Another task than the report's may reap the victim and print this line; the report's own is asked first.
            Piece::Killed(..) => taker(&|open| open.caller() == caller),
            _ => taker(&|open| open.is_likely(piece, time)),
        };
        let timed = likely.or_else(|| taker(&|open| open.is_timed_as(time)));
        timed.or_else(|| taker(&|_| true))
    }

    /// The only report that is unfinished, if the piece is a row of blocks whose zone's own row was lost.
    fn taker_of_lost_zone(&mut self, piece: &Piece, message: &Message) -> Option<usize> {
        let [open] = &mut self.open[..] else { return None };
        let is_own = open.quotes == message.quotes
            && open.take_lost_zone(piece, message.line, message.caller.as_deref());
        is_own.then_some(0)
    }

    /// Notes a report that is seen and cannot be read.
    fn note_unread(&mut self, piece: &Piece, message: &Message) {
        let number = message.line;
        let why = match piece {
            // At its end it may have the nodes of the cpuset.
            Piece::Other | Piece::Cpuset(..) if head::is_like(&message.text) => {
                self.torn = Some(message.clone());
                "it begins as a report does, and its flags are missing or damaged"
            }
            Piece::Other if head::is_cut(&message.text) => {
                "its first line was cut, its flags are missing"
            }

            Piece::MemInfo | Piece::Zone(_) | Piece::Blocks(_) => {
                return self.note_state(piece, number);
            }
            Piece::Other => match head::of_others(&message.text) {
                Some(why) => why,
                None => return,
            },
            _ => return,
        };
        if self.unread.len() < UNREAD_MOST {
            self.unread.push(Unread { line: number, why: why.into() });
        }
    }

    /// Keeps rows that are no report's: the first kernels of 2.6 printed no first line of a kill.
    fn keep_headless(&mut self, piece: &Piece, message: &Message) {
        let (number, caller) = (message.line, message.caller.as_deref());
        let is_over = |open: &Open| open.last_line() + HEADLESS_GAP_MOST < number;
        if !self.open.is_empty() || self.headless.as_ref().is_some_and(is_over) {
            self.headless = None;
        }
        let is_first = matches!(piece, Piece::MemInfo | Piece::Counters(_) | Piece::Zone(_));
        if self.headless.is_none() && is_first && self.open.is_empty() {
            let mut open = Open::without_head(number, message.time.as_deref(), caller);
            open.quotes = message.quotes;
            self.headless = Some(open);
        }
        if let Some(open) = &mut self.headless {
            open.take(piece, number, caller);
        }
    }

    /// What memory had right before a line of such a kill, which tells no more than who was ended.
    fn memory_before(&mut self, piece: &Piece, number: u64) -> Option<Open> {
        let open = self.headless.take()?;
        let may_follow = match piece {
            Piece::Killed(None | Some(false), victim) => {
                victim.anon.is_none() && victim.file.is_none()
            }
            Piece::SlabHead => true,
            _ => return None,
        };
        let is_own = may_follow && open.last_line() + HEADLESS_GAP_MOST >= number;
        if is_own {
            self.unread.retain(|unread| unread.line < open.first_line());
        }
        is_own.then_some(open)
    }

    /// Notes rows of memory's state that are no report's: those of one moment together.
    fn note_state(&mut self, piece: &Piece, number: u64) {
        const STATE: &str = "what memory had, without the line that says who asked for some (sysrq m, or it was lost)";
        const WHY_MOST: usize = 1000;
        let is_next = self.state.is_some_and(|last| number.saturating_sub(last) < GAP_MOST);
        self.state = Some(number);
        if !is_next || *piece == Piece::MemInfo {
            if self.unread.len() == UNREAD_MOST {
                return;
            }
            self.unread.push(Unread { line: number, why: STATE.into() });
        }
        let Piece::Zone(row) = piece else { return };
        let ZoneRow { node, name, free, min, boost, free_cma, file, .. } = &row.0;
        let told = self.unread.iter_mut().rev().find(|unread| unread.why.starts_with(STATE));
        if let (Some(unread), Some(free)) = (told, free.known())
            && unread.why.len() < WHY_MOST
        {
            let cma = free_cma.known().filter(|cma| *cma > 0);
            let cma = cma.map(|cma| format!(", {} of them for CMA", kib(cma)));
            let below = if free < min.least() { ", below min" } else { "" };
            let boost = boost.known().filter(|boost| *boost > 0);
            let boost = boost.map(|boost| format!(", min raised by a boost of {}", kib(boost)));
            let file = file.known().filter(|file| *file > free.saturating_mul(8));
            let file = file.map(|file| format!(", {} of files that could leave", kib(file)));
            unread.why += &format!(
                "; {name} of node {node} had {} free{}{below}{}{}",
                kib(free),
                cma.unwrap_or_default(),
                boost.unwrap_or_default(),
                file.unwrap_or_default()
            );
        }
    }

    fn open_one(&mut self, open: Open) {
        self.forget_told_before(&open);
        self.close_where(|open| open.is_complete() || open.lacks_head());
        if self.open.len() == OPEN_MOST {
            let oldest = self.open.remove(0);
            self.close(oldest);
        }
        self.open.push(open);
    }

    /// A sender quotes a report's first line before the report: that line begins none of its own.
    fn forget_told_before(&mut self, report: &Open) {
        let is_told = |open: &Open| open.quotes == report.quotes && open.is_told_before(report);
        let told = self.open.extract_if(.., |open| is_told(open)).map(|open| open.first_line());
        let line = report.first_line();
        for first in told.collect::<Vec<u64>>() {
            if self.unread.len() < UNREAD_MOST {
                let why = format!(
                    "a first line alone, of a request as that of the report at line {line}"
                );
                self.unread.push(Unread { line: first, why });
            }
        }
    }

    fn end(&mut self) {
        self.has_ended = true;
        let mut held = Vec::new();
        self.transport.finish(|line| held.push(line.to_owned()));
        for line in held {
            self.take_written(&line, self.line, 0);
        }
        self.take_pending();
        self.close_where(|_| true);
    }

    fn close(&mut self, open: Open) {
        // Without an MMU a mapping's report has no line of the kernel's version: that of its pages, before it, has.
        let named = self.named.as_ref().filter(|(pid, _)| open.is_mapping_of(*pid));
        let kernel = named.map(|(_, kernel)| kernel).or(self.kernel.as_ref());
        let report = open.close(kernel.map(String::as_str));
        if let Some(kernel) = &report.kernel {
            self.named = Some((report.pid, kernel.clone()));
        }
        let at = self.closed.partition_point(|other| other.first_line <= report.first_line);
        self.closed.insert(at, report);
    }

    /// The next report that ended, in the order in which they began: those that one of before waits for are few.
    fn ended(&mut self) -> Option<Report> {
        let oldest = self.open.first().map_or(u64::MAX, Open::first_line);
        let is_next = |report: &Report| report.first_line < oldest;
        let is_full = self.closed.len() >= OPEN_MOST;
        self.closed.pop_front_if(|report| is_full || is_next(report))
    }

    fn close_where(&mut self, is_over: impl Fn(&Open) -> bool) {
        let mut at = 0;
        while at < self.open.len() {
            if is_over(&self.open[at]) {
                let open = self.open.remove(at);
                self.close(open);
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
            if let Some(report) = self.ended() {
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
                Ok(false) => self.end(),
                Err(error) => {
                    self.failure = Some(error);
                    self.end();
                }
            }
        }
    }
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
