//! The page of scenarios: of each the machine, counts, the reference beside the model, what must hold.

use maud::{Markup, html};

use super::MachineView;
use super::charts::{self, Bars, Pair};
use super::page::{Cell, Origin, figure, page, table};
use super::samples;
use nearpage_lab::report::{Hold, Report, Row, Verdict};

/// A page of all reports; `machines` has the names and machines of scenarios.
pub fn page_of(
    reports: &[Report],
    machines: &[(String, Vec<(String, MachineView)>)],
    origin: &Origin,
) -> String {
    let title = match reports {
        [report] => format!("{}: {}", report.name, report.title),
        _ => format!("{} scenarios of the lab", reports.len()),
    };
    let of = |report: &Report| machines.iter().find(|(name, _)| *name == report.name);
    let body = html! {
        p.faint {
            "Times are model time. What is calibrated is named in the notes of its scenario; all other figures of the \
             model are predicted. A verdict is within the tolerance, off by more, or a known miss: listed, with a reason."
        }
        @if reports.len() > 1 { (overview(reports)) }
        @for (at, report) in reports.iter().enumerate() {
            section id=(format!("scenario-{at}")) {
                @if reports.len() > 1 { h2 { (report.name) ": " (report.title) } }
                (scenario(report, of(report).map(|(_, machines)| &**machines).unwrap_or_default()))
            }
        }
    };
    page(&title, origin, body)
}

fn overview(reports: &[Report]) -> Markup {
    let count = |report: &Report, verdict| {
        report.rows.iter().filter(|row| row.verdict == verdict).count().to_string()
    };
    let fails = |report: &Report| report.holds.iter().filter(|hold| !hold.ok).count().to_string();
    html! {
        nav { ul {
            @for (at, report) in reports.iter().enumerate() {
                li { a href=(format!("#scenario-{at}")) { (report.name) } }
            }
        } }
        (table(
            &["scenario", "within", "known misses", "off", "hold", "fail"],
            &reports.iter().map(|report| vec![
                Cell::from(&*report.name),
                Cell::number(count(report, Verdict::Within)),
                Cell::number(count(report, Verdict::KnownMiss)),
                Cell::number(count(report, Verdict::Off)),
                Cell::number(report.holds.iter().filter(|hold| hold.ok).count().to_string()),
                Cell::number(fails(report)),
            ]).collect::<Vec<_>>(),
        ))
    }
}

fn scenario(report: &Report, machines: &[(String, MachineView)]) -> Markup {
    html! {
        @if !report.table.rows.is_empty() {
            h3 { "Counts of the runs" }
            (table(&report.table.header, &report.table.rows.iter().map(|row| text_cells(row)).collect::<Vec<_>>()))
            @for further in &report.further {
                (table(&further.header, &further.rows.iter().map(|row| text_cells(row)).collect::<Vec<_>>()))
            }
        }
        @if !report.rows.is_empty() {
            h3 { "The reference, and the model" }
            (table(
                &["row", "column", "reference", "model", "verdict"],
                &report.rows.iter().map(row_cells).collect::<Vec<_>>(),
            ))
            (plots(&report.rows))
        }
        @if !report.holds.is_empty() {
            h3 { "What must hold" }
            (table(&["", "what", "figure"], &report.holds.iter().map(hold_cells).collect::<Vec<_>>()))
        }
        @if !report.sampled.is_empty() {
            h3 { "Runs over their time" }
            @for (name, of_run) in &report.sampled {
                (samples::plots(name, of_run, machine_of(name, machines)))
            }
        }
        @if !report.notes.is_empty() {
            h3 { "Calibration and notes" }
            ul { @for note in &report.notes { li { (note) } } }
        }
        @if !report.counts.is_empty() {
            details {
                summary { "All " (report.counts.len()) " counts" }
                (table(&["count", "value"], &report.counts.iter().map(|(name, value)| {
                    vec![Cell::from(&**name), Cell::number(figure(*value))]
                }).collect::<Vec<_>>()))
            }
        }
        @if !machines.is_empty() {
            h3 { @if machines.len() == 1 { "The machine" } @else { "The machines" } }
            @for (name, machine) in machines { (machine.draw(name)) }
        }
    }
}

/// The machine of a run: of several, the one that its name begins with; else the first.
fn machine_of<'a>(run: &str, machines: &'a [(String, MachineView)]) -> Option<&'a MachineView> {
    let named = machines.iter().find(|(name, _)| run.starts_with(&**name));
    named.or(machines.first()).map(|(_, machine)| machine)
}

/// A plot for each column: figures of one column have one unit.
fn plots(rows: &[Row]) -> Markup {
    let mut columns: Vec<&str> = Vec::new();
    for row in rows {
        if !columns.contains(&&*row.column) {
            columns.push(&row.column);
        }
    }
    let of_column = |column: &str| {
        let rows = rows.iter().filter(|row| row.column == column);
        rows.map(|row| Pair { name: &row.row, given: Some(row.reference), model: Some(row.model) })
            .collect()
    };
    html! {
        div.plots {
            @for column in columns {
                (charts::bars(&Bars { title: column, names: ["reference", "model"], rows: of_column(column) }))
            }
        }
    }
}

fn row_cells(row: &Row) -> Vec<Cell> {
    let class = match row.verdict {
        Verdict::Within => "good",
        Verdict::KnownMiss => "known",
        Verdict::Off => "bad",
    };
    vec![
        Cell::from(&*row.row),
        Cell::from(&*row.column),
        Cell::number(figure(row.reference)),
        Cell::number(figure(row.model)),
        Cell::marked(row.judgement(), class),
    ]
}

fn hold_cells(hold: &Hold) -> Vec<Cell> {
    let mark = if hold.ok { Cell::marked("ok", "good") } else { Cell::marked("fails", "bad") };
    vec![mark, Cell::from(&*hold.what), Cell::number(figure(hold.value))]
}

/// Text as it is, figures to the right.
fn text_cells(row: &[String]) -> Vec<Cell> {
    let cell = |text: &String| match text.trim_end_matches('%').trim().parse::<f64>() {
        Ok(_) => Cell::number(&**text),
        Err(_) => Cell::from(&**text),
    };
    row.iter().map(cell).collect()
}
