//! Reading: lines of a stream, one after the other.

use std::io::{self, ErrorKind, Read};

use memchr::memchr;

use super::binary::{Kind, MAGIC_BYTES};
use super::error::{EXPECTED, TraceError};
use super::event::{CGROUP_MARK, Event, TraceCounts, TraceEvent};
use super::gfp::{Flags, GfpTexts};
use super::{fields, head, lttng};
use nearpage_machine::{Budget, Packing, Unpacking};

/// Bytes that are read at once: a source that ends early, at somebody's wish, does so between two reads.
const READ_BYTES: usize = 64 << 10;
/// Names of flags that are counted each for itself.
const UNKNOWN_NAMES_MOST: usize = 64;

/// The longest release of a kernel. `include/uapi/linux/utsname.h: __NEW_UTS_LEN`.
const RELEASE_CHARS: usize = 64;

/// Reads a trace and hands on each of its events. `input` names it in messages.
///
/// # Errors
///
/// [`TraceError`]; events before the place were handed on. An error of `each` ends the reading.
pub fn read_trace<E: From<TraceError>>(
    input: &str,
    text: impl Read,
    each: impl FnMut(&TraceEvent<'_>) -> Result<(), E>,
) -> Result<TraceCounts, E> {
    read_trace_with_frames(input, text, each, |_| ())
}

/// The same, and hands on each line behind an event that is none, a part of a call chain among them, to `frame`.
///
/// # Errors
///
/// As [`read_trace`].
pub fn read_trace_with_frames<E: From<TraceError>>(
    input: &str,
    text: impl Read,
    each: impl FnMut(&TraceEvent<'_>) -> Result<(), E>,
    frame: impl FnMut(&[u8]),
) -> Result<TraceCounts, E> {
    let mut lines = Lines {
        input,
        counts: TraceCounts::default(),
        texts: GfpTexts::default(),
        last_time_ns: 0,
        rewritten: Vec::new(),
        lacking: None,
        each,
        frame,
    };
    lines.read(text)?;
    if lines.counts.events == 0 {
        if let Some((offset, lacks)) = lines.lacking {
            return Err(TraceError::Lacking { input: input.into(), offset, lacks }.into());
        }
        let offset = lines.counts.bytes;
        return Err(TraceError::Empty { input: input.into(), offset }.into());
    }
    Ok(lines.counts)
}

/// A reader of what is packed, if anything is: zstd, gzip or bzip2, by the first bytes; and of the text of a binary trace,
/// `trace.dat` (versions 6 and 7) or `perf.data`, packed or not. Those are kept in an unnamed temporary file meanwhile.
/// Whoever reads a part of the text as something that is packed again takes [`unpacked_within`] for it.
///
/// # Errors
///
/// The beginning cannot be read, or a binary trace cannot be kept or is damaged.
pub fn unpacked<'a>(packed: impl Read + 'a, budget: &Budget) -> io::Result<Box<dyn Read + 'a>> {
    unpacked_within(packed, &Unpacking::new(budget))
}

/// The same, of a file or of what was found within one.
///
/// # Errors
///
/// As [`unpacked`].
pub fn unpacked_within<'a>(
    packed: impl Read + 'a,
    unpacking: &Unpacking,
) -> io::Result<Box<dyn Read + 'a>> {
    let (magic, whole) = beginning(unpacking.file(packed))?;
    let plain: Box<dyn Read + 'a> = match Packing::of(&magic) {
        None | Some(Packing::Tar) => Box::new(whole),
        Some(packing) => unpacking.stream(packing, whole)?,
    };
    let (magic, whole) = beginning(plain)?;
    match Kind::of(&magic) {
        None => Ok(Box::new(whole)),
        Some(kind) => kind.text(whole, unpacking),
    }
}

/// The first bytes, by which a kind of file is known, and all of it.
fn beginning<'a>(mut stream: impl Read + 'a) -> io::Result<(Vec<u8>, impl Read + 'a)> {
    let mut magic = Vec::new();
    stream.by_ref().take(MAGIC_BYTES as u64).read_to_end(&mut magic)?;
    Ok((magic.clone(), io::Cursor::new(magic).chain(stream)))
}

struct Lines<'i, F, G> {
    input: &'i str,
    counts: TraceCounts,
    texts: GfpTexts,
    last_time_ns: u64,
    /// A line of another tool, rewritten.
    rewritten: Vec<u8>,
    /// The first line that looks like an event and lacks something, before any other.
    lacking: Option<(u64, &'static str)>,
    each: F,
    frame: G,
}

