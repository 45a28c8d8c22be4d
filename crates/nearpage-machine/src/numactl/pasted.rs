//! What a paste puts around the text of `numactl --hardware`: quotes, prompts, other commands and their output, broken lines, and
//! the text of the same machine once more.

use std::borrow::Cow;

use super::{is_heading, is_line};

/// A line of numactl's text.
#[derive(Debug)]
pub(super) struct PastedLine {
    /// Its number in the paste, from 1.
    pub(super) number: usize,
    /// As it came, with those that it goes on in.
    pub(super) raw: String,
}

impl PastedLine {
    pub(super) fn text(&self) -> &str {
        unquoted(&self.raw)
    }
}

/// The texts of a paste: each begins with `available:`, or with the first line that numactl writes.
pub(super) fn texts(paste: &str) -> Vec<Vec<PastedLine>> {
    let mut texts: Vec<Vec<PastedLine>> = Vec::new();
    // Lines that may be within a text, or behind it.
    let mut others: Vec<PastedLine> = Vec::new();
    let mut may_go_on = false;
    for (number, raw) in lines(paste) {
        let line = unquoted(raw);
        let pasted = PastedLine { number, raw: raw.into() };
        if is_line(line) {
            let begins = texts.is_empty() || line.starts_with("available:");
            if begins {
                texts.push(Vec::new());
                others.clear();
            }
            let text = texts.last_mut().expect("one begins with the first line");
            text.append(&mut others);
            text.push(pasted);
            may_go_on = true;
            continue;
        }
        if let Some(last) = texts.last_mut().and_then(|text| text.last_mut())
            && may_go_on
            && last.raw.len() <= JOINED_BYTES_MOST
            && goes_on(last.text(), line)
        {
            join(&mut last.raw, raw);
            continue;
        }
        may_go_on = false;
        if !is_noise(line) && !texts.is_empty() {
            others.push(pasted);
        }
    }
    texts
}

/// The text of a mail whose lines end with `=` where they go on, and have `=20` for a blank: numactl writes no `=`. Lines keep their
/// numbers.
pub(super) fn unquoted_printable(paste: &str) -> Cow<'_, str> {
    let ends = |line: &str| line.ends_with('=') || line.ends_with("=20") || line.contains("=0A");
    if !paste.lines().any(|line| is_heading(unquoted(line)) && ends(line)) {
        return Cow::Borrowed(paste);
    }
    let (mut text, mut joined) = (String::with_capacity(paste.len()), 0);
    for line in paste.lines() {
        let line = line.replace("=20", " ").replace("=09", "\t").replace("=3D", "=");
        match line.strip_suffix("=0A=").or(line.strip_suffix("=0A")) {
            Some(line) => text.push_str(line),
            None if line.ends_with('=') => {
                text.push_str(&line[..line.len() - 1]);
                joined += 1;
                continue;
            }
            None => text.push_str(&line),
        }
        text.extend(std::iter::repeat_n('\n', 1 + joined));
        joined = 0;
    }
    Cow::Owned(text)
}

/// A line that was broken goes on up to here: a list of 8192 CPUs has less. Each part that is added costs what is looked at.
const JOINED_BYTES_MOST: usize = 64 << 10;

/// The lines of a paste with their numbers, without what a page puts around them. Where all are comments of a document or a program
/// they are without its mark.
pub(super) fn lines(paste: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = || {
        let parts = |(index, line)| untagged(line).map(move |part| (index + 1, part));
        paste.lines().enumerate().flat_map(parts)
    };
    let is_plain = lines().any(|(_, line)| is_heading(unquoted(line)));
    lines().map(move |(number, line)| match is_plain {
        true => (number, line),
        false => (number, line.trim_start().trim_start_matches('#')),
    })
}

/// What was written between tags: `<td>available: 1 nodes (0)<br>node 0 cpus: 0</td>`.
fn untagged(line: &str) -> impl Iterator<Item = &str> {
    line.split("<br").enumerate().map(|(at, part)| {
        // The rest of the tag.
        let rest = part.split_once('>').filter(|_| at > 0);
        let part = rest.map_or(part, |(_, text)| text);
        let part = part.split("</").next().unwrap_or(part);
        let is_tag = part.trim_start().starts_with('<');
        part.split_once('>').filter(|_| is_tag).map_or(part, |(_, text)| text)
    })
}

/// A line without the marks of mails and tables in front of it and behind it.
pub(super) fn unquoted(raw: &str) -> &str {
    raw.trim_start_matches(['>', '|', ' ', '\t']).trim_end_matches([' ', '\t', '|', '\r'])
}

/// Lines of a pasted session that do not describe the machine.
fn is_noise(line: &str) -> bool {
    line.is_empty()
        || line.starts_with(['#', '$'])
        || line.starts_with("libnuma:")
        || line.starts_with("Command:")
        || line.contains("numactl ")
        || line.ends_with(['$', '#', '%'])
}

