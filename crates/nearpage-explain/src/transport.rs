//! Undoes what programs do to the lines of a log on their way: escapes, markup, encodings of mail.
//!
//! | written by | looks like |
//! |---|---|
//! | docker, journals, APIs | `{"log":"text\n","stream":"stderr"}`, `"MESSAGE" : "text"`, one string with `\n` for each end of a line |
//! | syslog daemons | `#012`, `\x0a`, `\012` for an end of a line within a message |
//! | mail | quoted-printable: `=3D`, `=20`, lines that go on behind `=` |
//! | pages | `&lt;`, `&#39;`, `<br>`, `<span class="k">` |
//! | markdown | `\*`, `\_`, `\[`, `| cells |` |

use std::borrow::Cow;

/// Bytes of a text that grows from several lines.
const TEXT_MOST: usize = 64 << 10;

/// What the lines before have told.
#[derive(Debug, Default)]
pub(crate) struct Transport {
    /// Whether an equals sign was written as `=3D`.
    is_quoted_printable: bool,
    /// A line of quoted-printable that goes on.
    held: String,
}

impl Transport {
    /// The lines that were written as this one, without colours.
    pub(crate) fn undo(&mut self, text: &str, mut take: impl FnMut(&str)) {
        let text = match self.printable(text) {
            Some(text) => text,
            None => return,
        };
        let text = nowhere_broken(&text);
        let text = json(&text).map_or(text, Cow::Owned);
        let text = markup(&text).map_or(text, Cow::Owned);
        let text = escapes(&text).map_or(text, Cow::Owned);
        text.split('\n').for_each(|line| take(line.trim_end_matches('\r')));
    }

    /// Whether a line of quoted-printable waits for the next.
    pub(crate) fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }

    /// What is left of a line of quoted-printable that went on, at the end of the log.
    pub(crate) fn finish(&mut self, mut take: impl FnMut(&str)) {
        let held = std::mem::take(&mut self.held);
        if !held.is_empty() {
            take(&held);
        }
    }

    /// The line with those that it goes on from; `None` if it goes on itself.
    fn printable<'a>(&mut self, text: &'a str) -> Option<Cow<'a, str>> {
        const WIDTH: std::ops::RangeInclusive<usize> = 70..=78;
        self.is_quoted_printable |= text.contains("=3D");
        // An equals sign at the end of a row of blocks is one, unless those are written as codes.
        let is_likely = WIDTH.contains(&text.len()) && !text.ends_with("kB =");
        let goes_on = text.ends_with('=') && (self.is_quoted_printable || is_likely);
        if goes_on && self.held.len() < TEXT_MOST {
            self.held.push_str(&text[..text.len() - 1]);
            return None;
        }
        let text = match self.held.is_empty() {
            true => Cow::Borrowed(text),
            false => Cow::Owned(std::mem::take(&mut self.held) + text),
        };
        Some(match self.is_quoted_printable && text.contains('=') {
            true => Cow::Owned(unquoted_printable(&text)),
            false => text,
        })
    }
}

/// `=3D` and its like; what is no such code stays.
fn unquoted_printable(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let code = tail.get(..2).filter(|_| byte == b'=').and_then(|code| {
            let is_code = code.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'A'..=b'F'));
            u8::from_str_radix(std::str::from_utf8(code).ok().filter(|_| is_code)?, 16).ok()
        });
        bytes.push(code.unwrap_or(byte));
        rest = if code.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Blanks that keep words together are blanks, and what some programs of mail write for them.
fn nowhere_broken<'a>(text: &Cow<'a, str>) -> Cow<'a, str> {
    const BLANKS: [char; 5] = ['\u{a0}', '\u{2007}', '\u{202f}', '\u{feff}', '\u{7f}'];
    match text.contains(BLANKS) {
        true => Cow::Owned(text.replace(BLANKS, " ")),
        false => text.clone(),
    }
}

/// The message of an object, or a string alone, with its escapes undone.
fn json(text: &str) -> Option<String> {
    const KEYS: [&str; 5] = ["\"log\"", "\"MESSAGE\"", "\"message\"", "\"msg\"", "\"MSG\""];
    let inner = text.trim().trim_end_matches(',');
    let entry = inner.strip_prefix("data: ").or_else(|| inner.strip_prefix('\u{1e}'));
    let inner = entry.unwrap_or(inner);
    if !inner.starts_with(['{', '"']) {
        return None;
    }
    let of_key = |key: &&str| {
        let (_, rest) = inner.split_once(*key)?;
        string(rest.trim_start().strip_prefix(':')?.trim_start())
    };
    // A string alone, and no key with its value.
    let is_string = inner.len() > 1
        && inner.ends_with('"')
        && !inner[1..].contains("\" : ")
        && !inner[1..].contains("\":");
    let found = KEYS.iter().find_map(of_key);
    let mut found = found.or_else(|| string(inner).filter(|_| is_string))?;
    if found.ends_with('\n') {
        found.pop();
    }
    Some(found)
}

