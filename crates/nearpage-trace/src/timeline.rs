//! A trace as a timeline that a viewer draws: tracks with instants, slices and counters, as Perfetto's protobuf or as JSON of
//! Chrome's tracing.
//!
//! | track | for each | what |
//! |---|---|---|
//! | pages | CPU | an instant an allocation and an instant a free, with frame, order, type, flags and task |
//! | refills, drains | CPU | a slice a run of pages that went from a zone to a pageset, or back, with how many |
//! | bulk | CPU | a slice a bulk allocation |
//! | a process | process | a counter: pages that it allocated and that are not free again; direct reclaim and compaction as slices, if they were traced |
//! | refused | CPU | an instant an allocation that failed, or that took a block of another type |
//! | rates | all CPUs | counters: pages allocated and freed in 10 ms |
//! | zones | zone | counters: pages taken since the start, and free pages and marks whenever zoneinfo was read |
//! | markers | trace | an instant a marker |
//!
//! ```
//! use nearpage_trace::timeline::{Format, Timeline};
//! use nearpage_trace::{TraceError, read_trace};
//!
//! let text = " load-71 [001] ..... 12.000003: mm_page_free: page=1 pfn=0x14a04 order=0\n";
//! let mut timeline = Timeline::new(Format::Perfetto, Vec::new(), Vec::new())?;
//! read_trace::<TraceError>("example", text.as_bytes(), |event| {
//!     timeline.event(event);
//!     Ok(())
//! })?;
//! let counted = timeline.finish()?.0;
//! assert_eq!((counted.frees, counted.instants), (1, 1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! An allocation and the free of its block are joined by an arrow (a flow of Perfetto), and have their call chain where the trace has it. It
//! streams: what is kept are open slices, names and the blocks that are allocated.

mod chrome;
mod items;
mod perfetto;

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;

use nearpage::{Gfp, Pfn};
use nearpage_machine::escaped;
use serde::Serialize;

use crate::binary::Symbols;
use crate::event::{Event, TraceEvent};
use crate::summary::Call;
use chrome::Chrome;
use items::{Args, Flow, Kind, Sink, Track};
use perfetto::Perfetto;

/// How a timeline is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// The protobuf of Perfetto: ui.perfetto.dev, trace_processor.
    Perfetto,
    /// JSON of Chrome's trace events: chrome://tracing, ui.perfetto.dev, speedscope.
    Chrome,
}

/// A zone whose pages are counted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ZoneFrames {
    /// Its name on the timeline: `node 0 Normal`.
    pub name: String,
    /// Its frames.
    pub frames: Range<u64>,
}

/// What a zone is at, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Levels {
    /// Free pages.
    pub free: Option<u64>,
    /// The `min` mark.
    pub min: Option<u64>,
    /// The `low` mark.
    pub low: Option<u64>,
    /// The `high` mark.
    pub high: Option<u64>,
}

/// What a timeline has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Counted {
    /// Packets of Perfetto, or objects of JSON.
    pub packets: u64,
    /// Tracks, with those that only hold others.
    pub tracks: u64,
    /// Instants.
    pub instants: u64,
    /// Slices.
    pub slices: u64,
    /// Values of counters.
    pub values: u64,
    /// Allocations that were given something.
    pub allocs: u64,
    /// Frees.
    pub frees: u64,
    /// Slices of refills, and the pages in them.
    pub refills: u64,
    /// Blocks of those.
    pub refilled_blocks: u64,
    /// Slices of drains.
    pub drains: u64,
    /// Blocks of those.
    pub drained_blocks: u64,
    /// Bulk allocations.
    pub bulks: u64,
    /// Slices of tasks that waited.
    pub stalls: u64,
    /// Allocations that failed, and those that took a block of another type.
    pub refused: u64,
    /// Markers.
    pub markers: u64,
    /// Arrows from an allocation to the free of its block, in Perfetto's format.
    pub flows: u64,
    /// Instants with a call chain.
    pub chains: u64,
    /// Processes.
    pub processes: u64,
    /// Events that are on no track: of objects, of blocks that left a zone past the pagesets, frees logged twice, others.
    pub left_out: u64,
}

/// A run of blocks of one kind on a CPU.
#[derive(Clone, Copy)]
struct Run {
    begin_ns: u64,
    end_ns: u64,
    blocks: u64,
    pages: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Refill,
    Drain,
}

