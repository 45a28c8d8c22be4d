//! What stands in front of a message in a log: priorities, times, hosts, callers.
//!
//! | written by | looks like |
//! |---|---|
//! | `dmesg`, a console | `[   12.345678] text`, `[   12.345678][  T123] text`, `<4>[   12.345678] text` |
//! | `dmesg -T`, `--time-format iso` | `[Tue Nov 25 12:56:11 2025] text`, `2025-11-25T12:56:11,345678+00:00 text` |
//! | `dmesg -x`, `-d`, `-e` | `kern  :warn  : [   12.345678] text`, `[   12.345678 <    0.000012>] text`, `[Nov25 12:56] text` and `[  +0.000012] text` |
//! | mail that quotes a log | `> text` |
//! | syslog, `journalctl` | `Jun 13 04:36:30 host kernel: text`, also with a time of the kernel behind it |
//! | `journalctl -o export` | `MESSAGE=text` |
//! | `/dev/kmsg` | `4,339,5140900,-,caller=T123;text` |

use std::borrow::Cow;

/// A line of a log, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Line<'a> {
    /// The time as the log has it: the innermost one, which is the kernel's own if it is there.
    pub(crate) time: Option<&'a str>,
    /// Who printed it, of kernels that say so: a thread (`T123`) or a CPU in an interrupt (`C1`).
    pub(crate) caller: Option<&'a str>,
    /// The message, without blanks at its ends.
    pub(crate) message: &'a str,
    /// Whether there was more in front of it than what a mail puts there to quote.
    pub(crate) has_prefix: bool,
    /// How many mails quote it, each in the next.
    pub(crate) quotes: usize,
}

