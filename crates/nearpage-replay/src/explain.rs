//! Why a replay did what it did: the life of one page, or what was decided around one moment, in words.
//!
//! The rule behind a decision stands in brackets, by the name that Linux 6.12 has for it in `mm/page_alloc.c` and
//! `mm/vmstat.c`. What the model did is found by looking at the state before and after an event: nothing in the core
//! writes a log.

use std::collections::VecDeque;

use nearpage::{CpuId, Fallbacks, Migratetype, Order, PageCount, Pfn, Reason};

use super::error::ReplayError;
use super::run::Run;
use super::start::Start;
use nearpage_trace::{Event, TraceEvent};

/// What is to be explained.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// The life of the page at a recorded frame.
    Page(Pfn),
    /// The decisions around a time of the trace, in nanoseconds.
    Moment(u64),
}

/// Decisions before a moment that are told, and as many after it.
const AROUND: usize = 12;
/// Events further away than this are not part of a moment.
const MOMENT_NS: u64 = 100_000_000;
/// The most that is told of a page.
const TOLD_MOST: usize = 1000;

impl Subject {
    /// Reads a frame (`0x14a04`, `84484`) or a time in seconds (`5310.881638`).
    ///
    /// # Errors
    ///
    /// It is neither.
    pub fn parse(given: &str) -> Result<Subject, ReplayError> {
        let wrong = || ReplayError::Incomplete {
            input: format!("--explain {given}"),
            what: "is no page and no time".into(),
            expected: "a frame (0x14a04 or 84484) or a time of the trace in seconds with a point (5310.881638)",
        };
        if let Some(digits) = given.strip_prefix("0x") {
            return u64::from_str_radix(digits, 16).map(page).map_err(|_| wrong());
        }
        match given.split_once('.') {
            None => given.parse().map(page).map_err(|_| wrong()),
            Some((seconds, fraction)) => time(seconds, fraction).ok_or_else(wrong),
        }
    }

    /// In words.
    pub fn name(self, start: &Start) -> String {
        match self {
            Subject::Page(pfn) => {
                let zone = start.map.zone_of(pfn).map(|zone| start.zones[zone].name());
                format!("page {:#x}, {}", pfn.0, zone.unwrap_or("in no zone".into()))
            }
            Subject::Moment(at) => format!("around {} s", seconds(at)),
        }
    }
}

fn page(frame: u64) -> Subject {
    Subject::Page(Pfn(frame))
}

fn time(seconds: &str, fraction: &str) -> Option<Subject> {
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(seconds) || !digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let whole: u64 = seconds.parse().ok()?;
    let part: u64 = format!("{fraction:0<9}").parse().ok()?;
    Some(Subject::Moment(whole.checked_mul(1_000_000_000)?.checked_add(part)?))
}

fn seconds(ns: u64) -> String {
    format!("{}.{:06}", ns / 1_000_000_000, ns % 1_000_000_000 / 1000)
}

/// What an event may change, of one CPU.
#[derive(Clone, Debug)]
pub struct Scene {
    zones: Vec<ZoneScene>,
    reasons: Fallbacks,
    other_types: u64,
    refused: u64,
    /// The zone of the core's block that stands for the block of the event.
    block: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ZoneScene {
    free: u64,
    below_high: bool,
    reclaim: bool,
    count: u64,
    high: u64,
    alloc_factor: u8,
    free_count: u64,
    refilled: [u64; 2],
    drained: [u64; 2],
}

impl Scene {
    /// How things stand.
    pub fn of(run: &Run<'_>, event: &TraceEvent<'_>) -> Scene {
        let pfn = block_of(&event.event).map(|(pfn, _)| pfn);
        Scene {
            zones: (0..run.core.zones().len())
                .filter_map(|zone| zone_scene(run, event.cpu, zone))
                .collect(),
            reasons: run.reasons(),
            other_types: run.extfrag(),
            refused: run.counts.refused_allocs,
            block: pfn.and_then(|pfn| run.zone_of_block(pfn)),
        }
    }
}

fn zone_scene(run: &Run<'_>, cpu: CpuId, zone: usize) -> Option<ZoneScene> {
    let pageset = &run.core.pagesets(cpu)?[zone];
    let (zone, tuning, counts) = (run.core.zones()[zone], pageset.tuning(), pageset.counts());
    let view = zone.view();
    Some(ZoneScene {
        free: zone.free_pages().0,
        below_high: view.below_high,
        reclaim: view.reclaim_active,
        count: pageset.count().0,
        high: tuning.high.0,
        alloc_factor: tuning.alloc_factor,
        free_count: tuning.free_count.0,
        refilled: [counts.refills, counts.refilled_pages.0],
        drained: [counts.drains, counts.drained_pages.0],
    })
}

/// The block that an event is about.
fn block_of(event: &Event<'_>) -> Option<(Pfn, Order)> {
    match *event {
        Event::Alloc { pfn: Some(pfn), order, .. }
        | Event::Free { pfn, order }
        | Event::ZoneLocked { pfn, order, .. }
        | Event::PcpuDrain { pfn, order }
        | Event::Extfrag { pfn, order } => Some((pfn, order)),
        _ => None,
    }
}

/// Listens to a replay and tells what concerns its subject.
#[derive(Clone, Debug)]
pub struct Explainer {
    subject: Subject,
    told: VecDeque<Vec<String>>,
    left_out: u64,
    /// Decisions told that came at the moment or after it.
    later: usize,
    /// Lines of the kernel's log that are told as one, the last thing told.
    run: Option<LogRun>,
}

/// Lines of the kernel's log of one kind, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct LogRun {
    cpu: CpuId,
    pid: u32,
    kind: &'static str,
    blocks: u64,
    pages: u64,
}

