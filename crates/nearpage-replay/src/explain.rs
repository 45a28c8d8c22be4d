//! Why a replay did what it did: the life of one page, or what was decided around one moment, in words.
//!
//! The rule behind a decision stands in brackets, by the name that Linux 6.12 has for it in `mm/page_alloc.c` and
//! `mm/vmstat.c`. What the model did is found by looking at the state before and after an event: nothing in the core
//! writes a log.

mod scene;
mod teller;

use std::collections::VecDeque;
use std::str::FromStr;

use nearpage::{CpuId, Pfn};
use nearpage_trace::{Event, TraceEvent};

use crate::start::Start;
use scene::block_of;
use teller::{Teller, block, seconds, who};

pub(crate) use scene::Scene;

/// What of a replay is to be explained. It is read from a frame (`0x14a04`, `84484`) or a time of the trace in seconds
/// (`5310.881638`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
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

/// A text that is neither a page nor a time.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{given}: is no page and no time, expected a frame (0x14a04 or 84484) or a time of the trace in seconds with a point \
     (5310.881638)"
)]
pub struct SubjectError {
    /// The text.
    pub given: String,
}

impl FromStr for Subject {
    type Err = SubjectError;

    fn from_str(given: &str) -> Result<Subject, SubjectError> {
        let wrong = || SubjectError { given: given.into() };
        if let Some(digits) = given.strip_prefix("0x") {
            return u64::from_str_radix(digits, 16).map(page).map_err(|_| wrong());
        }
        match given.split_once('.') {
            None => given.parse().map(page).map_err(|_| wrong()),
            Some((seconds, fraction)) => time(seconds, fraction).ok_or_else(wrong),
        }
    }
}

impl Subject {
    /// In words.
    pub(crate) fn name(self, start: &Start) -> String {
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

/// Listens to a replay and tells what concerns its subject.
#[derive(Clone, Debug)]
pub(crate) struct Explainer {
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
    pub(crate) fn new(subject: Subject) -> Explainer {
        Explainer { subject, told: VecDeque::new(), left_out: 0, later: 0, run: None }
    }

    /// Whether an event concerns the subject.
    pub(crate) fn wants(&self, event: &TraceEvent<'_>) -> bool {
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
    pub(crate) fn tell(&mut self, event: &TraceEvent<'_>, scenes: [&Scene; 3], start: &Start) {
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
    pub(crate) fn lines(self) -> Vec<String> {
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

#[cfg(test)]
mod tests {
    use nearpage::Order;

    use super::*;

    #[test]
    fn pages_and_times_are_told_apart() {
        let parsed = |text: &str| text.parse::<Subject>().unwrap();
        assert_eq!(parsed("0x14a04"), Subject::Page(Pfn(0x14a04)));
        assert_eq!(parsed("84484"), Subject::Page(Pfn(84_484)));
        assert_eq!(parsed("5310.881638"), Subject::Moment(5_310_881_638_000));
        for wrong in ["", "x", "0x", "1.2.3", "1.x", "-1", "1.0123456789"] {
            let message = wrong.parse::<Subject>().unwrap_err().to_string();
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
            fields: b"",
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
