//! The recorder leaves out of a bundle what names somebody: names of tasks, texts that programs wrote, addresses of the kernel, its
//! log, its command line, and the time of day. What a replay needs stays as it is.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::Range;

use memchr::{memchr, memmem};
use nearpage_kcore::State;

use crate::head::{self, Head};

/// Where descriptions of pages begin on x86-64 without KASLR, and the bytes of each.
const PAGES_BEGIN: u64 = 0xffff_ea00_0000_0000;
const PAGE_BYTES: u64 = 64;
/// Addresses of the kernel have this bit.
const OF_KERNEL: u64 = 1 << 63;

/// Events whose fields tell of memory alone.
const EVENTS: [&[u8]; 16] = [
    b"mm_page_alloc",
    b"mm_page_free",
    b"mm_page_free_batched",
    b"mm_page_alloc_zone_locked",
    b"mm_page_pcpu_drain",
    b"mm_page_alloc_extfrag",
    b"nearpage_bulk",
    b"nearpage_bulk_done",
    b"kmem_cache_alloc",
    b"kmem_cache_alloc_node",
    b"kmem_cache_free",
    b"kmalloc",
    b"kmalloc_node",
    b"kfree",
    b"contention_begin",
    b"contention_end",
];
/// Names that each kernel gives to threads of its own; to those of a CPU or node with its number behind.
const OF_KERNELS: [&[u8]; 14] = [
    b"<idle>",
    b"<...>",
    b"khugepaged",
    b"kthreadd",
    b"oom_reaper",
    b"rcu_bh",
    b"rcu_gp",
    b"rcu_par_gp",
    b"rcu_preempt",
    b"rcu_sched",
    b"rcu_tasks_kthre",
    b"rcu_tasks_kthread",
    b"rcu_tasks_rude_",
    b"rcu_tasks_trace",
];
const OF_CPUS: [&[u8]; 10] = [
    b"swapper/",
    b"kswapd",
    b"kcompactd",
    b"ksoftirqd/",
    b"migration/",
    b"cpuhp/",
    b"rcub/",
    b"rcuc/",
    b"rcuog/",
    b"rcuop/",
];
/// A comment that the tracer writes. Others have the machine's name and the command line, as those of perf.
const HEADING: &[u8] = b"# tracer: nop";
/// The work whose beginning a replay looks for.
const UPKEEP: &[u8] = b"function vmstat_update";

/// A trace that is read without what names somebody.
pub(super) struct Redacted<R> {
    source: BufReader<R>,
    line: Vec<u8>,
    ready: Vec<u8>,
    given: usize,
    names: HashMap<Vec<u8>, usize>,
    addresses: HashMap<u64, usize>,
    /// Where descriptions of pages begin, once a line told it.
    pages_begin: Option<u64>,
}

impl<R: Read> Redacted<R> {
    pub(super) fn new(source: R) -> Redacted<R> {
        Redacted {
            source: BufReader::with_capacity(256 << 10, source),
            line: Vec::new(),
            ready: Vec::new(),
            given: 0,
            names: HashMap::new(),
            addresses: HashMap::new(),
            pages_begin: None,
        }
    }

    /// Makes `ready` of the line that was read.
    fn redact(&mut self) {
        self.ready.clear();
        self.given = 0;
        let line = std::mem::take(&mut self.line);
        let text = line.trim_ascii_end();
        if text == HEADING || is_of_lost(text) {
            self.ready.extend_from_slice(&line);
        } else if let Some(Event { task, name, fields }) = event(&line) {
            let named = self.name(&line[task.clone()]);
            // As wide as it was, where it can be: columns stay.
            let blanks = task.end.saturating_sub(named.len());
            self.ready.resize(blanks, b' ');
            self.ready.extend_from_slice(&named);
            self.ready.extend_from_slice(&line[task.end..fields.start]);
            let text = line[fields].trim_ascii_end();
            match name {
                b"tracing_mark_write" if is_own(text) => self.ready.extend_from_slice(text),
                b"workqueue_execute_start" if text.ends_with(UPKEEP) => {
                    self.ready.extend_from_slice(text);
                }
                name if EVENTS.contains(&name) => self.fields(text),
                _ => self.ready.extend_from_slice(b" redacted"),
            }
            self.ready.push(b'\n');
        }
        // What is no event is nothing that a replay reads: stacks, texts of more than a line.
        self.line = line;
    }

