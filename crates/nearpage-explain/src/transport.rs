//! Undoes what programs do to the lines of a log on their way: escapes, markup, encodings of mail.
//!
//! | written by | looks like |
//! |---|---|
//! | docker, journals, APIs | `{"log":"text\n","stream":"stderr"}`, `"MESSAGE" : "text"`, one string with `\n` for each end of a line |
//! | syslog daemons | `#012`, `\x0a`, `\012` for an end of a line within a message |
//! | mail | quoted-printable: `=3D`, `=20`, lines that go on behind `=` |
//! | collectors, tables | `ts=1 level=warn msg="text"`, `7,warn,"text"` |
//! | pages, forums | `&lt;`, `&#39;`, `<br>`, `<span class="k">`, `[COLOR="Red"]` |
//! | markdown | `\*`, `\_`, `\[`, `| cells |` |

use std::borrow::Cow;

use crate::anchor;
use crate::head;
use crate::prefix::{Line, is_dated, uncoloured};

/// Bytes of a text that grows from several lines.
const TEXT_MOST: usize = 64 << 10;

/// Lines of quoted-printable that go on have so many bytes, also without a number in front, and so many characters at most.
const WIDTH_LEAST: usize = 62;
const WIDTH_MOST: usize = 78;

/// Transports of one line that are undone one after the other, the outermost first.
const LAYERS_MOST: usize = 8;

/// What the lines before have told.
#[derive(Debug, Default)]
pub(crate) struct Transport {
    /// Of lines as they came.
    outer: Printable,
    /// Of lines that were within something else.
    inner: Printable,
}

impl Transport {
    /// The lines that were written as this one, without colours.
    pub(crate) fn undo(&mut self, text: &str, mut take: impl FnMut(&str)) {
        if self.outer.is_between(text) {
            return self.undo_inner(text, false, &mut take);
        }
        if let Some(before) = self.outer.release(text) {
            self.undo_inner(&before, false, &mut take);
        }
        if let Some((text, is_joined)) = self.outer.undo(text) {
            self.undo_inner(&text, is_joined, &mut take);
        }
    }

    fn undo_inner(&mut self, text: &str, is_joined: bool, take: &mut impl FnMut(&str)) {
        let mut lines = Vec::new();
        unwrapped(text, LAYERS_MOST, &mut lines);
        let was_changed = is_joined || lines.len() != 1 || lines.iter().any(|line| line != text);
        for line in lines {
            // Behind a tag that ends a line there is nothing.
            if self.inner.is_holding() && line.trim().is_empty() {
                continue;
            }
            // What ends as a line that goes on does was one already, unless something was around it.
            let may_be = was_changed || self.inner.is_holding() || may_be_within(&line);
            if !may_be || self.inner.is_between(&line) {
                take(&line);
                continue;
            }
            if let Some(before) = self.inner.release(&line) {
                take(&before);
            }
            if let Some(line) = self.inner.undo_within(&line, self.outer.is_told) {
                take(&line);
            }
        }
    }

    /// Whether a line of quoted-printable waits for the next.
    pub(crate) fn is_holding(&self) -> bool {
        self.outer.is_holding() || self.inner.is_holding()
    }

    /// What is left of a line of quoted-printable that went on, at the end of the log.
    pub(crate) fn finish(&mut self, mut take: impl FnMut(&str)) {
        for printable in [&mut self.outer, &mut self.inner] {
            let held = std::mem::take(&mut printable.held);
            if !held.is_empty() {
                take(&held);
            }
        }
    }
}

/// Whether a line ends as quoted-printable does where a table or blanks are around it.
fn may_be_within(line: &str) -> bool {
    core(line).ends_with('=') && !line.ends_with('=') || without_end_code(line).is_some()
}

/// A line without the blanks and the mark of a table behind it.
fn core(line: &str) -> &str {
    line.trim_end_matches([' ', '\t', '|'])
}

