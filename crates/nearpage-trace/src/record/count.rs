//! Counts the events of a trace while it is read.

use std::collections::BTreeMap;
use std::io::{self, Read};

use memchr::{memchr, memchr_iter};
use serde::Serialize;

/// What a trace holds; the names are those of `meta.json`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub(super) struct TraceSize {
    /// Events by name.
    pub event_counts: BTreeMap<String, u64>,
    /// All of them.
    pub event_lines: u64,
    /// Lines that say that events were lost.
    pub lost_lines: u64,
    /// Bytes of text.
    pub trace_bytes: u64,
}

/// A reader that counts what passes through it.
pub(super) struct Counted<R> {
    source: R,
    pub size: TraceSize,
    /// The beginning of a line whose end has not been read.
    begun: Vec<u8>,
}

impl<R: Read> Counted<R> {
    pub(super) fn new(source: R) -> Counted<R> {
        Counted { source, size: TraceSize::default(), begun: Vec::new() }
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.source.read(buffer)?;
        self.size.trace_bytes += got as u64;
        // Any user may give a task such a name, and with it what shows the trace an order.
        let is_control =
            |byte: &u8| *byte < b' ' && !matches!(byte, b'\n' | b'\t') || *byte == 0x7f;
        buffer[..got].iter_mut().filter(|byte| is_control(byte)).for_each(|byte| *byte = b'?');
        let mut text = &buffer[..got];
        while let Some(end) = memchr(b'\n', text) {
            if self.begun.is_empty() {
                self.size.count(&text[..end]);
            } else {
                self.begun.extend_from_slice(&text[..end]);
                self.size.count(&self.begun);
                self.begun.clear();
            }
            text = &text[end + 1..];
        }
        self.begun.extend_from_slice(text);
        Ok(got)
    }
}

impl TraceSize {
    fn count(&mut self, line: &[u8]) {
        if line.first() == Some(&b'#') {
            return;
        }
        let Some(name) = event_name(line) else {
            self.lost_lines += u64::from(line.windows(6).any(|word| word == b"[LOST "));
            return;
        };
        self.event_lines += 1;
        match self.event_counts.get_mut(name) {
            Some(count) => *count += 1,
            None => _ = self.event_counts.insert(name.into(), 1),
        }
    }
}

/// The name in `comm-pid [cpu] flags seconds: NAME: fields`; a comm may hold anything, but hardly that.
fn event_name(line: &[u8]) -> Option<&str> {
    let is_name = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_');
    memchr_iter(b':', line).find_map(|colon| {
        let before = line[..colon].last().filter(|byte| byte.is_ascii_digit());
        let rest = line[colon + 1..].strip_prefix(b" ")?;
        let length = rest.iter().position(|byte| !is_name(byte))?;
        // An event of which nothing but the name is kept ends with it.
        let ends = rest[length..].starts_with(b": ") || rest[length..] == *b":";
        let is_event = before.is_some() && length > 0 && ends;
        is_event.then(|| std::str::from_utf8(&rest[..length]).ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# tracer: nop\n\
        \x20kworker/1:2-7   [001] .....  1.000001: tracing_mark_write: nearpage: before begin\n\
        CPU:3 [LOST 12 EVENTS]\n\
        \x20a b-7   [001] .....  1.000002: mm_page_free: page=1 pfn=0x1 order=0\n\
        \x20a b-7   [001] .....  1.000003: mm_page_free: page=1 pfn=0x1 order=0\n\
        \x20a b-7   [001] .....  1.000004: sched_process_exit:\n";

    #[test]
    fn names_with_control_characters_are_repaired() {
        let mut text = String::new();
        Counted::new(&b"\x1b[31mX\x1bc-7 [001] 1.0: a: b\tc\r\x7f\n"[..])
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!(text, "?[31mX?c-7 [001] 1.0: a: b\tc??\n");
    }

    #[test]
    fn events_are_counted_in_any_pieces() {
        struct Pieces<'a>(&'a [u8], usize);
        impl Read for Pieces<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let most = self.1.min(buffer.len());
                self.0.read(&mut buffer[..most])
            }
        }
        for piece in [1, 7, 50, 4096] {
            let mut counted = Counted::new(Pieces(TEXT.as_bytes(), piece));
            io::copy(&mut counted, &mut io::sink()).unwrap();
            let events =
                [("mm_page_free", 2), ("sched_process_exit", 1), ("tracing_mark_write", 1)]
                    .map(|(name, count)| (name.to_owned(), count));
            let (event_counts, trace_bytes) = (events.into(), TEXT.len() as u64);
            let expected = TraceSize { event_counts, event_lines: 4, lost_lines: 1, trace_bytes };
            assert_eq!(counted.size, expected);
        }
    }
}