impl LogRun {
    fn of(event: &TraceEvent<'_>) -> Option<LogRun> {
        let (kind, order) = match event.event {
            Event::ZoneLocked { order, percpu_refill: true, .. } => {
                ("left the free lists for a pageset [mm_page_alloc_zone_locked]", order)
            }
            Event::ZoneLocked { order, .. } => {
                ("left the free lists past the pagesets [mm_page_alloc_zone_locked]", order)
            }
            Event::PcpuDrain { order, .. } => {
                ("left a pageset for its zone [mm_page_pcpu_drain]", order)
            }
            Event::Extfrag { order, .. } => {
                ("came from another type [mm_page_alloc_extfrag]", order)
            }
            _ => return None,
        };
        let pages = order.pages().0;
        Some(LogRun { cpu: event.cpu, pid: event.pid, kind, blocks: 1, pages })
    }

    /// Both as one, if they are of one kind.
    fn with(self, more: LogRun) -> Option<LogRun> {
        let is_same = (self.cpu, self.pid, self.kind) == (more.cpu, more.pid, more.kind);
        let (blocks, pages) = (self.blocks + more.blocks, self.pages + more.pages);
        is_same.then_some(LogRun { blocks, pages, ..self })
    }
}

impl Explainer {
    /// One that has heard nothing yet.
    pub fn new(subject: Subject) -> Explainer {
        Explainer { subject, told: VecDeque::new(), left_out: 0, later: 0, run: None }
    }

    /// Whether an event concerns the subject.
    pub fn wants(&self, event: &TraceEvent<'_>) -> bool {
        match self.subject {
            Subject::Page(page) => block_of(&event.event)
                .is_some_and(|(pfn, order)| (pfn.0..pfn.0 + order.pages().0).contains(&page.0)),
            Subject::Moment(at) => {
                let is_told = matches!(event.event, Event::Marker(_) | Event::BulkDone { .. });
                event.time_ns.abs_diff(at) <= MOMENT_NS
                    && self.later < AROUND
                    && (is_told || block_of(&event.event).is_some())
            }
        }
    }

    /// Tells an event: the state before it, after the once-a-second work that was due, and after it.
    pub fn tell(&mut self, event: &TraceEvent<'_>, scenes: [&Scene; 3], start: &Start) {
        let mut lines = Vec::new();
        let [before, ticked, after] = scenes;
        let teller = Teller { start, cpu: event.cpu };
        if let Some(log) = LogRun::of(event) {
            self.log(event, log);
            return;
        }
        self.run = None;
        teller.turn(before, ticked, &mut lines);
        lines.push(teller.heading(event));
        match event.event {
            Event::Alloc { pfn: Some(pfn), .. } => teller.alloc(pfn, ticked, after, &mut lines),
            Event::BulkDone { .. } => teller.changes(ticked, after, "nr_pcp_alloc", &mut lines),
            Event::Free { order, .. } => teller.free(order, ticked, after, &mut lines),
            _ => {}
        }
        self.push(event.time_ns, lines);
    }

    /// Tells a line of the kernel's log, together with those before it that are of its kind.
    fn log(&mut self, event: &TraceEvent<'_>, log: LogRun) {
        let who = who(event);
        let joined = self.run.and_then(|run| run.with(log));
        self.run = Some(joined.unwrap_or(log));
        match (joined, block_of(&event.event)) {
            (Some(LogRun { kind, blocks, pages, .. }), _) => {
                self.told.pop_back();
                let line = format!("{who}: kernel's log: {blocks} blocks ({pages} pages) {kind}");
                self.told.push_back(vec![line]);
            }
            (None, Some((pfn, order))) => {
                let line = format!("{who}: kernel's log: {} {}", block(pfn, order), log.kind);
                self.push(event.time_ns, vec![line]);
            }
            (None, None) => {}
        }
    }

