//! `perf.data`: `perf.data-file-format.txt` of perf, and the layout of records in perf_event_open(2).
//!
//! perf copies the buffers of all CPUs, one after the other, and marks the end of such a round. A record of the next round
//! may be older than one of this, but not older than all of the round before: so two rounds are sorted at a time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io::{self, ErrorKind};

use nearpage_machine::{Kept, Unpacking, escaped};

use super::description::{Formats, TASK_COSTS, Tasks, read_start, skip_headers};
use super::format::{CALLS_MAX, LineHead, write_call};
use super::source::{Cursor, Order, Source, damaged, keep};
use super::{Lines, MAGIC_BYTES, Sampling, TRACE_DAT};
use crate::event::CGROUP_MARK;

/// Bytes that are read at once; a record has less than 64 KiB.
const WINDOW_BYTES: u64 = 1 << 20;
/// Bytes between two looks at who waits.
const TURN_BYTES: u64 = 4 << 20;
/// Events that were recorded together.
const EVENTS_MAX: u64 = 1 << 16;
/// Ids of all events together: one for each event on each CPU.
const IDS_MAX: u64 = 1 << 20;

/// Cgroups that are known by their paths.
const CGROUPS_MAX: usize = 1 << 16;

/// What is kept takes so many bytes, with what maps and heaps have beside: twice as much while they grow.
const WAITING_COSTS: u64 = 3 * size_of::<(u64, u64, u16)>() as u64;
const ID_COSTS: u64 = 3 * size_of::<(u64, Shape)>() as u64;

/// Kinds of records. `PERF_RECORD_LOST_SAMPLES` is none of them: at its end perf tells there once more what `PERF_RECORD_LOST` told.
const LOST: u32 = 2;
const COMM: u32 = 3;
const FORK: u32 = 7;
const SAMPLE: u32 = 9;
const CGROUP: u32 = 19;
const FINISHED_ROUND: u32 = 68;
const AUX_TRACE: u32 = 71;
const COMPRESSED: [u32; 2] = [81, 83];

/// `PERF_TYPE_TRACEPOINT`.
const TRACEPOINT: u64 = 2;

/// A file that is read.
pub(super) struct PerfData {
    source: Source,
    order: Order,
    formats: Formats,
    tasks: Tasks,
    shapes: Shapes,
    /// What is left of the data.
    at: u64,
    end: u64,
    window: (u64, Vec<u8>),
    kept: Kept,
    /// Records of the last two rounds: time, place, length.
    waiting: BinaryHeap<Reverse<(u64, u64, u16)>>,
    /// The latest time of the round before, and of this one.
    latest: (u64, u64),
    /// Records until this time are given out.
    until: u64,
    /// The release of the kernel.
    kernel: Option<String>,
    /// An event of pages of which a part was recorded.
    sampled: Option<(String, Sampling)>,
    /// Paths of cgroups by their ids, and which one was told of each task last.
    cgroups: HashMap<u64, String>,
    told: HashMap<u32, u64>,
}

/// Which fields a sample has: bits of `sample_type`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Shape {
    fields: u64,
    read_format: u64,
    /// Whether other records end with some of them.
    is_for_all: bool,
}

/// The shapes of the events that were recorded together.
struct Shapes {
    by_id: HashMap<u64, Shape>,
    first: Shape,
    /// The numbers of tracepoints of which a part was recorded.
    sampled: Vec<(u64, Sampling)>,
}

mod field {
    pub const IP: u64 = 1 << 0;
    pub const TID: u64 = 1 << 1;
    pub const TIME: u64 = 1 << 2;
    pub const ADDR: u64 = 1 << 3;
    pub const READ: u64 = 1 << 4;
    pub const CALLCHAIN: u64 = 1 << 5;
    pub const ID: u64 = 1 << 6;
    pub const CPU: u64 = 1 << 7;
    pub const PERIOD: u64 = 1 << 8;
    pub const STREAM_ID: u64 = 1 << 9;
    pub const RAW: u64 = 1 << 10;
    pub const IDENTIFIER: u64 = 1 << 16;
    pub const AUX: u64 = 1 << 20;
    pub const CGROUP: u64 = 1 << 21;
    pub const DATA_PAGE_SIZE: u64 = 1 << 22;
    pub const CODE_PAGE_SIZE: u64 = 1 << 23;
}