    /// What stands for the name of a task: the same for the same name.
    fn name(&mut self, name: &[u8]) -> Vec<u8> {
        if let Some(known) = of_kernel(name) {
            return known.to_vec();
        }
        let next = self.names.len();
        let number = match self.names.get(name) {
            Some(number) => *number,
            None => *self.names.entry(name.to_vec()).or_insert(next),
        };
        format!("task{number}").into_bytes()
    }

    /// Fields of an event without addresses of the kernel. Those of pages keep their distances, which a replay compares.
    fn fields(&mut self, text: &[u8]) {
        if self.pages_begin.is_none() {
            let of = |key: &[u8]| number_behind(text, key);
            self.pages_begin = of(b" page=").zip(of(b" pfn=")).and_then(|(page, pfn)| {
                (page >= OF_KERNEL).then(|| page.wrapping_sub(pfn.wrapping_mul(PAGE_BYTES)))
            });
        }
        // Names of functions tell of modules, such as `call_site=f+0x1/0x2 [module]`, and of what a kernel was built from.
        let mut in_module = false;
        let place = text.trim_ascii_start().starts_with(b"(").then(|| memchr(b')', text)).flatten();
        if place.is_some() {
            self.ready.extend_from_slice(b" (redacted)");
        }
        let text = &text[place.map_or(0, |end| end + 1)..];
        for word in text.split_inclusive(|byte| *byte == b' ') {
            let (word, blank) = match word.strip_suffix(b" ") {
                Some(word) => (word, &b" "[..]),
                None => (word, &b""[..]),
            };
            if std::mem::take(&mut in_module) && word.starts_with(b"[") {
                continue;
            }
            let (key, value) = match memchr(b'=', word) {
                Some(at) => word.split_at(at + 1),
                None => (&b""[..], word),
            };
            let digits = value.strip_prefix(b"0x").unwrap_or(value);
            let address = (digits.len() == 16).then(|| number(digits)).flatten();
            let address = address.filter(|address| *address >= OF_KERNEL);
            self.ready.extend_from_slice(key);
            match (key, address) {
                (b"call_site=", _) => {
                    in_module = true;
                    self.token(name_of(value));
                }
                (_, Some(address)) if is_page(key) => {
                    let moved = self
                        .pages_begin
                        .map_or(0, |begin| address.wrapping_sub(begin).wrapping_add(PAGES_BEGIN));
                    self.ready.extend_from_slice(&value[..value.len() - digits.len()]);
                    self.ready.extend_from_slice(format!("{moved:016x}").as_bytes());
                }
                (_, Some(address)) => self.token(address),
                _ => self.ready.extend_from_slice(value),
            }
            self.ready.extend_from_slice(blank);
        }
    }

    /// What stands for an address: the same for the same one.
    fn token(&mut self, address: u64) {
        let next = self.addresses.len();
        let number = *self.addresses.entry(address).or_insert(next);
        self.ready.extend_from_slice(
            format!("0x{:016x}", 0xffff_0000_0000_0000 | number as u64).as_bytes(),
        );
    }
}

impl<R: Read> Read for Redacted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.given == self.ready.len() {
            self.line.clear();
            if self.source.read_until(b'\n', &mut self.line)? == 0 {
                return Ok(0);
            }
            self.redact();
        }
        let left = &self.ready[self.given..];
        let length = left.len().min(buffer.len());
        buffer[..length].copy_from_slice(&left[..length]);
        self.given += length;
        Ok(length)
    }
}

/// The parts of a line: where the name of its task stands, the event's name, and where its fields do, with the blank before them.
struct Event<'a> {
    task: Range<usize>,
    name: &'a [u8],
    fields: Range<usize>,
}

