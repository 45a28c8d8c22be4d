//! A line for each finding.

use std::fmt::Write;

use nearpage_doctor::Report;
use nearpage_machine::shown;

/// The whole text.
pub(super) fn format(report: &Report) -> String {
    let capture = report.capture.iter().map(|name| format!(", capture {name}")).collect::<String>();
    let mut text = format!("Machine   {}{capture}\n\n", shown(&report.source));
    for finding in &report.findings {
        let advice =
            finding.advice.iter().map(|advice| format!(" -> {advice}")).collect::<String>();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:<8}  {} = {}: {}{advice}",
            finding.level.name(),
            finding.check,
            finding.found,
            finding.meaning
        );
    }
    text
}
