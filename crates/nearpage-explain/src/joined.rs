//! Lines that were broken on their way: which go on, and how their parts fit together.
//!
//! A line goes on if its words say so (`present:35` has no unit), or if it has a prefix and the next has none. Terminals cut at a
//! column, in the middle of words; mail breaks between words.

use crate::anchor;
use crate::figure::Figure;
use crate::head;
use crate::rows;

/// Bytes of a line that is put together.
const TEXT_MOST: usize = 64 << 10;

/// A message that may go on in the next line.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) line: u64,
    pub(crate) time: Option<String>,
    pub(crate) caller: Option<String>,
    pub(crate) text: String,
    pub(crate) has_prefix: bool,
    pub(crate) quotes: usize,
    /// Characters of the last line that it came from.
    pub(crate) width: usize,
    /// Whether a blank stood in front of it, or behind it.
    pub(crate) blanks: (bool, bool),
}

impl Message {
    /// Whether a line goes on from this one.
    pub(crate) fn goes_on_in(&self, next: &Message) -> bool {
        if next.has_prefix || next.text.is_empty() || self.text.len() + next.text.len() > TEXT_MOST
        {
            return false;
        }
        let is_head = || head::is_nameless(&next.text) && !completes_a_head(&self.text, &next.text);
        if begins(&next.text) || is_of_markup(&next.text) || is_head() {
            return false;
        }
        if is_list_of_nodes(&self.text, &next.text) {
            return true;
        }
        match is_whole(&self.text) {
            Some(is_whole) => !is_whole && may_follow(&self.text, &next.text),
            None => self.has_prefix || completes_a_head(&self.text, &next.text),
        }
    }

    /// Whether a message is the rest of this first line, some lines below: who answers writes between them.
    pub(crate) fn has_rest(&self, rest: &Message, lines: u64) -> bool {
        let is_rest = rest.text.starts_with("mode:0x") || rest.text.starts_with("gfp_mask=0x");
        is_rest && rest.quotes == self.quotes && rest.line.saturating_sub(self.line) <= lines
    }

    /// The two as one.
    pub(crate) fn with_rest(self, rest: &Message) -> Message {
        Message { text: format!("{} {}", self.text, rest.text), ..self }
    }

    /// Adds a line that goes on from this one. `longest` are the characters of the longest line so far.
    pub(crate) fn add(&mut self, next: &Message, longest: usize) {
        let is_cut = self.width >= longest;
        if self.blanks.1 || next.blanks.0 || !fits_without_blank(&self.text, &next.text, is_cut) {
            self.text.push(' ');
        }
        self.text.push_str(&next.text);
        (self.width, self.blanks.1) = (next.width, next.blanks.1);
    }
}

/// Whether a list of nodes at the end of a first line goes on.
fn is_list_of_nodes(text: &str, next: &str) -> bool {
    let is_of_list =
        |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'-' | b','));
    let list = text.rsplit_once("mems_allowed=").map(|(_, list)| list);
    let is_broken =
        |list: &str| list.is_empty() || list.ends_with(['-', ',']) || next.starts_with(['-', ',']);
    is_of_list(next) && list.is_some_and(|list| is_of_list(list) && is_broken(list))
}

/// Whether a message is the first, or a line of its own, of a report.
fn begins(message: &str) -> bool {
    let is_task = message.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let is_task = is_task.is_some_and(|(inside, _)| inside.trim().parse::<u32>().is_ok());
    // `anon 104857600` of a group, and `name cpuset=/ mems_allowed=0`.
    let mut words = message.split_whitespace();
    let is_counter = matches!(
        (words.next(), words.next(), words.next()),
        (Some(name), Some(count), None)
            if name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
                && count.bytes().all(|byte| byte.is_ascii_digit())
    );
    let is_cpuset = message.contains(" cpuset=") && message.contains(" mems_allowed=");
    // Those of the machine begin with a counter, too, in pages.
    let first = message.split_whitespace().next().unwrap_or_default();
    let is_part_of_zone = first.starts_with("active_anon:") && first.contains("kB");
    (anchor::begins(message) && !is_part_of_zone)
        || head::is_like(message)
        || is_task
        || is_counter
        || is_cpuset
        || message.contains("+0x")
}

/// Whether a line is what a journal writes around messages: `}`, `"PRIORITY" : "4"`, `_HOSTNAME=box`.
fn is_of_markup(text: &str) -> bool {
    let is_field = |(name, _): (&str, &str)| {
        name.len() > 2 && name.bytes().all(|byte| matches!(byte, b'A'..=b'Z' | b'0'..=b'9' | b'_'))
    };
    text.starts_with(['{', '}', '"']) || text.split_once('=').is_some_and(is_field)
}

