//! What a replay met and what a what-if comes to, in words: for pages and for terminals.

use std::collections::BTreeSet;
use std::fmt::Write;

use nearpage::Reason;
use nearpage_replay::{Report, Totals, WhatIf};

/// Of a trace that may be a part of another recording.
pub const UNPROVEN: &str =
    "the trace given lacks markers or events: nothing shows that it is of this recording";

/// What was replayed and what was met, a line each.
pub fn heading(out: &mut String, report: &Report) {
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

/// The columns of a what-if: their names, and whose totals they are.
pub fn what_if_columns(answer: &WhatIf) -> Vec<(&'static str, &Totals)> {
    let unchanged = answer.unchanged.as_ref().map(|totals| ("other machine", totals));
    let recorded = [("recorded", &answer.recorded), ("model", &answer.predicted)];
    recorded.into_iter().chain(unchanged).chain([("what if", &answer.what_if)]).collect()
}

/// What each row is, and its figure in each column.
pub fn what_if_rows(answer: &WhatIf) -> Vec<(String, Vec<String>)> {
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
