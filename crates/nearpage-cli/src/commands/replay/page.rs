//! The report as a page.

use nearpage::CpuId;
use nearpage_machine::sysfs::zoneinfo::ZoneRecord;

use super::{OPEN_LOOP, Report, objects, text};
use nearpage_replay::session::Snapshot;
use nearpage_replay::source::Sample;
use nearpage_replay::start::StartZone;
use nearpage_report::replay::{ReplayPage, WhatIfTable, page_of};
use nearpage_report::{Lines, MachineView, Origin, Series, Shade};

/// The page; the recorded side of its series is from `samples`.
pub(super) fn render(report: &Report, samples: &[Sample]) -> String {
    let origin = Origin::new(std::env::args_os(), "none: nothing is random".into());
    let mut heading = String::new();
    text::heading(&mut heading, report);
    let what_if = report.what_if.as_ref().map(|answer| {
        let cpus = answer.cpus.as_deref().map(|cpus| format!(", CPUs: {cpus}"));
        let title = format!("model {}{}", answer.model.name, cpus.unwrap_or_default());
        let machine = answer.machine.as_ref();
        let machine = machine.map(|(topology, shift)| MachineView::of_topology(topology, *shift));
        WhatIfTable { title, rows: text::what_if_rows(report, answer), machine }
    });
    let page = ReplayPage {
        name: report.bundle.name(),
        facts: heading.lines().collect(),
        fidelity: &report.fidelity,
        lines: Moments { report, samples }.lines(),
        what_if,
        objects: report.objects.as_ref().map(objects::text),
        machine: MachineView::of_topology(&report.start.topology, report.start.page_shift),
        open_loop: OPEN_LOOP,
    };
    page_of(&page, &origin)
}

/// Where series come from: the moments of the samples.
struct Moments<'a> {
    report: &'a Report,
    samples: &'a [Sample],
}

/// A pageset, of a recording or a prediction.
#[derive(Clone, Copy, Default)]
struct Pages {
    count: u64,
    high: u64,
}

/// So many pagesets, those with the highest limits, have plots of their own.
const PAGESETS_MOST: usize = 6;

impl Moments<'_> {
    /// Free pages of each zone, then the largest pagesets.
    fn lines(&self) -> Vec<Lines> {
        if self.samples.is_empty() {
            return Vec::new();
        }
        let zones = self.report.start.zones.iter().enumerate();
        let mut lines: Vec<Lines> = zones.map(|(at, zone)| self.free_pages(at, zone)).collect();
        for (cpu, zone) in self.largest_pagesets() {
            lines.push(self.pageset(cpu, zone));
        }
        lines
    }

    /// The number of a sample, its prediction, and what was recorded.
    fn moments(&self) -> impl Iterator<Item = (f64, &Snapshot, &Sample)> {
        let snapshots = self.report.replayed.outcomes[0].snapshots.iter();
        snapshots.filter_map(|snapshot| {
            let number = snapshot.sample?;
            let sample = self.samples.iter().find(|sample| sample.number == number)?;
            Some((f64::from(number), snapshot, sample))
        })
    }

    fn free_pages(&self, at: usize, zone: &StartZone) -> Lines {
        let (mut recorded, mut predicted) = (Vec::new(), Vec::new());
        for (moment, snapshot, sample) in self.moments() {
            let free = find(sample, zone).and_then(|record| record.free);
            recorded.extend(free.map(|pages| (moment, pages as f64)));
            predicted.extend(snapshot.free_pages.get(at).map(|&pages| (moment, pages as f64)));
        }
        let mut series = pair("", recorded, predicted);
        let marks = [("mark min", zone.marks.min), ("mark high", zone.marks.high)];
        for ((name, pages), shade) in marks.into_iter().zip([Shade::Low, Shade::High]) {
            let points = self.moments().map(|(moment, ..)| (moment, pages.0 as f64)).collect();
            series.push(Series { name: name.into(), shade, points });
        }
        Lines { title: format!("Free pages, {}", zone.name()), moments: "sample", series }
    }

    fn pageset(&self, cpu: CpuId, zone: usize) -> Lines {
        let name = self.report.start.zones[zone].name();
        let mut series = Vec::new();
        for (what, part) in PARTS {
            let (mut recorded, mut predicted) = (Vec::new(), Vec::new());
            for (moment, snapshot, sample) in self.moments() {
                let record = find(sample, &self.report.start.zones[zone]);
                let recorded_pages = record.and_then(|record| recorded_pageset(record, cpu));
                recorded.extend(recorded_pages.map(|pages| (moment, part(pages) as f64)));
                let pages = predicted_pageset(snapshot, cpu, zone);
                predicted.extend(pages.map(|pages| (moment, part(pages) as f64)));
            }
            series.extend(pair(what, recorded, predicted));
        }
        // The second pair, of the limit, has other colours than the first.
        let shades = [Shade::OtherGiven, Shade::OtherModel];
        for (series, shade) in series.iter_mut().skip(2).zip(shades) {
            series.shade = shade;
        }
        Lines { title: format!("Pageset of CPU {cpu}, {name}"), moments: "sample", series }
    }

    fn largest_pagesets(&self) -> Vec<(CpuId, usize)> {
        let mut highs: Vec<(u64, CpuId, usize)> = Vec::new();
        for (.., snapshot, _) in self.moments() {
            for &(cpu, zone, _, high) in &snapshot.pagesets {
                match highs.iter_mut().find(|(_, of, at)| (*of, *at) == (cpu, zone)) {
                    Some((most, ..)) => *most = high.max(*most),
                    None => highs.push((high, cpu, zone)),
                }
            }
        }
        highs.sort_by_key(|&(high, cpu, zone)| (std::cmp::Reverse(high), cpu, zone));
        highs.into_iter().take(PAGESETS_MOST).map(|(_, cpu, zone)| (cpu, zone)).collect()
    }
}

/// A figure of a pageset, with its name.
type Part = (&'static str, fn(Pages) -> u64);

const PARTS: [Part; 2] = [("count", |pages| pages.count), ("high", |pages| pages.high)];

fn pair(what: &str, recorded: Vec<(f64, f64)>, predicted: Vec<(f64, f64)>) -> Vec<Series> {
    let name = |side: &str| format!("{what} {side}").trim_start().to_owned();
    vec![
        Series { name: name("recorded"), shade: Shade::Given, points: recorded },
        Series { name: name("predicted"), shade: Shade::Model, points: predicted },
    ]
}

fn find<'a>(sample: &'a Sample, zone: &StartZone) -> Option<&'a ZoneRecord> {
    let is_it = |record: &&ZoneRecord| (record.node, record.kind) == (zone.node, Some(zone.kind));
    sample.zones.iter().find(is_it)
}

fn recorded_pageset(record: &ZoneRecord, cpu: CpuId) -> Option<Pages> {
    let pageset = record.pagesets.iter().find(|pageset| pageset.cpu == cpu)?;
    Some(Pages { count: pageset.count?, high: pageset.high? })
}

fn predicted_pageset(snapshot: &Snapshot, cpu: CpuId, zone: usize) -> Option<Pages> {
    let is_it = |of: &&(CpuId, usize, u64, u64)| (of.0, of.1) == (cpu, zone);
    snapshot.pagesets.iter().find(is_it).map(|&(.., count, high)| Pages { count, high })
}