/// Whether a line of numbers alone goes on from one of numbers: a list of CPUs, ids of nodes, or distances.
fn goes_on(last: &str, line: &str) -> bool {
    let has_numbers = match last.split_once(':') {
        Some((heading, _)) => heading.ends_with(" cpus") || is_number(heading.trim()),
        None => last.starts_with("node "),
    };
    let is_list = |character: char| character.is_ascii_digit() || " \t,-()".contains(character);
    has_numbers && line.starts_with(|c: char| c.is_ascii_digit()) && line.chars().all(is_list)
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// Adds a part to a line. A terminal breaks lines within numbers, mail between them.
fn join(whole: &mut String, rest: &str) {
    let first = whole.trim_end_matches(['\r', '|']);
    let inner = rest.trim_start_matches(['>', '|']);
    let is_between = first.ends_with(' ') || rest.starts_with(' ') || inner.starts_with("  ");
    let rest = unquoted(rest);
    let is_whole = is_between || are_two_numbers(unquoted(first), rest);
    whole.truncate(first.len());
    whole.push_str(if is_whole { " " } else { "" });
    whole.push_str(rest);
}

/// Whether the last number of a text and the first of its rest are two. Lists ascend; distances have two digits or three.
fn are_two_numbers(first: &str, rest: &str) -> bool {
    let (heading, values) = first.split_once(':').unwrap_or(("", first));
    let is_no_digit = |c: char| !c.is_ascii_digit();
    let number = |word: &str| (!word.is_empty()).then(|| word.parse().unwrap_or(u64::MAX));
    // Two on each side tell: lines are long, and are broken often.
    let mut before = values.rsplit(is_no_digit).filter_map(number);
    let mut after = rest.split(is_no_digit).filter_map(number);
    let (Some(last), Some(next)) = (before.next(), after.next()) else { return true };
    if is_number(heading.trim()) {
        return last >= 10 && next >= 10;
    }
    if next <= last {
        return false;
    }
    let Some(previous) = before.next() else { return true };
    if last <= previous {
        return false;
    }
    // Both ascend: the step of the list decides.
    let whole = format!("{last}{next}").parse().unwrap_or(u64::MAX);
    let step = |from: u64, to: u64| to.saturating_sub(from);
    let goes_on = after.next().unwrap_or(whole);
    !(step(previous, whole) == 1 && step(whole, goes_on) <= 1 && step(last, next) != 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_lists_fit_together() {
        let whole: String = (0..128).map(|cpu| format!(" {cpu}")).collect();
        let whole = format!("node 0 cpus:{whole}");
        for width in 20..120 {
            let characters: Vec<char> = whole.chars().collect();
            let lines: Vec<String> =
                characters.chunks(width).map(|part| part.iter().collect()).collect();
            let texts = texts(&lines.join("\n"));
            let words = |text: &str| text.split_whitespace().map(String::from).collect::<Vec<_>>();
            assert_eq!(words(texts[0][0].text()), words(&whole), "{width}");
            let quoted: Vec<String> =
                lines.iter().map(|line| format!("> {}", line.trim())).collect();
            let texts = super::texts(&quoted.join("\n"));
            assert_eq!(words(texts[0][0].text()), words(&whole), "{width} in a mail");
        }
    }

    #[test]
    fn pages_and_comments_are_read() {
        let plain = "available: 1 nodes (0)\nnode 0 cpus: 0 1\nnode 0 size: <not available>";
        let words = |paste: &str| -> Vec<String> {
            texts(paste).iter().flatten().map(|line| line.text().to_owned()).collect()
        };
        let page = format!("<td w=\"6\">{}</td>", plain.replace('\n', "<br>"));
        let comments = format!("# numactl -H:\n# {}\n", plain.replace('\n', "\n# "));
        for paste in [page, plain.replace('\n', "<br/>\n"), comments] {
            assert_eq!(words(&paste), words(plain), "{paste}");
        }
        // A comment of a text is none of its lines.
        assert_eq!(words(&format!("# node 0 is slow\n{plain}")), words(plain));
    }

    #[test]
    fn mails_in_quoted_printable_are_read() {
        let text = unquoted_printable(
            "available: 1 nodes (0)=0A=\nnode 0 cpus: 0 1 2=\n 3=0A=\nnode 0 size: 64 MB=20\n",
        );
        let lines: Vec<(usize, &str)> = lines(&text).filter(|(_, line)| !line.is_empty()).collect();
        let expected = [
            (1, "available: 1 nodes (0)"),
            (2, "node 0 cpus: 0 1 2 3"),
            (4, "node 0 size: 64 MB "),
        ];
        assert_eq!(lines, expected);
        let plain = "available: 1 nodes (0)\nkey=20\n";
        assert!(matches!(unquoted_printable(plain), Cow::Borrowed(_)));
    }

    #[test]
    fn distances_fit_together() {
        for (first, rest) in
            [("  0:  10  2", "1 31"), ("  0:  10  21", "31"), ("  0:  10  25", "5 31")]
        {
            let mut words = first.to_owned();
            join(&mut words, rest);
            let last = words.split_whitespace().next_back();
            assert_eq!((last, words.matches("25 5").count()), (Some("31"), 0), "{words}");
        }
    }
}