impl<F, G: FnMut(&[u8])> Lines<'_, F, G> {
    fn read<E: From<TraceError>>(&mut self, mut text: impl Read) -> Result<(), E>
    where
        F: FnMut(&TraceEvent<'_>) -> Result<(), E>,
    {
        let mut buffer = vec![0; Budget::LINE_BYTES];
        let mut filled = 0;
        loop {
            let end = buffer.len().min(filled + READ_BYTES);
            let got = match text.read(&mut buffer[filled..end]) {
                Ok(got) => got,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => {
                    let (input, offset) = (self.input.into(), self.counts.bytes + filled as u64);
                    return Err(TraceError::Unreadable { input, offset, source: error }.into());
                }
            };
            filled += got;
            let whole = memchr::memrchr(b'\n', &buffer[..filled]).map_or(0, |end| end + 1);
            // What follows the last end of a line waits for the rest, unless nothing comes any more.
            let ready = if got == 0 { filled } else { whole };
            self.lines(&buffer[..ready])?;
            buffer.copy_within(ready..filled, 0);
            filled -= ready;
            if got == 0 {
                return Ok(());
            }
            if filled == buffer.len() {
                return Err(self.syntax(&buffer, "lines of less than 1 MiB").into());
            }
        }
    }

    fn lines<E: From<TraceError>>(&mut self, mut text: &[u8]) -> Result<(), E>
    where
        F: FnMut(&TraceEvent<'_>) -> Result<(), E>,
    {
        while !text.is_empty() {
            let end = memchr(b'\n', text).unwrap_or(text.len());
            let line = text[..end].strip_suffix(b"\r").unwrap_or(&text[..end]);
            self.line(line)?;
            let next = (end + 1).min(text.len());
            self.counts.bytes += next as u64;
            text = &text[next..];
        }
        Ok(())
    }

    fn line<E: From<TraceError>>(&mut self, line: &[u8]) -> Result<(), E>
    where
        F: FnMut(&TraceEvent<'_>) -> Result<(), E>,
    {
        if line.first() == Some(&b'#') {
            if let Some(release) = line.strip_prefix(head::RELEASE_HEADING) {
                let release = String::from_utf8_lossy(release.trim_ascii());
                self.counts.kernel = Some(release.chars().take(RELEASE_CHARS).collect());
            }
            self.counts.sampling = self.counts.sampling.or(head::sampling(line));
            return Ok(());
        }
        if let Some(head) = head::parse(line) {
            return self.event(line, &head);
        }
        let mut rewritten = std::mem::take(&mut self.rewritten);
        let head = match line.first() == Some(&b'[') && lttng::rewrite(line, &mut rewritten) {
            true => head::parse(&rewritten),
            false => None,
        };
        let done = match head {
            Some(head) => self.event(line, &head),
            None => self.other_line(line).map_err(E::from),
        };
        self.rewritten = rewritten;
        done
    }

    /// An event, in the line that it was told in.
    fn event<E: From<TraceError>>(&mut self, line: &[u8], head: &head::Head<'_>) -> Result<(), E>
    where
        F: FnMut(&TraceEvent<'_>) -> Result<(), E>,
    {
        let (event, flags) = match fields::parse(head.name, head.fields, &mut self.texts) {
            Ok(parsed) => parsed,
            Err(expected) => return Err(self.syntax(line, expected).into()),
        };
        let counts = &mut self.counts;
        // Such a mark is of a reader's or of a recorder's own, and no event of the kernel.
        let begins = |mark: &[u8]| mark.trim_ascii().starts_with(CGROUP_MARK.as_bytes());
        let is_own = matches!(event, Event::Marker(mark) if begins(mark));
        counts.events += u64::from(!is_own);
        counts.may_hide_losses |= head.has_group;
        counts.unsorted += u64::from(head.time_ns < self.last_time_ns);
        self.last_time_ns = self.last_time_ns.max(head.time_ns);
        match event {
            Event::Alloc { pfn: None, .. } => counts.failed_allocs += 1,
            Event::FreeBatched => counts.batched_frees += 1,
            _ => {}
        }
        if let Some(flags) = flags.filter(|flags| !flags.unknown.is_empty()) {
            count_unknown(counts, flags);
        }
        let head::Head { comm, pid, cpu, time_ns, fields, .. } = *head;
        (self.each)(&TraceEvent { offset: counts.bytes, comm, pid, cpu, time_ns, event, fields })
    }

    fn other_line(&mut self, line: &[u8]) -> Result<(), TraceError> {
        if self.counts.events == 0 && self.lacking.is_none() {
            let why = head::why_unreadable(line);
            self.lacking = why.map(|lacks| (self.counts.bytes, lacks));
        }
        // Names of tasks may have any byte but zero, ends of lines among them: the half of such a name is no damage behind the
        // first event.
        let is_damage = |&byte: &u8| match self.counts.events {
            0 => byte < b' ' && byte != b'\t' || byte == 0x7f,
            _ => byte == 0,
        };
        if let Some(at) = line.iter().position(is_damage) {
            let mut error = self.syntax(line, EXPECTED);
            if let TraceError::Syntax { offset, .. } = &mut error {
                *offset += at as u64;
            }
            return Err(error);
        }
        if let Some(lost) = lost_events(line) {
            self.counts.lost_lines += 1;
            self.counts.lost_events = self.counts.lost_events.saturating_add(lost);
        } else if !line.trim_ascii().is_empty() {
            self.counts.other_lines += 1;
            self.counts.unread_events += u64::from(head::names_event(line));
            (self.frame)(head::unquoted(line));
        }
        Ok(())
    }

    fn syntax(&self, line: &[u8], expected: &'static str) -> TraceError {
        const SHOWN: usize = 80;
        let text = String::from_utf8_lossy(&line[..line.len().min(SHOWN)]);
        // The cut may stand within a character.
        let found = match text.trim_end_matches(char::REPLACEMENT_CHARACTER) {
            text if text.contains(char::REPLACEMENT_CHARACTER) => "bytes that are no text",
            text => text.trim(),
        };
        let found = found.to_owned();
        TraceError::Syntax { input: self.input.into(), offset: self.counts.bytes, found, expected }
    }
}

fn count_unknown(counts: &mut TraceCounts, flags: &Flags) {
    for name in &flags.unknown {
        let names = &mut counts.unknown_gfp_names;
        let key = if names.len() < UNKNOWN_NAMES_MOST || names.contains_key(name) {
            name
        } else {
            "others"
        };
        *names.entry(key.into()).or_default() += 1;
    }
}

/// Whether a file that begins so is a trace: a binary one, or a text whose first lines have an event.
pub fn begins_trace(beginning: &[u8]) -> bool {
    Kind::of(beginning).is_some_and(|kind| kind != Kind::Ctf)
        || beginning.split(|byte| *byte == b'\n').any(|line| head::parse(line).is_some())
}

/// How many events a line says were lost: `CPU:3 [LOST 12 EVENTS]`, `CPU:3 [12 EVENTS DROPPED]`, or a record of
/// perf. 0 if it does not say how many.
fn lost_events(line: &[u8]) -> Option<u64> {
    let line = std::str::from_utf8(line).ok()?.trim();
    let is_cpu = line.starts_with("CPU:") && line.contains("EVENTS");
    if !is_cpu && !line.contains("PERF_RECORD_LOST") {
        return None;
    }
    let (_, told) = line.split_once(if is_cpu { "[" } else { "LOST" })?;
    let mut words = told.split(|c: char| !c.is_ascii_digit());
    Some(words.find_map(|word| word.parse().ok()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# tracer: nop\n#\n sh-7   [001] .....  1.000001: tracing_mark_write: nearpage: before begin\n\
        CPU:3 [LOST 12 EVENTS]\nCPU:1 [EVENTS DROPPED]\n => stack\n\n\
        my task-8   [001] .....  1.000003: mm_page_alloc: page=1 pfn=0x10 order=0 migratetype=0 gfp_flags=GFP_KERNEL|__GFP_FRESH\n\
        my task-8   [001] .....  1.000002: mm_page_alloc: page=(null) pfn=0x0 order=9 migratetype=1 gfp_flags=GFP_TRANSHUGE\n\
        my task-8   [001] .....  1.000004: mm_page_free_batched: page=1 pfn=0x10 order=0\n\
        my task-8   [001] .....  1.000005: sched_process_exit: comm=x\n";

    fn read(text: &[u8]) -> (Result<TraceCounts, TraceError>, Vec<u64>) {
        let mut offsets = Vec::new();
        let counts = read_trace("t", text, |event| {
            offsets.push(event.offset);
            Ok(())
        });
        (counts, offsets)
    }

    #[test]
    fn everything_is_counted() {
        let (counts, offsets) = read(TEXT.as_bytes());
        let counts = counts.unwrap();
        let unknown = [("__GFP_FRESH".to_owned(), 1)].into();
        let expected = TraceCounts {
            bytes: TEXT.len() as u64,
            events: 5,
            other_lines: 1,
            unread_events: 0,
            lost_lines: 2,
            lost_events: 12,
            failed_allocs: 1,
            batched_frees: 1,
            unsorted: 1,
            unknown_gfp_names: unknown,
            kernel: None,
            sampling: None,
            may_hide_losses: false,
        };
        assert_eq!(counts, expected);
        assert_eq!(offsets[0] as usize, TEXT.find(" sh-7").unwrap());
        assert_eq!(offsets[1] as usize, TEXT.find("my task").unwrap());
        assert_eq!(counts.lost(), Some(12));
    }

    #[test]
    fn events_that_cannot_be_read_are_counted() {
        let event = "sh-7 [001] 1.000001: mm_page_free: page=1 pfn=0x10 order=0\n";
        let text = format!(
            "{event}{}=> free_unref_page\n",
            event.replace("[001]", "[4000000]").replace(" 1.0", " 99999999999999999999.0")
        );
        let counts = read(text.as_bytes()).0.unwrap();
        assert_eq!((counts.events, counts.other_lines, counts.unread_events), (1, 2, 1));
    }

    /// What perf script prints has no line of a loss, unless it was asked for them.
    #[test]
    fn losses_that_nobody_told_are_unknown() {
        let event = "sh 7 [001] 1.000001: kmem:mm_page_free: page=1 pfn=0x10 order=0\n";
        assert_eq!(read(event.as_bytes()).0.unwrap().lost(), None);
        let with_loss = format!("{event}sh 7 [001] 1.000002: PERF_RECORD_LOST lost 9\n");
        assert_eq!(read(with_loss.as_bytes()).0.unwrap().lost(), Some(9));
        let without_group = event.replace("kmem:", "");
        assert_eq!(read(without_group.as_bytes()).0.unwrap().lost(), Some(0));
        assert_eq!(
            read(format!("{without_group}CPU:1 [EVENTS DROPPED]\n").as_bytes()).0.unwrap().lost(),
            None
        );
    }

    #[test]
    fn a_trace_is_known_by_its_beginning() {
        assert!(begins_trace(TEXT.as_bytes()) && begins_trace(b"PERFILE2"));
        for other in ["", "# tracer: nop\n#\n", "root:x:0:0:root:/root:/bin/sh\n", "{\"a\": [1]}"] {
            assert!(!begins_trace(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn a_text_comes_in_any_pieces() {
        struct Bytewise<'a>(&'a [u8]);
        impl Read for Bytewise<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let most = buffer.len().min(1);
                self.0.read(&mut buffer[..most])
            }
        }
        let mut events = 0;
        let counts = read_trace::<TraceError>("t", Bytewise(TEXT.as_bytes()), |_| {
            events += 1;
            Ok(())
        });
        assert_eq!((counts.unwrap().bytes, events), (TEXT.len() as u64, 5));
    }

    #[test]
    fn a_name_with_an_end_of_a_line_spoils_nothing_else() {
        let spoilt = TEXT.replace(
            "my task-8   [001] .....  1.000002",
            "\x1b[31m\nX\x1bc-8   [001] .....  1.000002",
        );
        let (counts, offsets) = read(spoilt.as_bytes());
        let counts = counts.unwrap();
        assert_eq!((counts.events, counts.other_lines, offsets.len()), (5, 2, 5));
    }

    #[test]
    fn events_that_lack_something_are_told() {
        let text = "# tracer: function_graph\n 0)   0.1 us    |  f();\n 0)               |  /* mm_page_free: page=1 pfn=0x2 order=0 */\n";
        let message = |text: &str| read(text.as_bytes()).0.unwrap_err().to_string();
        let without = message(text);
        assert!(without.starts_with("t: byte 49: a function graph without times and"), "{without}");
        let timed = "7.105144 |   1)               |  /* mm_page_free: page=1 pfn=0x2 order=0 */\n";
        let without = message(timed);
        assert!(without.starts_with("t: byte 0: a function graph without tasks: "), "{without}");
    }

    #[test]
    fn damage_is_told_with_its_place() {
        let message = |text: &[u8]| read(text).0.unwrap_err().to_string();
        assert!(message(b"").starts_with("t: byte 0: the text ends without an event"));
        assert!(message(b"# tracer: nop\n").starts_with("t: byte 14: the text ends"));
        assert!(message(b"abc\n\x00\x01").starts_with("t: byte 4: found"));
        let cut = &TEXT[..TEXT.find("pfn=0x10 order").unwrap() + 10];
        let offset = TEXT.find("my task").unwrap();
        assert!(
            message(cut.as_bytes()).starts_with(&format!("t: byte {offset}: found \"my task-8"))
        );
    }
}
