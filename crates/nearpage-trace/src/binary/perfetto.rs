//! Perfetto's traces: bundles of ftrace's events in its protobuf, by the public definitions `trace_packet.proto`,
//! `ftrace/ftrace_event_bundle.proto`, `ftrace/ftrace_event.proto` and `ftrace/kmem.proto`.
//!
//! ```text
//! Trace { repeated TracePacket packet = 1 }
//! TracePacket { ftrace_events = 1, process_tree = 2, system_info = 45, compressed_packets = 50 }
//! FtraceEventBundle { cpu = 1, repeated FtraceEvent event = 2, lost_events = 3 }
//! FtraceEvent { timestamp = 1, pid = 2, an event = its number }
//! ```
//!
//! Bundles are of one CPU each and in the order of its time, those of several CPUs behind each other. So one pass notes where bundles
//! lie, and the events of CPUs are merged as they are read. What was compressed is kept in an unnamed temporary file.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::io::{self, Write};

use nearpage_machine::{Kept, Unpacking, read_at_most};

use super::Lines;
use super::description::{TASK_COSTS, Tasks};
use super::format::LineHead;
use super::source::{Source, damaged, keep};
use crate::scratch::Scratch;

/// Fields of a packet.
mod packet {
    pub const FTRACE_EVENTS: u64 = 1;
    pub const PROCESS_TREE: u64 = 2;
    pub const SYSTEM_INFO: u64 = 45;
    pub const COMPRESSED: u64 = 50;
}

/// A packet is no longer: those of perfetto have at most some megabytes.
const PACKET_BYTES_MAX: u64 = 64 << 20;
/// Packets that were compressed together: perfetto takes half a megabyte.
const TOGETHER_BYTES_MAX: u64 = 16 << 20;
/// CPUs of a file.
const CPUS_MAX: usize = 1 << 14;
/// What a place of a bundle costs in memory, and the name of a task, where their lists grow.
const PLACE_COSTS: u64 = 3 * size_of::<Place>() as u64;

/// Whether a file begins as one: a packet, whose head is no text.
pub(super) fn begins(beginning: &[u8]) -> bool {
    let is_binary = |byte: &u8| *byte >= 0x80 || (*byte < b' ' && !b"\t\n\r".contains(byte));
    let Some((10, rest)) = beginning.split_first() else { return false };
    let mut fields = Fields { bytes: rest };
    let is_packet = fields.varint().is_some_and(|bytes| bytes > 0);
    is_packet && fields.bytes.first().is_some_and(|tag| tag >> 3 > 0) && rest.iter().any(is_binary)
}

/// Fields of a message, one after the other.
struct Fields<'a> {
    bytes: &'a [u8],
}

/// A value as it is written.
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl Value<'_> {
    fn number(&self) -> u64 {
        match self {
            Value::Number(number) => *number,
            Value::Bytes(_) => 0,
        }
    }
}

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.bytes.split_first()?;
            self.bytes = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, bytes: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(usize::try_from(bytes).ok()?)?;
        self.bytes = rest;
        Some(taken)
    }

    /// The next field; `None` at the end and where there is none.
    fn next(&mut self) -> Option<(u64, Value<'a>)> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Value::Number(self.varint()?),
            1 => Value::Bytes(self.take(8)?),
            2 => {
                let bytes = self.varint()?;
                Value::Bytes(self.take(bytes)?)
            }
            5 => Value::Bytes(self.take(4)?),
            _ => return None,
        };
        Some((tag >> 3, value))
    }
}

fn message<'a>(value: &Value<'a>) -> Fields<'a> {
    match value {
        Value::Bytes(bytes) => Fields { bytes },
        Value::Number(_) => Fields { bytes: &[] },
    }
}

/// A file that is read.
pub(super) struct Perfetto {
    files: Files,
    cpus: Vec<Cpu>,
    /// CPUs by the time of their next event.
    next: BinaryHeap<Reverse<(u64, usize)>>,
    is_begun: bool,
    tasks: Tasks,
    kernel: Option<String>,
    unpacking: Unpacking,
    /// Places of bundles, bundles that are read, names of tasks.
    kept: Kept,
}

