//! The page of a replay: the score, predicted beside recorded, series over the samples, what-if, the machine.

mod changes;
mod objects;
mod of_report;
mod text;

pub use changes::change_lines;
pub use objects::objects_text;
pub use of_report::page_of_report;
pub use text::{UNPROVEN, heading, what_if_columns, what_if_rows};

use maud::{Markup, html};

use super::MachineView;
use super::charts::{self, Bars, Lines, Pair};
use super::page::{Cell, Origin, figure, page, table};
use nearpage_replay::{Fidelity, Row, Starts};

/// What the page shows.
#[derive(Debug)]
pub struct ReplayPage<'a> {
    /// The bundle.
    pub name: String,
    /// What was met, a line each.
    pub facts: Vec<&'a str>,
    /// The comparison.
    pub fidelity: &'a Fidelity,
    /// Series over the samples.
    pub lines: Vec<Lines>,
    /// The other run.
    pub what_if: Option<WhatIfTable>,
    /// The objects, as text.
    pub objects: Option<String>,
    /// The recorded machine.
    pub machine: MachineView,
    /// What an open loop means.
    pub open_loop: &'a str,
}

/// Recorded, model and what-if side by side.
#[derive(Debug)]
pub struct WhatIfTable {
    /// What is different.
    pub title: String,
    /// The same in full, a line each.
    pub changes: Vec<String>,
    /// What the columns are.
    pub columns: Vec<&'static str>,
    /// What each row is, and its figure in each column.
    pub rows: Vec<(String, Vec<String>)>,
    /// The other machine, if it is another.
    pub machine: Option<MachineView>,
}

/// The page.
pub fn page_of(replay: &ReplayPage<'_>, origin: &Origin) -> String {
    let body = html! {
        ul { @for fact in &replay.facts { li { (fact) } } }
        (score(replay.fidelity))
        p.faint { (replay.open_loop) }
        @if let Some(what_if) = &replay.what_if {
            // What is asked comes first.
            h2 { "What if: " (what_if.title) }
            ul { @for change in &what_if.changes { li { (change) } } }
            (table(&[&[""], &*what_if.columns].concat(), &what_if.rows.iter().map(what_if_cells).collect::<Vec<_>>()))
            @if let Some(machine) = &what_if.machine { (machine.draw("what if")) }
        }
        h2 { "Predicted, and recorded" }
        (quantities(&replay.fidelity.rows))
        h3 { "By zone" }
        (rows(replay.fidelity.rows.iter().filter(|row| is_summary(row) && row.is_scored)))
        p { (NOT_COUNTED) ":" }
        (rows(replay.fidelity.rows.iter().filter(|row| is_summary(row) && !row.is_scored)))
        @if !replay.lines.is_empty() {
            h2 { "Over the samples" }
            div.plots { @for lines in &replay.lines { (charts::lines(lines)) } }
        }
        (pagesets(&replay.fidelity.rows))
        @if let Some(objects) = &replay.objects {
            h2 { "Objects" }
            div.scroll tabindex="0" { pre { (objects) } }
        }
        h2 { "The recorded machine" }
        (replay.machine.draw("recorded"))
    };
    page(&format!("Replay of {}", replay.name), origin, body)
}

/// Over rows that are shown and no part of the score.
pub const NOT_COUNTED: &str =
    "not counted, for it follows from the trace, or is of memory that never moved";

/// What the range of a row means.
pub fn range_means(starts: &Starts) -> String {
    let Starts { drawn, level_percent, .. } = starts;
    format!(
        "a range is of {drawn} starts, drawn among those that the recording leaves open: one more lies within with at least \
         {level_percent:.0} %, whatever the rules get wrong"
    )
}