/// Whether the two make a first line of a report that neither of them is.
fn completes_a_head(text: &str, next: &str) -> bool {
    let is_head = |text: &str| head::is_like(text);
    // The words of one may be in a line that is none, such as the subject of a mail.
    !is_head(text)
        && !head::has_form(next)
        && (is_head(&format!("{text}{next}")) || is_head(&format!("{text} {next}")))
}

/// Whether a message of a report has its end; `None` of others.
fn is_whole(text: &str) -> Option<bool> {
    let has_end = |end: &str| text.contains(end);
    let is_yes_or_no = || text.ends_with("? yes") || text.ends_with("? no");
    let last = || text.split_whitespace().next_back().unwrap_or_default();
    let is_digit = |text: &str| text.ends_with(|character: char| character.is_ascii_digit());
    if text.starts_with("SLUB: Unable") {
        return Some(
            text.contains("gfp=") && text.matches('(').count() == text.matches(')').count(),
        );
    }
    if head::is_like(text) {
        let is_open = text.matches('(').count() > text.matches(')').count();
        let is_old = !text.contains('(') && (text.contains("mode:0x") || text.contains("order="));
        return Some(match text.contains("oom-killer") {
            true => !is_open && text.contains("oom_score_adj="),
            false => {
                !is_open
                    && (is_old
                        || has_end("mems_allowed=")
                        || has_end("failed: ")
                        || has_end(") failed"))
            }
        });
    }
    if let Some(row) = rows::zone(text) {
        return Some(is_yes_or_no() || row.free_cma.is_exact() && last().ends_with("kB"));
    }
    if let Some(row) = rows::blocks(text) {
        return Some(row.ends.is_some_and(Figure::is_exact));
    }
    if rows::is_zone(text)
        || rows::is_node(text)
        || text.starts_with("Node ") && !text.contains(':')
    {
        return Some(false);
    }
    if text.starts_with("Node ") && text.contains("hugepages_") {
        return Some(has_end("hugepages_size=") && last().ends_with("kB"));
    }
    if rows::node(text).is_some() {
        return Some(has_end("all_unreclaimable? yes") || has_end("all_unreclaimable? no"));
    }
    if text.starts_with("lowmem_reserve[]:") || anchor::begins(text) && text.contains("_anon:") {
        return Some(false);
    }
    if text.starts_with("oom-kill:") {
        return Some(text.rsplit_once(",uid=").is_some_and(|(_, uid)| is_digit(uid)));
    }
    if text.starts_with("Tasks in /") {
        return Some(text.ends_with("oom.group set"));
    }
    if text.starts_with("Task in /") {
        return Some(text.contains(" limit of /"));
    }
    if text.starts_with("Memory cgroup stats for ") {
        return Some(match text.contains("KB") {
            true => text.contains(" unevictable:") && text.ends_with("KB"),
            false => text.ends_with(':'),
        });
    }
    if text.contains("Kill process ") {
        return Some(text.ends_with("sacrifice child"));
    }
    if text.contains("illed process") {
        let is_old = text.ends_with(").");
        return Some(is_old || text.contains("oom_score_adj:") || last().ends_with("kB"));
    }
    if text.starts_with("CPU: ") || text.starts_with("Pid: ") {
        return Some(text.contains(" #"));
    }
    if text.starts_with("[  pid  ]") || text.starts_with("[ pid ]") {
        return Some(text.ends_with(" name"));
    }
    if text.starts_with("Free swap") || text.starts_with("Total swap") {
        return Some(text.ends_with("kB"));
    }
    if text.contains(": usage ") {
        return Some(text.contains("failcnt ") && is_digit(text));
    }
    anchor::begins(text).then_some(!anchor::is_of_counters(text))
}

/// Whether a text may be the rest of a message of a report.
fn may_follow(text: &str, next: &str) -> bool {
    let is_numbers = rows::numbers(next).is_some_and(|numbers| !numbers.is_empty());
    !text.starts_with("lowmem_reserve[]:") || is_numbers
}

