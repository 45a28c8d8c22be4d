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
const EVENTS: [&[u8]; 17] = [
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
    b"workqueue_execute_start",
];
/// Beginnings of names that each kernel gives to threads of its own.
const OF_KERNELS: [&[u8]; 13] = [
    b"swapper/",
    b"kswapd",
    b"kcompactd",
    b"ksoftirqd/",
    b"migration/",
    b"cpuhp/",
    b"kworker/",
    b"khugepaged",
    b"kthreadd",
    b"oom_reaper",
    b"rcu_",
    b"<idle>",
    b"<...>",
];

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
        if line.first() == Some(&b'#')
            || memmem::find(&line, b"[LOST ").is_some() && event(&line).is_none()
        {
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
        if OF_KERNELS.iter().any(|known| name.starts_with(known)) && is_plain(name) {
            // Behind the number of a kworker its work is told, which a module names.
            let end = name.iter().position(|byte| matches!(byte, b'-' | b'+'));
            return name[..end.unwrap_or(name.len())].to_vec();
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

fn is_plain(name: &[u8]) -> bool {
    name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"/:_<>.-+".contains(byte))
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
    let (numbers, rest) = release.split_at(end);
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
        "zoneinfo" | "zoneinfo.again" | "buddyinfo" | "pagetypeinfo" | "vmstat" | "meminfo"
        | "sysfs" => Some(content.into()),
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
        assert!(lines[1].ends_with("p0=0xffffea0001287280 p1=0xffffea00012872c0"), "{}", lines[1]);
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
