//! The report as JSON.

use std::collections::BTreeMap;

use nearpage::Reason;
use serde::Serialize;
use serde_json::Value;

use super::{OPEN_LOOP, Report, objects};
use nearpage_replay::fidelity::{Fidelity, Row};
use nearpage_replay::run::Totals;
use nearpage_replay::whatif::Costs;

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    bundle: String,
    kernel: &'a str,
    model: &'a str,
    fidelity: FidelityJson<'a>,
    trace: TraceJson<'a>,
    what_if: Option<WhatIfJson<'a>>,
    objects: Option<Value>,
    explain: Option<&'a [String]>,
    open_loop: &'static str,
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

#[derive(Serialize)]
struct TraceJson<'a> {
    events: u64,
    lost_events: u64,
    lost_lines: u64,
    other_lines: u64,
    unsorted: u64,
    failed_allocs: u64,
    batched_frees: u64,
    unknown_frees: u64,
    split_frees: u64,
    lost_frees: u64,
    realloc_of_live: u64,
    refused_allocs: u64,
    bulk_pages: u64,
    allocated_pages: u64,
    freed_pages: u64,
    unknown_gfp_names: &'a BTreeMap<String, u64>,
}

#[derive(Serialize)]
struct WhatIfJson<'a> {
    model: &'a str,
    cpus: Option<&'a str>,
    costs: &'a str,
    recorded: TotalsJson,
    predicted: TotalsJson,
    what_if: TotalsJson,
}

#[derive(Serialize)]
struct TotalsJson {
    lock_acquisitions: Option<u64>,
    most_pages_per_hold: Option<u64>,
    refills: u64,
    refill_pages: u64,
    drains: u64,
    drain_pages: u64,
    pages_by_node: BTreeMap<u32, u64>,
    pages_by_reason: BTreeMap<&'static str, u64>,
    cached_bytes: u64,
    remote_pages: u64,
    model_ms: Option<f64>,
}

/// The report as one JSON object.
pub(super) fn render(report: &Report) -> String {
    let rows = report.fidelity.rows.iter().map(row).collect();
    let Fidelity { percent, percent_known_state, .. } = report.fidelity;
    let document = Document {
        schema: 1,
        bundle: report.bundle.name(),
        kernel: &report.bundle.recording.kernel,
        model: report.start.model.name,
        fidelity: FidelityJson { percent, percent_known_state, rows },
        trace: trace(report),
        what_if: what_if(report),
        objects: report.objects.as_ref().map(objects::json),
        explain: report.explained.map(|_| &*report.replayed.explained),
        open_loop: OPEN_LOOP,
    };
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

fn trace(report: &Report) -> TraceJson<'_> {
    let (trace, run) = (&report.replayed.counts, &report.replayed.outcomes[0].counts);
    TraceJson {
        events: trace.events,
        lost_events: trace.lost_events,
        lost_lines: trace.lost_lines,
        other_lines: trace.other_lines,
        unsorted: trace.unsorted,
        failed_allocs: trace.failed_allocs,
        batched_frees: trace.batched_frees,
        unknown_frees: run.unknown_frees,
        split_frees: run.split_frees,
        lost_frees: run.lost_frees,
        realloc_of_live: run.realloc_of_live,
        refused_allocs: run.refused_allocs,
        bulk_pages: run.bulk_pages,
        allocated_pages: report.replayed.recorded.pages.iter().sum(),
        freed_pages: report.replayed.recorded.freed_pages,
        unknown_gfp_names: &trace.unknown_gfp_names,
    }
}

fn what_if(report: &Report) -> Option<WhatIfJson<'_>> {
    let answer = report.what_if.as_ref()?;
    let is_recorded = true;
    Some(WhatIfJson {
        model: answer.model.name,
        cpus: answer.cpus.as_deref(),
        costs: Costs::BENCH.name,
        recorded: totals(&report.recorded_totals(), is_recorded),
        predicted: totals(&report.replayed.outcomes[0].totals, false),
        what_if: totals(&answer.totals, false),
    })
}

fn totals(totals: &Totals, is_recorded: bool) -> TotalsJson {
    let reasons =
        Reason::ALL.into_iter().map(|reason| (reason.name(), totals.reasons.pages(reason).0));
    TotalsJson {
        lock_acquisitions: totals.lock_acquisitions,
        most_pages_per_hold: totals.most_pages_per_hold,
        refills: totals.refills,
        refill_pages: totals.refill_pages,
        drains: totals.drains,
        drain_pages: totals.drain_pages,
        pages_by_node: totals.pages_by_node.iter().map(|(node, pages)| (node.0, *pages)).collect(),
        pages_by_reason: if is_recorded { BTreeMap::new() } else { reasons.collect() },
        cached_bytes: totals.cached_bytes,
        remote_pages: totals.remote_pages,
        model_ms: (!is_recorded).then(|| Costs::BENCH.milliseconds(totals)),
    }
}
