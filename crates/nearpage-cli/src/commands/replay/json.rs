//! The report as JSON.

use serde::Serialize;

use super::Report;
use crate::replay::fidelity::{Fidelity, Row};

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    fidelity: FidelityJson<'a>,
    what_if: Option<()>,
}

#[derive(Serialize)]
struct FidelityJson<'a> {
    percent: Option<f64>,
    percent_known_state: Option<f64>,
    rows: Vec<RowJson<'a>>,
}

#[derive(Serialize)]
struct RowJson<'a> {
    quantity: &'a str,
    r#where: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<&'a str>,
    predicted: Option<u64>,
    recorded: Option<u64>,
    error_percent: Option<f64>,
    start_bound: Option<[u64; 2]>,
}

/// The report as one JSON object.
pub(super) fn render(report: &Report) -> String {
    let rows = report.fidelity.rows.iter().map(row).collect();
    let Fidelity { percent, percent_known_state, .. } = report.fidelity;
    let fidelity = FidelityJson { percent, percent_known_state, rows };
    let document = Document { schema: 1, fidelity, what_if: None };
    let mut text = serde_json::to_string_pretty(&document).expect("plain data is JSON");
    text.push('\n');
    text
}

fn row(row: &Row) -> RowJson<'_> {
    RowJson {
        quantity: row.quantity,
        r#where: &row.place,
        at: row.moment.as_deref(),
        predicted: row.predicted,
        recorded: row.recorded,
        error_percent: row.error_percent(),
        start_bound: row.start_bound,
    }
}