/// An instant whose call chain may follow.
struct Waiting {
    track: &'static str,
    name: String,
    time_ns: u64,
    args: Args,
}

/// A block that is allocated.
struct Live {
    /// The arrow that begins at it.
    arrow: u64,
    /// Who allocated it.
    pid: u32,
    pages: i64,
}

/// A process.
struct Process {
    track: Track,
    counter: Track,
    /// Pages that it allocated and that are not free again.
    held: i64,
    /// When that was last written.
    written_ns: Option<u64>,
}

/// Frames of a call chain that are kept.
const FRAMES_MOST: usize = 64;

/// Counters of pages are written at most once in so many nanoseconds.
const COUNTER_NS: u64 = 1_000_000;

/// Pages that went one way are summed over so many nanoseconds.
const RATE_NS: u64 = 10_000_000;
/// What rates are of, and their names.
const RATES: &str = "all CPUs";
const ALLOCATED: usize = 0;
const FREED: usize = 1;
const RATE_NAMES: [&str; 2] = ["pages allocated in 10 ms", "pages freed in 10 ms"];

/// Writes a timeline.
pub struct Timeline<W: Write> {
    sink: Box<dyn Sink<W>>,
    counted: Counted,
    tracks: HashMap<String, Track>,
    /// The run that is under way on each CPU.
    runs: BTreeMap<u32, (Way, Run)>,
    /// The last instant of each CPU, until it is known that no call chain follows.
    waiting: BTreeMap<u32, Waiting>,
    /// The CPU whose call chain comes now.
    chain_of: Option<u32>,
    symbols: Arc<Symbols>,
    bulks: BTreeMap<u32, (u64, u64, Option<u32>)>,
    /// What tasks wait in: of each the name of the event and its begin.
    stalls: HashMap<(u32, &'static str), u64>,
    zones: Vec<ZoneFrames>,
    /// Pages taken of each zone, and when that was last written.
    taken: Vec<(i64, Option<u64>)>,
    /// Blocks that are allocated, by frame, and how many there were.
    live: HashMap<Pfn, Live>,
    arrows: u64,
    processes: BTreeMap<u32, Process>,
    /// Pages that went each way since a time.
    rates: [(u64, i64); 2],
    last_ns: u64,
    has_begun: bool,
    /// The first failure to write; later events are passed over.
    error: Option<io::Error>,
}

impl<W: Write> std::fmt::Debug for Timeline<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Timeline").field("counted", &self.counted).finish_non_exhaustive()
    }
}

/// Events that begin and end a wait, by the names of the kernel.
const WAITS: [(&str, &str, &str); 4] = [
    ("mm_vmscan_direct_reclaim_begin", "mm_vmscan_direct_reclaim_end", "direct reclaim"),
    ("mm_vmscan_memcg_reclaim_begin", "mm_vmscan_memcg_reclaim_end", "memcg reclaim"),
    ("mm_vmscan_node_reclaim_begin", "mm_vmscan_node_reclaim_end", "node reclaim"),
    ("mm_compaction_begin", "mm_compaction_end", "compaction"),
];

impl<W: Write + 'static> Timeline<W> {
    /// Begins a timeline; `zones` are those whose pages are counted.
    ///
    /// # Errors
    ///
    /// The output cannot be written.
    pub fn new(format: Format, out: W, zones: Vec<ZoneFrames>) -> io::Result<Timeline<W>> {
        let sink: Box<dyn Sink<W>> = match format {
            Format::Perfetto => Box::new(Perfetto::new(out)?),
            Format::Chrome => Box::new(Chrome::new(out)?),
        };
        Ok(Timeline {
            sink,
            counted: Counted::default(),
            tracks: HashMap::new(),
            runs: BTreeMap::new(),
            bulks: BTreeMap::new(),
            stalls: HashMap::new(),
            taken: vec![(0, None); zones.len()],
            zones,
            live: HashMap::new(),
            arrows: 0,
            processes: BTreeMap::new(),
            waiting: BTreeMap::new(),
            chain_of: None,
            symbols: Arc::default(),
            has_begun: false,
            rates: [(0, 0); 2],
            last_ns: 0,
            error: None,
        })
    }
}