/// Quoted-printable of mails.
#[derive(Debug, Default)]
struct Printable {
    /// Whether an equals sign was written as `=3D`.
    is_told: bool,
    /// A line that goes on.
    held: String,
    /// How the last line that went on began.
    began: String,
}

impl Printable {
    fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }

    /// The line with those that it goes on from, and whether it had some; `None` if it goes on itself.
    fn undo(&mut self, text: &str) -> Option<(String, bool)> {
        let is_joined = self.is_holding();
        // The blank of a flowed paragraph's line, behind a figure or a line that went on.
        let has_blank = text.ends_with("kB=20") || is_joined && text.ends_with("=20");
        self.is_told |= text.contains("=3D") || has_blank;
        let text = self.joined(text, text, self.is_told)?;
        Some(match self.is_told && text.contains('=') {
            true => (unquoted_printable(&text), is_joined),
            false => (text, is_joined),
        })
    }

    /// The same of a line that was within something, which may be all that is left of a mark or blanks behind it. Codes are
    /// undone once, unless they were written twice.
    fn undo_within(&mut self, text: &str, is_told: bool) -> Option<String> {
        self.is_told |= text.contains("=3D");
        let text = self.joined(text, core(text), self.is_told || is_told)?;
        Some(if self.is_told { unquoted_printable(&text) } else { text })
    }

    /// Whether a line is another program's, between a line that goes on and the next.
    fn is_between(&self, text: &str) -> bool {
        self.is_holding() && is_dated(text) && !is_dated(&self.began)
    }

    /// The line that seemed to go on, if the next begins a message: an equals sign was its last character.
    fn release(&mut self, next: &str) -> Option<String> {
        let rest = || &next[same_prefix(&self.began, next)..];
        let begins = |text: &str| anchor::begins(text) || head::is_like(text);
        let is_new = self.is_holding() && !self.is_told && {
            let line = Line::parse(rest());
            // Wider ones have something in front, as the next has.
            let is_wide = self.began.chars().count() > WIDTH_MOST;
            is_wide && rest().len() == next.len() || line.has_prefix || begins(line.message)
        };
        is_new.then(|| std::mem::take(&mut self.held) + "=")
    }

    fn joined(&mut self, text: &str, core: &str, is_told: bool) -> Option<String> {
        // Some write the end of each line as a code, and then one that goes on.
        let (text, core) = without_end_code(text).map_or((text, core), |line| (line, ""));
        // An equals sign at the end of a row of blocks is one, unless those are written as codes.
        let is_likely = core.len() >= WIDTH_LEAST && !core.ends_with("kB =");
        let goes_on = core.ends_with('=') && (is_told || is_likely);
        // Each line has what was put in front of it, and behind it.
        let from = if self.is_holding() { same_prefix(&self.began, text) } else { 0 };
        if goes_on && self.held.len() < TEXT_MOST {
            if !self.is_holding() {
                self.began = text.chars().take(200).collect();
            }
            self.held.push_str(core[from.min(core.len())..].trim_end_matches('='));
            return None;
        }
        Some(match self.is_holding() {
            true => std::mem::take(&mut self.held) + &text[from..],
            false => text.into(),
        })
    }
}

/// A line without the code of its end, `=0A=` or `=0D=0A=`, if it has one.
fn without_end_code(text: &str) -> Option<&str> {
    let line = core(text).strip_suffix("=0A=")?;
    Some(line.strip_suffix("=0D").unwrap_or(line))
}

/// Bytes with which two lines begin that differ in digits at most, up to a blank or a mark.
fn same_prefix(one: &str, other: &str) -> usize {
    let same =
        |(one, other): &(u8, u8)| one == other || one.is_ascii_digit() && other.is_ascii_digit();
    let length = one.bytes().zip(other.bytes()).take_while(same).count();
    let is_end = |at: &usize| match other.as_bytes()[at - 1] {
        b'+' => *at == 1,
        byte => matches!(byte, b' ' | b'>' | b'|'),
    };
    let length = (1..=length).rev().find(is_end).unwrap_or(0);
    // One blank may be the text's own.
    if length == 1 && other.starts_with(' ') { 0 } else { length }
}

