//! Reports as tables of text.

use comfy_table::{CellAlignment, Table, presets};

use nearpage_bench::comparison;
use nearpage_lab::load::Load;
use nearpage_lab::report::Row;
use nearpage_lab::{LabError, Report, catalog};

/// All scenarios, a line each.
pub(super) fn list() -> Result<String, LabError> {
    let mut text = String::from("Scenarios (`nearpage lab NAME`, or `nearpage lab all`):\n");
    for name in catalog::names() {
        text += &format!("  {name:<20} {}\n", catalog::scenario(name)?.title);
    }
    text += &format!("  {:<20} {}\n", comparison::NAME, comparison::TITLE);
    text += "Loads on a machine of yours (`nearpage lab LOAD --machine MACHINE --rules A,B,C`):\n";
    for load in Load::ALL {
        text += &format!(
            "  {:<20} {}\n  {:<20} numbers: {}\n",
            load.name(),
            load.about(),
            "",
            load.source()
        );
    }
    Ok(text)
}

/// The tables of costs that come along.
pub(super) fn cost_names() -> String {
    let names: Vec<&str> = catalog::cost_names().collect();
    format!(
        "Tables of costs (`nearpage lab costs NAME`): {}\nMeasure one here: `nearpage lab costs --measure`\n",
        names.join(", ")
    )
}

/// Counts first, then the reference beside the model, then what must hold.
pub(super) fn report(report: &Report) -> String {
    let mut text = format!("{}: {}\n\n", report.name, report.title);
    for counts in [&report.table].into_iter().chain(&report.further) {
        if !counts.rows.is_empty() {
            text += &table(&counts.header, &counts.rows);
            text.push('\n');
        }
    }
    if !report.rows.is_empty() {
        let header = ["row", "column", "reference", "model", "verdict"].map(str::to_owned);
        let rows: Vec<Vec<String>> = report.rows.iter().map(cells).collect();
        text += &table(&header, &rows);
        text.push('\n');
    }
    for hold in &report.holds {
        let mark = if hold.ok { "ok   " } else { "FAILS" };
        text += &format!("{mark}  {}: {}\n", hold.what, hold.value);
    }
    for note in &report.notes {
        text += &format!("note   {note}\n");
    }
    text.push('\n');
    text
}

fn cells(row: &Row) -> Vec<String> {
    let number = |figure: f64| {
        if figure.abs() >= 100.0 { format!("{figure:.0}") } else { format!("{figure:.3}") }
    };
    vec![
        row.row.clone(),
        row.column.clone(),
        number(row.reference),
        number(row.model),
        row.judgement(),
    ]
}

fn table(header: &[String], rows: &[Vec<String>]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header);
    table.add_rows(rows);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let lines = table.lines().map(|line| line.trim_end().to_owned() + "\n");
    lines.collect()
}
