//! The head of a line: who, where, when, and the event's name.
//!
//! ```text
//! ftrace       `  kworker/1:2-71      [001] d..2.  5310.881638: mm_page_free: page=…`
//!              `  load-71   (     71) [001] d..2.  5310.881638: mm_page_free: page=…`
//! trace-cmd    `  load-71    [001]  5310.881638: mm_page_free:         page=…`
//! perf         `load     71 [001]  5310.881638: kmem:mm_page_free: page=…`
//! ```
//!
//! The name of a task may have spaces, dashes and brackets, so a head is found from its CPU: the last
//! `[digits]` behind a task of at most 15 characters that has everything else around it.

use memchr::{memchr, memchr_iter};
use nearpage::CpuId;

/// The longest name of a task. `include/linux/sched.h: TASK_COMM_LEN`, less the end.
const COMM_MOST: usize = 15;
/// A head has its CPU within so many bytes.
const CPU_WITHIN: usize = 96;

/// A line, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head<'a> {
    pub(super) comm: &'a [u8],
    pub(super) pid: u32,
    pub(super) cpu: CpuId,
    pub(super) time_ns: u64,
    /// Without the group that perf puts before it.
    pub(super) name: &'a [u8],
    pub(super) fields: &'a [u8],
}

/// Takes a line apart, or `None` if it is no event.
pub(super) fn parse(line: &[u8]) -> Option<Head<'_>> {
    let near = &line[..line.len().min(CPU_WITHIN)];
    let mut found = None;
    for bracket in memchr_iter(b'[', near) {
        if let Some(head) = parse_at(line, bracket) {
            found = Some(head);
        }
    }
    found
}

fn parse_at(line: &[u8], bracket: usize) -> Option<Head<'_>> {
    let (comm, pid) = task(&line[..bracket])?;
    let (cpu, rest) = number(&line[bracket + 1..])?;
    let rest = rest.strip_prefix(b"]")?;
    let (mut word, mut rest) = word(rest.trim_ascii_start());
    if word.last() != Some(&b':') {
        // The flags of interrupts and preemption.
        (word, rest) = self::word(rest.trim_ascii_start());
    }
    let time_ns = time(word.strip_suffix(b":")?)?;
    let (name, fields) = self::word(rest.trim_ascii_start());
    let name = name.strip_suffix(b":")?;
    let name = memchr::memrchr(b':', name).map_or(name, |group| &name[group + 1..]);
    let cpu = CpuId(u32::try_from(cpu).ok()?);
    (!name.is_empty()).then(|| Head { comm, pid, cpu, time_ns, name, fields: fields.trim_ascii() })
}

/// The name and number of the task before its CPU.
fn task(text: &[u8]) -> Option<(&[u8], u32)> {
    let mut text = text.trim_ascii_end();
    if let Some(group) = text.strip_suffix(b")") {
        // The thread group, or dashes for none.
        let open = memchr::memrchr(b'(', group)?;
        text = text[..open].trim_ascii_end();
    }
    let digits = text.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (before, pid) = text.split_at(text.len() - digits);
    let pid = u32::try_from(number(pid)?.0).ok()?;
    // perf may print process and thread: 71/72.
    let before = match before.strip_suffix(b"/") {
        Some(process) if process.last().is_some_and(u8::is_ascii_digit) => {
            let digits = process.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
            &process[..process.len() - digits]
        }
        _ => before,
    };
    let separator = *before.last()?;
    if separator != b'-' && separator != b' ' {
        return None;
    }
    let comm = before[..before.len() - 1].trim_ascii();
    (!comm.is_empty() && comm.len() <= COMM_MOST).then_some((comm, pid))
}

/// The decimal number that a text begins with, and what follows.
fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 || digits > 18 {
        return None;
    }
    let value = text[..digits].iter().fold(0, |value, digit| value * 10 + u64::from(digit - b'0'));
    Some((value, &text[digits..]))
}

/// The first word of a text, and what follows.
fn word(text: &[u8]) -> (&[u8], &[u8]) {
    text.split_at(memchr(b' ', text).unwrap_or(text.len()))
}

/// The clock of no trace is later: three hundred years. Who adds a while to a time need not look.
const SECONDS_MOST: u64 = 10_000_000_000;

/// Seconds with a fraction, in nanoseconds.
fn time(text: &[u8]) -> Option<u64> {
    let (seconds, rest) = number(text)?;
    if seconds > SECONDS_MOST {
        return None;
    }
    let digits = rest.strip_prefix(b".")?;
    let (fraction, rest) = number(digits)?;
    let places = u32::try_from(digits.len()).ok().filter(|&places| places <= 9)?;
    if !rest.is_empty() {
        return None;
    }
    seconds.checked_mul(1_000_000_000)?.checked_add(fraction * 10_u64.pow(9 - places))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(line: &str) -> Option<(String, u32, u32, u64, String, String)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let head = parse(line.as_bytes())?;
        let (comm, name, fields) = (text(head.comm), text(head.name), text(head.fields));
        Some((comm, head.pid, head.cpu.0, head.time_ns, name, fields))
    }

    fn expected(comm: &str) -> Option<(String, u32, u32, u64, String, String)> {
        let (name, fields) = ("mm_page_free".into(), "page=1 pfn=0x2 order=0".into());
        Some((comm.into(), 71, 3, 5_310_881_638_000, name, fields))
    }

    #[test]
    fn heads_of_three_tools_are_read() {
        for line in [
            "            load-71      [003] d..2.  5310.881638: mm_page_free: page=1 pfn=0x2 order=0",
            "            load-71      (     71) [003] d..2.  5310.881638: mm_page_free: page=1 pfn=0x2 order=0",
            "            load-71      (-------) [003] ....  5310.881638: mm_page_free: page=1 pfn=0x2 order=0",
            "            load-71    [003]  5310.881638: mm_page_free:         page=1 pfn=0x2 order=0",
            "load    71 [003]  5310.881638: kmem:mm_page_free: page=1 pfn=0x2 order=0",
            "load    70/71    [003]  5310.881638000: kmem:mm_page_free: page=1 pfn=0x2 order=0",
        ] {
            assert_eq!(head(line), expected("load"), "{line}");
        }
    }

    #[test]
    fn names_of_tasks_are_arbitrary() {
        for comm in
            ["opt aujeu3rw2wy", "lto cgu.03", "kworker/1:2", "<...>", "a-1 [0] b", "-", "x [1"]
        {
            let rest = "5310.881638: mm_page_free: page=1 pfn=0x2 order=0";
            assert_eq!(head(&format!("{comm:>16}-71      [003] d..2.  {rest}")), expected(comm));
            assert_eq!(head(&format!("{comm:>16} 71 [003]  {rest}")), expected(comm));
        }
    }

    #[test]
    fn what_a_program_writes_is_no_head() {
        let line =
            " sh-1  [000] .....  1.000000: tracing_mark_write: x-2  [001] .....  2.000000: a: b";
        let found = head(line).unwrap();
        assert_eq!((found.1, &*found.4), (1, "tracing_mark_write"));
    }

    #[test]
    fn other_lines_are_none() {
        for line in
            ["", " => try_charge", "cpus=4", "CPU:3 [LOST 12 EVENTS]", "a-1 [0] x y: z", "[000]"]
        {
            assert_eq!(head(line), None, "{line}");
        }
    }
}