/// The lines that were written as one, through all that was put around them.
fn unwrapped(text: &str, layers: usize, found: &mut Vec<String>) {
    let blanks = nowhere_broken(text);
    let text = blanks.as_ref();
    let inner = || {
        let inner = json(text).or_else(|| field(text)).or_else(|| markup(text));
        inner.or_else(|| escapes(text))
    };
    let inner = (layers > 0).then(inner);
    match inner.flatten().filter(|inner| inner != text) {
        Some(inner) => {
            let inner = uncoloured(&inner).into_owned();
            inner.split('\n').for_each(|line| unwrapped(line, layers - 1, found));
        }
        None => found.push(text.trim_end_matches('\r').into()),
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
fn nowhere_broken(text: &str) -> Cow<'_, str> {
    const BLANKS: [char; 5] = ['\u{a0}', '\u{2007}', '\u{202f}', '\u{feff}', '\u{7f}'];
    match text.contains(BLANKS) {
        true => Cow::Owned(text.replace(BLANKS, " ")),
        false => Cow::Borrowed(text),
    }
}

/// Keys whose values are messages.
const KEYS: [&str; 5] = ["\"log\"", "\"MESSAGE\"", "\"message\"", "\"msg\"", "\"MSG\""];

/// The messages of objects, behind whatever stands before the first, or a string alone, with their escapes undone.
fn json(text: &str) -> Option<String> {
    let inner = text.trim().trim_end_matches(',');
    let entry = inner.strip_prefix("data: ").or_else(|| inner.strip_prefix('\u{1e}'));
    let inner = entry.unwrap_or(inner);
    if inner.starts_with('"') && !inner.starts_with("\"\"") {
        // A string alone, and no key with its value.
        let is_string = inner.len() > 1
            && inner.ends_with('"')
            && !inner[1..].contains("\" : ")
            && !inner[1..].contains("\":");
        let of_key = |key: &&str| {
            let rest = inner.strip_prefix(*key)?.trim_start().strip_prefix(':')?;
            string(rest.trim_start())
        };
        let found = KEYS.iter().find_map(of_key);
        let found = found.or_else(|| string(inner).filter(|_| is_string));
        return found.map(|(found, _)| without_end(found));
    }
    // An object that lacks its end has a message as far as it goes.
    let mut rest = &inner[object(inner)?..];
    let mut found: Vec<String> = Vec::new();
    loop {
        let first = KEYS.iter().filter_map(|key| value(rest, key)).min_by_key(|(at, _)| *at);
        let Some((at, (message, length))) = first else { break };
        found.push(without_end(message));
        rest = &rest[at + length..];
        // The next object of the line.
        match object(rest) {
            Some(next) => rest = &rest[next..],
            None => break,
        }
    }
    (!found.is_empty()).then(|| found.join("\n"))
}

/// Where an object begins in a line: its first key.
fn object(text: &str) -> Option<usize> {
    let is_one = |(at, _): &(usize, &str)| text[at + 1..].trim_start().starts_with('"');
    text.match_indices('{').find(is_one).map(|(at, _)| at)
}

/// Where the value of a key begins, and the string that it is with its length as written.
fn value(text: &str, key: &str) -> Option<(usize, (String, usize))> {
    text.match_indices(key).find_map(|(at, _)| {
        let rest = text[at + key.len()..].trim_start().strip_prefix(':')?.trim_start();
        Some((text.len() - rest.len(), string(rest)?))
    })
}

fn without_end(mut message: String) -> String {
    if message.ends_with('\n') {
        message.pop();
    }
    message
}

/// A string of JSON from its quotation mark on, up to the next or the end, and its bytes as written.
fn string(text: &str) -> Option<(String, usize)> {
    let mut characters = text.strip_prefix('"')?.chars();
    let mut found = String::new();
    while let Some(character) = characters.next() {
        match character {
            '"' => break,
            '\\' => match characters.next().unwrap_or(' ') {
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
    Some((found, text.len() - characters.as_str().len()))
}

/// The last field of a row whose fields have commas between them, or the message of `key=value` pairs.
fn field(text: &str) -> Option<String> {
    const KEYS: [&str; 2] = ["msg=\"", "message=\""];
    let text = core(text);
    if !text.ends_with('"') {
        return None;
    }
    let of_key = |key: &&str| {
        let (head, _) = text.split_once(*key)?;
        let is_key = head.is_empty() || head.ends_with(' ') && head.contains('=');
        let rest = &text[head.len() + key.len() - 1..];
        let (message, length) = string(rest)?;
        (is_key && length == rest.len()).then_some(message)
    };
    last_of_row(text).or_else(|| KEYS.iter().find_map(of_key))
}

/// `7,2026-03-07 01:02:03,"text"`: within a field a quotation mark is written twice.
fn last_of_row(text: &str) -> Option<String> {
    let (head, rest) = text.strip_suffix('"')?.split_once(",\"")?;
    let ends_field = |last: char| last.is_ascii_alphanumeric() || last == '"';
    if !head.contains(',') || !head.ends_with(ends_field) {
        return None;
    }
    let mut last = String::new();
    let mut characters = rest.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' if characters.as_str().starts_with(",\"") => {
                // Behind the end of a field the next begins.
                characters.nth(1);
                last.clear();
            }
            '"' if characters.next() != Some('"') => return None,
            character => last.push(character),
        }
    }
    Some(last)
}

/// A text without tags of HTML and of forums, and with its characters by name as they are.
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
    // Kernels have single letters in such brackets.
    const MARKS: [&str; 6] = ["code", "quote", "color", "size", "font", "url"];
    // The tag with which a text begins, and what is behind it.
    let tag = |text: &'_ str| {
        let (tags, ends, end) = match text.starts_with('<') {
            true => (&TAGS[..], ['>', ' ', '/'], '>'),
            false => (&MARKS[..], [']', '=', ' '], ']'),
        };
        let name = text[1..].trim_start_matches('/');
        let tag = *tags.iter().find(|tag| is_tag(name, tag, ends))?;
        Some((tag, text.find(end)? + 1))
    };
    let mut begins = text.match_indices(['<', '[']);
    if !text.contains('&') && !begins.any(|(at, _)| tag(&text[at..]).is_some()) {
        return None;
    }
    let mut found = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['<', '[']) {
        let (head, tail) = rest.split_at(at);
        found.push_str(head);
        let (tag, length) = tag(tail).unwrap_or(("", 0));
        found.push_str(match tag {
            "" => &tail[..1],
            "br" => "\n",
            _ => "",
        });
        rest = &tail[length.max(1)..];
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

fn is_tag(text: &str, tag: &str, ends: [char; 3]) -> bool {
    let rest = text.get(..tag.len()).filter(|name| name.eq_ignore_ascii_case(tag));
    rest.is_some() && text[tag.len()..].starts_with(ends)
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
        let cases: [(&[&str], &[&str]); 18] = [
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
            (&["[COLOR=\"Red\"]a[/COLOR] b[code]"], &["a b"]),
            (&["[B]=BAD_PAGE, [  444] [pid]"], &["[B]=BAD_PAGE, [  444] [pid]"]),
            (&["ts=1 level=warn msg=\"a \\\"b\\\"\""], &["a \"b\""]),
            (&["7,2026-03-07 01:02:03,\"a \"\"b\"\"\""], &["a \"b\""]),
            (&["a says x=1,\"b\""], &["a says x=1,\"b\""]),
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
