//! Tables for people.

use comfy_table::{CellAlignment, Table, presets};
use nearpage::Order;
use nearpage_bench::published::{self, Published};
use nearpage_bench::{Bench, Fragmentation, Key, Moves, Row, Scans, SingleLoop, Tails, Work};
use nearpage_machine::size;

/// The table of `bulk` in the shape of mmtests, the gains of 2017 beside it.
pub fn bulk(rows: &[Row], single_loop: SingleLoop) -> String {
    let loop_note = match single_loop {
        SingleLoop::Exact => "",
        SingleLoop::Of2017 => "; one at a time n+1 pages, divided by n",
    };
    let mut text = format!(
        "bulk: ns per page{loop_note}; gains in percent, and beside them those of 2017:\n\
         as published (CPU cycles; one at a time n+1 pages, divided by n), and with n/n\n\n\
         pagealloc\n"
    );
    text += &format!("{:>52}{:>27}{:>12}{:>12}\n", "one-at-a-time", "bulk", "2017", "n/n");
    // Which of allocations and frees a part is of.
    let parts = [
        ("alloc", published::ALLOC, 0..1),
        ("free", published::FREE, 1..2),
        ("total", published::TOTAL, 0..2),
    ];
    for (operation, lines, range) in parts {
        for line in lines {
            let figure = |works: [Work; 2]| {
                let works = &works[range.clone()];
                works.iter().map(|&work| mean_of(rows, work, line.n)).sum::<Option<f64>>()
            };
            let bulk = figure([Work::BulkAlloc, Work::BulkFree]);
            if let Some((single, bulk)) = figure(single_loop.works()).zip(bulk) {
                text += &mmtests_line(&format!("{operation}-odr0-{}", line.n), single, bulk);
                text += &gains_of_2017(&line);
            }
        }
    }
    text
}

fn gains_of_2017(line: &Published) -> String {
    format!("   ({:>6.2}%)   ({:>6.2}%)\n", line.gain_percent, line.exact_gain_percent())
}

fn mean_of(rows: &[Row], work: Work, n: usize) -> Option<f64> {
    let row = rows.iter().find(|row| row.key.work == work && row.key.n == n)?;
    Some(row.summary.mean)
}

/// A line as mmtests prints it: both figures, each with its gain against the first.
fn mmtests_line(name: &str, single: f64, bulk: f64) -> String {
    let gain_percent = 100.0 * (1.0 - bulk / single);
    format!("Amean    {name:<16}{single:>17.2} ({:>6.2}%){bulk:>17.2} ({gain_percent:>6.2}%)", 0.0)
}

/// The figures of some rows, a table for each number of threads and each work.
pub fn figures(rows: &[Row], title: impl Fn(Key) -> String) -> String {
    let mut rows = rows.to_vec();
    rows.sort_by_key(table_of);
    let of_work = |rows: &[Row]| {
        let nearpage = nearpage(rows);
        let mut table = empty(["allocator", "median", "min", "max", "p99", "to nearpage"], 1);
        for row in rows {
            let ratio = nearpage.map_or("-".to_owned(), |nearpage| {
                format!("{:.2}x", row.summary.median / nearpage.summary.median)
            });
            let cells = [name_beside(nearpage, row)].into_iter().chain(figures_of(row));
            table.add_row(cells.chain([ratio]));
        }
        table
    };
    let section = |rows: &[Row]| {
        let lead = nearpage(rows).unwrap_or(&rows[0]);
        section(&title(lead.key), rows, of_work)
    };
    rows.chunk_by(|a, b| table_of(a) == table_of(b)).map(section).collect::<Vec<_>>().join("\n")
}

/// Rows with the same answer share a table. Who holds fewer pages stands beside the others.
fn table_of(row: &Row) -> (usize, Work, usize) {
    let Key { work, threads, n, .. } = row.key;
    match work {
        Work::Fill | Work::FreeLifo | Work::FreeRandom | Work::Replace => (threads, work, 0),
        _ => (threads, work, n),
    }
}

fn nearpage(rows: &[Row]) -> Option<&Row> {
    rows.iter().find(|row| row.key.allocator == "nearpage")
}

/// The allocator, and its pages if they are others than nearpage's.
fn name_beside(nearpage: Option<&Row>, row: &Row) -> String {
    let Key { allocator, n, .. } = row.key;
    match nearpage {
        Some(nearpage) if nearpage.key.n != n => {
            format!("{allocator}, {n} page{}", if n == 1 { "" } else { "s" })
        }
        _ => allocator.to_owned(),
    }
}

