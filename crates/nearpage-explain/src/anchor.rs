//! Where messages of reports begin within a line: what stands before is a prefix, or another message.

/// How messages of reports begin, but for names of zones and numbers.
const BEGINS: [&str; 35] = [
    "Mem-Info:",
    "Mem-info:",
    "lowmem_reserve[]:",
    "oom-kill:constraint=",
    "Out of memory: ",
    "Out of memory and no killable",
    "Kernel panic - not syncing: ",
    "Memory cgroup out of memory: ",
    "Killed process ",
    "memory: usage ",
    "memory+swap: usage ",
    "swap: usage ",
    "kmem: usage ",
    "Memory cgroup stats for ",
    "Task in /",
    "Tasks in /",
    "Free swap ",
    "Total swap ",
    "Swap cache stats:",
    "Tasks state (",
    "[  pid  ]",
    "[ pid ]",
    "SLUB: Unable to allocate",
    "cache: ",
    "Hardware name:",
    "Call Trace:",
    "Call trace:",
    "Unreclaimable slab info:",
    "Modules linked in:",
    "Workqueue:",
    "CPU: ",
    "Pid: ",
    "Node ",
    "<TASK>",
    "</TASK>",
];

/// Counters of the machine, of which lines begin with some.
const COUNTERS: [&str; 10] = [
    "Active:",
    "Active_anon:",
    "active_anon:",
    "active_file:",
    "unevictable:",
    "slab_reclaimable:",
    "slab:",
    "mapped:",
    "sec_pagetables:",
    "kernel_misc_reclaimable:",
];

/// Ends of messages that begin with a number.
const ENDS: [&str; 9] = [
    " pages RAM",
    " pages HighMem/MovableOnly",
    " pages reserved",
    " pages cma reserved",
    " pages hwpoisoned",
    " total pagecache pages",
    " pages in swap cache",
    " pages of RAM",
    " reserved pages",
];

/// Whether a message begins as one of a report does.
pub(crate) fn begins(message: &str) -> bool {
    let mut all = BEGINS.iter().chain(&COUNTERS);
    begins_at(message, all.find(|begin| message.starts_with(**begin)).copied())
        || begins_with_zone(message)
        || begins_with_count(message)
        || message.starts_with("node ") && message.contains(": slabs: ")
        || message.starts_with("free:")
            && !has_unit(&message["free:".len()..])
            && ["free_pcp:", "slab_reclaimable:", " slab:"].iter().any(|key| message.contains(key))
}

/// Whether a message has counters of the machine.
pub(crate) fn is_of_counters(message: &str) -> bool {
    // Linux 3.7 to 4.1 have pages of CMA on a line of their own; a mail breaks old kernels' before the last.
    let is_alone = |name: &str| message.strip_prefix(name).is_some_and(|rest| !has_unit(rest));
    message.starts_with("free:")
        || ["free_cma:", "pagetables:"].into_iter().any(is_alone)
        || COUNTERS.iter().any(|begin| message.starts_with(begin))
}

/// `1310590 pages RAM`.
fn begins_with_count(message: &str) -> bool {
    let rest = message.trim_start_matches(|character: char| character.is_ascii_digit());
    rest.len() < message.len() && ENDS.iter().any(|end| rest.starts_with(end))
}

/// Whether what is found there is more than a word of another message.
fn begins_at(rest: &str, begin: Option<&str>) -> bool {
    let Some(begin) = begin else { return false };
    let digit = |text: &str| text.starts_with(|character: char| character.is_ascii_digit());
    let after = &rest[begin.len()..];
    match begin {
        "CPU: " => digit(after) && (after.contains(" PID: ") || after.contains("Comm: ")),
        "Pid: " => digit(after) && after.contains("comm: "),
        "Node " => {
            let rest = after.trim_start_matches(|character: char| character.is_ascii_digit());
            let rest = rest.trim_start_matches([',', ' ']);
            rest.len() < after.len()
                && (begins_with_zone(rest)
                    || rest.is_empty()
                    || rest.starts_with("active_anon:")
                    || rest.starts_with("hugepages_total="))
        }
        // Programs have such words, too.
        "Active:" | "Active_anon:" => digit(after),
        // Nodes and zones have counters of the same names, in kB.
        _ if COUNTERS.contains(&begin) => !has_unit(after),
        _ => true,
    }
}

/// Whether a figure is that of a node or a zone, and not of the machine, in pages.
fn has_unit(after: &str) -> bool {
    after.split(' ').next().unwrap_or(after).ends_with("kB")
}

/// `Normal free:`, `DMA: 1*4kB`.
fn begins_with_zone(text: &str) -> bool {
    crate::rows::ZONES.iter().any(|zone| {
        let rest = text.strip_prefix(zone);
        rest.is_some_and(|rest| {
            rest.starts_with(" free:")
                || rest.strip_prefix(':').is_some_and(|rest| {
                    rest.is_empty()
                        || rest.starts_with(' ')
                            && rest.trim_start().starts_with(|c: char| c.is_ascii_digit())
                })
        })
    })
}

