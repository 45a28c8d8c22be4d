//! The head of a line: who, where, when, and the event's name.
//!
//! ```text
//! ftrace       `  kworker/1:2-71      [001] d..2.  5310.881638: mm_page_free: page=…`
//!              `  load-71   (     71) [001] d..2.  5310.881638: mm_page_free: page=…`
//! trace-cmd    `  load-71    [001]  5310.881638: mm_page_free:         page=…`
//! perf         `load     71 [001]  5310.881638: kmem:mm_page_free: page=…`
//! latency      `    load-71        1d..2. 5310881us : mm_page_free: page=…`
//! graph        ` 5310.881638 |   1)   load-71   |   |  /* mm_page_free: page=… */`
//! ```
//!
//! A mail that quotes them puts `> ` before each. perf script without the field `comm` has no name: the task is `<...>` then, as
//! where a kernel had forgotten it.
//!
//! The name of a task may have spaces, dashes and brackets, so a head is found from its CPU: the last
//! `[digits]` behind a task of at most 15 characters that has everything else around it.

use memchr::{memchr, memchr_iter};
use nearpage::CpuId;

use super::event::Sampling;

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
    /// Whether such a group was there: then perf script printed it.
    pub(super) has_group: bool,
    pub(super) fields: &'a [u8],
}

/// What stands before the release of the kernel in a heading, as `perf script --header` prints it.
pub(super) const RELEASE_HEADING: &[u8] = b"# os release : ";

/// What an event's heading says of how many of it were recorded, as `perf script --header` prints it: `# event : name = kmem:mm_page_free,
/// , id = { 7 }, type = 2 (PERF_TYPE_TRACEPOINT), { sample_period, sample_freq } = 99, ..., freq = 1, ...`.
pub(super) fn sampling(heading: &[u8]) -> Option<Sampling> {
    let fields = heading.strip_prefix(EVENT_HEADING)?;
    let at = memchr::memmem::find(fields, PERIOD)?;
    let (count, _) = number(&fields[at + PERIOD.len()..])?;
    let is_of_pages = memchr::memmem::find(fields, b"mm_page_").is_some();
    let is_frequency = memchr::memmem::find(fields, b", freq = 1").is_some();
    // Where a sample tells its period, a kernel records every event of a tracepoint, whatever the period.
    let is_each = memchr::memmem::find(fields, b"|PERIOD").is_some();
    match (is_of_pages, is_frequency, count) {
        (true, true, _) => Some(Sampling::PerSecond(count)),
        (true, false, 2..) if !is_each => Some(Sampling::OneOf(count)),
        _ => None,
    }
}

/// The same heading.
pub(super) fn sampling_heading(name: &str, sampling: Sampling) -> String {
    let (count, frequency) = match sampling {
        Sampling::OneOf(period) => (period, ""),
        Sampling::PerSecond(count) => (count, ", freq = 1"),
    };
    let [begin, period] = [EVENT_HEADING, PERIOD].map(String::from_utf8_lossy);
    format!("{begin}{name}, {period}{count}{frequency}\n")
}

const EVENT_HEADING: &[u8] = b"# event : name = ";
const PERIOD: &[u8] = b"{ sample_period, sample_freq } = ";

/// The name of a task that a kernel had forgotten, or a tool does not tell.
pub(super) const FORGOTTEN: &[u8] = b"<...>";

/// Takes a line apart, or `None` if it is no event.
pub(super) fn parse(line: &[u8]) -> Option<Head<'_>> {
    let line = unquoted(line);
    let near = &line[..line.len().min(CPU_WITHIN)];
    let mut found = None;
    for bracket in memchr_iter(b'[', near) {
        if let Some(head) = parse_at(line, bracket) {
            found = Some(head);
        }
    }
    found.or_else(|| graph(line)).or_else(|| latency(line))
}

/// A line without what a mail puts before what it quotes.
pub(super) fn unquoted(line: &[u8]) -> &[u8] {
    let mut rest = line;
    while let Some(quoted) = rest.strip_prefix(b">") {
        rest = quoted.strip_prefix(b" ").unwrap_or(quoted);
    }
    rest
}

/// A comment of the function graph, with options funcgraph-abstime and funcgraph-proc.
fn graph(line: &[u8]) -> Option<Head<'_>> {
    let comment = memchr::memmem::find(line, b"/* ")?;
    let text = line[comment + 3..].trim_ascii_end().strip_suffix(b"*/")?;
    let mut columns = line[..comment].splitn(3, |byte| *byte == b'|');
    let time_ns = time(columns.next()?.trim_ascii())?;
    let (cpu, rest) = number(columns.next()?.trim_ascii_start())?;
    let (comm, pid) = task(rest.strip_prefix(b")")?)?;
    let (name, fields) = word(text);
    let (name, fields) = (name.strip_suffix(b":")?, fields.trim_ascii());
    let cpu = CpuId(u32::try_from(cpu).ok()?);
    Some(Head { comm, pid, cpu, time_ns, name, has_group: false, fields })
}

