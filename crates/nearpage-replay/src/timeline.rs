//! How a load went over its time: free pages, pagesets and holds of each zone, as recorded and in some runs.

use nearpage_machine::sysfs::zoneinfo::ZoneRecord;

use crate::outcome::Snapshot;
use crate::run::Run;
use crate::samples::Sample;
use crate::start::{Start, StartZone};
use crate::survey::Survey;
use crate::truth::find;

/// What was recorded, and what some runs came to, over the time of a load.
#[derive(Clone, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct Timeline {
    /// What was recorded first, if there are samples; then each run.
    pub runs: Vec<TimelineRun>,
}

/// One of them.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct TimelineRun {
    /// `recorded`, or whose rules: `now: linux-6.12`.
    pub name: String,
    /// Log2 of the bytes of a page.
    pub page_shift: u32,
    /// Its zones.
    pub zones: Vec<ZoneLine>,
}

/// A zone over time.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct ZoneLine {
    /// `node 0 zone Normal`.
    pub zone: String,
    /// Its marks `min`, `low` and `high`, in pages.
    pub marks: [u64; 3],
    /// The moments.
    pub points: Vec<ZonePoint>,
}

/// A zone at a moment.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct ZonePoint {
    /// Seconds since the window began.
    pub seconds: f64,
    /// Free pages; `None` where a kernel did not print them.
    pub free: Option<u64>,
    /// Holds of the zone's lock until then, and writes to its shared words under rules that need no lock; `None` for a kernel.
    pub holds: Option<u64>,
    /// Pagesets of its CPUs, ascending by CPU: CPU, pages, limit.
    pub pagesets: Vec<(u32, u64, u64)>,
}

impl Timeline {
    /// Begins with what was recorded; `snapshots` are those of a replay at the samples.
    pub(crate) fn recorded(
        start: &Start,
        survey: &Survey,
        snapshots: &[Snapshot],
        samples: &[Sample],
    ) -> Timeline {
        let moments = snapshots.iter().filter_map(|snapshot| {
            let sample = samples.iter().find(|sample| Some(sample.number) == snapshot.sample)?;
            Some((seconds(survey, snapshot.at_ns), sample))
        });
        let moments: Vec<(f64, &Sample)> = moments.collect();
        if moments.is_empty() {
            return Timeline::default();
        }
        let line = |zone: &StartZone| {
            let points = moments.iter().filter_map(|&(seconds, sample)| {
                find(&sample.zones, zone).map(|record| point_of(seconds, record))
            });
            ZoneLine { points: points.collect(), ..ZoneLine::of(zone) }
        };
        let zones = start.zones.iter().map(line).collect();
        let name = "recorded".into();
        Timeline { runs: vec![TimelineRun { name, page_shift: start.page_shift, zones }] }
    }

    /// Adds a run of `start`, by its moments.
    pub(crate) fn add(&mut self, name: String, start: &Start, survey: &Survey, moments: &Moments) {
        let mut zones: Vec<ZoneLine> = start.zones.iter().map(ZoneLine::of).collect();
        for (snapshot, holds) in &moments.taken {
            let seconds = seconds(survey, snapshot.at_ns);
            for (at, zone) in zones.iter_mut().enumerate() {
                let of_zone = snapshot.pagesets.iter().filter(|pageset| pageset.zone == at);
                zone.points.push(ZonePoint {
                    seconds,
                    free: snapshot.free_pages.get(at).copied(),
                    holds: holds.get(at).copied(),
                    pagesets: of_zone.map(|of| (of.cpu.0, of.count, of.high)).collect(),
                });
            }
        }
        self.runs.push(TimelineRun { name, page_shift: start.page_shift, zones });
    }
}

fn seconds(survey: &Survey, at_ns: u64) -> f64 {
    at_ns.saturating_sub(survey.begin_ns) as f64 / 1e9
}

/// What a kernel printed. A pageset without one of its figures is damaged, and left out.
fn point_of(seconds: f64, record: &ZoneRecord) -> ZonePoint {
    let pagesets = record.pagesets.iter();
    ZonePoint {
        seconds,
        free: record.free,
        holds: None,
        pagesets: pagesets.filter_map(|of| Some((of.cpu.0, of.count?, of.high?))).collect(),
    }
}

impl ZoneLine {
    fn of(zone: &StartZone) -> ZoneLine {
        let marks = [zone.marks.min.0, zone.marks.low.0, zone.marks.high.0];
        ZoneLine { zone: zone.name(), marks, points: Vec::new() }
    }
}

/// How a run stood at moments of one distance.
#[derive(Clone, Debug)]
pub(crate) struct Moments {
    next_ns: u64,
    step_ns: u64,
    left: usize,
    /// Holds of each zone before the run.
    before: Vec<u64>,
    /// The moments, with holds by zone since the run began.
    taken: Vec<(Snapshot, Vec<u64>)>,
}

impl Moments {
    /// So many over the window of a trace, at least two, for a run that begins.
    pub(crate) fn new(run: &Run<'_>, survey: &Survey, count: usize) -> Moments {
        let count = count.max(2);
        let window = survey.end_ns.saturating_sub(survey.begin_ns);
        Moments {
            next_ns: survey.begin_ns,
            step_ns: (window / (count as u64 - 1)).max(1),
            left: count,
            before: run.holds_by_zone(),
            taken: Vec::with_capacity(count),
        }
    }

    /// Takes the moments until `now_ns`: nothing has happened since the last event.
    pub(crate) fn pass_to(&mut self, run: &Run<'_>, zones: &[StartZone], now_ns: u64) {
        while self.left > 0 && self.next_ns <= now_ns {
            let snapshot = Snapshot::of(run, zones, None, self.next_ns);
            let holds = run.holds_by_zone();
            let holds = holds.iter().zip(&self.before).map(|(now, before)| now - before).collect();
            self.taken.push((snapshot, holds));
            self.next_ns = self.next_ns.saturating_add(self.step_ns);
            self.left -= 1;
        }
    }
}