/// Where messages begin within a line that has several, in order.
pub(crate) fn positions(line: &str) -> impl Iterator<Item = usize> + '_ {
    let bytes = line.as_bytes();
    (0..line.len()).filter(move |&at| {
        let is_edge = at == 0 || matches!(bytes[at - 1], b' ' | b':' | b']' | b'>' | b'\t' | b'|');
        // `Node 0 Normal` is one message, not two.
        is_edge
            && line.is_char_boundary(at)
            && begins(&line[at..])
            && !(begins_with_zone(&line[at..]) && is_behind_node(&line[..at]))
            && !(is_of_counters(&line[at..]) && is_behind_unit(&line[..at]))
    })
}

/// Whether a row of figures in kB goes on: a counter of the machine at its end is one of its own that was cut.
fn is_behind_unit(head: &str) -> bool {
    let head = head.trim_end();
    head.ends_with("kB") || head.ends_with("KB")
}

fn is_behind_node(head: &str) -> bool {
    let head = head.trim_end().trim_end_matches(',');
    let node = head.trim_end_matches(|character: char| character.is_ascii_digit());
    node.len() < head.len() && node.ends_with("Node ")
}

/// The shape of a prefix: digits, letters and others in a row, as many as there are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Shape(Vec<Run>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Run {
    Digits,
    Letters,
    Blanks,
    Other(u8),
}

impl Shape {
    pub(crate) fn of(prefix: &str) -> Shape {
        let mut runs: Vec<Run> = Vec::new();
        for byte in prefix.bytes() {
            let run = Run::of(byte);
            if matches!(run, Run::Other(_)) || runs.last() != Some(&run) {
                runs.push(run);
            }
        }
        Shape(runs)
    }

    /// The rest of a line that has such a prefix. Runs of digits and letters may change places: hashes have both.
    pub(crate) fn strip<'a>(&self, line: &'a str) -> Option<&'a str> {
        let bytes = line.as_bytes();
        let mut at = 0;
        for run in &self.0 {
            let from = at;
            match run {
                Run::Other(byte) => at += usize::from(bytes.get(at) == Some(byte)),
                Run::Blanks => at += count(&bytes[at..], |byte| byte == b' ' || byte == b'\t'),
                Run::Digits => at += count(&bytes[at..], |byte| byte.is_ascii_digit()),
                Run::Letters => at += count(&bytes[at..], |byte| byte.is_ascii_alphabetic()),
            }
            if at == from {
                return None;
            }
        }
        line.get(at..)
    }

    /// A message without the prefix of the next, which was put behind it in one line.
    pub(crate) fn cut_from_end<'a>(&self, message: &'a str) -> &'a str {
        let from = message.len().saturating_sub(160);
        let is_own = |at: &usize| {
            message.is_char_boundary(*at)
                && self.strip(&message[*at..]).is_some_and(|rest| rest.trim().is_empty())
        };
        let is_any = !self.0.is_empty();
        (from..message.len()).find(|at| is_any && is_own(at)).map_or(message, |at| &message[..at])
    }

    /// Whether it is enough of one to tell lines by.
    pub(crate) fn is_telling(&self) -> bool {
        self.0.len() > 2 && self.0.contains(&Run::Digits)
    }
}

impl Run {
    fn of(byte: u8) -> Run {
        match byte {
            b'0'..=b'9' => Run::Digits,
            b' ' | b'\t' => Run::Blanks,
            byte if byte.is_ascii_alphabetic() => Run::Letters,
            byte => Run::Other(byte),
        }
    }
}

fn count(bytes: &[u8], is: impl Fn(u8) -> bool) -> usize {
    bytes.iter().take_while(|byte| is(**byte)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_found_behind_any_prefix() {
        for prefix in [
            "",
            "10.0.0.7: kern: warning: [2026-03-07T01:02:03.5Z]: ",
            "03-07 01:02:03.123   0   0 W : ",
        ] {
            for message in [
                "Mem-Info:",
                "Node 0 Normal free:8kB min:4kB active_anon:4kB present:16kB",
                "Node 0 Normal: 3*4kB (U) = 12kB",
                "Normal free:8kB min:4kB present:16kB",
                "CPU: 1 PID: 7 Comm: a Not tainted 6.1.0 #1",
                "1024 pages RAM",
            ] {
                let line = format!("{prefix}{message}");
                assert_eq!(positions(&line).next(), Some(prefix.len()), "{line}");
                let shape = Shape::of(prefix);
                assert_eq!(shape.strip(&line), Some(message));
            }
        }
        let row = "12: Node 0 DMA free:8kB min:4kB active_anon:4kB slab_reclaimable:4kB free_pcp:0kB free_cma:0kB";
        assert_eq!(positions(row).collect::<Vec<_>>(), [4], "a zone's counters begin nothing");
        assert_eq!(positions("usb 1-1: new device on Node controller").next(), None);
    }

    #[test]
    fn several_messages_in_a_line() {
        let line = "Mem-Info: active_anon:1 free:2 Node 0 active_anon:4kB unevictable:0kB Node 0 Normal free:8kB active_anon:4kB present:16kB lowmem_reserve[]: 0 0 Node 0 Normal: 2*4kB = 8kB 12 pages RAM";
        let messages: Vec<usize> = positions(line).collect();
        let found: Vec<&str> =
            messages.iter().map(|at| &line[*at..(*at + 8).min(line.len())]).collect();
        assert_eq!(
            found,
            ["Mem-Info", "active_a", "Node 0 a", "Node 0 N", "lowmem_r", "Node 0 N", "12 pages"]
        );
    }
}
