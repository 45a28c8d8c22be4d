//! The report as text.

use std::fmt::Write;

use nearpage_replay::{
    Fidelity, FigureRow, ListRow, Report, Row, RuleTotals, Score, StateReport, WhatIf,
};
use nearpage_report::replay::{
    NOT_COUNTED, change_lines, heading, objects_text, range_means, what_if_columns, what_if_rows,
};

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
    rows(&mut out, &report.fidelity);
    pagesets(&mut out, report);
    if let Some(state) = &report.state {
        kernel_state(&mut out, state);
    }
    score(&mut out, &report.fidelity);
    if let Some(answer) = &report.what_if {
        what_if(&mut out, answer);
    }
    if let (None, Some(of)) = (&report.what_if, report.rules.first()) {
        for line in change_lines([&of.changes]) {
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
        out.push_str(&objects_text(objects));
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

/// What the score counts, and then what it does not.
fn rows(out: &mut String, fidelity: &Fidelity) {
    let range = match fidelity.starts {
        Some(starts) => format!("range of {} drawn starts", starts.drawn),
        None => "range".into(),
    };
    let _ = writeln!(
        out,
        "\n{:<16} {:<22} {:>10} {:>10} {:>9}  {range}",
        "quantity", "where", "predicted", "recorded", "error"
    );
    let is_told = |row: &&Row| {
        let is_empty = row.predicted.unwrap_or(0) + row.recorded.unwrap_or(0) == 0;
        !row.place.starts_with("cpu") && (row.place == "all" || !is_empty)
    };
    let rows = || fidelity.rows.iter().filter(is_told);
    rows().filter(|row| row.is_scored).for_each(|row| fidelity_row(out, row));
    let _ = writeln!(out, "{NOT_COUNTED}:");
    rows().filter(|row| !row.is_scored).for_each(|row| fidelity_row(out, row));
}

/// What is wrong of what could have been.
fn score(out: &mut String, fidelity: &Fidelity) {
    let percent = |percent: Option<f64>| percent.map_or("none".into(), |of| format!("{of:.2} %"));
    if !fidelity.scores.is_empty() {
        let _ =
            writeln!(out, "\n{:<16} {:>10} {:>10} {:>9}  of", "score", "moved", "wrong", "percent");
    }
    for Score { quantity, of, moved, wrong, percent, .. } in &fidelity.scores {
        let percent = percent.map_or("too few".into(), |percent| format!("{percent:.2} %"));
        let _ = writeln!(out, "{quantity:<16} {moved:>10} {wrong:>10} {percent:>9}  {of}");
    }
    let worst = fidelity.worst.map_or(String::new(), |worst| {
        format!("; the worst row: {} {:.2} %", worst.quantity, worst.percent)
    });
    let _ = writeln!(out, "\nfidelity: {}{worst}", percent(fidelity.percent));
    let _ = writeln!(out, "that is, {}", fidelity.meaning);
    if let Some(starts) = fidelity.starts {
        let known = percent(fidelity.percent_known_state);
        let _ = writeln!(out, "refills and drains after the unknown start has washed out: {known}");
        let _ = writeln!(out, "{}", range_means(&starts));
    }
}

fn fidelity_row(out: &mut String, row: &Row) {
    let number = |value: Option<u64>| value.map_or("-".into(), |value| value.to_string());
    let error = row.error_percent.map_or("-".into(), |error| format!("{error:.2} %"));
    let range = row.drawn_range.map_or("-".into(), |[lo, hi]| format!("{lo}..{hi}"));
    let _ = writeln!(
        out,
        "{:<16} {:<22} {:>10} {:>10} {:>9}  {}",
        row.quantity,
        row.place,
        number(row.predicted),
        number(row.recorded),
        error,
        range
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
    for line in change_lines([&answer.changes]) {
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
