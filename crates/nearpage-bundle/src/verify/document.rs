//! Comparisons as documents for programs: one a capture.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::{Compared, Report};
use crate::predict::{Class, Comparison};

const SCHEMA: u32 = 1;

/// A capture that was compared.
#[derive(Debug, Serialize)]
pub struct Document<'a> {
    schema: u32,
    path: &'a str,
    capture: &'a str,
    kernel: &'a str,
    model: &'a str,
    classes: BTreeMap<&'static str, Figures>,
    mismatches: Vec<Mismatch<'a>>,
    boot_time_mismatches: Vec<Mismatch<'a>>,
}

#[derive(Debug, Serialize)]
struct Figures {
    matched: usize,
    total: usize,
    apart: usize,
    apart_matched: usize,
}

#[derive(Debug, Serialize)]
struct Mismatch<'a> {
    field: &'a str,
    predicted: &'a Value,
    recorded: &'a Value,
    rule: &'a str,
}

/// What could not be read.
#[derive(Debug, Serialize)]
pub struct Failure<'a> {
    schema: u32,
    path: &'a str,
    capture: Option<&'a str>,
    error: String,
}

/// A capture, or a recording that could not be read.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Entry<'a> {
    /// It was compared.
    Compared(Document<'a>),
    /// It could not be read.
    Failed(Failure<'a>),
}

/// The entries of all reports, to be serialized as one array.
pub fn entries(reports: &[Report]) -> Vec<Entry<'_>> {
    reports.iter().flat_map(of_report).collect()
}

fn of_report(report: &Report) -> Vec<Entry<'_>> {
    let path = report.path.as_str();
    let failed = |capture, error: &dyn std::fmt::Display| {
        Entry::Failed(Failure { schema: SCHEMA, path, capture, error: error.to_string() })
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
        schema: SCHEMA,
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