/// A line of ftrace's option latency-format. Its times are microseconds since the trace began.
fn latency(line: &[u8]) -> Option<Head<'_>> {
    let near = &line[..line.len().min(CPU_WITHIN)];
    let end = memchr::memmem::find(near, b"us")?;
    // What follows marks long pauses.
    let rest = line[end + 2..]
        .strip_prefix(b" ")
        .or_else(|| line[end + 2..].split_first().map(|of| of.1))?;
    let rest = rest.strip_prefix(b": ")?;
    let digits = line[..end].iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (time, nothing) = number(&line[end - digits..end])?;
    let before = line[..end - digits].trim_ascii_end();
    let place = memchr::memrchr(b' ', before)? + 1;
    let (cpu, flags) = number(&before[place..])?;
    let (comm, pid) = task(&before[..place])?;
    let (name, fields) = word(rest);
    let is_head = nothing.is_empty() && !flags.is_empty() && time <= SECONDS_MOST * 1_000_000;
    let (name, fields) = (name.strip_suffix(b":")?, fields.trim_ascii());
    let cpu = CpuId(u32::try_from(cpu).ok()?);
    let time_ns = time.checked_mul(1000)?;
    is_head.then_some(Head { comm, pid, cpu, time_ns, name, has_group: false, fields })
}

/// Why a line of an event cannot be read, if it looks like one: what it lacks, and what would give it.
pub(super) fn why_unreadable(line: &[u8]) -> Option<&'static str> {
    let line = unquoted(line);
    if is_raw(line) {
        return Some("trace option raw, hex or bin, which print no fields of events: turn it off");
    }
    let has = |text: &[u8]| memchr::memmem::find(line, text).is_some();
    if !has(b"mm_page_") {
        return None;
    }
    if has(b"/* mm_page_") {
        let first = line.split(|byte| *byte == b'|').next().unwrap_or_default();
        return Some(match time(first.trim_ascii()) {
            Some(_) => "a function graph without tasks: trace option funcgraph-proc prints them",
            None => {
                "a function graph without times and tasks: trace options funcgraph-abstime and funcgraph-proc print them"
            }
        });
    }
    if line.trim_ascii_start().starts_with(b"mm_page_") {
        return Some("events without CPU and time: trace option context-info prints them");
    }
    if has(b"kmem:mm_page_alloc(") || has(b"kmem:mm_page_free(") || has(b"kmem:mm_page_pcpu_drain(")
    {
        return Some("the text of perf trace, which tells no CPUs: perf record and perf script do");
    }
    let is_ticks = |word: &[u8]| {
        let digits = word.strip_suffix(b":").unwrap_or_default();
        !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
    };
    if has(b"] ") && line.split(|byte| *byte == b' ').any(is_ticks) {
        return Some(
            "times without a unit, of the clock counter, uptime or x86-tsc, which count events, ticks and cycles: trace_clock local, global, \
             mono or boot has seconds",
        );
    }
    names_event(line).then_some(
        "heads of events that lack the task's number, the CPU or the time: perf script has them with -F comm,tid,cpu,time,event,trace",
    )
}

/// Whether a line names an event of pages, as ftrace and perf script do.
pub(super) fn names_event(line: &[u8]) -> bool {
    let has = |text: &[u8]| memchr::memmem::find(line, text).is_some();
    has(b"mm_page_") && (has(b": mm_page_") || has(b"kmem:mm_page_"))
}

/// `24175 0 83320206135731 type: 653`, and the same in hexadecimal.
fn is_raw(line: &[u8]) -> bool {
    let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).rev();
    let is_kind = words.next().is_some_and(|word| word.iter().all(u8::is_ascii_digit));
    is_kind
        && words.next() == Some(b"type:")
        && words.all(|word| word.iter().all(u8::is_ascii_hexdigit))
}

