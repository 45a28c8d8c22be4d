//! A run as JSON and as text.

use std::collections::BTreeSet;
use std::io::{self, Write};

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use crate::check::Verdict;
use crate::machine::Machine;
use crate::pages::{Resident, Run};
use crate::sample::{Bench, Row};
use crate::source::Role;

/// The JSON document.
#[derive(Serialize)]
struct Document<'a, R> {
    schema: u32,
    #[serde(flatten)]
    run: &'a R,
    #[serde(skip_serializing_if = "Option::is_none")]
    checks: Option<&'a [Verdict]>,
}

/// Writes the JSON document of a run of any kind.
///
/// # Errors
///
/// The error of writing.
pub fn json(
    out: &mut impl Write,
    run: &impl Serialize,
    checks: Option<&[Verdict]>,
) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &Document { schema: 1, run, checks })?;
    writeln!(out)
}

/// Writes one table per benchmark, the memory, who did not take part, and the checks.
///
/// # Errors
///
/// The error of writing.
pub fn text(out: &mut impl Write, run: &Run, checks: Option<&[Verdict]>) -> io::Result<()> {
    write_machine(out, &run.machine)?;
    for bench in Bench::ALL {
        let tables: BTreeSet<_> = of_bench(run, bench).map(table_of).collect();
        for key in tables {
            let rows: Vec<&Row> = of_bench(run, bench).filter(|row| table_of(row) == key).collect();
            writeln!(out, "\n{}", title(bench, key.0, &rows))?;
            let mut table = if bench.is_series() { series_table(&rows) } else { table(&rows) };
            for absent in absent(run, &rows) {
                table.add_row([absent, "was not there"]);
            }
            writeln!(out, "{table}")?;
        }
    }
    if !run.resident.is_empty() {
        writeln!(out, "\nmemory after fill, MiB\n{}", resident_table(&run.resident))?;
    }
    for absent in &run.absent {
        writeln!(out, "{} did not take part: {}", absent.allocator, absent.reason)?;
    }
    for fact in &run.facts {
        writeln!(out, "{}: {}", fact.name, fact.value)?;
    }
    checks.map_or(Ok(()), |checks| write_checks(out, checks))
}

/// Rows of one series, or of so many pages held, share a table with those of as many threads.
fn table_of(row: &Row) -> (usize, usize) {
    (row.threads, if row.bench.is_series() { 0 } else { row.n })
}

/// Allocators that would be in a table, had they taken part; the reason stands at the end.
fn absent<'a>(run: &'a Run, rows: &[&Row]) -> impl Iterator<Item = &'a str> {
    let has = |role| rows.iter().any(|row| Role::of(row.allocator) == role);
    // Memories that hold many more pages are not everybody's, and have no floor of the harness beside them.
    let is_everybodys = has(Role::Limit) || (has(Role::Peer) && rows[0].bench.is_of_objects());
    // A pool of pages has no blocks of order 9.
    let has_pools = rows[0].bench != Bench::Order9Pair;
    let names = run.absent.iter().map(|absent| absent.allocator);
    names.filter(move |name| is_everybodys && (has_pools || Role::of(name) != Role::Pool))
}

fn of_bench(run: &Run, bench: Bench) -> impl Iterator<Item = &Row> {
    run.rows.iter().filter(move |row| row.bench == bench)
}

/// Writes what a result was measured on.
///
/// # Errors
///
/// The error of writing.
pub fn write_machine(out: &mut impl Write, machine: &Machine) -> io::Result<()> {
    let load = machine.load.map_or("unknown".to_owned(), |load| load.to_string());
    writeln!(out, "{}, {} CPUs, {}, load {load}", machine.cpu, machine.cpus, machine.kernel)?;
    let commit = machine.commit.unwrap_or("no commit");
    writeln!(
        out,
        "{}, nearpage {commit}, storage {}",
        machine.rustc,
        machine.storage.unwrap_or("-")
    )
}

fn title(bench: Bench, threads: usize, rows: &[&Row]) -> String {
    let plural = if threads == 1 { "" } else { "s" };
    let what = match bench {
        Bench::Pair | Bench::Order9Pair | Bench::Cross => "ns per allocation and free".to_owned(),
        Bench::Replace => {
            let pages = rows.first().map_or(0, |row| row.n);
            format!("ns per free and allocation, {pages} pages")
        }
        Bench::ObjPair => "median ns per allocation and free, by bytes".to_owned(),
        Bench::ObjFill | Bench::ObjFreeRandom => "ns per object of 64 bytes".to_owned(),
        _ if bench.is_of_objects() => "ns per allocation and free, 64 bytes".to_owned(),
        _ if bench.is_series() => "median ns per page, by pages per call".to_owned(),
        _ => format!("ns per page, {} pages", rows.first().map_or(0, |row| row.n)),
    };
    format!("{}, {threads} thread{plural}: {what}", bench.name())
}

/// Fastest first.
fn table(rows: &[&Row]) -> Table {
    let mut rows = rows.to_vec();
    rows.sort_by(|a, b| a.ns_median.total_cmp(&b.ns_median));
    let nearpage = rows.iter().find(|row| row.allocator == "nearpage").map(|row| row.ns_median);
    let mut table = empty(["allocator", "median", "min", "max", "to nearpage"]);
    for row in rows {
        let ratio = nearpage.map_or("-".to_owned(), |ns| format!("{:.2}x", row.ns_median / ns));
        let [median, min, max] = [row.ns_median, row.ns_min, row.ns_max].map(nanoseconds);
        table.add_row([row.allocator.to_owned(), median, min, max, ratio]);
    }
    right_align(table)
}

