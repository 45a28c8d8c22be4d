//! `nearpage replay sweep`: every combination of some tunables, on all cores.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::Args;

use super::{CommandError, OPEN_LOOP, print, start_of};
use nearpage_replay::error::ReplayError;
use nearpage_replay::run::Totals;
use nearpage_replay::setting::Setting;
use nearpage_replay::source::Bundle;
use nearpage_replay::start::{Start, settings};
use nearpage_replay::survey::Survey;
use nearpage_replay::whatif::{Costs, Wish, ask};

/// The most combinations.
const COMBINATIONS_MOST: usize = 4096;

/// Replay under every combination of some tunables.
#[derive(Args, Debug)]
pub struct SweepArgs {
    /// A bundle: a folder with meta.json and trace.txt.zst, or a tar of one
    #[arg(value_name = "BUNDLE")]
    bundle: PathBuf,

    /// A tunable and its values: pcp.batch_scale_max=0,1,2,3; may be given several times
    #[arg(long, value_name = "KEY=VALUE,VALUE...", required = true)]
    over: Vec<String>,

    /// Print JSON instead
    #[arg(long)]
    json: bool,
}

/// A combination and what it came to.
struct Point {
    given: Vec<String>,
    totals: Totals,
}

pub(super) fn run(arguments: &SweepArgs) -> Result<(), CommandError> {
    let combinations = combinations(&arguments.over)?;
    let bundle = Bundle::open(&arguments.bundle, None)?;
    let (start, _) = start_of(&bundle)?;
    let points = replay_all(&bundle, &start, combinations)?;
    if arguments.json { print(&json(&points)) } else { print(&text(&bundle, &start, &points)) }
}

/// Every choice of one value for each key.
fn combinations(over: &[String]) -> Result<Vec<Vec<String>>, CommandError> {
    let mut all: Vec<Vec<String>> = vec![Vec::new()];
    for given in over {
        let Some((key, values)) = given.split_once('=') else {
            return Err(Setting::parse(given).map(|_| ()).unwrap_err().into());
        };
        let mut next = Vec::new();
        for before in &all {
            for value in values.split(',') {
                let setting = format!("{}={}", key.trim(), value.trim());
                Setting::parse(&setting)?;
                next.push(before.iter().cloned().chain([setting]).collect());
            }
        }
        if next.len() > COMBINATIONS_MOST {
            let problem = format!(
                "--over makes {} combinations, expected up to {COMBINATIONS_MOST}",
                next.len()
            );
            return Err(CommandError::Usage(problem));
        }
        all = next;
    }
    Ok(all)
}

fn replay_all(
    bundle: &Bundle,
    start: &Start,
    combinations: Vec<Vec<String>>,
) -> Result<Vec<Point>, CommandError> {
    let survey = Survey::of(bundle, start)?;
    let kernel = settings(bundle, start)?;
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(usize, Result<Point, ReplayError>)>> = Mutex::new(Vec::new());
    let work = || {
        while let Some(given) = combinations.get(next.fetch_add(1, Ordering::Relaxed)) {
            let index = combinations.iter().position(|of| of == given).unwrap_or(0);
            let point = point(bundle, &survey, start, kernel, given);
            results.lock().expect("no thread panics").push((index, point));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads.min(combinations.len()) {
            scope.spawn(work);
        }
    });
    let mut results = results.into_inner().expect("no thread panics");
    results.sort_by_key(|(index, _)| *index);
    Ok(results.into_iter().map(|(_, point)| point).collect::<Result<_, _>>()?)
}

fn point(
    bundle: &Bundle,
    survey: &Survey,
    start: &Start,
    kernel: nearpage::Settings,
    given: &[String],
) -> Result<Point, ReplayError> {
    let settings = given.iter().map(|given| Setting::parse(given)).collect::<Result<_, _>>()?;
    let wish = Wish { settings, repeat: 1, ..Wish::default() };
    let totals = ask(bundle, survey, start, kernel, &wish)?.totals;
    Ok(Point { given: given.to_vec(), totals })
}

/// Whether no other point is as good in both objectives and better in one: lock acquisitions, and the most pages in one
/// hold.
fn is_best(point: &Point, points: &[Point]) -> bool {
    let objectives = |of: &Point| (of.totals.lock_acquisitions, of.totals.most_pages_per_hold);
    let (locks, pages) = objectives(point);
    !points.iter().map(objectives).any(|(other_locks, other_pages)| {
        other_locks <= locks && other_pages <= pages && (other_locks, other_pages) != (locks, pages)
    })
}

fn text(bundle: &Bundle, start: &Start, points: &[Point]) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{}: model {}, {} combinations",
        bundle.name(),
        start.model.name,
        points.len()
    );
    let width = points.iter().map(|point| point.given.join(" ").len()).max().unwrap_or(0).max(8);
    let _ = writeln!(
        out,
        "  {:<width$} {:>12} {:>14} {:>10} {:>10} {:>12} {:>12}",
        "settings", "lock holds", "most per hold", "refills", "drains", "cached KiB", "model ms"
    );
    for point in points {
        let totals = &point.totals;
        let _ = writeln!(
            out,
            "{} {:<width$} {:>12} {:>14} {:>10} {:>10} {:>12} {:>12.2}",
            if is_best(point, points) { "*" } else { " " },
            point.given.join(" "),
            totals.lock_acquisitions.unwrap_or(0),
            totals.most_pages_per_hold.unwrap_or(0),
            totals.refills,
            totals.drains,
            totals.cached_bytes / 1024,
            Costs::BENCH.milliseconds(totals)
        );
    }
    let _ = writeln!(
        out,
        "* no other has fewer lock holds and fewer pages per hold. Model time by {}.\n{OPEN_LOOP}",
        Costs::BENCH.name
    );
    out
}

fn json(points: &[Point]) -> String {
    let entry = |point: &Point| {
        serde_json::json!({
            "settings": point.given,
            "lock_acquisitions": point.totals.lock_acquisitions,
            "most_pages_per_hold": point.totals.most_pages_per_hold,
            "refills": point.totals.refills,
            "drains": point.totals.drains,
            "cached_bytes": point.totals.cached_bytes,
            "model_ms": Costs::BENCH.milliseconds(&point.totals),
            "pareto": is_best(point, points),
        })
    };
    let points: Vec<_> = points.iter().map(entry).collect();
    let document = serde_json::json!({
        "schema": 1, "costs": Costs::BENCH.name, "points": points, "open_loop": OPEN_LOOP
    });
    format!("{document:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_combinations_are_made() {
        let over = ["pcp.batch_scale_max=0,5".to_owned(), "pcp.batch=31,63".to_owned()];
        let all = combinations(&over).unwrap();
        assert_eq!(all.len(), 4);
        assert_eq!(all[1], ["pcp.batch_scale_max=0", "pcp.batch=63"]);
        assert!(combinations(&["pcp.batch_scale_max=9".to_owned()]).is_err());
        assert!(combinations(&["pcp.batch".to_owned()]).is_err());
    }

    #[test]
    fn the_best_are_those_that_nobody_beats() {
        let point = |locks, pages| Point {
            given: Vec::new(),
            totals: Totals {
                lock_acquisitions: Some(locks),
                most_pages_per_hold: Some(pages),
                ..Totals::default()
            },
        };
        let points = [point(10, 100), point(20, 50), point(20, 100), point(5, 200)];
        let best: Vec<bool> = points.iter().map(|point| is_best(point, &points)).collect();
        assert_eq!(best, [true, true, false, true]);
    }
}