    fn push(&mut self, time_ns: u64, lines: Vec<String>) {
        match self.subject {
            Subject::Moment(at) if time_ns >= at => self.later += 1,
            Subject::Moment(_) if self.told.len() == AROUND => drop(self.told.pop_front()),
            Subject::Page(_) if self.told.len() == TOLD_MOST => {
                self.left_out += 1;
                return;
            }
            _ => {}
        }
        self.told.push_back(lines);
    }

    /// What was told, line by line.
    pub fn lines(self) -> Vec<String> {
        let mut lines: Vec<String> = self.told.into_iter().flatten().collect();
        if lines.is_empty() {
            lines.push("no event of the window concerns it".into());
        }
        if self.left_out > 0 {
            lines.push(format!("and {} events more", self.left_out));
        }
        lines
    }
}

struct Teller<'a> {
    start: &'a Start,
    cpu: CpuId,
}

impl Teller<'_> {
    fn zone(&self, zone: Option<usize>) -> String {
        zone.map_or("no zone".into(), |zone| self.start.zones[zone].name())
    }

    fn heading(&self, event: &TraceEvent<'_>) -> String {
        let what = match event.event {
            Event::Alloc { pfn: Some(pfn), order, migratetype, .. } => {
                let of = Migratetype::ALL.get(usize::from(migratetype)).map_or("", |of| of.name());
                format!("allocates {} ({of})", block(pfn, order))
            }
            Event::Free { pfn, order } => format!("frees {}", block(pfn, order)),
            Event::BulkDone { got, .. } => format!("allocates {got} pages in bulk"),
            Event::Marker(text) => format!("marker: {}", String::from_utf8_lossy(text)),
            _ => "other".into(),
        };
        format!("{}: {what}", who(event))
    }

    fn alloc(&self, pfn: Pfn, before: &Scene, after: &Scene, lines: &mut Vec<String>) {
        let recorded = self.zone(self.start.map.zone_of(pfn));
        if after.refused > before.refused {
            lines.push(format!(
                "    recorded: {recorded}; model: refused, no zone passes its mark [get_page_from_freelist]"
            ));
            return;
        }
        let reason = Reason::ALL
            .into_iter()
            .find(|&reason| after.reasons.pages(reason) > before.reasons.pages(reason));
        let why = match reason {
            Some(reason) => format!("not the nearest zone, because of: {}", reason.name()),
            None => "the nearest zone that is allowed".into(),
        };
        lines.push(format!(
            "    recorded: {recorded}; model: {}, {why} [get_page_from_freelist]",
            self.zone(after.block)
        ));
        self.changes(before, after, "nr_pcp_alloc", lines);
        if let Some(zone) = after.block.filter(|&zone| is_quiet(before, after, zone)) {
            lines.push(self.without_trip(zone, before, after, "rmqueue"));
        }
    }

    fn free(&self, order: Order, before: &Scene, after: &Scene, lines: &mut Vec<String>) {
        match before.block {
            Some(zone) => {
                lines.push(format!("    model: it stands for a block of {}", self.zone(Some(zone))))
            }
            None => lines.push(format!(
                "    model: a block of order {} that was allocated before the window stands for it",
                order.0
            )),
        }
        self.changes(before, after, "nr_pcp_high, nr_pcp_free", lines);
        if let Some(zone) = before.block.filter(|&zone| is_quiet(before, after, zone)) {
            lines.push(self.without_trip(zone, before, after, "free_unref_page"));
        }
    }

    /// What happened without a trip of the pageset to its zone.
    fn without_trip(&self, zone: usize, before: &Scene, after: &Scene, rule: &str) -> String {
        let (Some(was), Some(is)) = (before.zones.get(zone), after.zones.get(zone)) else {
            return String::new();
        };
        if was.count == is.count {
            let free = is.free;
            return format!("    past the pageset, free pages of the zone {free} [{rule}_buddy]");
        }
        format!(
            "    by the pageset alone: {} -> {} pages, limit {} [{rule}]",
            was.count, is.count, is.high
        )
    }

    /// The once-a-second work of the CPU, if it was due.
    fn turn(&self, before: &Scene, after: &Scene, lines: &mut Vec<String>) {
        let first = lines.len();
        self.changes(before, after, "decay_pcp_high", lines);
        if lines.len() > first {
            let title = format!("cpu {}: once-a-second work [refresh_cpu_vm_stats]", self.cpu);
            lines.insert(first, title);
        }
    }

    /// Trips of pagesets to their zones, moved limits and marks that were crossed.
    fn changes(&self, before: &Scene, after: &Scene, rule: &str, lines: &mut Vec<String>) {
        for (index, (was, is)) in before.zones.iter().zip(&after.zones).enumerate() {
            let zone = self.zone(Some(index));
            let trips = |is: [u64; 2], was: [u64; 2]| (is[0] - was[0], is[1] - was[1]);
            let (refills, pages) = trips(is.refilled, was.refilled);
            if refills > 0 {
                lines.push(format!(
                    "    {zone}: its list was empty: {pages} pages from the zone in {refills} hold(s), factor {} -> {}, {} free left [{rule}, rmqueue_bulk]",
                    was.alloc_factor, is.alloc_factor, is.free
                ));
            }
            let (drains, pages) = trips(is.drained, was.drained);
            if drains > 0 {
                lines.push(format!(
                    "    {zone}: {pages} pages back to the zone in {drains} hold(s), coldest first; {} freed in a row; pageset {} -> {} [{rule}, free_pcppages_bulk]",
                    was.free_count, was.count, is.count
                ));
            }
            if was.high != is.high {
                lines.push(format!("    {zone}: limit {} -> {} [{rule}]", was.high, is.high));
            }
            if was.below_high != is.below_high {
                let side = if is.below_high { "below" } else { "above" };
                lines.push(format!("    {zone}: now {side} its high mark [ZONE_BELOW_HIGH]"));
            }
            if was.reclaim != is.reclaim {
                let what = if is.reclaim { "begins" } else { "ends" };
                lines.push(format!("    {zone}: background reclaim {what} [ZONE_RECLAIM_ACTIVE]"));
            }
        }
        if after.other_types > before.other_types {
            let count = after.other_types - before.other_types;
            lines.push(format!(
                "    {count} block(s) of another type taken [__rmqueue_claim, __rmqueue_steal]"
            ));
        }
    }
}