/// The pairs of all orders: nearpage's figures, and the medians of the others.
pub fn orders(rows: &[Row], title: &str) -> String {
    let of_threads = |rows: &[Row]| {
        let of_order =
            |order| rows.iter().filter(move |row| row.key.work == Work::OrderPair(order));
        let others = of_order(0).skip(1).map(|row| row.key.allocator);
        let heading = ["order", "pages", "nearpage", "min", "max", "p99"];
        let mut table = empty(heading.into_iter().chain(others), 0);
        for order in 0..=Order::MAX.0 {
            let mut cells = vec![order.to_string(), Order(order).pages().to_string()];
            for (at, row) in of_order(order).enumerate() {
                let figures = figures_of(row);
                cells.extend(figures.into_iter().take(if at == 0 { 4 } else { 1 }));
            }
            table.add_row(cells);
        }
        table
    };
    let same = |a: &Row, b: &Row| a.key.threads == b.key.threads;
    let section = |rows: &[Row]| section(title, rows, of_threads);
    rows.chunk_by(same).map(section).collect::<Vec<_>>().join("\n")
}

/// The pairs of `zonelist`, a table for each number of nodes and each place: times, and per pair what scans did.
pub fn zonelist(rows: &[Row], scans: &[Scans]) -> String {
    let mut rows = rows.to_vec();
    rows.sort_by_key(|row| (row.key.n, row.key.work));
    let of_place = |rows: &[Row]| {
        let heading =
            ["cache", "median", "min", "max", "p99", "visited", "skipped", "second passes", "zaps"];
        let mut table = empty(heading, 1);
        for row in rows {
            let mut cells = vec![row.key.allocator.to_owned()];
            cells.extend(figures_of(row));
            let is_its = |scans: &&Scans| {
                (scans.bench, scans.allocator, scans.n)
                    == (row.key.work, row.key.allocator, row.key.n)
            };
            if let Some(scans) = scans.iter().find(is_its) {
                let per_pair =
                    |count: u64| format!("{:.2}", count as f64 / scans.pages.max(1) as f64);
                let counts = [scans.zones_visited, scans.zones_skipped, scans.second_passes];
                cells.extend(counts.map(per_pair));
                cells.push(scans.zaps.to_string());
            }
            table.add_row(cells);
        }
        table
    };
    let same = |a: &Row, b: &Row| (a.key.n, a.key.work) == (b.key.n, b.key.work);
    let section = |rows: &[Row]| {
        let Key { work, n, .. } = rows[0].key;
        let full = n - 1;
        let title = format!(
            "zonelist, {work}: ns and zones per allocation and free, {full} of {n} nodes full"
        );
        section(&title, rows, of_place)
    };
    rows.chunk_by(same).map(section).collect::<Vec<_>>().join("\n")
}

/// The calls of `tails` or `mixed`, a table for each kind; of the rounds' means the median.
pub fn tails(rows: &[Row], unit: &str) -> String {
    let mut rows = rows.to_vec();
    rows.sort_by_key(|row| row.key.work);
    let of_work = |rows: &[Row]| {
        let mut table = empty(["allocator", "mean", "p50", "p99", "p99.9", "p99.99"], 1);
        for row in rows {
            let figure = |ns: Option<f64>| ns.map_or("-".to_owned(), nanoseconds);
            let tail = |of: fn(Tails) -> f64| row.tails.map(of);
            let figures = [
                Some(row.summary.median),
                tail(|tails| tails.p50),
                row.p99,
                tail(|tails| tails.p999),
                tail(|tails| tails.p9999),
            ];
            let figures = figures.into_iter().map(figure);
            table.add_row([row.key.allocator.to_owned()].into_iter().chain(figures));
        }
        table
    };
    let same = |a: &Row, b: &Row| a.key.work == b.key.work;
    let title = |rows: &[Row]| format!("{}: {unit}, four fifths full", rows[0].key.work);
    let section = |rows: &[Row]| section(&title(rows), rows, of_work);
    rows.chunk_by(same).map(section).collect::<Vec<_>>().join("\n")
}

/// The rows of `order9`: microseconds, by the size of memory.
pub fn order9(rows: &[Row]) -> String {
    let mut rows = rows.to_vec();
    rows.sort_by_key(|row| row.key.work);
    let of_work = |rows: &[Row]| {
        let mut table = empty(["allocator", "pages", "median", "min", "max"], 1);
        for Row { key, summary, .. } in rows {
            let figures =
                [summary.median, summary.min, summary.max].map(|ns| nanoseconds(ns / 1e3));
            let cells = [key.allocator.to_owned(), key.n.to_string()];
            table.add_row(cells.into_iter().chain(figures));
        }
        table
    };
    let section = |rows: &[Row]| {
        let what = match rows[0].key.work {
            Work::Order9First => "us of the first request after random frees",
            _ => "us of the longest call of another thread meanwhile",
        };
        section(&format!("{}: {what}", rows[0].key.work), rows, of_work)
    };
    let same = |a: &Row, b: &Row| a.key.work == b.key.work;
    rows.chunk_by(same).map(section).collect::<Vec<_>>().join("\n")
}

