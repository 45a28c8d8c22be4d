//! The report as text.

use std::collections::BTreeSet;
use std::fmt::Write;

use nearpage::Reason;
use nearpage_replay::{FigureRow, ListRow, Report, Row, RuleTotals, StateReport, Totals, WhatIf};

use super::{changes, objects};

/// Of a trace that may be a part of another recording.
pub(super) const UNPROVEN: &str =
    "the trace given lacks markers or events: nothing shows that it is of this recording";

/// The report as a screen or two.
pub(super) fn render(report: &Report) -> String {
    let mut out = String::new();
    heading(&mut out, report);
    if let (Some(subject), Some(lines)) = (&report.explained, &report.explain) {
        explanation(&mut out, subject, lines, report.open_loop);
        return out;
    }
    if let Some(why) = &report.lacks_state {
        let _ = writeln!(out, "what pagesets held at the start is guessed: {why}");
    }
    let _ = writeln!(
        out,
        "\n{:<16} {:<22} {:>10} {:>10} {:>9}  with other starts",
        "quantity", "where", "predicted", "recorded", "error"
    );
    for row in report.fidelity.rows.iter().filter(|row| !row.place.starts_with("cpu")) {
        if row.place == "all" || row.predicted.unwrap_or(0) + row.recorded.unwrap_or(0) > 0 {
            fidelity_row(&mut out, row);
        }
    }
    pagesets(&mut out, report);
    if let Some(state) = &report.state {
        kernel_state(&mut out, state);
    }
    let percent = |percent: Option<f64>| percent.map_or("none".into(), |of| format!("{of:.2} %"));
    let _ = writeln!(
        out,
        "\nfidelity: {} over all rows; {} over refills and drains after the unknown start has washed out",
        percent(report.fidelity.percent),
        percent(report.fidelity.percent_known_state)
    );
    if let Some(answer) = &report.what_if {
        what_if(&mut out, answer);
    }
    if let (None, Some(of)) = (&report.what_if, report.rules.first()) {
        for line in changes::lines(&of.changes) {
            let _ = writeln!(out, "{line}");
        }
    }
    for of in &report.rules {
        let RuleTotals { model, totals, .. } = of;
        let _ = writeln!(
            out,
            "{model:<16} {} holds, {} pages in the longest; pages in pagesets: mean {:.0}, most {}, at the end {}",
            totals.lock_acquisitions.unwrap_or(0),
            totals.most_pages_per_hold.unwrap_or(0),
            totals.kept_pages_mean.unwrap_or(0.0),
            totals.kept_pages_most.unwrap_or(0),
            totals.kept_pages_end.unwrap_or(0)
        );
    }
    if let Some(objects) = &report.objects {
        out.push_str(&objects::text(objects));
    }
    let _ = writeln!(out, "{}", report.open_loop);
    out
}

fn explanation(out: &mut String, subject: &str, lines: &[String], open_loop: &str) {
    let _ = writeln!(out, "\n{subject}:");
    for line in lines {
        let _ = writeln!(out, "{line}");
    }
    let _ =
        writeln!(out, "\nframes are the recorded ones; the model's own lie elsewhere. {open_loop}");
}