/// Whether two parts belong together without a blank between them.
fn fits_without_blank(text: &str, next: &str, is_cut: bool) -> bool {
    if is_list_of_nodes(text, next) {
        return true;
    }
    // What makes a first line of two that are none.
    if completes_a_head(text, next) {
        let without = head::is_like(&format!("{text}{next}"));
        if without != head::is_like(&format!("{text} {next}")) {
            return without;
        }
    }
    let last = text.split_whitespace().next_back().unwrap_or_default();
    let first = next.split_whitespace().next().unwrap_or_default();
    // The words of flags stand right behind their number.
    if ["mode:0x", "gfp_mask=0x", "gfp=0x"].iter().any(|key| last.starts_with(key))
        && (first.starts_with("(GFP_") || first.starts_with("(__GFP_"))
    {
        return true;
    }
    // What makes the name of a field of two words that are none.
    const FIELDS: [&str; 7] =
        ["mode:0x", "gfp_mask=", "gfp=0x", "order:", "order=", "nodemask=", "mems_allowed="];
    let has_field = |word: &str| FIELDS.iter().any(|field| word.contains(field));
    if head::is_like(text)
        && !has_field(last)
        && !has_field(first)
        && has_field(&format!("{last}{first}"))
    {
        return true;
    }
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_figure = |word: &str| {
        let word = word.trim_end_matches(',');
        let value = word.rsplit_once([':', '*', '=']).map_or(word, |(_, value)| value);
        value.strip_suffix("kB").or_else(|| value.strip_suffix("KB")).is_some_and(digits)
    };
    let is_types = |word: &str| word.starts_with('(') && word.ends_with(')');
    let is_before_a_word = ["CPU:", "UID:", "PID:", "Comm:", "failed:"].contains(&last);
    if first.starts_with('#')
        || is_before_a_word
        || is_figure(last)
        || is_types(last)
        || matches!(last, "=" | "Node" | "free swap" | "swap")
    {
        return false;
    }
    if text.ends_with(',') && next.starts_with(|c: char| c.is_ascii_lowercase() || c == '_') {
        return !text.contains(", ");
    }
    const WORDS: [&str; 12] = [
        "allocate",
        "allocation",
        "exceeds",
        "failed",
        "on",
        "order",
        "page",
        "pages",
        "process",
        "to",
        "total",
        "vm_struct",
    ];
    if WORDS.contains(&last) && WORDS.contains(&first.trim_end_matches(',')) {
        return false;
    }
    // Of figures with a unit a part is left: of the figure, or of its name.
    let is_row = text.contains("kB") || rows::is_zone(text);
    let lacks_unit = last.contains(':') && !last.ends_with(':') && is_row;
    let is_name = |byte: u8| byte.is_ascii_lowercase() || matches!(byte, b'_' | b'(' | b')');
    if is_row && last.bytes().all(is_name) && first.contains(':') {
        return true;
    }
    let is_unit = matches!(first, "B" | "kB" | "KB") || first.starts_with("kB ");
    let is_of_zone = matches!(last, "DM") || last == "DMA" && first.starts_with("32");
    let is_count = digits(last) && first.contains('*');
    let is_size = last.contains('*') && !last.ends_with("kB");
    let is_sum = digits(last) && text.trim_end_matches(last).trim_end().ends_with('=');
    let is_counter = last.contains(':') && digits(first) && !last.ends_with(':');
    if lacks_unit || is_unit || is_of_zone || is_count || is_size || is_sum || is_counter {
        return true;
    }
    if digits(last) && first.contains(':') || last == "Node" {
        return false;
    }
    is_cut
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str, has_prefix: bool) -> Message {
        Message {
            line: 1,
            time: None,
            caller: None,
            text: text.into(),
            has_prefix,
            quotes: 0,
            width: text.len(),
            blanks: (text.starts_with(' '), text.ends_with(' ')),
        }
    }

    /// Every place of every row.
    #[test]
    fn rows_that_were_cut_fit_together() {
        for row in [
            "Node 0 DMA32 free:15872kB min:340kB low:424kB high:508kB active_anon:8kB present:15992kB managed:15908kB free_cma:4kB",
            "Node 0 DMA32: 12*4kB (UM) 0*8kB 2*16kB (H) = 80kB",
            "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-1,task=java,pid=7,uid=0",
            "a invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL|__GFP_COMP), order=2, oom_score_adj=0",
        ] {
            for at in 20..row.len() {
                let (head, tail) = row.split_at(at);
                let mut next = message(tail, false);
                next.text = tail.trim().into();
                let mut first = message(head, true);
                first.text = head.trim().into();
                if is_whole(&first.text) == Some(true) {
                    continue;
                }
                assert!(first.goes_on_in(&next), "{head}|{tail}");
                first.add(&next, head.len());
                assert_eq!(first.text.replace(' ', ""), row.replace(' ', ""));
                if row.contains(" free:") {
                    assert_eq!(rows::zone(&first.text), rows::zone(row), "{head}|{tail}");
                } else if row.contains('*') {
                    let of = |text: &str| rows::blocks(text).map(|row| row.blocks);
                    assert_eq!(of(&first.text), of(row), "{head}|{tail}");
                }
            }
        }
    }
}