/// What stayed whole in each experiment.
pub fn fragmentation(counts: &[Fragmentation]) -> String {
    let heading = [
        "model", "threads", "memory", "seed", "used", "singles", "fifths", "ranges", "perfect",
        "whole", "order 9", LOCKS, WRITES,
    ];
    let mut table = empty(heading, 1);
    for count in counts {
        let shape = count.shape;
        let threads = match count.cpus < shape.threads {
            true => format!("{} on {} CPUs", shape.threads, count.cpus),
            false => shape.threads.to_string(),
        };
        let used = format!("{} %", count.used_percent);
        let rounds = [count.singles_rounds, count.fifths_rounds].map(u64::from);
        let counts = [count.ranges, count.perfect, count.whole];
        let numbers = rounds.into_iter().chain(counts).map(|number| number.to_string());
        let requests = count.order9_requests.map_or("-".to_owned(), |all| all.to_string());
        let cells = [count.model.to_owned(), threads, size::format(shape.bytes)];
        let cells = cells.into_iter().chain([shape.seed.to_string(), used]);
        table.add_row(cells.chain(numbers).chain([requests]).chain(moves(count.moves)));
    }
    let shared = match counts.iter().any(|count| count.cpus < count.shape.threads) {
        true => "threads that share a CPU have a pageset each, with a lock\n",
        false => "",
    };
    format!(
        "fragmentation: aligned ranges of 512 pages of which no page is allocated after so many rounds, requests of order 9 \
         that then succeed, and what 1000 pages took that moved since the row before\n{table}\n{shared}"
    )
}

const LOCKS: &str = "zone locks";
const WRITES: &str = "shared writes";

/// What the allocators counted themselves: for each work, or, where a benchmark has many, for all of them together.
pub fn counts(bench: Bench, rows: &[Row]) -> String {
    let mut table = empty(["allocator", "work", "pages", "CPUs", LOCKS, WRITES], 2);
    let mut all: Vec<(Key, String, Moves)> = Vec::new();
    for row in rows {
        let Some(moves) = row.moves else { continue };
        let Key { allocator, threads, n, work } = row.key;
        let is_together = matches!(bench, Bench::Bulk | Bench::Orders);
        let same = |(key, _, counted): &&mut (Key, String, Moves)| {
            let is_same = (key.allocator, key.threads) == (allocator, threads);
            is_same && (is_together || key.n == n && *counted == moves)
        };
        match all.iter_mut().find(same) {
            Some((_, _, counted)) if is_together => *counted = counted.and(moves),
            // Parts of one work that are timed apart are counted together.
            Some((_, name, _)) => *name = format!("{name}, {work}"),
            None if is_together => all.push((row.key, bench.to_string(), moves)),
            None => all.push((row.key, work.to_string(), moves)),
        }
    }
    for (Key { allocator, threads, n, .. }, name, counted) in &all {
        let n = if matches!(bench, Bench::Bulk | Bench::Orders) { 1 } else { *n };
        let cells = [(*allocator).to_owned(), name.clone(), n.to_string(), threads.to_string()];
        table.add_row(cells.into_iter().chain(moves(Some(*counted))));
    }
    match all.as_slice() {
        [] => String::new(),
        _ => format!(
            "counts: zone locks taken and shared words written for 1000 pages that move\n{table}\n"
        ),
    }
}

/// Zone locks and shared writes for 1000 pages.
fn moves(moves: Option<Moves>) -> [String; 2] {
    let shown =
        |figure: Option<f64>| figure.map_or("-".to_owned(), |figure| format!("{figure:.3}"));
    [
        shown(moves.map(|moves| moves.zone_locks_per_1000_pages())),
        shown(moves.and_then(|moves| moves.shared_writes_per_1000_pages())),
    ]
}

/// A table under its title.
fn section(title: &str, rows: &[Row], table: impl Fn(&[Row]) -> Table) -> String {
    let cpus = rows[0].key.threads;
    let plural = if cpus == 1 { "" } else { "s" };
    format!("{title}, {cpus} CPU{plural}\n{}\n", table(rows))
}

/// Median, min, max, p99.
fn figures_of(row: &Row) -> [String; 4] {
    let summary = row.summary;
    let p99 = row.p99.map_or("-".to_owned(), nanoseconds);
    [nanoseconds(summary.median), nanoseconds(summary.min), nanoseconds(summary.max), p99]
}

