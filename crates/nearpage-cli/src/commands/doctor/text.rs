//! A line for each finding.

use std::fmt::Write;

use super::Report;

/// The whole text.
pub(super) fn format(report: &Report) -> String {
    let mut text = format!("Machine   {}\n\n", report.source);
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
