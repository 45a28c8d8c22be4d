//! The table of 2017 beside this machine's: a report of the lab's kind, with the form that both tables have.

use nearpage_lab::report::{Report, Tolerance};
use nearpage_machine::work::Observer;

use crate::bench::Bench;
use crate::error::BenchError;
use crate::fit::{Fit, Loop};
use crate::options::Options;
use crate::published::{self, Published};
use crate::rows::{Row, Work};
use crate::run::Run;
use crate::work::bulk::SingleLoop;

/// The reference's columns with the coefficients of its published forms: page, call, zone, and how its loop counted.
const FORMS: [(&str, Loop, f64, f64); 4] = [
    ("alloc, single", Loop::OneMore, 126.9, 42.5),
    ("alloc, bulk", Loop::Exact, 40.2, 46.3),
    ("free, single", Loop::OneMore, 43.5, 53.0),
    ("free, bulk", Loop::Exact, 43.1, 53.6),
];
/// The worst of its forms is off by this at one point.
const FORM_ERROR: f64 = 0.034;

/// The report's name: that of a scenario which is measured, not simulated.
pub const NAME: &str = "bulk";
/// The report's title.
pub const TITLE: &str = "2017: many pages by one call, on this machine's real memory";

/// A line of the table of 2017.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Line {
    /// Pages a call.
    n: usize,
    /// What a page costs, one at a time.
    single: f64,
    /// What it costs in bulk.
    bulk: f64,
}

/// Allocations and frees.
type Lines = [Vec<Line>; 2];

/// Measures [`Bench::Bulk`] here, and puts it beside the published table.
///
/// # Errors
///
/// [`BenchError`].
pub fn run(single_loop: SingleLoop, observer: &dyn Observer) -> Result<Report, BenchError> {
    let mut report = Report::new(NAME, TITLE);
    let published = published();
    fit_reference(&published, &mut report);
    let lines = measured(single_loop, observer)?;
    let header = [
        "operation",
        "n",
        "single, cycles (2017)",
        "bulk, cycles (2017)",
        "gain % (2017)",
        "single, ns (here)",
        "bulk, ns (here)",
        "gain % (here)",
    ];
    report.table.header = header.map(str::to_owned).to_vec();
    for (operation, line, published) in beside(&lines, &published, single_loop) {
        report.count(format!("{operation}, n = {}: single_ns", line.n), line.single);
        report.count(format!("{operation}, n = {}: bulk_ns", line.n), line.bulk);
        let mut row = vec![operation.to_owned(), line.n.to_string()];
        let figures = [
            published.single,
            published.bulk,
            gain(&published),
            line.single,
            line.bulk,
            gain(&line),
        ];
        row.extend(figures.map(|figure| format!("{figure:.1}")));
        report.table.rows.push(row);
    }
    fit_here(&lines, single_loop, &mut report);
    report
        .notes
        .push("2017 in CPU cycles a page on a machine that is not named; here in ns".into());
    Ok(report)
}

/// As published, in cycles.
fn published() -> Lines {
    [published::ALLOC, published::FREE].map(|lines| {
        let line = |line: &Published| Line {
            n: line.n,
            single: line.single_cycles,
            bulk: line.bulk_cycles,
        };
        lines.iter().map(line).collect()
    })
}

/// As measured here, in nanoseconds.
fn measured(single_loop: SingleLoop, observer: &dyn Observer) -> Result<Lines, BenchError> {
    let run = Run::new(&Options::default().benches(&[Bench::Bulk]).single_loop(single_loop))?;
    let rows = run.measure(Bench::Bulk, observer)?.rows;
    let ns = |work, n| {
        let is_it = |row: &&Row| row.key.work == work && row.key.n == n;
        rows.iter().find(is_it).map(|row| row.summary.median)
    };
    let [alloc, free] = single_loop.works();
    let columns = [(alloc, Work::BulkAlloc), (free, Work::BulkFree)];
    Ok(columns.map(|(single, bulk)| {
        let line = |n| Some(Line { n, single: ns(single, n)?, bulk: ns(bulk, n)? });
        published::ALLOC.iter().filter_map(|published| line(published.n)).collect()
    }))
}

fn gain(line: &Line) -> f64 {
    100.0 * (1.0 - line.bulk / line.single)
}

/// Ours and the reference's, the latter with the loop that we use.
fn beside(
    lines: &Lines,
    published: &Lines,
    single_loop: SingleLoop,
) -> Vec<(&'static str, Line, Line)> {
    let mut all = Vec::new();
    for (operation, (ours, theirs)) in
        ["alloc", "free"].into_iter().zip(lines.iter().zip(published))
    {
        for (line, published) in ours.iter().zip(theirs) {
            let n = published.n as f64;
            let exact = if single_loop == SingleLoop::Exact { n / (n + 1.0) } else { 1.0 };
            let published = Line { single: published.single * exact, ..*published };
            all.push((operation, *line, published));
        }
    }
    all
}

fn columns(lines: &Lines) -> [Vec<(f64, f64)>; 4] {
    let column = |lines: &[Line], of: fn(&Line) -> f64| {
        lines.iter().map(|line| (line.n as f64, of(line))).collect()
    };
    let [alloc, free] = lines;
    [
        column(alloc, |line| line.single),
        column(alloc, |line| line.bulk),
        column(free, |line| line.single),
        column(free, |line| line.bulk),
    ]
}

fn fit_reference(published: &Lines, report: &mut Report) {
    let mut worst = 0.0f64;
    for (points, (name, how, page, zone)) in columns(published).iter().zip(FORMS) {
        let fit = Fit::of(points, how);
        worst = worst.max(fit.error);
        report.row(name, "page, cycles", page, fit.page, Tolerance::Relative(0.05));
        report.row(name, "more through the zone, cycles", zone, fit.zone, Tolerance::Relative(0.1));
        note(report, &format!("2017, {name}, cycles"), &fit, how);
    }
    let what = "the form fits the reference's 60 figures: largest relative error, at most 0.034";
    report.hold(what, worst, worst <= FORM_ERROR);
}

fn fit_here(lines: &Lines, single_loop: SingleLoop, report: &mut Report) {
    for (at, points) in columns(lines).iter().enumerate() {
        let is_single = at % 2 == 0;
        let how =
            if is_single && single_loop != SingleLoop::Exact { Loop::OneMore } else { Loop::Exact };
        let fit = Fit::of(points, how);
        note(report, &format!("here, {}, ns", FORMS[at].0), &fit, how);
    }
}

fn note(report: &mut Report, name: &str, fit: &Fit, how: Loop) {
    let Fit { page, call, zone, held, error } = fit;
    let factor = if how == Loop::OneMore { "(n+1)/n * (" } else { "" };
    let end = if how == Loop::OneMore { ")" } else { "" };
    report.notes.push(format!(
        "{name}: {factor}{page:.1} + {call:.1}/n + {zone:.1} * max(0, n - {held:.0})/n{end}, off by at most {:.1} %",
        error * 100.0
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_has_the_form() {
        let mut report = Report::new(NAME, TITLE);
        fit_reference(&published(), &mut report);
        assert!(!report.has_failed(), "{report:?}");
    }
}
