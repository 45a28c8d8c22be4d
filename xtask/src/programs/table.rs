//! The table, as text that the book takes as it is.

use std::fmt::Write as _;

use super::figures::{Measured, Quantity, Ratio, mean_ratio};
use super::mallocs::{AGAIN, Malloc};
use super::rows::Row;

/// Rows and what they need.
pub(super) fn rows(rows: &[&Row]) -> String {
    let mut text = String::new();
    for row in rows {
        let needs: Vec<_> = row.needs.iter().map(|need| need.program).collect();
        let timed = if row.is_timed { "timed" } else { "not timed" };
        let _ = writeln!(text, "{:<20} {timed:<10} needs {}", row.name, needs.join(", "));
    }
    text
}

/// A line while the rest still runs.
pub(super) fn progress(row: &Measured) -> String {
    if row.modes.is_empty() {
        return format!("right: {}", row.name);
    }
    let modes: Vec<_> =
        row.modes.iter().map(|(mode, ratio)| format!("{mode} {ratio:.2}")).collect();
    format!(
        "right: {} ({} allocations; CPU time against glibc, one run: {})",
        row.name,
        row.allocations,
        modes.join(", ")
    )
}

/// All of it.
pub(super) fn text(mallocs: &[Malloc], measured: &[Measured], rounds: u32) -> String {
    let mut text = String::new();
    let rows: Vec<&Measured> = measured.iter().filter(|row| row.is_timed()).collect();
    if rows.is_empty() {
        return text;
    }
    let _ = writeln!(text, "\n{} CPUs, {rounds} rounds, middle of each.", cpus());
    for (title, quantity, format) in [
        ("Wall time, seconds", Quantity::Wall, seconds as fn(f64) -> String),
        ("CPU time, seconds", Quantity::Cpu, seconds),
        ("Peak resident memory of the largest process, MiB", Quantity::Peak, mib),
    ] {
        let _ = writeln!(text, "\n{title}:\n");
        let names: Vec<_> = mallocs.iter().map(|malloc| malloc.name).collect();
        let _ = writeln!(text, "| program | {} | nearpage / glibc |", names.join(" | "));
        let _ = writeln!(text, "|---|{}---:|", "---:|".repeat(mallocs.len()));
        for row in rows.iter().filter(|row| row.has(quantity)) {
            let values: Vec<_> =
                (0..mallocs.len()).map(|at| format(row.middle(at, quantity))).collect();
            let ratio = row.ratio(mallocs.len() - 1, 0, quantity);
            let _ = writeln!(
                text,
                "| {} | {} | {} |",
                row.name,
                values.join(" | "),
                with_interval(ratio)
            );
        }
    }
    text.push_str(&means(mallocs, &rows));
    text
}

/// Means over all rows, and the worst.
fn means(mallocs: &[Malloc], rows: &[&Measured]) -> String {
    let mut text = String::from("\nGeometric means over the programs, against glibc:\n\n");
    text.push_str("| malloc | wall time | CPU time | peak memory |\n|---|---:|---:|---:|\n");
    for (at, malloc) in mallocs.iter().enumerate().skip(1) {
        let of = |quantity| with_interval(mean_ratio(rows, at, 0, quantity));
        let (wall, cpu, peak) = (of(Quantity::Wall), of(Quantity::Cpu), of(Quantity::Peak));
        let _ = writeln!(text, "| {} | {wall} | {cpu} | {peak} |", malloc.name);
    }
    let nearpage = mallocs.len() - 1;
    let others = || (0..nearpage).filter(|at| mallocs[*at].name != AGAIN);
    let mean = |at: usize| mean_ratio(rows, at, 0, Quantity::Wall).middle;
    let best = others().min_by(|one, other| mean(*one).total_cmp(&mean(*other))).unwrap_or(0);
    let _ = writeln!(
        text,
        "\nnearpage against {}, which is the best other over the table: wall time {}, CPU time {}.",
        mallocs[best].name,
        with_interval(mean_ratio(rows, nearpage, best, Quantity::Wall)),
        with_interval(mean_ratio(rows, nearpage, best, Quantity::Cpu)),
    );
    let ratio = |row: &Measured| row.ratio(nearpage, best, Quantity::Wall);
    if let Some(worst) =
        rows.iter().max_by(|one, other| ratio(one).middle.total_cmp(&ratio(other).middle))
    {
        let _ =
            writeln!(text, "The worst program is {}: {}.", worst.name, with_interval(ratio(worst)));
    }
    for base in others().filter(|at| ["glibc", "mimalloc"].contains(&mallocs[*at].name)) {
        let ratio = with_interval(mean_ratio(rows, nearpage, base, Quantity::Peak));
        let _ = writeln!(text, "Peak memory against {}: {ratio}.", mallocs[base].name);
    }
    text
}

/// What it costs to watch, against not to watch: the last malloc against the first, and the one between, which is the first
/// once more.
pub(super) fn watched(mallocs: &[Malloc], measured: &[Measured], rounds: u32) -> String {
    let rows: Vec<&Measured> = measured.iter().filter(|row| row.is_timed()).collect();
    if rows.is_empty() {
        return String::new();
    }
    let mut text =
        format!("\n{} CPUs, {rounds} rounds, ratios to {}.\n\n", cpus(), mallocs[0].name);
    let (null, last) = (1, mallocs.len() - 1);
    let (other, watched) = (mallocs[null].name, mallocs[last].name);
    let _ = writeln!(
        text,
        "| program | CPU time, {watched} | {other} | wall time, {watched} | {other} |"
    );
    text.push_str("|---|---:|---:|---:|---:|\n");
    for row in &rows {
        let of = |at, quantity| with_interval(row.ratio(at, 0, quantity));
        let wall = |at| if row.has_wall { of(at, Quantity::Wall) } else { "-".into() };
        let (cpu, chance) = (of(last, Quantity::Cpu), of(null, Quantity::Cpu));
        let _ =
            writeln!(text, "| {} | {cpu} | {chance} | {} | {} |", row.name, wall(last), wall(null));
    }
    let of = |at, quantity| with_interval(mean_ratio(&rows, at, 0, quantity));
    let (cpu, chance) = (of(last, Quantity::Cpu), of(null, Quantity::Cpu));
    let (wall, other) = (of(last, Quantity::Wall), of(null, Quantity::Wall));
    let _ = writeln!(text, "| geometric mean | {cpu} | {chance} | {wall} | {other} |");
    text
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn seconds(value: f64) -> String {
    format!("{value:.3}")
}

fn mib(value: f64) -> String {
    format!("{:.1}", value / f64::from(1 << 20))
}

fn with_interval(Ratio { middle, low, high }: Ratio) -> String {
    format!("{middle:.2} ({low:.2} to {high:.2})")
}