fn score(fidelity: &Fidelity) -> Markup {
    let percent = |percent: Option<f64>| percent.map_or("none".into(), |of| format!("{of:.2} %"));
    let counted = |of: Option<f64>| of.map_or("too few".into(), |of| format!("{of:.2} %"));
    let cells = fidelity.scores.iter().map(|score| {
        let [moved, wrong] = [score.moved, score.wrong].map(|of| Cell::number(of.to_string()));
        let percent = Cell::number(counted(score.percent));
        vec![Cell::from(score.quantity), moved, wrong, percent, Cell::from(score.of)]
    });
    html! {
        p.score {
            "Fidelity " (percent(fidelity.percent))
            @if let Some(worst) = &fidelity.worst { ", the worst row: " (worst.quantity) " " (percent(Some(worst.percent))) }
        }
        p { "That is, " (fidelity.meaning) "." }
        (table(&["score", "moved", "wrong", "percent", "of"], &cells.collect::<Vec<_>>()))
        @if let Some(starts) = &fidelity.starts {
            p { "Refills and drains once the start no longer matters: " (percent(fidelity.percent_known_state)) "; " (range_means(starts)) "." }
        }
    }
}

/// Rows that are no pageset's, with anything to tell.
fn is_summary(row: &Row) -> bool {
    let pages = row.predicted.unwrap_or(0) + row.recorded.unwrap_or(0);
    !row.place.starts_with("cpu") && (row.place == "all" || pages > 0)
}

fn pair(row: &Row) -> Pair<'_> {
    let count = |count: Option<u64>| count.map(|count| count as f64);
    Pair { name: row.quantity, given: count(row.recorded), model: count(row.predicted) }
}

/// Bars of what adds up over all zones. Free pages would dwarf the rest, and so have a plot of their own.
fn quantities(rows: &[Row]) -> Markup {
    let all = |is_in: fn(&str) -> bool| -> Vec<Pair<'_>> {
        rows.iter().filter(|row| row.place == "all" && is_in(row.quantity)).map(pair).collect()
    };
    let groups = [
        (
            "Refills and drains",
            all(|quantity| ["refills", "drains", "extfrag"].contains(&quantity)),
        ),
        (
            "Pages refilled and drained",
            all(|quantity| ["refill_pages", "drain_pages"].contains(&quantity)),
        ),
        ("Pages at the end", all(|quantity| ["free_pages", "pcp_count"].contains(&quantity))),
        ("Allocations by node", all(|quantity| quantity.starts_with("numa_"))),
        ("Pages from elsewhere than preferred", all(|quantity| quantity == "fallback_pages")),
    ];
    html! {
        div.plots {
            @for (title, rows) in groups {
                @if !rows.is_empty() {
                    (charts::bars(&Bars { title, names: ["recorded", "predicted"], rows }))
                }
            }
        }
    }
}

fn rows<'a>(rows: impl Iterator<Item = &'a Row>) -> Markup {
    let cells: Vec<Vec<Cell>> = rows.map(row_cells).collect();
    table(&["quantity", "where", "predicted", "recorded", "error", "range of drawn starts"], &cells)
}

fn row_cells(row: &Row) -> Vec<Cell> {
    let number =
        |value: Option<u64>| Cell::number(value.map_or("–".into(), |value| value.to_string()));
    let place = match &row.moment {
        Some(moment) => format!("{}, {moment}", row.place),
        None => row.place.clone(),
    };
    let range = row.drawn_range.map_or("–".into(), |[low, high]| format!("{low} to {high}"));
    let error = row.error_percent.map_or("–".into(), |error| format!("{} %", figure(error)));
    vec![
        Cell::from(row.quantity),
        Cell::from(&*place),
        number(row.predicted),
        number(row.recorded),
        Cell::number(error),
        Cell::number(range),
    ]
}

fn pagesets(rows_of_all: &[Row]) -> Markup {
    let of_pagesets = |row: &&Row| row.place.starts_with("cpu") && row.recorded.is_some();
    let all: Vec<&Row> = rows_of_all.iter().filter(of_pagesets).collect();
    html! {
        @if !all.is_empty() {
            details {
                summary { "High and count of each pageset at each sample: " (all.len()) " rows" }
                (rows(all.into_iter()))
            }
        }
    }
}

fn what_if_cells((what, figures): &(String, Vec<String>)) -> Vec<Cell> {
    let figures = figures.iter().map(|figure| Cell::number(&**figure));
    [Cell::from(&**what)].into_iter().chain(figures).collect()
}
