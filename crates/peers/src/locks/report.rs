//! A run as text.

use std::io::{self, Write};

use super::Run;
use super::measure::Bench;
use crate::check::Verdict;
use crate::report::{empty, nanoseconds, right_align, write_checks, write_machine};

/// Writes a table a benchmark, the hand-overs and the checks.
///
/// # Errors
///
/// The error of writing.
pub fn text(out: &mut impl Write, run: &Run, checks: Option<&[Verdict]>) -> io::Result<()> {
    write_machine(out, &run.machine)?;
    for (bench, title) in
        Bench::ALL.into_iter().zip(["lock_pair, 1 thread", "lock_contended, 2 threads on one lock"])
    {
        writeln!(out, "\n{title}: ns per lock and unlock\n{}", table(run, bench))?;
    }
    let found = run.hand_overs;
    writeln!(
        out,
        "\nhand-overs: {} threads, {} pages, {} locks, {} to threads that slept, {} of them handed the lock, in \
         {:.1} s; all at rest {} times; longest wait {:.1} ms; {} lost",
        found.threads,
        found.pages,
        found.locks,
        found.slept,
        found.handed_over,
        found.seconds,
        found.rests,
        found.longest_wait_ms,
        found.lost
    )?;
    checks.map_or(Ok(()), |checks| write_checks(out, checks))
}

fn table(run: &Run, bench: Bench) -> comfy_table::Table {
    let mut table = empty(["lock", "median", "min", "max", "to nearpage"]);
    let rows = || run.rows.iter().filter(|row| row.bench == bench);
    let nearpage = rows().find(|row| row.allocator == "nearpage").map(|row| row.ns_median);
    for row in rows() {
        let ratio = nearpage.map_or("-".to_owned(), |ns| format!("{:.2}x", row.ns_median / ns));
        let [median, min, max] = [row.ns_median, row.ns_min, row.ns_max].map(nanoseconds);
        table.add_row([row.allocator.to_owned(), median, min, max, ratio]);
    }
    right_align(table)
}
