//! The report as text.

use std::fmt::Write;

use nearpage::{NodeId, Reason};

use super::{OPEN_LOOP, Report, objects};
use nearpage_replay::explain::Subject;
use nearpage_replay::fidelity::Row;
use nearpage_replay::run::Totals;
use nearpage_replay::whatif::{Answer, Costs};

/// The report as a screen or two.
pub(super) fn render(report: &Report) -> String {
    let mut out = String::new();
    heading(&mut out, report);
    if let Some(subject) = report.explained {
        explanation(&mut out, report, subject);
        return out;
    }
    let _ = writeln!(
        out,
        "\n{:<16} {:<22} {:>10} {:>10} {:>9}  start bound",
        "quantity", "where", "predicted", "recorded", "error"
    );
    for row in report.fidelity.rows.iter().filter(|row| !row.place.starts_with("cpu")) {
        if row.place == "all" || row.predicted.unwrap_or(0) + row.recorded.unwrap_or(0) > 0 {
            fidelity_row(&mut out, row);
        }
    }
    pagesets(&mut out, report);
    let percent = |percent: Option<f64>| percent.map_or("none".into(), |of| format!("{of:.2} %"));
    let _ = writeln!(
        out,
        "\nfidelity: {}; once the start no longer matters: {}",
        percent(report.fidelity.percent),
        percent(report.fidelity.percent_known_state)
    );
    if report.what_if.is_some() {
        what_if(&mut out, report);
    }
    if let Some(objects) = &report.objects {
        out.push_str(&objects::text(objects));
    }
    let _ = writeln!(out, "{OPEN_LOOP}");
    out
}

fn explanation(out: &mut String, report: &Report, subject: Subject) {
    let _ = writeln!(out, "\n{}:", subject.name(&report.start));
    for line in &report.replayed.explained {
        let _ = writeln!(out, "{line}");
    }
    let _ =
        writeln!(out, "\nframes are the recorded ones; the model's own lie elsewhere. {OPEN_LOOP}");
}

/// What was replayed and what was met, a line each.
pub(super) fn heading(out: &mut String, report: &Report) {
    let of_other = if report.is_of_other_kernel { ", the nearest that is modelled" } else { "" };
    let kernel = &report.bundle.recording.kernel;
    let name = report.start.model.name;
    let _ = writeln!(out, "{}: kernel {kernel}, model {name}{of_other}", report.bundle.name());
    let (trace, run) = (&report.replayed.counts, &report.replayed.outcomes[0].counts);
    let survey = &report.replayed.survey;
    let seconds = survey.end_ns.saturating_sub(survey.begin_ns) as f64 / 1e9;
    let _ = writeln!(
        out,
        "trace: {} events; window of {seconds:.1} s: {} allocations, {} frees, {} pages in bulk",
        trace.events, run.allocs, run.frees, run.bulk_pages
    );
    let recorded = &report.replayed.recorded;
    let facts = [
        ("events lost", trace.lost_events),
        ("lines that tell of lost events", trace.lost_lines),
        ("frees told twice (batched)", trace.batched_frees),
        ("frees of unknown origin", run.unknown_frees),
        ("frees of a part", run.split_frees),
        ("frees without a block", run.lost_frees),
        ("allocations of a block not freed before", run.realloc_of_live),
        ("failed allocations", trace.failed_allocs),
        ("allocations that the model refused", run.refused_allocs),
        ("lines out of order", trace.unsorted),
        ("lines that are no event", trace.other_lines),
        ("events outside of all zones", recorded.foreign_frames),
        ("events on unknown CPUs", recorded.foreign_cpus),
        ("free pages without a place", report.replayed.outcomes[0].left_out_pages),
    ];
    let facts = facts.iter().filter(|(_, count)| *count > 0);
    let facts: Vec<String> = facts.map(|(what, count)| format!("{what} {count}")).collect();
    if !facts.is_empty() {
        let _ = writeln!(out, "met: {}", facts.join(", "));
    }
    for (name, count) in &trace.unknown_gfp_names {
        let _ = writeln!(out, "unknown gfp flag {name}: {count} times");
    }
    for (zone, &count) in report.fidelity.unlogged_allocs.iter().enumerate() {
        if count != 0 {
            let zone = report.start.zones[zone].name();
            let _ =
                writeln!(out, "allocations without an event, {zone}: {count}, taken off numa_hit");
        }
    }
    if !survey.has_window {
        let _ = writeln!(out, "the trace has no markers: all of it is taken for the window");
    }
    if !survey.is_whole {
        let lost = report.bundle.recording.lost_events;
        let _ = writeln!(
            out,
            "the trace ends before the marker of after ({lost} events lost, says meta.json): nothing is compared with after"
        );
    }
    if report.placement_disagrees() {
        let _ = writeln!(
            out,
            "placement disagrees by more than 5 %: memory policies are in no event; --placement recorded goes by the pages"
        );
    }
}