/// A sample of a tracepoint.
struct Sample<'a> {
    pid: u32,
    cpu: u32,
    time_ns: u64,
    raw: &'a [u8],
    /// Addresses of its call chain, with marks that say whose they are.
    calls: &'a [u8],
    /// The id of the task's cgroup, if it was recorded.
    cgroup: Option<u64>,
}

impl PerfData {
    pub fn open(source: Source, unpacking: &Unpacking) -> io::Result<PerfData> {
        let mut kept = Kept::new(unpacking);
        let head = source.part(0, source.bytes().min(104))?;
        let order = if head.starts_with(b"PERFILE2") { Order::Little } else { Order::Big };
        let mut cursor = Cursor::new(&head, 0, order);
        cursor.take(8)?;
        if cursor.number(8)? < 104 {
            let found = "perf.data as it goes through a pipe; record with `perf record -o FILE`";
            return Err(damaged(8, found));
        }
        let attr_bytes = cursor.number(8)?;
        let mut section = || Ok::<_, io::Error>((cursor.number(8)?, cursor.number(8)?));
        let (attrs, data, _) = (section()?, section()?, section()?);
        let features: Vec<u64> = (0..4).map(|_| cursor.number(8)).collect::<io::Result<_>>()?;
        let shapes = Shapes::read(&source, attrs, attr_bytes, order, &mut kept)?;
        let end = data.0.checked_add(data.1).filter(|end| *end <= source.bytes());
        let end = end.ok_or_else(|| {
            let (there, all) = (source.bytes().saturating_sub(data.0), data.1);
            let found = format!(
                "perf.data that is cut off: {there} of {all} bytes of its records are there. The formats of its \
                 tracepoints, which perf writes behind them, are not: without them no record can be read"
            );
            damaged(source.bytes(), found)
        })?;
        if data.1 == 0 && source.bytes() > data.0 {
            let found = "perf.data whose head has no length: perf did not end by itself, and has not written the formats \
                         of its tracepoints; end it by Ctrl-C or SIGINT";
            return Err(damaged(48, found));
        }
        let formats = tracing_data(&source, end, &features, order)?;
        let kernel = release(&source, end, &features, order);
        let sampled = shapes.sampled.iter().find_map(|&(id, sampling)| {
            let name = formats.name(id).filter(|name| name.starts_with("mm_page_"))?;
            Some((name.to_owned(), sampling))
        });
        let (at, window) = (data.0, (data.0, Vec::new()));
        let (tasks, waiting) = (Tasks::default(), BinaryHeap::new());
        let (latest, until) = ((0, 0), 0);
        Ok(PerfData {
            source,
            order,
            formats,
            tasks,
            shapes,
            kept,
            at,
            end,
            window,
            waiting,
            latest,
            until,
            kernel,
            sampled,
            cgroups: HashMap::new(),
            told: HashMap::new(),
        })
    }

    /// The next record: its kind and bytes, and where it lies.
    fn record(&mut self) -> io::Result<Option<(u32, u64, u16)>> {
        if self.at >= self.end {
            return Ok(None);
        }
        let (at, order) = (self.at, self.order);
        let head = self.bytes(at, 8)?;
        let mut cursor = Cursor::new(head, at, order);
        let (kind, _misc, bytes) = (cursor.number(4)?, cursor.number(2)?, cursor.number(2)?);
        if bytes < 8 {
            return Err(damaged(at, format!("a record of {bytes} bytes")));
        }
        self.at += bytes;
        if kind as u32 == AUX_TRACE {
            // Data of other tracers follows such a record.
            let more = order.number(&self.bytes(at + 8, 8)?[..8]).unwrap_or_default();
            self.at = self.at.saturating_add(more);
        }
        Ok(Some((kind as u32, at, bytes as u16)))
    }

