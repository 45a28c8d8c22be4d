//! The text that babeltrace prints of LTTng's traces, as lines of ftrace.
//!
//! ```text
//! [12:00:01.000000123] (+0.000000010) host kmem_mm_page_free: { cpu_id = 3 }, { procname = "cc1", tid = 71 }, { page = 0x0, pfn = 2, order = 0 }
//! ```
//!
//! Times are those of the day, or seconds in all. Without the contexts `procname` and `tid` (or `vtid`, `pid`, `vpid`) the task is
//! not told.

use std::io::Write;

use super::head::FORGOTTEN;

/// Writes a line as ftrace would; false if it is none of LTTng's events of the page allocator.
pub(super) fn rewrite(line: &[u8], out: &mut Vec<u8>) -> bool {
    out.clear();
    std::str::from_utf8(line).ok().and_then(|line| parts(line, out)).is_some()
}

fn parts(line: &str, out: &mut Vec<u8>) -> Option<()> {
    let (time, rest) = line.strip_prefix('[')?.split_once(']')?;
    let time_ns = nanoseconds(time)?;
    let (head, fields) = rest.split_once(": {")?;
    let name = head.rsplit(' ').next()?.strip_prefix("kmem_")?;
    let value = |keys: &[&str]| {
        let mut all = keys.iter().filter_map(|key| {
            let (_, value) = fields.split_once(&format!(" {key} = "))?;
            Some(value.split([',', ' ']).next().unwrap_or_default())
        });
        all.next()
    };
    let cpu: u32 = value(&["cpu_id"])?.parse().ok()?;
    let pid: u32 =
        value(&["tid", "vtid", "pid", "vpid"]).and_then(|id| id.parse().ok()).unwrap_or(0);
    let quoted = fields.split_once(" procname = \"").and_then(|(_, name)| name.split_once('"'));
    let comm = quoted.map_or(FORGOTTEN, |(name, _)| name.as_bytes());
    let comm = comm.iter().take(15).map(|byte| if byte.is_ascii_control() { b'?' } else { *byte });
    out.extend(comm);
    let (seconds, rest) = (time_ns / 1_000_000_000, time_ns % 1_000_000_000);
    write!(out, "-{pid} [{cpu:03}] ..... {seconds}.{rest:09}: {name}:").ok()?;
    let payload = fields.rsplit_once("{ ")?.1;
    for field in payload.trim_end_matches([' ', '}']).split(", ") {
        let (key, value) = field.split_once(" = ")?;
        // An enumeration is `( "NAME" : container = 2 )`.
        let value = value
            .rsplit(' ')
            .find(|word| word.as_bytes().first().is_some_and(u8::is_ascii_digit))?;
        match value.parse::<u64>() {
            Ok(number) if key == "gfp_flags" => write!(out, " {key}={number:#x}").ok()?,
            _ => write!(out, " {key}={}", value.to_ascii_lowercase()).ok()?,
        }
    }
    Some(())
}

/// `12:00:01.000000123`, with a date before it or not, or `1234.000000123`.
fn nanoseconds(time: &str) -> Option<u64> {
    let time = time.rsplit(' ').next()?;
    let (whole, fraction) = time.split_once('.')?;
    let mut seconds = 0_u64;
    for part in whole.split(':') {
        seconds = seconds.checked_mul(60)?.checked_add(part.parse().ok()?)?;
    }
    let nanoseconds: u64 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    (seconds <= super::head::SECONDS_MOST).then(|| seconds * 1_000_000_000 + nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(line: &str) -> Option<String> {
        let mut out = Vec::new();
        rewrite(line.as_bytes(), &mut out).then(|| String::from_utf8(out).unwrap())
    }

    #[test]
    fn lines_of_babeltrace_become_lines_of_ftrace() {
        for (line, expected) in [
            (
                "[00:01:02.000000123] (+0.000000010) box kmem_mm_page_free: { cpu_id = 3 }, { procname = \"cc 1\", tid = 71 }, { page = 0xFFFFEA0000000080, pfn = 2, order = 0 }",
                Some(
                    "cc 1-71 [003] ..... 62.000000123: mm_page_free: page=0xffffea0000000080 pfn=2 order=0",
                ),
            ),
            (
                "[1500.5] (+?.?????????) kmem_mm_page_alloc: { cpu_id = 0 }, { page = 0x0, pfn = 9, order = 1, gfp_flags = 3264, migratetype = 1 }",
                Some(
                    "<...>-0 [000] ..... 1500.500000000: mm_page_alloc: page=0x0 pfn=9 order=1 gfp_flags=0xcc0 migratetype=1",
                ),
            ),
            ("[00:01:02.0] (+0.1) box sched_switch: { cpu_id = 3 }, { prev_tid = 1 }", None),
            ("[99999999999:0:0.0] (+0.1) box kmem_mm_page_free: { cpu_id = 3 }, { pfn = 2 }", None),
        ] {
            assert_eq!(rewritten(line).as_deref(), expected, "{line}");
        }
    }
}
