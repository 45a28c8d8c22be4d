//! The comparison for people: a line a recording, then its differences.

use std::fmt::Write;

use nearpage_bundle::predict::{Class, Comparison, Counts};
use nearpage_bundle::verify::{Compared, Report, sum};
use nearpage_machine::shown;

/// The whole text.
pub(super) fn format(reports: &[Report], explain: bool, strict: bool) -> String {
    let mut text = String::new();
    for report in reports {
        // Writing to a string cannot fail.
        let _ = write_report(&mut text, report, explain, strict);
    }
    let all: Vec<&Compared> =
        reports.iter().flat_map(Report::compared).map(|(_, compared)| compared).collect();
    if reports.len() > 1 && !all.is_empty() {
        let _ = writeln!(
            text,
            "all {} recordings, {} captures: {}",
            reports.len(),
            all.len(),
            figures(&all)
        );
    }
    text
}

fn write_report(
    out: &mut String,
    report: &Report,
    explain: bool,
    strict: bool,
) -> std::fmt::Result {
    let captures: Vec<(&str, &Compared)> = report.compared().collect();
    let Some((_, first)) = captures.first() else { return Ok(()) };
    let all: Vec<&Compared> = captures.iter().map(|(_, compared)| *compared).collect();
    let kernel = if report.kernel.is_empty() { "an unknown kernel" } else { &report.kernel };
    let model = first.model.model.name;
    write!(out, "{}: {model} ({kernel}): {}", shown(&report.path), figures(&all))?;
    let differences: usize = all.iter().map(|one| one.comparisons.mismatches(false).count()).sum();
    match (first.model.is_of_other_kernel, differences) {
        (false, _) => writeln!(out)?,
        (true, 0) => writeln!(out, "; {model} is another kernel, but nothing differs")?,
        (true, _) => writeln!(out, "; {model} is another kernel: {differences} fields differ")?,
    }
    for (name, compared) in captures {
        if explain {
            writeln!(out, "  {name}: {}", figures(&[compared]))?;
        }
        for field in compared.comparisons.mismatches(false) {
            write_mismatch(out, name, "", field)?;
        }
        for field in compared.comparisons.mismatches(true).filter(|_| explain || strict) {
            write_mismatch(out, name, "boot-time: ", field)?;
        }
    }
    Ok(())
}

fn write_mismatch(
    out: &mut String,
    capture: &str,
    class: &str,
    field: &Comparison,
) -> std::fmt::Result {
    let Comparison { field, predicted, recorded, rule, .. } = field;
    writeln!(
        out,
        "    {capture}: {class}{field}: predicted {predicted}, the kernel printed {recorded}; {rule}"
    )
}

/// `watermarks 96/96, …; boot-time 20/24`, without the classes that nothing was recorded of.
fn figures(all: &[&Compared]) -> String {
    let sums = Class::ALL.map(|class| (class, sum(all.iter().copied(), class)));
    let classes: Vec<String> = sums
        .iter()
        .filter(|(_, (counts, _))| counts.total > 0)
        .map(|(class, (counts, _))| format!("{} {counts}", class.name()))
        .collect();
    let mut apart = Counts::default();
    sums.iter().for_each(|(_, (_, counts))| apart += *counts);
    let boot_time = if apart.total > 0 { format!("boot-time {apart}") } else { String::new() };
    let parts: Vec<String> = [classes.join(", "), boot_time].into();
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    if parts.is_empty() { "nothing to compare".into() } else { parts.join("; ") }
}