/// The file, and what of it was compressed.
struct Files {
    plain: Source,
    unpacked: Scratch,
}

/// Where a bundle lies.
#[derive(Clone, Copy)]
struct Place {
    is_unpacked: bool,
    at: u64,
    bytes: u64,
}

/// The bundles of a CPU, the one that is read, and its next event.
#[derive(Default)]
struct Cpu {
    id: u32,
    bundles: VecDeque<Place>,
    content: Vec<u8>,
    /// What was read of it.
    at: usize,
    next: Option<Told>,
    lost: bool,
}

/// An event: when, by whom, and its line behind the head.
struct Told {
    time_ns: u64,
    pid: u32,
    text: Vec<u8>,
}

impl Perfetto {
    pub fn open(source: Source, unpacking: &Unpacking) -> io::Result<Perfetto> {
        let kept = Kept::new(unpacking);
        let files = Files { plain: source, unpacked: Scratch::new()? };
        let mut file = Perfetto {
            files,
            cpus: Vec::new(),
            next: BinaryHeap::new(),
            is_begun: false,
            tasks: Tasks::default(),
            kernel: None,
            unpacking: unpacking.clone(),
            kept,
        };
        let mut bundles = BTreeMap::new();
        file.look_through(&mut bundles)?;
        let cpu = |(id, bundles)| Cpu { id, bundles, ..Cpu::default() };
        file.cpus = bundles.into_iter().map(cpu).collect();
        if file.cpus.is_empty() {
            let found = "a trace of Perfetto without events of ftrace; record with a data source linux.ftrace that has \
                         ftrace_events: \"kmem/mm_page_alloc\" and \"kmem/mm_page_free\"";
            return Err(damaged(0, found));
        }
        Ok(file)
    }

    fn look_through(&mut self, bundles: &mut BTreeMap<u32, VecDeque<Place>>) -> io::Result<()> {
        let (mut at, end) = (0, self.files.plain.bytes());
        while at < end {
            let head = self.files.plain.part(at, (end - at).min(16))?;
            let mut fields = Fields { bytes: &head };
            let tag = fields.varint();
            let length = fields.varint().filter(|_| tag == Some(10));
            let bytes = length.filter(|bytes| *bytes <= PACKET_BYTES_MAX);
            let bytes = bytes.ok_or_else(|| damaged(at, "no packet of Perfetto"))?;
            let begin = at + (head.len() - fields.bytes.len()) as u64;
            let content = self.files.plain.part(begin, bytes)?;
            self.packet(&content, begin, false, bundles)?;
            at = begin + bytes;
        }
        Ok(())
    }

