//! `bulk`: the table of 2017 on this machine's real memory, and the form that both tables have.

use crate::commands::CommandError;
use crate::commands::bench::{self, BulkLine, PublishedBulk, SingleLoop};
use nearpage_lab::fit::{Fit, Loop};
use nearpage_lab::report::{Report, Tolerance};

/// The reference's columns with the coefficients of its published forms: page, call, zone, and how its loop counted.
const FORMS: [(&str, Loop, f64, f64); 4] = [
    ("alloc, single", Loop::OneMore, 126.9, 42.5),
    ("alloc, bulk", Loop::Exact, 40.2, 46.3),
    ("free, single", Loop::OneMore, 43.5, 53.0),
    ("free, bulk", Loop::Exact, 43.1, 53.6),
];
/// The worst of its forms is off by this at one point.
const FORM_ERROR: f64 = 0.034;

pub(super) const NAME: &str = "bulk";
pub(super) const TITLE: &str = "2017: many pages by one call, on this machine's real memory";

pub(super) fn run(single_loop: SingleLoop) -> Result<Report, CommandError> {
    let mut report = Report::new(NAME, TITLE);
    let published = bench::published_bulk();
    fit_reference(&published, &mut report);
    let lines = bench::measure_bulk(single_loop)?;
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

fn gain(line: &BulkLine) -> f64 {
    100.0 * (1.0 - line.bulk / line.single)
}

/// Ours and the reference's, the latter with the loop that we use.
fn beside(
    lines: &[Vec<BulkLine>; 2],
    published: &PublishedBulk,
    single_loop: SingleLoop,
) -> Vec<(&'static str, BulkLine, BulkLine)> {
    let mut all = Vec::new();
    for (operation, (ours, theirs)) in
        ["alloc", "free"].into_iter().zip(lines.iter().zip(published))
    {
        for (line, published) in ours.iter().zip(theirs) {
            let n = published.n as f64;
            let exact = if single_loop == SingleLoop::Exact { n / (n + 1.0) } else { 1.0 };
            let published = BulkLine { single: published.single * exact, ..*published };
            all.push((operation, *line, published));
        }
    }
    all
}

fn columns(lines: &[Vec<BulkLine>; 2]) -> [Vec<(f64, f64)>; 4] {
    let column = |lines: &[BulkLine], of: fn(&BulkLine) -> f64| {
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

fn fit_reference(published: &PublishedBulk, report: &mut Report) {
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

fn fit_here(lines: &[Vec<BulkLine>; 2], single_loop: SingleLoop, report: &mut Report) {
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
        fit_reference(&bench::published_bulk(), &mut report);
        assert!(!report.has_failed(), "{report:?}");
    }
}