/// A table without frame; from column `left` on, cells are aligned right.
fn empty<T: Into<comfy_table::Row>>(heading: T, left: usize) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(heading);
    for column in table.column_iter_mut().skip(left) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Three significant digits or so.
fn nanoseconds(ns: f64) -> String {
    match ns {
        ..10.0 => format!("{ns:.2}"),
        ..1000.0 => format!("{ns:.1}"),
        _ => format!("{ns:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearpage_bench::Summary;

    /// Lines of the reference, character by character.
    #[test]
    fn lines_of_2017_come_out_as_they_were_printed() {
        let printed = [
            "Amean    alloc-odr0-1               259.54 (  0.00%)           106.62 ( 58.92%)",
            "Amean    alloc-odr0-16384           170.00 (  0.00%)            89.00 ( 47.65%)",
            "Amean    free-odr0-128               43.00 (  0.00%)            43.00 (  0.00%)",
            "Amean    free-odr0-2048              91.00 (  0.00%)            91.23 ( -0.25%)",
            "Amean    total-odr0-8               192.54 (  0.00%)            93.00 ( 51.70%)",
        ];
        let lines = [
            ("alloc", published::ALLOC[0]),
            ("alloc", published::ALLOC[14]),
            ("free", published::FREE[7]),
            ("free", published::FREE[11]),
            ("total", published::TOTAL[3]),
        ];
        for (printed, (operation, line)) in printed.into_iter().zip(lines) {
            let name = format!("{operation}-odr0-{}", line.n);
            assert_eq!(mmtests_line(&name, line.single_cycles, line.bulk_cycles), printed);
        }
    }

    fn row(work: Work, allocator: &'static str, n: usize, ns: f64) -> Row {
        let summary = Summary { median: ns, min: ns / 2.0, max: ns * 4.0, mean: ns };
        let key = Key { work, allocator, threads: 1, n };
        Row { key, summary, p99: Some(ns * 3.0), tails: None, moves: None }
    }

    #[test]
    fn the_bulk_table_has_its_heading_and_the_gains_of_2017() {
        let rows = [
            row(Work::SingleAlloc, "nearpage", 2, 4.0),
            row(Work::SingleFree, "nearpage", 2, 2.0),
            row(Work::BulkAlloc, "nearpage", 2, 1.0),
            row(Work::BulkFree, "nearpage", 2, 3.0),
        ];
        let text = bulk(&rows, SingleLoop::Exact);
        let table: Vec<&str> = text.lines().skip(3).collect();
        let expected = [
            "pagealloc",
            "                                       one-at-a-time                       bulk\
             \x20       2017         n/n",
            "Amean    alloc-odr0-2                 4.00 (  0.00%)             1.00 ( 75.00%)\
             \x20  ( 60.50%)   ( 40.75%)",
            "Amean    free-odr0-2                  2.00 (  0.00%)             3.00 (-50.00%)\
             \x20  ( 25.17%)   (-12.23%)",
            "Amean    total-odr0-2                 6.00 (  0.00%)             4.00 ( 33.33%)\
             \x20  ( 51.51%)   ( 27.27%)",
        ];
        assert_eq!(table, expected);
    }

    #[test]
    fn who_holds_fewer_pages_is_in_the_same_table() {
        let rows = [
            row(Work::Fill, "rseq-limit-pair", 1, 2.0),
            row(Work::Fill, "nearpage", 600, 4.0),
            row(Work::Fill, "mmap", 30, 1234.0),
        ];
        let text = figures(&rows, |key| format!("{} pages", key.n));
        let names: Vec<_> =
            text.lines().map(|line| line.split("  ").next().unwrap().trim()).collect();
        let expected = [
            "600 pages, 1 CPU",
            "allocator",
            "rseq-limit-pair, 1 page",
            "nearpage",
            "mmap, 30 pages",
        ];
        assert_eq!(names[..5], expected);
    }

    #[test]
    fn figures_have_their_ratio_to_nearpage() {
        let rows = [
            row(Work::Pair, "rseq-limit", 1, 2.0),
            row(Work::Pair, "nearpage", 1, 4.0),
            row(Work::Pair, "mmap", 1, 1234.0),
        ];
        let text = figures(&rows, |key| format!("{}: ns", key.work));
        let lines: Vec<String> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        let expected = [
            "pair: ns, 1 CPU",
            "allocator median min max p99 to nearpage",
            "rseq-limit 2.00 1.00 8.00 6.00 0.50x",
            "nearpage 4.00 2.00 16.0 12.0 1.00x",
            "mmap 1234 617.0 4936 3702 308.50x",
        ];
        assert_eq!(lines, expected);
    }
}