fn event(line: &[u8]) -> Option<Event<'_>> {
    let Head { comm, name, fields, .. } = head::parse(line)?;
    let begin = line.iter().position(|byte| *byte != b' ')?;
    let task = begin..begin + comm.len();
    let text = line.trim_ascii_end();
    let behind_name = text[..text.len() - fields.len()].trim_ascii_end().len();
    let is_plain = name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    // The recorder's own lines begin with the task.
    let is_own_form = line.get(task.clone()) == Some(comm);
    (is_plain && is_own_form).then_some(Event { task, name, fields: behind_name..line.len() })
}

/// Whether a text is a mark of the recorder.
fn is_own(text: &[u8]) -> bool {
    let Some(mark) = text.trim_ascii_start().strip_prefix(b"nearpage: ") else { return false };
    let words: Vec<&[u8]> = mark.split(|byte| *byte == b' ').collect();
    let is_number = |text: &[u8]| {
        let digits = text.strip_prefix(b"-").unwrap_or(text);
        !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
    };
    match words[..] {
        [b"before" | b"after" | b"cmd" | b"cmdend", b"begin" | b"end"] => true,
        [b"state", b"before" | b"after", b"begin" | b"end"] => true,
        [b"cmd", b"end", code] => code.strip_prefix(b"rc=").is_some_and(is_number),
        [b"sample", number, b"begin" | b"end"] => is_number(number),
        _ => false,
    }
}

/// Whether a line tells how many events a CPU lost: `CPU:3 [LOST 12 EVENTS]`.
fn is_of_lost(text: &[u8]) -> bool {
    let rest = text.strip_prefix(b"CPU:").map(without_digits);
    let rest = rest.and_then(|rest| rest.strip_prefix(b" [LOST "));
    rest.map(without_digits).is_some_and(|rest| matches!(rest, b" EVENTS]" | b"EVENTS]"))
}

fn without_digits(text: &[u8]) -> &[u8] {
    &text[text.iter().take_while(|byte| byte.is_ascii_digit()).count()..]
}

/// The name of a thread that each kernel has. Behind that of a kworker its work is told, which a module names.
fn of_kernel(name: &[u8]) -> Option<&[u8]> {
    let is_number = |text: &[u8]| !text.is_empty() && without_digits(text).is_empty();
    let of_cpu = |known: &&[u8]| name.strip_prefix(*known).is_some_and(is_number);
    if OF_KERNELS.contains(&name) || OF_CPUS.iter().any(of_cpu) {
        return Some(name);
    }
    let digits = name.strip_prefix(b"kworker/")?;
    let pool = without_digits(digits.strip_prefix(b"u").unwrap_or(digits));
    let work = without_digits(pool.strip_prefix(b":")?);
    let work = work.strip_prefix(b"H").unwrap_or(work);
    let is_whole = work.is_empty() || work.starts_with(b"-") || work.starts_with(b"+");
    is_whole.then(|| &name[..name.len() - work.len()])
}

fn is_page(key: &[u8]) -> bool {
    let digits = key.strip_prefix(b"p").and_then(|key| key.strip_suffix(b"="));
    key == b"page=" || digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_digit))
}

