//! The report as text.

use std::fmt::Write;

use super::Report;
use crate::replay::fidelity::Row;

/// The report as a screen or two.
pub(super) fn render(report: &Report) -> String {
    let mut out = String::new();
    let of_other = if report.is_of_other_kernel { " (of another kernel)" } else { "" };
    let _ = writeln!(
        out,
        "{}: kernel {}, model {}{of_other}",
        report.bundle.name(),
        report.bundle.recording.kernel,
        report.start.model.name
    );
    let counts = &report.replayed.counts;
    let _ = writeln!(out, "{counts:?}");
    let _ = writeln!(out, "{:?}", report.replayed.outcomes[0].counts);
    for row in report.fidelity.rows.iter().filter(|row| !row.place.starts_with("cpu")) {
        render_row(&mut out, row);
    }
    for quantity in ["pcp_high", "pcp_count"] {
        let mut errors: Vec<f64> = report
            .fidelity
            .rows
            .iter()
            .filter(|row| row.quantity == quantity && row.place.starts_with("cpu"))
            .filter_map(Row::error_percent)
            .collect();
        errors.sort_by(f64::total_cmp);
        if let Some(median) = errors.get(errors.len() / 2) {
            let _ = writeln!(
                out,
                "{quantity} of each CPU and zone: median error {median:.1} % of {}",
                errors.len()
            );
        }
    }
    let percent =
        report.fidelity.percent.map_or("none".into(), |percent| format!("{percent:.2} %"));
    let _ = writeln!(out, "fidelity: {percent}");
    out
}

fn render_row(out: &mut String, row: &Row) {
    let number = |value: Option<u64>| value.map_or("-".into(), |value| value.to_string());
    let error = row.error_percent().map_or("-".into(), |error| format!("{error:.2} %"));
    let bound = row.start_bound.map_or("-".into(), |[lo, hi]| format!("{lo}..{hi}"));
    let _ = writeln!(
        out,
        "{:<16} {:<22} {:>10} {:>10} {:>9}  {}",
        row.quantity,
        row.place,
        number(row.predicted),
        number(row.recorded),
        error,
        bound
    );
}