/// A string of JSON from its quotation mark on, up to the next or the end.
fn string(text: &str) -> Option<String> {
    let mut characters = text.strip_prefix('"')?.chars();
    let mut found = String::new();
    while let Some(character) = characters.next() {
        match character {
            '"' => break,
            '\\' => match characters.next()? {
                'n' => found.push('\n'),
                't' => found.push(' '),
                'r' | 'b' | 'f' => {}
                'u' => {
                    let code: String = characters.by_ref().take(4).collect();
                    let code = u32::from_str_radix(&code, 16).ok().and_then(char::from_u32);
                    found.push(code.unwrap_or(char::REPLACEMENT_CHARACTER));
                }
                other => found.push(other),
            },
            other => found.push(other),
        }
    }
    Some(found)
}

/// A text without tags of HTML and with its characters by name as they are.
fn markup(text: &str) -> Option<String> {
    const NAMED: [(&str, &str); 7] = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&#39;", "'"),
        ("&#42;", "*"),
        ("&nbsp;", " "),
        ("&amp;", "&"),
    ];
    const TAGS: [&str; 19] = [
        "br",
        "p",
        "pre",
        "code",
        "span",
        "div",
        "tt",
        "td",
        "tr",
        "li",
        "a",
        "b",
        "i",
        "em",
        "strong",
        "font",
        "blockquote",
        "samp",
        "table",
    ];
    let has_tag = |text: &str| {
        text.match_indices('<').any(|(at, _)| {
            let rest = text[at + 1..].trim_start_matches('/');
            TAGS.iter().any(|tag| is_tag(rest, tag))
        })
    };
    if !text.contains('&') && !(text.contains('<') && has_tag(text)) {
        return None;
    }
    let mut found = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        found.push_str(&rest[..at]);
        let tail = &rest[at..];
        let name = tail[1..].trim_start_matches('/');
        let tag = TAGS.iter().find(|tag| is_tag(name, tag));
        match tag.and(tail.find('>')) {
            Some(end) => {
                found.push_str(if tag == Some(&"br") { "\n" } else { "" });
                rest = &tail[end + 1..];
            }
            None => {
                found.push('<');
                rest = &tail[1..];
            }
        }
    }
    found.push_str(rest);
    // The ampersand last: it may be one of an escape that was escaped.
    for (name, character) in NAMED {
        if found.contains(name) {
            found = found.replace(name, character);
        }
    }
    Some(found)
}

fn is_tag(text: &str, tag: &str) -> bool {
    let rest = text.get(..tag.len()).filter(|name| name.eq_ignore_ascii_case(tag));
    rest.is_some() && text[tag.len()..].starts_with(['>', ' ', '/'])
}

/// A text with ends of lines where their codes were, and without the backslashes of markdown.
fn escapes(text: &str) -> Option<String> {
    const CODES: [(&str, &str); 12] = [
        ("#015", ""),
        ("#012", "\n"),
        ("#011", " "),
        ("\\x0d", ""),
        ("\\x0a", "\n"),
        ("\\x0A", "\n"),
        ("\\x09", " "),
        ("\\012", "\n"),
        ("\\011", " "),
        ("\\r\\n", "\n"),
        ("\\n", "\n"),
        ("\\t", " "),
    ];
    if !text.contains(['\\', '#']) {
        return None;
    }
    let mut found = Cow::Borrowed(text);
    for (code, character) in CODES {
        if found.contains(code) {
            found = Cow::Owned(found.replace(code, character));
        }
    }
    const MARKS: [char; 14] =
        ['*', '_', '[', ']', '(', ')', '<', '>', '#', '-', '.', '|', '"', '/'];
    if found.contains('\\') {
        for mark in MARKS {
            found = Cow::Owned(found.replace(&format!("\\{mark}"), &mark.to_string()));
        }
    }
    Some(found.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn undone(lines: &[&str]) -> Vec<String> {
        let mut transport = Transport::default();
        let mut found = Vec::new();
        lines.iter().for_each(|line| transport.undo(line, |line| found.push(line.into())));
        transport.finish(|line| found.push(line.into()));
        found
    }

    #[test]
    fn what_was_written_comes_back() {
        let cases: [(&[&str], &[&str]); 13] = [
            (&["Mem-Info:"], &["Mem-Info:"]),
            (&["a:1#012 b:2#012 c"], &["a:1", " b:2", " c"]),
            (&["a:1\\x0a b:2"], &["a:1", " b:2"]),
            (&["{\"log\":\"a \\\"b\\\"\\n\",\"stream\":\"stderr\"}"], &["a \"b\""]),
            (&["\t\"MESSAGE\" : \"a\\u003cb\","], &["a<b"]),
            (&["\"one\\ntwo\""], &["one", "two"]),
            (
                &["gfp_mask=3D0x1, order=3D0, a long l=", "ine"],
                &["gfp_mask=0x1, order=0, a long line"],
            ),
            (&["x&lt;y&gt; &#39;z&#39;"], &["x<y> 'z'"]),
            (&["<span class=\"k\">a</span><br/>b"], &["a", "b"]),
            (&["<IRQ> <4>[1.0] a <TASK>"], &["<IRQ> <4>[1.0] a <TASK>"]),
            (&["1\\*4kB \\_\\_GFP"], &["1*4kB __GFP"]),
            (&["0*4096kB = 12kB", "order=0"], &["0*4096kB = 12kB", "order=0"]),
            (&["a\u{a0}b"], &["a b"]),
        ];
        for (lines, expected) in cases {
            // An ampersand that was escaped is one of the text.
            let expected: Vec<&str> = expected.to_vec();
            assert_eq!(undone(lines), expected, "{lines:?}");
        }
    }
}
