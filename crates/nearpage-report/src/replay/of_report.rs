//! The report as a page.

use nearpage_replay::{Machine, PagesetSeries, Report, SeriesPoint, ZoneSeries};

use super::changes::change_lines;
use super::objects::objects_text;
use super::text::{heading, what_if_columns, what_if_rows};
use super::{ReplayPage, WhatIfTable, page_of};
use crate::charts::{Lines, Series, Shade};
use crate::machine::MachineView;
use crate::page::Origin;

/// The page of a replay as it is.
pub fn page_of_report(report: &Report, origin: &Origin) -> String {
    let mut met = String::new();
    heading(&mut met, report);
    let view = |machine: &Machine| MachineView::of_topology(&machine.topology, machine.page_shift);
    let what_if = report.what_if.as_ref().map(|answer| {
        let title = format!("model {}", answer.model);
        let machine = answer.machine.as_ref().map(view);
        let mut changes = change_lines([&answer.changes]);
        changes.extend(answer.no_difference.clone());
        let columns = what_if_columns(answer).iter().map(|(name, _)| *name).collect();
        WhatIfTable { title, changes, columns, rows: what_if_rows(answer), machine }
    });
    let zones = report.series.zones.iter().map(free_pages);
    let page = ReplayPage {
        name: report.bundle.clone(),
        facts: met.lines().collect(),
        fidelity: &report.fidelity,
        lines: zones.chain(report.series.pagesets.iter().map(pageset)).collect(),
        what_if,
        objects: report.objects.as_ref().map(objects_text),
        machine: view(&report.machine),
        open_loop: report.open_loop,
    };
    page_of(&page, origin)
}

fn free_pages(zone: &ZoneSeries) -> Lines {
    let mut series = pair("", &zone.free, [Shade::Given, Shade::Model]);
    let marks = [("mark min", Shade::Low), ("mark high", Shade::High)];
    for ((name, shade), pages) in marks.into_iter().zip(zone.marks) {
        let points =
            zone.free.iter().map(|point| (f64::from(point.sample), pages as f64)).collect();
        series.push(Series { name: name.into(), shade, points });
    }
    Lines { title: format!("Free pages, {}", zone.zone), moments: "sample", series }
}

fn pageset(pageset: &PagesetSeries) -> Lines {
    let mut series = pair("count", &pageset.count, [Shade::Given, Shade::Model]);
    series.extend(pair("high", &pageset.high, [Shade::OtherGiven, Shade::OtherModel]));
    let title = format!("Pageset of CPU {}, {}", pageset.cpu, pageset.zone);
    Lines { title, moments: "sample", series }
}

/// What was recorded and what was predicted.
fn pair(what: &str, points: &[SeriesPoint], shades: [Shade; 2]) -> Vec<Series> {
    let side = |name: &str, shade: Shade, value: fn(&SeriesPoint) -> Option<u64>| {
        let point = |point: &SeriesPoint| Some((f64::from(point.sample), value(point)? as f64));
        let name = format!("{what} {name}").trim_start().to_owned();
        Series { name, shade, points: points.iter().filter_map(point).collect() }
    };
    let [given, model] = shades;
    vec![
        side("recorded", given, |point| point.recorded),
        side("predicted", model, |point| point.predicted),
    ]
}