/// Every second power of two among the `n`; the JSON has all.
fn series_table(rows: &[&Row]) -> Table {
    let shown = |n: &usize| n.is_power_of_two() && n.trailing_zeros().is_multiple_of(2);
    let sizes: BTreeSet<usize> = rows.iter().map(|row| row.n).filter(shown).collect();
    let allocators = rows.iter().filter(|row| Some(row.n) == rows.first().map(|first| first.n));
    let heading = std::iter::once("allocator".to_owned());
    let mut table = empty(heading.chain(sizes.iter().map(usize::to_string)));
    for allocator in allocators.map(|row| row.allocator) {
        let of = |n| rows.iter().find(|row| row.n == n && row.allocator == allocator);
        let cell = |&n: &usize| of(n).map_or("-".to_owned(), |row| nanoseconds(row.ns_median));
        table.add_row(std::iter::once(allocator.to_owned()).chain(sizes.iter().map(cell)));
    }
    right_align(table)
}

fn resident_table(resident: &[Resident]) -> Table {
    let mut table = empty(["allocator", "in memory", "beside the pages"]);
    for Resident { allocator, footprint } in resident {
        let [all, beside] = [footprint.resident_bytes, footprint.beside_pages_bytes]
            .map(|bytes| format!("{:.1}", bytes as f64 / f64::from(1 << 20)));
        table.add_row([(*allocator).to_owned(), all, beside]);
    }
    right_align(table)
}

/// Writes the promises and how they came out.
///
/// # Errors
///
/// The error of writing.
pub fn write_checks(out: &mut impl Write, checks: &[Verdict]) -> io::Result<()> {
    writeln!(out)?;
    for check in checks {
        let word = match check.value {
            None => "n/a ",
            Some(_) if check.ok => "ok  ",
            Some(_) => "MISS",
        };
        let figure =
            check.value.map_or("-".to_owned(), |value| format!("{value:.2}{}", check.unit));
        let must = check.must.as_deref().unwrap_or("-");
        let aim = match check.value {
            None => "",
            Some(_) if check.aim_reached => "reached",
            Some(_) => "not reached",
        };
        writeln!(
            out,
            "{word} {figure:>10}  must {must:<9} aim {:<9} {aim:<11}  {}: {} ({})",
            check.aim, check.name, check.what, check.made_of
        )?;
    }
    let missed = || checks.iter().filter(|check| !check.ok);
    let unjudged = match missed().filter(|check| check.value.is_none()).count() {
        0 => String::new(),
        count => format!(", {count} of them cannot be judged (n/a)"),
    };
    writeln!(out, "{} of {} missed{unjudged}", missed().count(), checks.len())
}

/// A table without frame.
pub fn empty<T: Into<comfy_table::Row>>(heading: T) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(heading);
    table
}

/// Numbers are aligned right.
pub fn right_align(mut table: Table) -> Table {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Three significant digits or so.
pub fn nanoseconds(ns: f64) -> String {
    match ns {
        ..10.0 => format!("{ns:.2}"),
        ..1000.0 => format!("{ns:.1}"),
        _ => format!("{ns:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::Absent;

    fn row(bench: Bench, allocator: &'static str, n: usize) -> Row {
        Row { bench, allocator, threads: 1, n, ns_median: 4.0, ns_min: 3.0, ns_max: 5.0 }
    }

    /// A table says who was not there, as far as he could have been in it; numbers of pages have tables of their own.
    #[test]
    fn tables_tell_who_was_not_there() {
        let rows = vec![
            row(Bench::Pair, "nearpage", 1),
            row(Bench::Pair, "harness-floor", 1),
            row(Bench::Order9Pair, "nearpage", 1),
            row(Bench::Order9Pair, "harness-floor", 1),
            row(Bench::Fill, "nearpage", 200),
            row(Bench::Fill, "harness-floor", 200),
            row(Bench::Fill, "nearpage", 2000),
            row(Bench::BulkAlloc, "nearpage", 1),
            row(Bench::BulkAlloc, "nearpage", 4),
            row(Bench::BulkAlloc, "harness-floor", 1),
        ];
        let absent = vec![Absent { allocator: "dpdk", reason: "it is not installed".into() }];
        let machine = Machine::this();
        let run = Run { machine, rows, resident: Vec::new(), facts: Vec::new(), absent };
        let mut out = Vec::new();
        text(&mut out, &run, None).expect("memory takes all");
        let text = String::from_utf8(out).expect("text");
        let tables: Vec<(&str, bool)> = text
            .split("\n\n")
            .filter_map(|part| part.split_once(": ").filter(|(title, _)| title.contains("thread")))
            .map(|(title, table)| {
                (title, table.contains("dpdk") && table.contains("was not there"))
            })
            .collect();
        let expected = [
            ("pair, 1 thread", true),
            ("order9_pair, 1 thread", false),
            ("fill, 1 thread", true),
            ("fill, 1 thread", false),
            ("bulk_alloc, 1 thread", true),
        ];
        assert_eq!(tables, expected, "{text}");
        assert!(text.contains("\ndpdk did not take part: it is not installed\n"), "{text}");
    }
}