/// What was replayed and what was met, a line each.
pub(super) fn heading(out: &mut String, report: &Report) {
    let of_other = if report.is_nearest_model { ", the nearest that is modelled" } else { "" };
    let Report { bundle, kernel, model, trace, .. } = report;
    let _ = writeln!(out, "{bundle}: kernel {kernel}, model {model}{of_other}");
    let _ = writeln!(
        out,
        "trace: {} events; window of {:.1} s: {} allocations, {} frees, {} pages in bulk",
        trace.events, trace.window_seconds, trace.allocs, trace.frees, trace.bulk_pages
    );
    let facts = [
        ("events that the recorder lost", trace.recorder_lost_events),
        ("events lost", trace.lost_events),
        ("lines that tell of lost events", trace.lost_lines),
        ("batched frees, logged twice and counted once", trace.batched_frees),
        ("frees of pages from before the trace", trace.unknown_frees),
        ("frees of a part", trace.split_frees),
        ("frees without a block", trace.lost_frees),
        ("allocations of a block not freed before", trace.realloc_of_live),
        ("failed allocations", trace.failed_allocs),
        ("allocations that the model refused", trace.refused_allocs),
        ("lines out of order", trace.unsorted),
        ("lines that are no event", trace.other_lines),
        ("events outside of all zones", trace.foreign_frames),
        ("events on unknown CPUs", trace.foreign_cpus),
        ("free pages without a place", trace.unplaced_pages),
    ];
    let facts = facts.iter().filter(|(_, count)| *count > 0);
    let facts: Vec<String> = facts.map(|(what, count)| format!("{what}: {count}")).collect();
    if !facts.is_empty() {
        let _ = writeln!(out, "of these: {}", facts.join("; "));
    }
    if trace.unticked_seconds > 0.0 {
        let _ = writeln!(
            out,
            "{:.1} s without an event: the model's ticks in it are left out but for the last 512 s",
            trace.unticked_seconds
        );
    }
    for (name, count) in &trace.unknown_gfp_names {
        let _ = writeln!(out, "unknown gfp flag {name}: {count} times");
    }
    for (zone, count) in &trace.unlogged_allocs {
        let _ = writeln!(
            out,
            "the kernel counted {count} allocations more in {zone} than the trace has: subtracted from numa_hit"
        );
    }
    if !trace.has_markers {
        let _ = writeln!(out, "the trace has no markers: all of it is taken for the window");
    }
    if !trace.is_whole {
        let lost = trace.recorder_lost_events;
        let _ = writeln!(
            out,
            "the trace ends before the marker of after ({lost} events lost, says meta.json): nothing is compared with after"
        );
    }
    if report.trace_is_unproven {
        let _ = writeln!(out, "{UNPROVEN}");
    }
    if report.lacks_after {
        let _ = writeln!(
            out,
            "after/zoneinfo is missing or empty: nothing is compared with the end of the trace"
        );
    }
    if report.lacks_flows {
        let _ = writeln!(
            out,
            "the window has no mm_page_alloc_zone_locked and no mm_page_pcpu_drain: refills and drains are compared with nothing"
        );
    }
    for zone in &report.changed_zones {
        let _ = writeln!(
            out,
            "{}: {} pages managed before, {} after: memory came or went, which is in no event",
            zone.place, zone.managed_before, zone.managed_after
        );
    }
    if report.placement_disagrees {
        let _ = writeln!(
            out,
            "placement disagrees by more than 5 %: memory policies are in no event; --placement recorded goes by the pages"
        );
    }
}

fn fidelity_row(out: &mut String, row: &Row) {
    let number = |value: Option<u64>| value.map_or("-".into(), |value| value.to_string());
    let error = row.error_percent.map_or("-".into(), |error| format!("{error:.2} %"));
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
        let mut errors: Vec<f64> = rows.filter_map(|row| row.error_percent).collect();
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

/// What the kernel's own state told.
fn kernel_state(out: &mut String, state: &StateReport) {
    let _ = writeln!(
        out,
        "\nkernel's state: {} pages in pagesets and {} in free lists at the start; read in {} us, {} events and {} pages meanwhile, {} \
         blocks that do not fit",
        state.pageset_pages,
        state.free_pages,
        state.gap.microseconds,
        state.gap.events,
        state.gap.pages,
        state.gap.misfits
    );
    let _ = writeln!(
        out,
        "the very block that the kernel gave: {} of {} allocations; {} blocks were freed and {} taken without an event{}",
        state.same_frames,
        state.allocs,
        state.untold_frees,
        state.untold_takes,
        if state.has_upkeep { "" } else { "; the once-a-second work is in no event" }
    );
    let Some(end) = &state.end else { return };
    for (what, lists) in [("pagesets", &end.pagesets), ("free lists", &end.free_lists)] {
        let _ = writeln!(
            out,
            "at the end, lists of {what}: {} of {} the same; {} pages, {} recorded, {} differ, {} in place",
            lists.same,
            lists.lists,
            lists.predicted_pages,
            lists.recorded_pages,
            lists.differing_pages,
            lists.pages_in_place
        );
        for row in lists.rows.iter().take(5) {
            let ListRow { place, predicted, recorded, in_both, .. } = row;
            let _ = writeln!(
                out,
                "  {place}: {predicted} blocks, {recorded} recorded, {in_both} in both"
            );
        }
    }
    let _ = writeln!(
        out,
        "at the end, figures of pagesets: {} of {} differ",
        end.tuning.len(),
        end.tuning_compared
    );
    for row in end.tuning.iter().take(5) {
        let FigureRow { place, figure, recorded, predicted, .. } = row;
        let _ = writeln!(out, "  {place} {figure}: {predicted}, {recorded} recorded");
    }
}

fn what_if(out: &mut String, answer: &WhatIf) {
    let _ = writeln!(out, "\nwhat if: model {}", answer.model);
    for line in changes::lines(&answer.changes) {
        let _ = writeln!(out, "{line}");
    }
    let columns = what_if_columns(answer);
    let line = |what: &str, cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| format!("{cell:>14}")).collect();
        format!("{what:<34} {}\n", cells.join(" "))
    };
    out.push_str(&line(
        "",
        &columns.iter().map(|(name, _)| (*name).to_owned()).collect::<Vec<_>>(),
    ));
    for (what, cells) in what_if_rows(answer) {
        out.push_str(&line(&what, &cells));
    }
    if let Some(why) = &answer.no_difference {
        let _ = writeln!(out, "all figures are as without the change: {why}");
    }
    let _ = writeln!(
        out,
        "what if: {} frees without a block, {} allocations refused",
        answer.lost_frees, answer.refused_allocs
    );
}