fn number(digits: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

fn number_behind(text: &[u8], key: &[u8]) -> Option<u64> {
    let at = memmem::find(text, key)? + key.len();
    let digits = text[at..].strip_prefix(b"0x").unwrap_or(&text[at..]);
    let end = digits.iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(digits.len());
    number(&digits[..end])
}

/// A number for the name of a function.
fn name_of(text: &[u8]) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// The numbers of a kernel's release: which rules it has is told by them, and companies write their names behind.
pub(super) fn release(release: &str) -> String {
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let end = release.find(|c| !is_number(c)).unwrap_or(release.len());
    // A candidate: `-rc3`.
    let candidate = release[end..].strip_prefix("-rc").map_or(0, |rest| {
        let digits = rest.len() - without_digits(rest.as_bytes()).len();
        if digits > 0 { "-rc".len() + digits } else { 0 }
    });
    let (numbers, rest) = release.split_at(end + candidate);
    if rest.is_empty() { numbers.into() } else { format!("{numbers}-redacted") }
}

/// A file of a capture; `None` where it is left out.
pub(super) fn file(name: &str, content: &[u8]) -> Option<Vec<u8>> {
    let lines = |is_kept: &dyn Fn(&[u8]) -> bool| {
        Some(
            content
                .split_inclusive(|byte| *byte == b'\n')
                .filter(|line| is_kept(line))
                .flatten()
                .copied()
                .collect(),
        )
    };
    match name.rsplit('/').next()? {
        "zoneinfo" | "zoneinfo.again" | "buddyinfo" | "pagetypeinfo" | "vmstat" | "meminfo" => {
            Some(content.into())
        }
        "sysfs" => lines(&|line| {
            const KEPT: [&[u8]; 3] =
                [b"/sys/devices/system/", b"/sys/kernel/mm/", b"/sys/module/page_"];
            KEPT.iter().any(|kept| line.starts_with(kept))
        }),
        "kernel.json" => {
            let mut state: State = serde_json::from_slice(content).ok()?;
            state.release = release(&state.release);
            // Sentences may have addresses.
            state.told.clear();
            serde_json::to_vec(&state).ok()
        }
        "sysctl" => lines(&|line| line.starts_with(b"vm.")),
        // Devices are left out, and where the kernel is.
        "iomem" => lines(&|line| {
            let line = line.trim_ascii_end();
            line.ends_with(b": System RAM") || line.ends_with(b": Persistent Memory")
        }),
        "version" => {
            let text = String::from_utf8_lossy(content);
            let found = text.strip_prefix("Linux version ")?.split_whitespace().next()?;
            Some(format!("Linux version {}\n", release(found)).into_bytes())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted(text: &str) -> String {
        let mut out = String::new();
        Redacted::new(text.as_bytes()).read_to_string(&mut out).unwrap();
        out
    }

    const HEAD: &str = "[003] d..2.  5310.881638: ";

    /// What becomes something else has one sign in the list of cases, which the package `nearpage.fleet` reads, too.
    fn with_signs(text: &str) -> String {
        let mut out = text.replace("-redacted", "-@");
        for (begin, is_rest, sign) in [
            ("task", char::is_numeric as fn(char) -> bool, "@"),
            ("0xffff0000", |c: char| c.is_ascii_hexdigit(), "0x@"),
        ] {
            while let Some(at) = out.find(begin) {
                let rest = &out[at + begin.len()..];
                let end = rest.find(|c| !is_rest(c)).unwrap_or(rest.len());
                out.replace_range(at..at + begin.len() + end, sign);
            }
        }
        out
    }

    #[test]
    fn the_list_of_cases_holds() {
        let cases: serde_json::Value =
            serde_json::from_str(include_str!("redact/cases.json")).unwrap();
        let list = |value: &serde_json::Value| -> Vec<String> {
            value.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
        };
        let secrets = list(&cases["secrets"]);
        let check = |of: &str, out: &str| {
            for secret in &secrets {
                assert!(!out.contains(&**secret), "{of}: {secret} in {out}");
            }
        };
        for case in cases["traces"].as_array().unwrap() {
            let out = redacted(&(list(&case["in"]).join("\n") + "\n"));
            check(&case["of"].to_string(), &out);
            let lines: Vec<String> =
                out.lines().map(|line| with_signs(line).trim_start().to_owned()).collect();
            assert_eq!(lines, list(&case["out"]), "{}", case["of"]);
        }
        for (name, expected) in cases["releases"].as_object().unwrap() {
            assert_eq!(with_signs(&release(name)), expected.as_str().unwrap(), "{name}");
        }
        for case in cases["files"].as_array().unwrap() {
            let (name, content) = (case["name"].as_str().unwrap(), case["in"].as_str().unwrap());
            let out = file(name, content.as_bytes()).map(|out| String::from_utf8(out).unwrap());
            check(name, out.as_deref().unwrap_or_default());
            assert_eq!(out.map(|out| with_signs(&out)).as_deref(), case["out"].as_str(), "{name}");
        }
    }

    #[test]
    fn names_are_numbers_and_columns_stay() {
        let free = format!("{HEAD}mm_page_free: page=00000000c5287280 pfn=0x4a1ca order=0");
        let text = format!(
            "# tracer: nop\n         payroll-71      {free}\n  a-1 [0] b-72      {free}\n         payroll-71      {free}\n\
             \x20kworker/0:2-pay-73      {free}\n => payroll_site\nCPU:3 [LOST 12 EVENTS]\npayroll\n"
        );
        let expected = format!(
            "# tracer: nop\n           task0-71      {free}\n      task1-72      {free}\n           task0-71      {free}\n\
             \x20    kworker/0:2-73      {free}\nCPU:3 [LOST 12 EVENTS]\n"
        );
        let out = redacted(&text);
        assert_eq!(out, expected);
        assert!(!out.contains("payroll"));
    }

    #[test]
    fn addresses_keep_the_distances_of_pages() {
        let line = |event: &str| format!(" load-71 {HEAD}{event}\n");
        let text = [
            "mm_page_free: page=fffff1c2c5287280 pfn=0x4a1ca order=0",
            "nearpage_bulk_done: (f <- g) n=0x2 p0=0xfffff1c2c5287280 p1=0xfffff1c2c52872c0",
            "kmalloc: call_site=acme_probe+0x1/0x2 [acme] ptr=ffff9c1234567890 bytes_req=8",
            "kfree: call_site=acme_probe+0x1/0x2 [acme] ptr=ffff9c1234567890",
            "contention_begin: 0xffffffffa2345678 (flags=SPIN)",
            "mm_page_free: page=00000000c5287280 pfn=0x4a1ca order=0",
            "sched_switch: prev_comm=payroll",
            "tracing_mark_write: nearpage: cmd end rc=-1",
            "tracing_mark_write: nearpage: cmd end payroll",
        ];
        let out = redacted(&text.map(line).concat());
        let lines: Vec<&str> =
            out.lines().map(|line| line.splitn(3, ": ").nth(2).unwrap()).collect();
        assert_eq!(lines[0], "page=ffffea0001287280 pfn=0x4a1ca order=0");
        assert!(
            lines[1].ends_with("(redacted) n=0x2 p0=0xffffea0001287280 p1=0xffffea00012872c0"),
            "{}",
            lines[1]
        );
        let [site, pointer] = ["0xffff000000000000", "0xffff000000000001"];
        assert_eq!(lines[2], format!("call_site={site} ptr={pointer} bytes_req=8"));
        assert_eq!(lines[3], format!("call_site={site} ptr={pointer}"));
        assert_eq!(lines[4], "0xffff000000000002 (flags=SPIN)");
        assert_eq!(lines[5], "page=00000000c5287280 pfn=0x4a1ca order=0");
        assert_eq!(lines[6..], ["redacted", "nearpage: cmd end rc=-1", "redacted"]);
        for secret in ["fffff1c2", "acme", "ffff9c12", "ffffffffa2", "payroll"] {
            assert!(!out.contains(secret), "{secret}: {out}");
        }
    }

    #[test]
    fn files_keep_figures() {
        let text = |name: &str, content: &str| {
            file(name, content.as_bytes()).map(|content| String::from_utf8(content).unwrap())
        };
        let of = |name, content| text(name, content).unwrap();
        assert_eq!(
            of("before/version", "Linux version 6.12.95-acme (jane@x) y\n"),
            "Linux version 6.12.95-redacted\n"
        );
        assert_eq!(
            of("before/version", "Linux version 6.18.0 (jane@x) y\n"),
            "Linux version 6.18.0\n"
        );
        assert_eq!(
            of("before/iomem", "0-1 : System RAM\n  0-0 : Kernel code\n2-3 : acme\n"),
            "0-1 : System RAM\n"
        );
        assert_eq!(of("before/sysctl", "vm.a = 1\nkernel.hostname = acme\n"), "vm.a = 1\n");
        assert_eq!(of("after/zoneinfo", "Node 0"), "Node 0");
        for left_out in
            ["before/dmesg", "after/dmesg.new", "before/cmdline", "cmd.txt", "before/slabinfo"]
        {
            assert_eq!(text(left_out, "acme"), None, "{left_out}");
        }
    }
}