    /// Bytes of the data, from a window that moves on.
    fn bytes(&mut self, at: u64, bytes: u64) -> io::Result<&[u8]> {
        let (begin, window) = &self.window;
        let is_inside = at >= *begin && at + bytes <= begin + window.len() as u64;
        if !is_inside {
            let most = self.end.saturating_sub(at).min(WINDOW_BYTES.max(bytes));
            if most < bytes {
                return Err(damaged(at, "a record that is cut off"));
            }
            self.window = (at, self.source.part(at, most)?);
        }
        let from = (at - self.window.0) as usize;
        Ok(&self.window.1[from..from + bytes as usize])
    }

    /// Reads records until some may be given out; false at the end. A round may be all of a long file, and whoever reads may be
    /// asked to end: a reader that is interrupted comes again.
    fn fill(&mut self) -> io::Result<bool> {
        let turn_ends = self.at.saturating_add(TURN_BYTES);
        while let Some((kind, at, bytes)) = self.record()? {
            match kind {
                SAMPLE | COMM | FORK | LOST => {
                    let order = self.order;
                    let record = self.bytes(at, bytes.into())?.to_vec();
                    let time = match kind {
                        SAMPLE => {
                            self.shapes.sample(&record, at, order)?.map(|sample| sample.time_ns)
                        }
                        _ => self.shapes.time_of_other(&record, order),
                    };
                    let time = time.unwrap_or(self.latest.1);
                    self.latest.1 = self.latest.1.max(time);
                    keep(&mut self.kept, WAITING_COSTS, at)?;
                    self.waiting.push(Reverse((time, at, bytes)));
                }
                CGROUP => {
                    let order = self.order;
                    let mut cursor = Cursor::new(self.bytes(at, bytes.into())?, at, order);
                    cursor.take(8)?;
                    let (id, path) = (cursor.number(8)?, cursor.text()?);
                    let path = escaped(&String::from_utf8_lossy(path)).into_owned();
                    if self.cgroups.len() < CGROUPS_MAX {
                        keep(&mut self.kept, TASK_COSTS + path.len() as u64, at)?;
                        self.cgroups.insert(id, path);
                    }
                }
                FINISHED_ROUND => {
                    self.until = self.latest.0;
                    self.latest.0 = self.latest.1;
                    if self.is_ready() {
                        return Ok(true);
                    }
                }
                kind if COMPRESSED.contains(&kind) => {
                    let found = "compressed records; record without `-z`";
                    return Err(damaged(at, found));
                }
                _ => {}
            }
            if self.at >= turn_ends {
                return Err(ErrorKind::Interrupted.into());
            }
        }
        self.until = u64::MAX;
        Ok(!self.waiting.is_empty())
    }

    fn is_ready(&self) -> bool {
        self.waiting.peek().is_some_and(|Reverse((time, ..))| *time <= self.until)
    }

    /// Writes what a record says.
    fn write(&mut self, at: u64, bytes: u16, out: &mut Vec<u8>) -> io::Result<()> {
        let (record, order) = (self.source.part(at, bytes.into())?, self.order);
        let mut cursor = Cursor::new(&record, at, order);
        let kind = cursor.number(4)? as u32;
        cursor.take(4)?;
        match kind {
            SAMPLE => {
                let Some(sample) = self.shapes.sample(&record, at, order)? else { return Ok(()) };
                // Other events than tracepoints have no format.
                let Some(format) = self.formats.of(sample.raw) else { return Ok(()) };
                let Sample { pid, cpu, time_ns, raw, calls, cgroup } = sample;
                let head = LineHead { comm: self.tasks.name(pid), pid, cpu, time_ns };
                let path = cgroup.and_then(|id| Some((id, self.cgroups.get(&id)?)));
                if let Some((id, path)) = path.filter(|(id, _)| self.told.get(&pid) != Some(id)) {
                    if self.told.insert(pid, id).is_none() {
                        keep(&mut self.kept, TASK_COSTS, at)?;
                    }
                    head.write(out);
                    let mark = format!("tracing_mark_write: {CGROUP_MARK}{pid} {path}\n");
                    out.extend_from_slice(mark.as_bytes());
                }
                head.write(out);
                if !format.write(raw, order, self.formats.addresses, out) {
                    return Err(damaged(at, "a sample that is too short for its event"));
                }
                out.push(b'\n');
                for address in kernel_calls(calls, order) {
                    write_call(address, &self.formats.symbols, out);
                }
            }
            // A child has its parent's name until it takes one of its own.
            FORK => {
                cursor.take(8)?;
                let (thread, parent) = (cursor.number(4)? as u32, cursor.number(4)? as u32);
                if self.tasks.inherit(thread, parent) {
                    keep(&mut self.kept, TASK_COSTS, at)?;
                }
            }
            COMM => {
                cursor.take(4)?;
                let thread = cursor.number(4)? as u32;
                if self.tasks.set(thread, cursor.text()?) {
                    keep(&mut self.kept, TASK_COSTS, at)?;
                }
            }
            _ => {
                cursor.take(8)?;
                let count = cursor.number(8)?;
                out.extend_from_slice(format!("PERF_RECORD_LOST {count}\n").as_bytes());
            }
        }
        Ok(())
    }
}