/// The columns of a what-if: their names, and whose totals they are.
pub(super) fn what_if_columns(answer: &WhatIf) -> Vec<(&'static str, &Totals)> {
    let unchanged = answer.unchanged.as_ref().map(|totals| ("other machine", totals));
    let recorded = [("recorded", &answer.recorded), ("model", &answer.predicted)];
    recorded.into_iter().chain(unchanged).chain([("what if", &answer.what_if)]).collect()
}

/// What each row is, and its figure in each column.
pub(super) fn what_if_rows(answer: &WhatIf) -> Vec<(String, Vec<String>)> {
    let columns = what_if_columns(answer);
    let all: Vec<&Totals> = columns.iter().map(|(_, totals)| *totals).collect();
    let each = |of: &dyn Fn(&Totals) -> Option<u64>| -> Vec<Option<u64>> {
        all.iter().map(|totals| of(totals)).collect()
    };
    let mut rows = Vec::new();
    let mut add = |what: &str, values: Vec<Option<u64>>| {
        let show = |value: Option<u64>| value.map_or("-".to_owned(), |value| value.to_string());
        rows.push((what.to_owned(), values.into_iter().map(show).collect()));
    };
    add("zone-lock acquisitions", each(&|of| of.lock_acquisitions));
    add("most pages per hold", each(&|of| of.most_pages_per_hold));
    add("refills", each(&|of| Some(of.refills)));
    add("refill pages", each(&|of| Some(of.refill_pages)));
    add("drains", each(&|of| Some(of.drains)));
    add("drain pages", each(&|of| Some(of.drain_pages)));
    let nodes: BTreeSet<u32> = all.iter().flat_map(|of| of.pages_by_node.keys()).copied().collect();
    for node in nodes {
        add(&format!("pages of node {node}"), each(&|of| of.pages_by_node.get(&node).copied()));
    }
    for reason in Reason::ALL.map(Reason::name) {
        let pages = |of: &Totals| of.pages_by_reason.get(reason).copied();
        if all[1..].iter().any(|of| pages(of) != Some(0)) {
            add(&format!("pages from elsewhere: {reason}"), each(&pages));
        }
    }
    let mean = |of: &Totals| of.kept_pages_mean.map(|pages| pages.round() as u64);
    add("pages in pagesets, mean over time", each(&mean));
    add("pages in pagesets, most", each(&|of| of.kept_pages_most));
    add("pages in pagesets, at the end", each(&|of| of.kept_pages_end));
    add("cached bytes at the end", each(&|of| Some(of.cached_bytes)));
    add("remote pages", each(&|of| Some(of.remote_pages)));
    let time = |of: &Totals| of.model_ms.map_or("-".into(), |ms| format!("{ms:.2}"));
    let times = all.iter().map(|of| time(of)).collect();
    rows.push((format!("model time, ms ({})", answer.costs), times));
    rows
}