impl<W: Write> Timeline<W> {
    /// The same, with names for addresses of call chains that have none in the trace.
    pub fn with_symbols(self, symbols: Arc<Symbols>) -> Timeline<W> {
        Timeline { symbols, ..self }
    }

    /// Adds an event. A failure to write is told by [`finish`](Self::finish).
    pub fn event(&mut self, event: &TraceEvent<'_>) {
        if self.error.is_none() {
            self.error = self.add(event).err();
        }
    }

    /// A line of a call chain behind the event that was added last, or behind its `kernel_stack`.
    pub fn frame(&mut self, line: &[u8]) {
        let waiting = self.chain_of.and_then(|cpu| self.waiting.get_mut(&cpu));
        let Some((waiting, call)) = waiting.zip(Call::of(line)) else { return };
        let chain = &mut waiting.args.chain;
        if chain.len() < FRAMES_MOST {
            self.counted.chains += u64::from(chain.is_empty());
            chain.push(match call.name(&self.symbols) {
                Some(function) => escaped(&String::from_utf8_lossy(function)).into_owned(),
                None => format!("{:#x}", call.address.unwrap_or_default()),
            });
        }
    }

    /// Whether writing failed: more events change nothing.
    pub fn has_failed(&self) -> bool {
        self.error.is_some()
    }

    /// Adds what a zone is at, at a time; `zone` is its place among those of [`new`](Self::new).
    pub fn levels(&mut self, zone: usize, time_ns: u64, levels: Levels) {
        let Some(name) = self.zones.get(zone).map(|zone| zone.name.clone()) else { return };
        for (what, pages) in
            [("free", levels.free), ("min", levels.min), ("low", levels.low), ("high", levels.high)]
        {
            if let (Some(pages), None) = (pages, &self.error) {
                self.error = self.value(&name, what, time_ns, pages as i64).err();
            }
        }
    }