fn fidelity_row(out: &mut String, row: &Row) {
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

fn pagesets(out: &mut String, report: &Report) {
    for quantity in ["pcp_high", "pcp_count"] {
        let is_it = |row: &&Row| row.quantity == quantity && row.place.starts_with("cpu");
        let rows = report.fidelity.rows.iter().filter(is_it);
        let mut errors: Vec<f64> = rows.filter_map(Row::error_percent).collect();
        errors.sort_by(f64::total_cmp);
        if let Some(median) = errors.get(errors.len() / 2) {
            let _ = writeln!(
                out,
                "{quantity:<16} each CPU, zone, sample: median error {median:.2} % of {} (--json has all)",
                errors.len()
            );
        }
    }
}

fn what_if(out: &mut String, report: &Report) {
    let Some(answer) = &report.what_if else { return };
    let _ = writeln!(out, "\nwhat if: model {}", answer.model.name);
    if let Some(cpus) = &answer.cpus {
        let _ = writeln!(out, "CPUs: {cpus}");
    }
    let _ = writeln!(out, "{:<34} {:>14} {:>14} {:>14}", "", "recorded", "model", "what if");
    for (what, [recorded, model, other]) in what_if_rows(report, answer) {
        let _ = writeln!(out, "{what:<34} {recorded:>14} {model:>14} {other:>14}");
    }
    let counts = &answer.counts;
    let _ = writeln!(
        out,
        "what if: {} frees without a block, {} allocations refused",
        counts.lost_frees, counts.refused_allocs
    );
}

/// What each row is, and its figures: recorded, model, what if.
pub(super) fn what_if_rows(report: &Report, answer: &Answer) -> Vec<(String, [String; 3])> {
    let recorded = report.recorded_totals();
    let model = &report.replayed.outcomes[0].totals;
    let all = [&recorded, model, &answer.totals];
    let mut rows = Vec::new();
    let mut add = |what: &str, values: [Option<u64>; 3]| {
        let show = |value: Option<u64>| value.map_or("-".to_owned(), |value| value.to_string());
        rows.push((what.to_owned(), values.map(show)));
    };
    add("zone-lock acquisitions", all.map(|of| of.lock_acquisitions));
    add("most pages per hold", all.map(|of| of.most_pages_per_hold));
    add("refills", all.map(|of| Some(of.refills)));
    add("refill pages", all.map(|of| Some(of.refill_pages)));
    add("drains", all.map(|of| Some(of.drains)));
    add("drain pages", all.map(|of| Some(of.drain_pages)));
    for node in nodes(all) {
        let pages = |of: &Totals| {
            of.pages_by_node.iter().find(|(id, _)| *id == node).map(|(_, pages)| *pages)
        };
        add(&format!("pages of node {node}"), all.map(pages));
    }
    for reason in Reason::ALL {
        let pages = |of: &Totals| Some(of.reasons.pages(reason).0);
        if pages(model) != Some(0) || pages(&answer.totals) != Some(0) {
            let what = format!("pages from elsewhere: {}", reason.name());
            add(&what, [None, pages(model), pages(&answer.totals)]);
        }
    }
    add("cached bytes at the end", all.map(|of| Some(of.cached_bytes)));
    add("remote pages", all.map(|of| Some(of.remote_pages)));
    let time = |of: &Totals| format!("{:.2}", Costs::BENCH.milliseconds(of));
    let what = format!("model time, ms ({})", Costs::BENCH.name);
    rows.push((what, ["-".into(), time(model), time(&answer.totals)]));
    rows
}

/// All nodes that any of the totals has.
fn nodes(all: [&Totals; 3]) -> Vec<NodeId> {
    let mut nodes: Vec<NodeId> =
        all.iter().flat_map(|of| of.pages_by_node.iter().map(|(node, _)| *node)).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}