impl Lines for PerfData {
    fn kernel(&self) -> Option<&str> {
        self.kernel.as_deref()
    }

    fn sampled(&self) -> Option<(&str, Sampling)> {
        self.sampled.as_ref().map(|(name, sampling)| (&**name, *sampling))
    }

    fn more(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        while out.is_empty() || self.is_ready() {
            if !self.is_ready() && !self.fill()? {
                return Ok(());
            }
            // A round may have nothing to print.
            let Some(Reverse((_, at, bytes))) = self.waiting.pop() else { return Ok(()) };
            self.kept.give_back(WAITING_COSTS);
            let before = out.len();
            self.write(at, bytes, out)?;
            if out.len() > before {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// What perf keeps behind the records, by the bits of its head. Sections lie in the order of the bits.
const TRACING_DATA: u32 = 1;
const RELEASE: u32 = 4;

/// Where the section of a feature is described; `None` if the file has none.
fn feature(table: u64, features: &[u64], bit: u32) -> Option<u64> {
    let bits = features.first().filter(|bits| *bits >> bit & 1 == 1)?;
    let before = bits & ((1 << bit) - 1);
    Some(table + 16 * u64::from(before.count_ones()))
}

/// The release of the kernel: a length, and a text with a zero behind it. A file can be read without.
fn release(source: &Source, table: u64, features: &[u64], order: Order) -> Option<String> {
    const BYTES_MAX: u64 = 4096;
    let at = feature(table, features, RELEASE)?;
    let place = source.part(at, 16).ok()?;
    let mut cursor = Cursor::new(&place, at, order);
    let (offset, bytes) = (cursor.number(8).ok()?, cursor.number(8).ok()?);
    let content = source.part(offset, bytes.min(BYTES_MAX)).ok()?;
    let text = content.get(4..)?.split(|byte| *byte == 0).next()?;
    let text = String::from_utf8_lossy(text).trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// The formats of events, as perf copied them from tracefs.
fn tracing_data(
    source: &Source,
    table: u64,
    features: &[u64],
    order: Order,
) -> io::Result<Formats> {
    let at = feature(table, features, TRACING_DATA).ok_or_else(|| {
        let found = "no event of the page allocator, and no formats of tracepoints; record with `perf record -a -e \
                     kmem:mm_page_alloc -e kmem:mm_page_free`";
        damaged(table, found)
    })?;
    let cut = |_| {
        damaged(
            source.bytes(),
            "perf.data that is cut off behind its records, before the formats of its tracepoints end: without them no \
             record can be read",
        )
    };
    let place = source.part(at, 16).map_err(cut)?;
    let mut cursor = Cursor::new(&place, at, order);
    let (offset, bytes) = (cursor.number(8)?, cursor.number(8)?);
    let data = source.part(offset, bytes).map_err(cut)?;
    let start = data.get(MAGIC_BYTES..).filter(|_| data.starts_with(TRACE_DAT));
    let start =
        start.ok_or_else(|| damaged(offset, "formats of tracepoints without their magic"))?;
    let (_, mut formats, _, used) = read_start(start, offset + MAGIC_BYTES as u64)?;
    let at = MAGIC_BYTES + used;
    let mut cursor = Cursor::new(&data[at..], offset + at as u64, formats.order);
    skip_headers(&mut cursor)?;
    formats.read_ftrace(&mut cursor)?;
    formats.read_events(&mut cursor)?;
    Ok(formats)
}

impl Shapes {
    fn read(
        source: &Source,
        (offset, bytes): (u64, u64),
        attr_bytes: u64,
        order: Order,
        kept: &mut Kept,
    ) -> io::Result<Shapes> {
        if attr_bytes < 64 + 16 || bytes / attr_bytes > EVENTS_MAX {
            return Err(damaged(16, format!("descriptions of events of {attr_bytes} bytes")));
        }
        let (mut by_id, mut first, mut sampled) = (HashMap::new(), None, Vec::new());
        let mut ids_left = IDS_MAX.min(source.bytes() / 8);
        for at in (0..bytes / attr_bytes).map(|index| offset + index * attr_bytes) {
            let attr = source.part(at, attr_bytes)?;
            let field = |from: usize| order.number(&attr[from..from + 8]).unwrap_or_default();
            // Bits of a field: a compiler for big-endian machines begins with the highest.
            let is_set = |bit: u32| match order {
                Order::Little => field(40) >> bit & 1 == 1,
                Order::Big => field(40) << bit >> 63 == 1,
            };
            let shape = Shape { fields: field(24), read_format: field(32), is_for_all: is_set(18) };
            let sampling = match (is_set(10), field(16)) {
                (true, count) => Some(Sampling::PerSecond(count)),
                // Where a sample tells its period, a kernel records every event of a tracepoint, whatever the period.
                (false, period) if period > 1 && field(24) & field::PERIOD == 0 => {
                    Some(Sampling::OneOf(period))
                }
                _ => None,
            };
            if order.number(&attr[..4]) == Some(TRACEPOINT) {
                sampled.extend(sampling.map(|sampling| (field(8), sampling)));
            }
            first = first.or(Some(shape));
            let ids = attr.len() - 16;
            let (place, length) = (field(ids), field(ids + 8));
            // Each may name the whole file: together they are no longer than it.
            ids_left = ids_left.checked_sub(length / 8).ok_or_else(|| {
                damaged(at, "descriptions of events with more ids than the file can have")
            })?;
            keep(kept, length / 8 * ID_COSTS, at)?;
            for id in source.part(place, length)?.chunks_exact(8) {
                by_id.insert(order.number(id).unwrap_or_default(), shape);
            }
            let is_same = first.is_some_and(|first| first.fields == shape.fields);
            if !is_same && shape.fields & field::IDENTIFIER == 0 {
                let found =
                    "events with different fields and no identifier; record one event at a time";
                return Err(damaged(at, found));
            }
        }
        let first = first.ok_or_else(|| damaged(offset, "no events were recorded"))?;
        Ok(Shapes { by_id, first, sampled })
    }

    fn shape(&self, id: Option<u64>) -> Shape {
        id.and_then(|id| self.by_id.get(&id)).copied().unwrap_or(self.first)
    }

    /// Takes a sample apart; `None` for one without data of a tracepoint.
    fn sample<'r>(
        &self,
        record: &'r [u8],
        at: u64,
        order: Order,
    ) -> io::Result<Option<Sample<'r>>> {
        let mut cursor = Cursor::new(record, at, order);
        cursor.take(8)?;
        let mut shape = self.first;
        if shape.fields & field::IDENTIFIER != 0 {
            shape = self.shape(Some(cursor.number(8)?));
        }
        let has = |field: u64| shape.fields & field != 0;
        let (mut pid, mut cpu, mut time_ns) = (0, 0, 0);
        if has(field::IP) {
            cursor.take(8)?;
        }
        if has(field::TID) {
            cursor.take(4)?;
            pid = cursor.number(4)? as u32;
        }
        if has(field::TIME) {
            time_ns = cursor.number(8)?;
        }
        for field in [field::ADDR, field::ID, field::STREAM_ID] {
            if has(field) {
                cursor.take(8)?;
            }
        }
        if has(field::CPU) {
            cpu = cursor.number(4)? as u32;
            cursor.take(4)?;
        }
        if has(field::PERIOD) {
            cursor.take(8)?;
        }
        if has(field::READ) {
            skip_read(&mut cursor, shape.read_format)?;
        }
        let calls = match has(field::CALLCHAIN) {
            true => {
                let count = cursor.number(8)?;
                cursor.take(count.saturating_mul(8))?
            }
            false => &[],
        };
        if !has(field::RAW) {
            return Ok(None);
        }
        let bytes = cursor.number(4)?;
        let raw = cursor.take(bytes)?;
        let cgroup = shape.cgroup(record, order);
        Ok(Some(Sample { pid, cpu, time_ns, raw, calls, cgroup }))
    }

    /// The time of a record that is no sample, from the fields at its end.
    fn time_of_other(&self, record: &[u8], order: Order) -> Option<u64> {
        const AT_END: [u64; 6] =
            [field::TID, field::TIME, field::ID, field::STREAM_ID, field::CPU, field::IDENTIFIER];
        let shape = self.first;
        let count = AT_END.iter().filter(|field| shape.fields & **field != 0).count();
        if !shape.is_for_all || shape.fields & field::TIME == 0 {
            return None;
        }
        let begin = record.len().checked_sub(8 * count)?;
        let time = begin + if shape.fields & field::TID != 0 { 8 } else { 0 };
        order.number(record.get(time..time + 8)?)
    }
}

impl Shape {
    /// The id of the cgroup, which stands before the last fields; behind data of other tracers it is not looked for.
    fn cgroup(&self, record: &[u8], order: Order) -> Option<u64> {
        let count = |fields: u64| (self.fields & fields).count_ones() as usize;
        if count(field::CGROUP) == 0 || count(field::AUX) > 0 {
            return None;
        }
        let behind = count(field::DATA_PAGE_SIZE | field::CODE_PAGE_SIZE);
        let begin = record.len().checked_sub(8 * (behind + 1))?;
        order.number(&record[begin..begin + 8])
    }
}

/// The kernel's part of a call chain: before each part stands whose it is, a number that is no address.
/// `include/uapi/linux/perf_event.h: PERF_CONTEXT_KERNEL`, `PERF_CONTEXT_MAX`.
fn kernel_calls(calls: &[u8], order: Order) -> impl Iterator<Item = u64> {
    const KERNEL: u64 = -128_i64 as u64;
    const MARKS: u64 = -4095_i64 as u64;
    let mut is_kernel = false;
    let addresses = calls.chunks_exact(8).filter_map(move |call| order.number(call));
    let of_kernel = addresses.filter(move |address| {
        let is_mark = *address >= MARKS;
        if is_mark {
            is_kernel = *address == KERNEL;
        }
        is_kernel && !is_mark
    });
    of_kernel.take(CALLS_MAX)
}

/// Passes over counts that were read with a sample.
fn skip_read(cursor: &mut Cursor<'_>, format: u64) -> io::Result<()> {
    const TIME_ENABLED: u64 = 1;
    const TIME_RUNNING: u64 = 2;
    const ID: u64 = 4;
    const GROUP: u64 = 8;
    const LOST: u64 = 16;
    let count = |bits: u64| u64::from((format & bits).count_ones());
    let times = count(TIME_ENABLED | TIME_RUNNING);
    let each = 1 + count(ID | LOST);
    if format & GROUP == 0 {
        cursor.take(8 * (each + times))?;
    } else {
        let members = cursor.number(8)?;
        cursor.take(8 * times)?;
        cursor.take(members.saturating_mul(8 * each))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// perf writes `PERF_CONTEXT_KERNEL` before calls of the kernel and `PERF_CONTEXT_USER` before those of the program.
    #[test]
    fn calls_of_the_kernel_are_told_from_the_programs() {
        let calls = |all: &[i64]| -> Vec<u64> {
            let bytes: Vec<u8> = all.iter().flat_map(|call| call.to_be_bytes()).collect();
            kernel_calls(&bytes, Order::Big).collect()
        };
        assert_eq!(
            calls(&[-128, -0x7000, -0x6000, -512, 0x4000]),
            [0x7000, 0x6000].map(|at: u64| at.wrapping_neg())
        );
        assert_eq!(calls(&[-512, 0x4000, -128, -0x7000]), [0x7000_u64.wrapping_neg()]);
        assert_eq!(calls(&[0x4000]), [0; 0]);
        let long: Vec<i64> = [-128].into_iter().chain(vec![-0x7000; 2 * CALLS_MAX]).collect();
        assert_eq!(calls(&long).len(), CALLS_MAX);
    }
}