impl<'a> Line<'a> {
    pub(crate) fn parse(text: &'a str) -> Line<'a> {
        let mut line = Line { message: text.trim(), ..Line::default() };
        // Prefixes nest: a syslog daemon puts its own in front of the kernel's.
        for _ in 0..6 {
            if !line.strip_one() {
                break;
            }
        }
        line
    }

    fn strip_one(&mut self) -> bool {
        let text = self.message;
        let rest = match text.as_bytes().first() {
            Some(b'<') => self.priority(text),
            Some(b'[') => self.bracket(text),
            // Quoted by a mail, a cell of a table.
            Some(mark @ (b'>' | b'|')) if *mark == b'>' || is_cell(text) => {
                let rest = text.trim_start_matches(char::from(*mark));
                self.quotes += if *mark == b'>' { text.len() - rest.len() } else { 0 };
                // A cell has one behind it, too.
                self.message = if *mark == b'|' { rest.trim_end_matches('|') } else { rest }.trim();
                return true;
            }
            // Added by a patch.
            Some(b'+') => {
                self.message = text[1..].trim();
                return true;
            }
            // Docker and Kubernetes: `2026-03-07T01:02:03.5Z stdout F text`.
            Some(b's') if text.starts_with("stdout ") || text.starts_with("stderr ") => {
                let rest = &text["stdout ".len()..];
                rest.strip_prefix("F ")
                    .or_else(|| rest.strip_prefix("P "))
                    .filter(|_| self.time.is_some())
            }
            Some(b'a'..=b'z') => decoded(text),
            Some(b'M') if text.starts_with("MESSAGE=") => Some(&text["MESSAGE=".len()..]),
            Some(b'0'..=b'9') => self.kmsg(text).or_else(|| self.iso(text)),
            _ => None,
        };
        let rest = rest.or_else(|| self.syslog(text));
        if let Some(rest) = rest {
            self.message = rest.trim_start();
            self.has_prefix = true;
        }
        rest.is_some()
    }

    fn priority(&self, text: &'a str) -> Option<&'a str> {
        let (number, rest) = text[1..].split_once('>')?;
        (is_digits(number) && number.len() <= 3).then_some(rest)
    }

    /// A time or a caller. The rows of the table of tasks begin with a number in brackets, without a point.
    fn bracket(&mut self, text: &'a str) -> Option<&'a str> {
        let (inside, rest) = text[1..].split_once(']')?;
        // `dmesg -d` has the time since the line before behind it.
        let since = inside.strip_suffix('>').and_then(|inside| inside.rsplit_once('<'));
        let inside = since.map_or(inside, |(time, _)| time).trim();
        let seconds = inside.strip_prefix('+').unwrap_or(inside);
        let is_seconds = seconds.split_once('.').is_some_and(|(a, b)| is_digits(a) && is_digits(b));
        let is_date = is_long_date(inside);
        if is_seconds || is_date || is_short_date(inside) {
            self.time = Some(inside);
        } else if matches!(inside.as_bytes(), [b'T' | b'C', digits @ ..] if !digits.is_empty() && digits.iter().all(u8::is_ascii_digit))
        {
            self.caller = Some(inside);
        } else {
            return None;
        }
        // `[2026-03-07T01:02:03Z]: text`
        Some(rest.strip_prefix(": ").unwrap_or(rest))
    }

    fn kmsg(&mut self, text: &'a str) -> Option<&'a str> {
        let (head, rest) = text.split_once(';')?;
        let mut fields = head.split(',');
        let numbers = [fields.next()?, fields.next()?, fields.next()?];
        fields.next()?;
        if !numbers.iter().all(|number| is_digits(number)) {
            return None;
        }
        self.time = Some(numbers[2]);
        self.caller = fields.find_map(|field| field.strip_prefix("caller=")).or(self.caller);
        Some(rest)
    }

    fn iso(&mut self, text: &'a str) -> Option<&'a str> {
        let (time, rest) = text.split_once(' ')?;
        let bytes = time.as_bytes();
        let is_time =
            bytes.len() >= 19 && bytes[4] == b'-' && bytes[7] == b'-' && bytes[10] == b'T';
        if !is_time {
            return None;
        }
        self.time = Some(time);
        Some(self.syslog(rest).unwrap_or(rest))
    }

    /// `... kernel: text`, within a distance that a message of a program does not reach by chance.
    fn syslog(&mut self, text: &'a str) -> Option<&'a str> {
        const MARK: &str = "kernel: ";
        let end = (0..=text.len().min(120)).rev().find(|&end| text.is_char_boundary(end))?;
        let at = text[..end].find(MARK)?;
        let head = text[..at].trim_end();
        if at > 0 && !text[..at].ends_with(' ') {
            return None;
        }
        // Date and host: three or four words, the last of which is the host.
        if head.split_whitespace().count() > 5 {
            return None;
        }
        if self.time.is_none() && !head.is_empty() {
            self.time = head.rsplit_once(' ').map(|(time, _host)| time).or(Some(head));
        }
        Some(&text[at + MARK.len()..])
    }
}

/// The messages of a line that lost its line feeds: behind a clock at its beginning each other clock begins one.
pub(crate) fn by_clocks(text: &str) -> Vec<&str> {
    let is_clock = |&(at, _): &(usize, &str)| begins_with_clock(&text[at..]);
    let mut parts = Vec::new();
    let mut from = 0;
    if begins_with_clock(text.trim_start_matches(['>', ' ', '\t'])) {
        for (at, _) in text.match_indices('[').filter(is_clock) {
            // Two clocks may stand in front of one message.
            if !Line::parse(&text[from..at]).message.is_empty() {
                parts.push(&text[from..at]);
                from = at;
            }
        }
    }
    parts.push(&text[from..]);
    parts
}

/// Numbers that a pager, `nl` or `grep -n` puts in front of each line, one after the other.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Numbers {
    /// The last, and what stood behind it.
    last: Option<(u64, char)>,
}

impl Numbers {
    /// What stands behind a number that is the next after the last, or the same, or the first of all.
    pub(crate) fn strip<'a>(&mut self, text: &'a str) -> Option<&'a str> {
        let message = text.trim_start();
        let digits = message.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = message[..digits].parse().ok()?;
        let rest = &message[digits..];
        let mark = rest.chars().next()?;
        let is_padded = mark == ' ' && (text.starts_with("  ") || rest.starts_with("  "));
        if !is_padded && !matches!(mark, ':' | '\t' | ')' | '|') {
            return None;
        }
        let last = self.last.replace((number, mark));
        let is_next = last.is_some_and(|(last, behind)| {
            behind == mark && (number == last || number == last.saturating_add(1))
        });
        // What follows may begin with such a mark itself.
        let rest = &rest[mark.len_utf8()..];
        // The first has none before it: a quote or a clock behind it is enough.
        (is_next || rest.trim_start().starts_with(['>', '['])).then_some(rest)
    }
}

/// `[193038.106478] `, the kernel's own clock.
fn begins_with_clock(text: &str) -> bool {
    // No clock is longer: a line of nothing but brackets is looked at once.
    const BYTES_MOST: usize = 24;
    let end = text.bytes().take(BYTES_MOST).position(|byte| byte == b']');
    let inside = end.filter(|end| text[end + 1..].starts_with(' ')).map(|end| &text[..end]);
    let inside = inside.and_then(|inside| inside.strip_prefix('['));
    let parts = inside.and_then(|inside| inside.trim_start().split_once('.'));
    parts.is_some_and(|(seconds, rest)| is_digits(seconds) && is_digits(rest) && rest.len() == 6)
}

/// Whether a line is a cell of a table: words of flags have such a mark between them, without blanks.
fn is_cell(text: &str) -> bool {
    text.trim_start_matches('|').is_empty() || text.trim_start_matches('|').starts_with([' ', '\t'])
}

/// Whether a line begins as another program's line of a log does: `Mar  7 01:02:03`, `2026-03-07 01:02:03`.
pub(crate) fn is_dated(text: &str) -> bool {
    let has_time = |word: &str| {
        let bytes = word.as_bytes();
        bytes.len() >= 8 && bytes[2] == b':' && bytes[5] == b':' && bytes[0].is_ascii_digit()
    };
    let mut words = text.split_whitespace();
    let (first, second, third) = (words.next(), words.next(), words.next());
    let is_day = second.is_some_and(|day| day.len() <= 2 && is_digits(day));
    let is_month = first.is_some_and(|month| month.chars().count() <= 5);
    let is_iso = first.is_some_and(|date| {
        let bytes = date.as_bytes();
        bytes.len() >= 10 && bytes[4] == b'-' && bytes[7] == b'-' && bytes[0].is_ascii_digit()
    });
    is_iso || is_month && is_day && third.is_some_and(has_time)
}

/// `kern  :warn  : text`, a facility and a level in words.
fn decoded(text: &str) -> Option<&str> {
    const FACILITIES: [&str; 3] = ["kern", "user", "daemon"];
    const LEVELS: [&str; 8] = ["emerg", "alert", "crit", "err", "warn", "notice", "info", "debug"];
    let (facility, rest) = text.split_once(':')?;
    let (level, rest) = rest.split_once(':')?;
    (FACILITIES.contains(&facility.trim_end()) && LEVELS.contains(&level.trim_end()))
        .then_some(rest)
}

/// `Tue Nov 25 12:56:11 2025`, in any language: words, a time of day among them, and a year.
fn is_long_date(text: &str) -> bool {
    let is_time = |word: &str| {
        let mut parts = word.split(':');
        let two = |part: Option<&str>| part.is_some_and(|part| part.len() == 2 && is_digits(part));
        two(parts.next()) && two(parts.next()) && two(parts.next()) && parts.next().is_none()
    };
    let words = || text.split_whitespace();
    (4..=7).contains(&words().count())
        && text.len() <= 64
        && words().any(is_time)
        && words().any(|word| word.len() == 4 && is_digits(word))
}

/// `Nov25 12:56`, with a blank in front of a day of one digit.
fn is_short_date(text: &str) -> bool {
    let is_like = |(byte, like): (u8, u8)| match like {
        b'a' => byte.is_ascii_alphabetic(),
        b'_' => byte.is_ascii_digit() || byte == b' ',
        b'0' => byte.is_ascii_digit(),
        _ => byte == like,
    };
    const LIKE: &[u8] = b"aaa_0 00:00";
    text.len() == LIKE.len() && text.bytes().zip(LIKE.iter().copied()).all(is_like)
}

/// A line without the colours of a terminal and the mark of a file's byte order.
pub(crate) fn uncoloured(text: &str) -> Cow<'_, str> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or_default();
    if first.len() == text.len() {
        return Cow::Borrowed(text);
    }
    let ends = |character: char| matches!(character, '@'..='~');
    let rest = parts.map(|part| part.find(ends).map_or("", |end| &part[end + 1..]));
    Cow::Owned(std::iter::once(first).chain(rest).collect())
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_prefix_is_taken_off() {
        let cases = [
            ("Mem-Info:", None, None),
            ("[   12.345678] Mem-Info:", Some("12.345678"), None),
            ("<4>[   12.345678] Mem-Info:", Some("12.345678"), None),
            ("[   12.345678][  T123] Mem-Info:", Some("12.345678"), Some("T123")),
            ("[   12.345678][   C1] Mem-Info:", Some("12.345678"), Some("C1")),
            ("[Tue Nov 25 12:56:11 2025] Mem-Info:", Some("Tue Nov 25 12:56:11 2025"), None),
            (
                "2025-11-25T12:56:11,345678+00:00 Mem-Info:",
                Some("2025-11-25T12:56:11,345678+00:00"),
                None,
            ),
            ("Jun 13 04:36:30 ip-172 kernel: Mem-Info:", Some("Jun 13 04:36:30"), None),
            ("Jun  3 04:36:30 box kernel: [ 4771.273156] Mem-Info:", Some("4771.273156"), None),
            (
                "2025-11-25T12:56:11.3+00:00 box kernel: Mem-Info:",
                Some("2025-11-25T12:56:11.3+00:00"),
                None,
            ),
            ("kern  :warn  : [   12.345678] Mem-Info:", Some("12.345678"), None),
            ("kern  :warn  : [   12.345678] [   C1] Mem-Info:", Some("12.345678"), Some("C1")),
            ("[   12.345678 <    0.000012>] Mem-Info:", Some("12.345678"), None),
            (
                "[Tue Nov 25 12:56:11 2025 <    0.000012>] Mem-Info:",
                Some("Tue Nov 25 12:56:11 2025"),
                None,
            ),
            ("[Di Aug 12 03:54:03 2025] Mem-Info:", Some("Di Aug 12 03:54:03 2025"), None),
            ("[Вт авг. 12 03:54:03 2025] Mem-Info:", Some("Вт авг. 12 03:54:03 2025"), None),
            ("[Nov25 12:56] Mem-Info:", Some("Nov25 12:56"), None),
            ("[Nov 5 12:56] Mem-Info:", Some("Nov 5 12:56"), None),
            ("[  +0.000012] Mem-Info:", Some("+0.000012"), None),
            ("> > [   12.345678] Mem-Info:", Some("12.345678"), None),
            (">> Mem-Info:", None, None),
            ("kernel: Mem-Info:", None, None),
            ("MESSAGE=Mem-Info:", None, None),
            ("4,339,5140900,-;Mem-Info:", Some("5140900"), None),
            ("4,339,5140900,-,caller=T77;Mem-Info:", Some("5140900"), Some("T77")),
        ];
        for (text, time, caller) in cases {
            let has_prefix = !text.starts_with("Mem") && !text.starts_with(">> ");
            let quotes = text.matches('>').count() * usize::from(text.starts_with('>'));
            let expected = Line { time, caller, message: "Mem-Info:", has_prefix, quotes };
            assert_eq!(Line::parse(text), expected, "{text}");
        }
    }

    #[test]
    fn what_only_looks_like_a_prefix_stays() {
        for text in [
            "[  444]     0   444    30482      118      63        0             0 systemd",
            "[<ffffffff81138d22>] warn_alloc_failed+0xe2/0x150",
            "<IRQ>",
            "[May: 1.5] no",
            "kern: other: no",
            "init: warn: no",
            "12*4kB (UM) = 48kB",
            "one two three four five six kernel: no",
        ] {
            assert_eq!(Line::parse(text).message, text);
        }
    }

    #[test]
    fn clocks_begin_messages_and_numbers_stand_in_front() {
        let parts = |text: &'static str| by_clocks(text);
        assert_eq!(parts("[1.000001] a[1.000002] b"), ["[1.000001] a", "[1.000002] b"]);
        // Two clocks in front of one message, brackets of other kinds, a clock that only is mentioned.
        for one in ["[1.000001] [2.000001] a", "[1.000001] a [444] b [1.5] c", "a [1.000001] b"] {
            assert_eq!(parts(one), [one]);
        }
        let many = "[1.000001] ".to_owned() + &"[".repeat(60_000);
        assert_eq!(by_clocks(&many).len(), 1);
        let mut numbers = Numbers::default();
        let stripped = ["8:a", "9:b", "  9\tc", "10:d", "12:e", "13:> f", "4kB", "7:[1.0] g"];
        let stripped = stripped.map(|text| numbers.strip(text));
        let expected = [None, Some("b"), None, None, None, Some("> f"), None, Some("[1.0] g")];
        assert_eq!(stripped, expected);
    }

    #[test]
    fn colours_are_taken_off() {
        let coloured = "\u{feff}\x1b[32m[   12.345678] \x1b[0m\x1b[1;33mMem-Info:\x1b[0m";
        assert_eq!(uncoloured(coloured), "[   12.345678] Mem-Info:");
        for text in ["Mem-Info:", "\x1b]", ""] {
            assert_eq!(uncoloured(text), text);
        }
        assert_eq!(uncoloured("a\x1b[999"), "a");
    }
}
