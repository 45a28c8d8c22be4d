//! The comparison as JSON: an object a capture.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::{Compared, Report};
use nearpage_bundle::predict::{Class, Comparison};

#[derive(Serialize)]
struct Document<'a> {
    path: &'a str,
    capture: &'a str,
    kernel: &'a str,
    model: &'a str,
    classes: BTreeMap<&'static str, Figures>,
    mismatches: Vec<Mismatch<'a>>,
    boot_time_mismatches: Vec<Mismatch<'a>>,
}

#[derive(Serialize)]
struct Figures {
    matched: usize,
    total: usize,
    apart: usize,
    apart_matched: usize,
}

#[derive(Serialize)]
struct Mismatch<'a> {
    field: &'a str,
    predicted: &'a Value,
    recorded: &'a Value,
    rule: &'a str,
}

/// What could not be read.
#[derive(Serialize)]
struct Failure<'a> {
    path: &'a str,
    capture: Option<&'a str>,
    error: String,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Entry<'a> {
    Compared(Document<'a>),
    Failed(Failure<'a>),
}

/// The whole array, with a newline at its end.
pub(super) fn format(reports: &[Report]) -> String {
    let entries: Vec<Entry<'_>> = reports.iter().flat_map(entries).collect();
    let text = serde_json::to_string_pretty(&entries);
    text.expect("plain numbers and strings can be written") + "\n"
}

fn entries(report: &Report) -> Vec<Entry<'_>> {
    let path = report.path.as_str();
    let failed = |capture, error: &dyn std::fmt::Display| {
        Entry::Failed(Failure { path, capture, error: error.to_string() })
    };
    let opened = report.error.iter().map(|error| failed(None, error));
    let captures = report.captures.iter().map(|capture| match &capture.result {
        Ok(compared) => Entry::Compared(document(report, &capture.name, compared)),
        Err(error) => failed(Some(capture.name.as_str()), error),
    });
    opened.chain(captures).collect()
}

fn document<'a>(report: &'a Report, capture: &'a str, compared: &'a Compared) -> Document<'a> {
    let comparisons = &compared.comparisons;
    let figures = |class: Class| {
        let (counts, apart) = (comparisons.counts(class), comparisons.apart(class));
        let (matched, total) = (counts.matched, counts.total);
        Figures { matched, total, apart: apart.total, apart_matched: apart.matched }
    };
    Document {
        path: &report.path,
        capture,
        kernel: &report.kernel,
        model: compared.model.model.name,
        classes: Class::ALL.into_iter().map(|class| (class.key(), figures(class))).collect(),
        mismatches: comparisons.mismatches(false).map(mismatch).collect(),
        boot_time_mismatches: comparisons.mismatches(true).map(mismatch).collect(),
    }
}

fn mismatch(field: &Comparison) -> Mismatch<'_> {
    Mismatch {
        field: &field.field,
        predicted: &field.predicted,
        recorded: &field.recorded,
        rule: field.rule,
    }
}