    /// Notes what a packet has, which lies at `begin` of one of the files.
    fn packet(
        &mut self,
        content: &[u8],
        begin: u64,
        is_unpacked: bool,
        bundles: &mut BTreeMap<u32, VecDeque<Place>>,
    ) -> io::Result<()> {
        let mut fields = Fields { bytes: content };
        while let Some((field, value)) = fields.next() {
            match (field, &value) {
                (packet::FTRACE_EVENTS, Value::Bytes(bundle)) => {
                    let end = content.len() - fields.bytes.len();
                    let at = begin + (end - bundle.len()) as u64;
                    let place = Place { is_unpacked, at, bytes: bundle.len() as u64 };
                    let cpu = cpu_of(bundle);
                    keep(&mut self.kept, PLACE_COSTS, at)?;
                    if bundles.len() >= CPUS_MAX {
                        return Err(damaged(at, "more CPUs than a trace has"));
                    }
                    bundles.entry(cpu).or_default().push_back(place);
                }
                (packet::PROCESS_TREE, _) => self.process_tree(message(&value), begin)?,
                (packet::SYSTEM_INFO, _) => self.system(message(&value)),
                (packet::COMPRESSED, Value::Bytes(packed)) if !is_unpacked => {
                    self.unpack(packed, begin, bundles)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Packets that were compressed together.
    fn unpack(
        &mut self,
        packed: &[u8],
        at: u64,
        bundles: &mut BTreeMap<u32, VecDeque<Place>>,
    ) -> io::Result<()> {
        let unpacked = self.unpacking.counted(flate2::read::ZlibDecoder::new(packed));
        let content = read_at_most(unpacked, TOGETHER_BYTES_MAX)
            .map_err(|error| damaged(at, format!("packets that cannot be unpacked: {error}")))?;
        let begin = self.files.unpacked.bytes();
        self.files.unpacked.write_all(&content)?;
        let mut fields = Fields { bytes: &content };
        while let Some((1, Value::Bytes(inner))) = fields.next() {
            let end = content.len() - fields.bytes.len();
            self.packet(inner, begin + (end - inner.len()) as u64, true, bundles)?;
        }
        Ok(())
    }

    /// `ProcessTree { processes = 1 { pid = 1, cmdline = 3 }, threads = 2 { tid = 1, name = 2 } }`
    fn process_tree(&mut self, mut tree: Fields<'_>, at: u64) -> io::Result<()> {
        while let Some((kind, value)) = tree.next() {
            let (mut id, mut name) = (0, None);
            let mut fields = message(&value);
            while let Some((field, value)) = fields.next() {
                match (kind, field, value) {
                    (_, 1, Value::Number(number)) => id = number as u32,
                    (1, 3, Value::Bytes(line)) if name.is_none() => {
                        name = Some(line.rsplit(|byte| *byte == b'/').next().unwrap_or(line));
                    }
                    (2, 2, Value::Bytes(text)) => name = Some(text),
                    _ => {}
                }
            }
            if let Some(name) = name.filter(|_| kind == 1 || kind == 2)
                && self.tasks.set(id, name)
            {
                keep(&mut self.kept, TASK_COSTS, at)?;
            }
        }
        Ok(())
    }

    /// `SystemInfo { utsname = 1 { sysname = 1, version = 2, release = 3, machine = 4 } }`
    fn system(&mut self, mut info: Fields<'_>) {
        while let Some((field, value)) = info.next() {
            let mut names = message(&value);
            while let Some((name, value)) = names.next() {
                if let (1, 3, Value::Bytes(text)) = (field, name, value) {
                    self.kernel = Some(String::from_utf8_lossy(text).into_owned());
                }
            }
        }
    }

    /// Makes the next event of a CPU ready.
    fn advance(&mut self, index: usize) -> io::Result<()> {
        let cpu = &mut self.cpus[index];
        loop {
            if let Some(event) = cpu.read() {
                self.next.push(Reverse((event.time_ns, index)));
                return Ok(());
            }
            self.kept.give_back(cpu.content.len() as u64);
            (cpu.content, cpu.at) = (Vec::new(), 0);
            let Some(place) = cpu.bundles.pop_front() else { return Ok(()) };
            keep(&mut self.kept, place.bytes, place.at)?;
            cpu.content = self.files.part(place)?;
        }
    }
}

impl Files {
    fn part(&self, place: Place) -> io::Result<Vec<u8>> {
        if !place.is_unpacked {
            return self.plain.part(place.at, place.bytes);
        }
        let mut content = vec![0; place.bytes as usize];
        self.unpacked.read_exact_at(&mut content, place.at)?;
        Ok(content)
    }
}

fn cpu_of(bundle: &[u8]) -> u32 {
    let mut fields = Fields { bytes: bundle };
    while let Some((field, value)) = fields.next() {
        if field == 1 {
            return value.number() as u32;
        }
    }
    // Proto2 leaves out what is 0.
    0
}

impl Cpu {
    /// Makes the next event of the bundle ready, if there is one.
    fn read(&mut self) -> Option<&Told> {
        let mut fields = Fields { bytes: &self.content[self.at..] };
        self.next = None;
        while self.next.is_none() {
            let Some((field, value)) = fields.next() else { break };
            match field {
                2 => self.next = told(message(&value)),
                3 => self.lost |= value.number() != 0,
                _ => {}
            }
        }
        self.at = self.content.len() - fields.bytes.len();
        self.next.as_ref()
    }
}

/// An event of ftrace.
fn told(mut event: Fields<'_>) -> Option<Told> {
    let (mut time_ns, mut pid, mut text) = (None, 0, Vec::new());
    while let Some((field, value)) = event.next() {
        match field {
            1 => time_ns = Some(value.number()),
            2 => pid = value.number() as u32,
            5 => {}
            kind => {
                text.clear();
                write_event(kind, message(&value), &mut text);
            }
        }
    }
    Some(Told { time_ns: time_ns?, pid, text }).filter(|of| !of.text.is_empty())
}

/// Writes an event of the page allocator, a text of a program, or the number of another event.
fn write_event(kind: u64, mut fields: Fields<'_>, out: &mut Vec<u8>) {
    let (mut numbers, mut text) = ([0; 8], &b""[..]);
    while let Some((field, value)) = fields.next() {
        match value {
            Value::Number(number) => {
                if let Some(slot) = numbers.get_mut(field as usize) {
                    *slot = number;
                }
            }
            Value::Bytes(bytes) => text = bytes,
        }
    }
    let of = |field: usize| numbers[field];
    let written = match kind {
        3 => {
            out.extend_from_slice(b"tracing_mark_write: ");
            out.extend(text.iter().map(|byte| if *byte < b' ' { b' ' } else { *byte }));
            return;
        }
        307 => format!(
            "mm_page_alloc: page={:#x} pfn={:#x} order={} migratetype={} gfp_flags={:#x}",
            of(4),
            of(5),
            of(3),
            of(2),
            of(1)
        ),
        308 => format!(
            "mm_page_alloc_extfrag: page={:#x} pfn={:#x} alloc_order={}",
            of(5),
            of(7),
            of(2)
        ),
        // Pagesets had single pages when it had no field for it.
        309 => format!(
            "mm_page_alloc_zone_locked: page={:#x} pfn={:#x} order={} migratetype={} percpu_refill={}",
            of(3),
            of(4),
            of(2),
            of(1),
            u64::from(of(2) == 0)
        ),
        310 => format!("mm_page_free: page={:#x} pfn={:#x} order={}", of(2), of(3), of(1)),
        311 => format!("mm_page_free_batched: page={:#x} pfn={:#x} order=0", of(2), of(3)),
        312 => format!("mm_page_pcpu_drain: page={:#x} pfn={:#x} order={}", of(3), of(4), of(2)),
        other => format!("ftrace_event_{other}:"),
    };
    out.extend_from_slice(written.as_bytes());
}

impl Lines for Perfetto {
    fn kernel(&self) -> Option<&str> {
        self.kernel.as_deref()
    }

    fn more(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        if !self.is_begun {
            self.is_begun = true;
            (0..self.cpus.len()).try_for_each(|index| self.advance(index))?;
        }
        let Some(Reverse((time_ns, index))) = self.next.pop() else { return Ok(()) };
        let cpu = &mut self.cpus[index];
        if std::mem::take(&mut cpu.lost) {
            out.extend_from_slice(format!("CPU:{} [EVENTS DROPPED]\n", cpu.id).as_bytes());
        }
        if let Some(Told { pid, text, .. }) = cpu.next.take() {
            LineHead { comm: self.tasks.name(pid), pid, cpu: cpu.id, time_ns }.write(out);
            out.extend_from_slice(&text);
            out.push(b'\n');
        }
        self.advance(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Event, TraceError, read_trace, unpacked};

    fn varint(mut value: u64) -> Vec<u8> {
        let mut out = Vec::new();
        while value >= 0x80 {
            out.push(value as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
        out
    }

    fn number(field: u64, value: u64) -> Vec<u8> {
        [varint(field << 3), varint(value)].concat()
    }

    fn bytes(field: u64, content: &[u8]) -> Vec<u8> {
        [varint(field << 3 | 2), varint(content.len() as u64), content.to_vec()].concat()
    }

    fn event(time_ns: u64, pid: u64, kind: u64, fields: &[(u64, u64)]) -> Vec<u8> {
        let fields: Vec<u8> =
            fields.iter().flat_map(|&(field, value)| number(field, value)).collect();
        bytes(2, &[number(1, time_ns), number(2, pid), bytes(kind, &fields)].concat())
    }

    fn alloc(time_ns: u64, pfn: u64) -> Vec<u8> {
        event(time_ns, 71, 307, &[(1, 0xcc0), (2, 1), (3, 2), (4, 64 * pfn), (5, pfn)])
    }

    fn bundle(cpu: u64, events: &[Vec<u8>]) -> Vec<u8> {
        bytes(1, &[number(1, cpu), events.concat()].concat())
    }

    /// Two CPUs, whose bundles lie behind each other; the second one's are compressed.
    fn trace() -> Vec<u8> {
        let near = bundle(0, &[alloc(10, 1), event(30, 72, 310, &[(1, 2), (3, 1)])]);
        let lost = bundle(5, &[number(3, 1), event(20, 9, 312, &[(2, 0), (4, 7)])]);
        let other = bundle(5, &[event(40, 9, 4, &[(1, 1)])]);
        let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(&[bytes(1, &lost), bytes(1, &other)].concat()).unwrap();
        let names = bytes(2, &bytes(2, &[number(1, 71), bytes(2, b"cc1")].concat()));
        let system = bytes(45, &bytes(1, &bytes(3, b"6.6.1-android")));
        [
            bytes(1, &names),
            bytes(1, &near),
            bytes(1, &system),
            bytes(1, &bytes(50, &packer.finish().unwrap())),
        ]
        .concat()
    }

    fn read(content: &[u8]) -> Result<(Vec<String>, crate::TraceCounts), String> {
        let text = unpacked(content, &nearpage_machine::Budget::DEFAULT)
            .map_err(|error| error.to_string())?;
        let mut events = Vec::new();
        let counts = read_trace::<TraceError>("t", text, |event| {
            let comm = String::from_utf8_lossy(event.comm).into_owned();
            let what = match event.event {
                Event::Other(name) => String::from_utf8_lossy(name).into_owned(),
                Event::Alloc { pfn, order, migratetype, .. } => {
                    format!("alloc {:?} {} {migratetype}", pfn.map(|pfn| pfn.0), order.0)
                }
                Event::Free { pfn, order } => format!("free {} {}", pfn.0, order.0),
                Event::PcpuDrain { pfn, .. } => format!("drain {}", pfn.0),
                other => format!("{other:?}"),
            };
            events.push(format!("{comm}-{} {} {} {what}", event.pid, event.cpu.0, event.time_ns));
            Ok(())
        });
        counts.map(|counts| (events, counts)).map_err(|error| error.to_string())
    }

    #[test]
    fn events_of_all_cpus_come_in_the_order_of_time() {
        let (events, counts) = read(&trace()).unwrap();
        let expected = [
            "cc1-71 0 10 alloc Some(1) 2 1",
            "<...>-9 5 20 drain 7",
            "<...>-72 0 30 free 1 2",
            "<...>-9 5 40 ftrace_event_4",
        ];
        assert_eq!(events, expected);
        assert_eq!((counts.kernel.as_deref(), counts.lost_lines), (Some("6.6.1-android"), 1));
    }

    #[test]
    fn damage_is_told_and_never_panics() {
        let whole = trace();
        for at in 0..whole.len() {
            for value in [0, 0xff, whole[at] ^ 0x10] {
                let mut damaged = whole.clone();
                damaged[at] = value;
                let _ = read(&damaged);
            }
            let _ = read(&whole[..at]);
        }
        let empty = bytes(1, &number(8, 1 << 40));
        assert!(read(&empty).unwrap_err().contains("without events of ftrace"));
    }

    #[test]
    fn texts_are_no_packets() {
        for text in ["\n# tracer: nop\n", "\n 1 a\n", "# tracer", "\n\n\n\n\n\n\n\n\n\n"] {
            assert!(!begins(&text.as_bytes()[..text.len().min(10)]), "{text:?}");
        }
        assert!(begins(&trace()[..10]));
    }
}