/// When, where and who.
fn who(event: &TraceEvent<'_>) -> String {
    let comm = String::from_utf8_lossy(event.comm);
    format!("{}  cpu {} {comm}-{}", seconds(event.time_ns), event.cpu, event.pid)
}

fn is_quiet(before: &Scene, after: &Scene, zone: usize) -> bool {
    before
        .zones
        .get(zone)
        .zip(after.zones.get(zone))
        .is_some_and(|(was, is)| (was.refilled, was.drained) == (is.refilled, is.drained))
}

fn block(pfn: Pfn, order: Order) -> String {
    match order.pages() {
        PageCount(1) => format!("page {:#x}", pfn.0),
        PageCount(pages) => format!("{pages} pages from {:#x}", pfn.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_and_times_are_told_apart() {
        let parsed = |text| Subject::parse(text).unwrap();
        assert_eq!(parsed("0x14a04"), Subject::Page(Pfn(0x14a04)));
        assert_eq!(parsed("84484"), Subject::Page(Pfn(84_484)));
        assert_eq!(parsed("5310.881638"), Subject::Moment(5_310_881_638_000));
        for wrong in ["", "x", "0x", "1.2.3", "1.x", "-1", "1.0123456789"] {
            let message = Subject::parse(wrong).unwrap_err().to_string();
            assert!(message.contains("0x14a04"), "{message}");
        }
    }

    #[test]
    fn lines_of_the_kernel_are_told_together() {
        let mut explainer = Explainer::new(Subject::Moment(100));
        let event = |at, cpu| TraceEvent {
            offset: 0,
            comm: b"a",
            pid: 7,
            cpu: CpuId(cpu),
            time_ns: at,
            event: Event::PcpuDrain { pfn: Pfn(at), order: Order(2) },
        };
        for event in [event(1, 0), event(2, 0), event(3, 1), event(100, 1)] {
            explainer.log(&event, LogRun::of(&event).unwrap());
        }
        let lines = explainer.lines();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].contains("2 blocks (8 pages) left a pageset"), "{lines:?}");
    }

    #[test]
    fn a_moment_has_as_much_before_as_after() {
        let mut explainer = Explainer::new(Subject::Moment(100));
        for time in 60..140 {
            if explainer.later < AROUND {
                explainer.push(time, vec![time.to_string()]);
            }
        }
        let lines = explainer.lines();
        assert_eq!((lines.len(), &*lines[0], &*lines[23]), (24, "88", "111"));
    }
}