/// Why a clock of ftrace has no times in nanoseconds, if so.
pub(super) fn why_no_time(clock: &str) -> Option<&'static str> {
    match clock {
        "counter" => Some("it counts events"),
        "uptime" => Some("it counts ticks, in which many events fall"),
        "x86-tsc" => Some("it counts cycles, and nothing tells how long one is"),
        _ => None,
    }
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
    let (mut name, mut fields) = self::word(rest.trim_ascii_start());
    if name.iter().all(u8::is_ascii_digit) {
        // perf script's field period.
        (name, fields) = self::word(fields.trim_ascii_start());
    }
    let name = name.strip_suffix(b":")?;
    let group = memchr::memrchr(b':', name);
    let name = group.map_or(name, |group| &name[group + 1..]);
    let cpu = CpuId(u32::try_from(cpu).ok()?);
    let (has_group, fields) = (group.is_some(), fields.trim_ascii());
    (!name.is_empty()).then_some(Head { comm, pid, cpu, time_ns, name, has_group, fields })
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
    if before.trim_ascii().is_empty() {
        return Some((FORGOTTEN, pid));
    }
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
pub(super) const SECONDS_MOST: u64 = 10_000_000_000;

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

    #[test]
    fn headings_tell_what_was_not_recorded() {
        let heading = |name: &str, period: &str, more: &str| {
            let text = format!(
                "# event : name = {name}, , id = {{ 7, 8 }}, type = 2 (PERF_TYPE_TRACEPOINT), size = 136, {{ sample_period, sample_freq }} \
                 = {period}, sample_type = IP|TID|TIME, disabled = 1{more}, sample_id_all = 1"
            );
            sampling(text.as_bytes())
        };
        assert_eq!(heading("kmem:mm_page_free", "1", ""), None);
        assert_eq!(heading("kmem:mm_page_free", "7", ""), Some(Sampling::OneOf(7)));
        let frequency = heading("kmem:mm_page_alloc", "99", ", freq = 1");
        assert_eq!(frequency, Some(Sampling::PerSecond(99)));
        assert_eq!(heading("kmem:mm_page_free", "7", ", sample_type = IP|TID|PERIOD"), None);
        assert_eq!(heading("sched:sched_switch", "99", ", freq = 1"), None);
        for told in [Sampling::OneOf(7), Sampling::PerSecond(99)] {
            let heading = sampling_heading("mm_page_free", told);
            assert_eq!(sampling(heading.trim_end().as_bytes()), Some(told));
        }
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
            "load    71 [003]  5310.881638:          1 kmem:mm_page_free: page=1 pfn=0x2 order=0",
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
    fn other_forms_are_read() {
        let event = "mm_page_free: page=1 pfn=0x2 order=0";
        for (line, comm, time_ns) in [
            (
                format!("    load-71        3d..2. 5310881638us : {event}"),
                "load",
                5_310_881_638_000,
            ),
            (
                format!("    load-71        3d..2. 5310881638us!: {event}"),
                "load",
                5_310_881_638_000,
            ),
            (
                format!(" 5310.881638 |   3)   load-71    |               |  /* {event} */"),
                "load",
                5_310_881_638_000,
            ),
            (
                format!(" 5310.881638 |   3)   load-71    |  d..1. |  0.1 us |      /* {event} */"),
                "load",
                5_310_881_638_000,
            ),
            (
                format!("> >        load-71      [003] d..2.  5310.881638: {event}"),
                "load",
                5_310_881_638_000,
            ),
            (format!("     71 [003]  5310.881638: kmem:{event}"), "<...>", 5_310_881_638_000),
        ] {
            let found = head(&line);
            let expected = expected(comm).map(|mut of| {
                of.3 = time_ns;
                of
            });
            assert_eq!(found, expected, "{line}");
        }
    }

    #[test]
    fn what_an_event_lacks_is_told() {
        for (line, lacks) in [
            (
                " 0)               |  /* mm_page_free: page=1 pfn=0x2 order=0 */",
                "funcgraph-abstime",
            ),
            ("mm_page_free: page=1 pfn=0x2 order=0", "context-info"),
            ("   0.012 load/71 kmem:mm_page_free(pfn: 2, order: 0)", "perf trace"),
            ("load 71  5310.881638: kmem:mm_page_free: page=1 pfn=0x2 order=0", "-F comm,tid,cpu"),
            ("load 71 [003] kmem:mm_page_free: page=1 pfn=0x2 order=0", "-F comm,tid,cpu"),
            (
                "   load-71   [003] d..2.  5310881638: mm_page_free: page=1 pfn=0x2 order=0",
                "without a unit",
            ),
            ("24175 0 83320206135731 type: 653", "option raw"),
            (
                "    bash-24175   [000] .....  8331893: mm_page_free: page=1 pfn=0x2 order=0",
                "uptime",
            ),
            ("load [003] 5310.881638: mm_page_free: page=1 pfn=0x2 order=0", "lack"),
        ] {
            assert_eq!(head(line), None, "{line}");
            let why = why_unreadable(line.as_bytes()).unwrap_or_default();
            assert!(why.contains(lacks), "{line}: {why}");
        }
        assert_eq!(why_unreadable(b" => get_page_from_freelist"), None);
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
