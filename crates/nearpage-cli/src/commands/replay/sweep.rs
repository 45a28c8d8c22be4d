//! `nearpage replay sweep`: every combination of some tunables, on all cores.

use std::fmt::Write;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;
use nearpage_machine::over::Over;
use nearpage_replay::{Combinations, Replay, Sweep};

use super::input::Input;
use super::{CommandError, ReplayFailure, print, print_json, what_if};
use crate::commands::interrupt::Interruptible;
use crate::commands::progress::Bar;

/// Replay under every combination of some tunables.
#[derive(Args, Debug)]
pub struct SweepArgs {
    /// A bundle: a folder with meta.json and trace.txt.zst, or a tar of one; - is standard input; the one that comes along
    /// unless given
    #[arg(value_name = "BUNDLE|-")]
    bundle: Option<PathBuf>,

    /// A tunable and its values, a list or a range: pcp.batch_scale_max=0..5 or 0,2,5; may be given several times; --over
    /// help lists the tunables
    #[arg(long, value_name = "KEY=VALUES|help", required = true)]
    over: Vec<String>,

    /// Print JSON instead
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &SweepArgs) -> Result<(), CommandError> {
    if arguments.over.iter().any(|given| given == what_if::HELP) {
        return print(&what_if::tunables());
    }
    let over = arguments.over.iter().map(|given| given.parse::<Over>());
    let over: Vec<Over> = over.collect::<Result<_, _>>().map_err(ReplayFailure::Over)?;
    let combinations = Combinations::of(&over).map_err(ReplayFailure::Combinations)?;
    let input = Input { bundle: arguments.bundle.as_deref(), trace: None };
    let replay = Replay::of(input.open()?).map_err(ReplayFailure::from)?;
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let bar = Bar::percent(&format!("{} combinations", combinations.count()));
    let watched = Interruptible::begin(bar)?;
    let sweep = replay.sweep(&combinations, threads, &watched).map_err(ReplayFailure::from)?;
    drop(watched);
    if arguments.json { print_json(&sweep) } else { print(&text(&sweep)) }
}

fn text(sweep: &Sweep) -> String {
    let Sweep { bundle, model, points, costs, open_loop, .. } = sweep;
    let mut out = String::new();
    let _ = writeln!(out, "{bundle}: model {model}, {} combinations", points.len());
    let settings: Vec<String> = points.iter().map(|point| point.settings.join(" ")).collect();
    let width = settings.iter().map(String::len).max().unwrap_or(0).max(8);
    let _ = writeln!(
        out,
        "  {:<width$} {:>12} {:>7} {:>14} {:>10} {:>10} {:>12} {:>12}",
        "settings",
        "lock holds",
        "ratio",
        "most per hold",
        "refills",
        "drains",
        "cached KiB",
        "model ms"
    );
    for (point, settings) in points.iter().zip(settings) {
        let _ = writeln!(
            out,
            "{} {settings:<width$} {:>12} {:>7.2} {:>14} {:>10} {:>10} {:>12} {:>12.2}",
            if point.is_best { "*" } else { " " },
            point.lock_acquisitions.unwrap_or(0),
            point.bound_ratio,
            point.most_pages_per_hold.unwrap_or(0),
            point.refills,
            point.drains,
            point.cached_bytes / 1024,
            point.model_ms.unwrap_or(0.0)
        );
    }
    for note in &sweep.notes {
        let _ = writeln!(out, "{note}");
    }
    let _ = writeln!(
        out,
        "* no other has fewer lock holds and fewer pages per hold. Ratio: to the fewest holds that would do with as much \
         memory (replay --bound). Model time by {costs}.\n{open_loop}"
    );
    out
}