    /// Ends what is open, and the output.
    ///
    /// # Errors
    ///
    /// The output could not be written.
    pub fn finish(mut self) -> io::Result<(Counted, W)> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        for (cpu, waiting) in std::mem::take(&mut self.waiting) {
            self.write_instant(cpu, waiting)?;
        }
        for (cpu, (way, run)) in std::mem::take(&mut self.runs) {
            self.end_run(cpu, way, run)?;
        }
        let end_ns = self.last_ns;
        for (cpu, (begin_ns, wanted, node)) in std::mem::take(&mut self.bulks) {
            self.bulk(cpu, begin_ns, end_ns, wanted, node, None)?;
        }
        let stalls: Vec<_> = std::mem::take(&mut self.stalls).into_iter().collect();
        for ((pid, name), begin_ns) in stalls {
            self.stall(pid, b"", name, begin_ns, end_ns)?;
        }
        for process in std::mem::take(&mut self.processes).into_values() {
            if process.written_ns.is_some_and(|at| at < end_ns) {
                self.write_held(&process, end_ns)?;
            }
        }
        for zone in 0..self.zones.len() {
            if self.taken[zone].1.is_some_and(|at| at < end_ns) {
                self.write_taken(zone, end_ns)?;
            }
        }
        for way in [ALLOCATED, FREED] {
            self.end_rate(way)?;
        }
        let (packets, out) = self.sink.finish()?;
        self.counted.packets = packets;
        Ok((self.counted, out))
    }

    fn add(&mut self, event: &TraceEvent<'_>) -> io::Result<()> {
        let cpu = event.cpu.0;
        self.last_ns = self.last_ns.max(event.time_ns);
        if !std::mem::replace(&mut self.has_begun, true) {
            self.sink.begin(event.time_ns)?;
        }
        self.chain_of = Some(cpu);
        if matches!(event.event, Event::Other(b"kernel_stack")) {
            return Ok(());
        }
        if let Some(waiting) = self.waiting.remove(&cpu) {
            self.write_instant(cpu, waiting)?;
        }
        let way = match event.event {
            Event::ZoneLocked { percpu_refill: true, .. } => Some(Way::Refill),
            Event::PcpuDrain { .. } => Some(Way::Drain),
            _ => None,
        };
        // Whatever else a CPU logs ends its run.
        if let Some((of, run)) = self.runs.get(&cpu).copied()
            && way != Some(of)
        {
            self.runs.remove(&cpu);
            self.end_run(cpu, of, run)?;
        }
        match event.event {
            Event::Alloc { pfn: Some(pfn), order, migratetype, gfp, .. } => {
                self.counted.allocs += 1;
                self.arrows += 1;
                let pages = order.pages().0 as i64;
                let live = Live { arrow: self.arrows, pid: event.pid, pages };
                let lost = self.live.insert(pfn, live);
                if let Some(Live { pid, pages, .. }) = lost {
                    // Its free is in no event.
                    self.hold(pid, b"", -pages, event.time_ns)?;
                }
                self.hold(event.pid, event.comm, pages, event.time_ns)?;
                self.rate(ALLOCATED, order.pages().0 as i64, event.time_ns)?;
                let args = Args::of(event)
                    .flow(Some(Flow::From(self.arrows)))
                    .number("pfn", pfn.0)
                    .number("order", order.0.into())
                    .number("migratetype", migratetype.into())
                    .text("gfp", format!("{:#x}", gfp.0));
                self.instant(
                    cpu,
                    "pages",
                    &format!("alloc order {}", order.0),
                    event.time_ns,
                    args,
                )?;
                self.take(pfn, order.pages().0 as i64, event.time_ns)
            }
            Event::Alloc { pfn: None, order, gfp, .. } => {
                self.counted.refused += 1;
                let Gfp(bits) = gfp;
                let args = Args::of(event)
                    .number("order", order.0.into())
                    .text("gfp", format!("{bits:#x}"));
                self.instant(
                    cpu,
                    "refused",
                    &format!("failed order {}", order.0),
                    event.time_ns,
                    args,
                )
            }
            Event::Extfrag { pfn, order } => {
                self.counted.refused += 1;
                let args = Args::of(event).number("pfn", pfn.0).number("order", order.0.into());
                self.instant(cpu, "refused", "block of another type", event.time_ns, args)
            }
            Event::Free { pfn, order } => {
                self.counted.frees += 1;
                let live = self.live.remove(&pfn);
                if let Some(Live { pid, pages, .. }) = live {
                    self.hold(pid, b"", -pages, event.time_ns)?;
                }
                let flow = live.map(|live| Flow::To(live.arrow));
                self.counted.flows += u64::from(flow.is_some());
                self.rate(FREED, order.pages().0 as i64, event.time_ns)?;
                let args = Args::of(event).flow(flow);
                let args = args.number("pfn", pfn.0).number("order", order.0.into());
                self.instant(
                    cpu,
                    "pages",
                    &format!("free order {}", order.0),
                    event.time_ns,
                    args,
                )?;
                self.take(pfn, -(order.pages().0 as i64), event.time_ns)
            }
            Event::ZoneLocked { order, percpu_refill: true, .. }
            | Event::PcpuDrain { order, .. } => {
                let begin_ns = event.time_ns;
                let new = Run { begin_ns, end_ns: begin_ns, blocks: 0, pages: 0 };
                let way = way.expect("it is one of the two");
                let (_, run) = self.runs.entry(cpu).or_insert((way, new));
                run.end_ns = event.time_ns;
                run.blocks += 1;
                run.pages += order.pages().0;
                Ok(())
            }
            Event::Bulk { wanted, node, .. } => {
                if let Some((begin_ns, wanted, node)) =
                    self.bulks.insert(cpu, (event.time_ns, wanted, node))
                {
                    self.bulk(cpu, begin_ns, event.time_ns, wanted, node, None)?;
                }
                Ok(())
            }
            Event::BulkDone { got, .. } => match self.bulks.remove(&cpu) {
                Some((begin_ns, wanted, node)) => {
                    self.bulk(cpu, begin_ns, event.time_ns, wanted, node, Some(got))
                }
                // It began before the trace did.
                None => self.bulk(cpu, event.time_ns, event.time_ns, got, None, Some(got)),
            },
            Event::Marker(text) => {
                self.counted.markers += 1;
                let track = self.track("markers", None)?;
                let name = String::from_utf8_lossy(text).into_owned();
                self.counted.instants += 1;
                self.sink.instant(track, &name, event.time_ns, &Args::of(event))
            }
            Event::Other(name) => self.other(name, event),
            Event::Upkeep => self.other(b"workqueue_execute_start", event),
            Event::ZoneLocked { .. }
            | Event::FreeBatched
            | Event::ObjectAlloc { .. }
            | Event::ObjectFree { .. } => {
                self.counted.left_out += 1;
                Ok(())
            }
        }
    }

    fn other(&mut self, name: &[u8], event: &TraceEvent<'_>) -> io::Result<()> {
        for (begin, end, shown) in WAITS {
            if name == begin.as_bytes() {
                self.stalls.entry((event.pid, shown)).or_insert(event.time_ns);
                return Ok(());
            }
            if name == end.as_bytes() {
                let begun = self.stalls.remove(&(event.pid, shown)).unwrap_or(event.time_ns);
                return self.stall(event.pid, event.comm, shown, begun, event.time_ns);
            }
        }
        self.counted.left_out += 1;
        Ok(())
    }

    /// A track, which is described when it is first used.
    fn track(&mut self, name: &str, parent: Option<&str>) -> io::Result<Track> {
        let key = format!("{}/{name}", parent.unwrap_or_default());
        if let Some(track) = self.tracks.get(&key) {
            return Ok(*track);
        }
        let parent = match parent {
            Some(parent) => Some(self.track(parent, None)?),
            None => None,
        };
        self.describe(key, name, parent, Kind::Plain)
    }

    fn describe(
        &mut self,
        key: String,
        name: &str,
        parent: Option<Track>,
        kind: Kind,
    ) -> io::Result<Track> {
        self.counted.tracks += 1;
        let track = Track(self.counted.tracks);
        self.sink.track(track, name, parent, kind)?;
        self.tracks.insert(key, track);
        Ok(track)
    }

    fn on_cpu(&mut self, cpu: u32, name: &str) -> io::Result<Track> {
        self.track(name, Some(&format!("CPU {cpu}")))
    }

    fn instant(
        &mut self,
        cpu: u32,
        track: &'static str,
        name: &str,
        time_ns: u64,
        args: Args,
    ) -> io::Result<()> {
        let name = name.to_owned();
        match self.waiting.insert(cpu, Waiting { track, name, time_ns, args }) {
            Some(before) => self.write_instant(cpu, before),
            None => Ok(()),
        }
    }

    fn write_instant(&mut self, cpu: u32, waiting: Waiting) -> io::Result<()> {
        let Waiting { track, name, time_ns, args } = waiting;
        let track = self.on_cpu(cpu, track)?;
        self.counted.instants += 1;
        self.sink.instant(track, &name, time_ns, &args)
    }

    /// A process, which is described when it is first met.
    fn process(&mut self, pid: u32, comm: &[u8]) -> io::Result<&mut Process> {
        if !self.processes.contains_key(&pid) {
            self.counted.processes += 1;
            let comm = String::from_utf8_lossy(comm);
            let name = match comm.is_empty() {
                true => format!("task {pid}"),
                false => format!("{} {pid}", escaped(&comm)),
            };
            let (own, held) = (format!("process {pid}"), format!("process {pid}/held"));
            let track = self.describe(own, &name, None, Kind::Process(pid))?;
            let counter = self.describe(held, "pages held", Some(track), Kind::Counter)?;
            let process = Process { track, counter, held: 0, written_ns: None };
            self.processes.insert(pid, process);
        }
        Ok(self.processes.get_mut(&pid).expect("it is there by now"))
    }

    /// Counts pages that a process allocated, or that it allocated and that are free again.
    fn hold(&mut self, pid: u32, comm: &[u8], pages: i64, time_ns: u64) -> io::Result<()> {
        let process = self.process(pid, comm)?;
        process.held += pages;
        if process.written_ns.is_some_and(|at| time_ns < at + COUNTER_NS) {
            return Ok(());
        }
        process.written_ns = Some(time_ns);
        let (counter, held) = (process.counter, process.held);
        self.counted.values += 1;
        self.sink.value(counter, "pages held", time_ns, held)
    }

    fn write_held(&mut self, process: &Process, time_ns: u64) -> io::Result<()> {
        self.counted.values += 1;
        self.sink.value(process.counter, "pages held", time_ns, process.held)
    }

    fn slice(
        &mut self,
        track: Track,
        name: &str,
        begin_ns: u64,
        end_ns: u64,
        args: &Args,
    ) -> io::Result<()> {
        self.counted.slices += 1;
        // A trace may have times that go back.
        self.sink.slice(track, name, begin_ns, end_ns.max(begin_ns), args)
    }

    fn end_run(&mut self, cpu: u32, way: Way, run: Run) -> io::Result<()> {
        let (track, name) = match way {
            Way::Refill => {
                self.counted.refills += 1;
                self.counted.refilled_blocks += run.blocks;
                ("refills", "refill")
            }
            Way::Drain => {
                self.counted.drains += 1;
                self.counted.drained_blocks += run.blocks;
                ("drains", "drain")
            }
        };
        let track = self.on_cpu(cpu, track)?;
        let args = Args::default().number("blocks", run.blocks).number("pages", run.pages);
        self.slice(track, name, run.begin_ns, run.end_ns, &args)
    }

    fn bulk(
        &mut self,
        cpu: u32,
        begin_ns: u64,
        end_ns: u64,
        wanted: u64,
        node: Option<u32>,
        got: Option<u64>,
    ) -> io::Result<()> {
        self.counted.bulks += 1;
        let mut args = Args::default().number("wanted", wanted);
        if let Some(got) = got {
            args = args.number("got", got);
        }
        if let Some(node) = node {
            args = args.number("node", node.into());
        }
        let track = self.on_cpu(cpu, "bulk")?;
        self.slice(track, "bulk allocation", begin_ns, end_ns, &args)
    }

    fn stall(
        &mut self,
        pid: u32,
        comm: &[u8],
        name: &str,
        begin_ns: u64,
        end_ns: u64,
    ) -> io::Result<()> {
        self.counted.stalls += 1;
        // Waits of a kind do not nest, those of two kinds do.
        let key = format!("process {pid}/{name}");
        let track = match self.tracks.get(&key) {
            Some(track) => *track,
            None => {
                let process = self.process(pid, comm)?.track;
                self.describe(key, name, Some(process), Kind::Plain)?
            }
        };
        let args = Args::default().number("pid", pid.into());
        self.slice(track, name, begin_ns, end_ns, &args)
    }

    /// Counts pages that went one way.
    fn rate(&mut self, way: usize, pages: i64, time_ns: u64) -> io::Result<()> {
        let (begin_ns, _) = self.rates[way];
        if time_ns >= begin_ns + RATE_NS {
            self.end_rate(way)?;
            // A counter keeps its value until the next: nothing went while nothing is told.
            if begin_ns > 0 && time_ns >= begin_ns + 2 * RATE_NS {
                self.value(RATES, RATE_NAMES[way], begin_ns + RATE_NS, 0)?;
            }
            self.rates[way] = (time_ns - time_ns % RATE_NS, 0);
        }
        self.rates[way].1 += pages;
        Ok(())
    }

    fn end_rate(&mut self, way: usize) -> io::Result<()> {
        match self.rates[way] {
            (_, 0) => Ok(()),
            (begin_ns, pages) => self.value(RATES, RATE_NAMES[way], begin_ns, pages),
        }
    }

    /// Counts pages of the zone that a frame is in.
    fn take(&mut self, Pfn(pfn): Pfn, pages: i64, time_ns: u64) -> io::Result<()> {
        let Some(zone) = self.zones.iter().position(|zone| zone.frames.contains(&pfn)) else {
            return Ok(());
        };
        let (taken, written) = &mut self.taken[zone];
        *taken += pages;
        if written.is_none_or(|written| time_ns >= written + COUNTER_NS) {
            self.write_taken(zone, time_ns)?;
        }
        Ok(())
    }

    fn write_taken(&mut self, zone: usize, time_ns: u64) -> io::Result<()> {
        self.taken[zone].1 = Some(time_ns);
        let (name, taken) = (self.zones[zone].name.clone(), self.taken[zone].0);
        self.value(&name, "taken", time_ns, taken)
    }

    fn value(&mut self, zone: &str, what: &str, time_ns: u64, pages: i64) -> io::Result<()> {
        let name = format!("{zone} {what}");
        let key = format!("{zone}/{name}");
        let track = match self.tracks.get(&key) {
            Some(track) => *track,
            None => {
                let parent = self.track(zone, None)?;
                self.describe(key, &name, Some(parent), Kind::Counter)?
            }
        };
        self.counted.values += 1;
        self.sink.value(track, &name, time_ns, pages)
    }
}

#[cfg(test)]
mod tests;
