//! What stands in front of a message in a log: priorities, times, hosts, callers.
//!
//! | written by | looks like |
//! |---|---|
//! | `dmesg`, a console | `[   12.345678] text`, `[   12.345678][  T123] text`, `<4>[   12.345678] text` |
//! | `dmesg -T`, `--time-format iso` | `[Tue Nov 25 12:56:11 2025] text`, `2025-11-25T12:56:11,345678+00:00 text` |
//! | syslog, `journalctl` | `Jun 13 04:36:30 host kernel: text`, also with a time of the kernel behind it |
//! | `journalctl -o export` | `MESSAGE=text` |
//! | `/dev/kmsg` | `4,339,5140900,-,caller=T123;text` |

/// A line of a log, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Line<'a> {
    /// The time as the log has it: the innermost one, which is the kernel's own if it is there.
    pub(crate) time: Option<&'a str>,
    /// Who printed it, of kernels that say so: a thread (`T123`) or a CPU in an interrupt (`C1`).
    pub(crate) caller: Option<&'a str>,
    /// The message, without blanks at its ends.
    pub(crate) message: &'a str,
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
            Some(b'M') if text.starts_with("MESSAGE=") => Some(&text["MESSAGE=".len()..]),
            Some(b'0'..=b'9') => self.kmsg(text).or_else(|| self.iso(text)),
            _ => None,
        };
        let rest = rest.or_else(|| self.syslog(text));
        if let Some(rest) = rest {
            self.message = rest.trim_start();
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
        let inside = inside.trim();
        let is_seconds = inside.split_once('.').is_some_and(|(a, b)| is_digits(a) && is_digits(b));
        let is_date = inside.len() > 18
            && inside.is_ascii()
            && inside[3..].starts_with(' ')
            && inside.contains(':');
        if is_seconds || is_date {
            self.time = Some(inside);
        } else if matches!(inside.as_bytes(), [b'T' | b'C', digits @ ..] if !digits.is_empty() && digits.iter().all(u8::is_ascii_digit))
        {
            self.caller = Some(inside);
        } else {
            return None;
        }
        Some(rest)
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
            ("kernel: Mem-Info:", None, None),
            ("MESSAGE=Mem-Info:", None, None),
            ("4,339,5140900,-;Mem-Info:", Some("5140900"), None),
            ("4,339,5140900,-,caller=T77;Mem-Info:", Some("5140900"), Some("T77")),
        ];
        for (text, time, caller) in cases {
            let expected = Line { time, caller, message: "Mem-Info:" };
            assert_eq!(Line::parse(text), expected, "{text}");
        }
    }

    #[test]
    fn what_only_looks_like_a_prefix_stays() {
        for text in [
            "[  444]     0   444    30482      118      63        0             0 systemd",
            "[<ffffffff81138d22>] warn_alloc_failed+0xe2/0x150",
            "<IRQ>",
            "12*4kB (UM) = 48kB",
            "one two three four five six kernel: no",
        ] {
            assert_eq!(Line::parse(text).message, text);
        }
    }
}
