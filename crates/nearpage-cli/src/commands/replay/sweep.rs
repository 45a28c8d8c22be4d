//! `nearpage replay sweep`: every combination of some machines, rules and tunables, on all cores.

use std::fmt::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use clap::Args;
use nearpage::Model;
use nearpage_machine::over::Over;
use nearpage_machine::shown;
use nearpage_replay::{COMPARED_AT, Combinations, Point, Replay, Sweep};
use nearpage_report::Origin;
use nearpage_report::whatif::{WhatIfPage, page_of};

use super::input::Input;
use super::{CommandError, ReplayFailure, front, print, print_json, what_if};
use crate::commands::input::{Limit, is_standard, named_models, page_file, read_machine_text};
use crate::commands::interrupt::Interruptible;
use crate::commands::progress::Bar;
use crate::confined::Rights;
use crate::outputs::Kind;

/// Replay under every combination of some machines, rules and tunables.
#[derive(Args, Debug)]
pub struct SweepArgs {
    /// A bundle: a folder with meta.json and trace.txt.zst, or a tar of one; - is standard input; the one that comes along
    /// unless given
    #[arg(value_name = "BUNDLE|-")]
    bundle: Option<PathBuf>,

    /// A tunable and its values, a list or a range: pcp.batch_scale_max=0..5 or 0,2,5; may be given several times; --over
    /// help lists the tunables
    #[arg(long, value_name = "KEY=VALUES|help")]
    over: Vec<String>,

    /// Another machine, as nearpage whatif --machine takes it; may be given several times
    #[arg(long, value_name = "MACHINE", allow_hyphen_values = true)]
    topology: Vec<String>,

    /// The rules, instead of the recorded kernel's; may be given several times
    #[arg(long, value_name = "MODEL", value_parser = named_models())]
    model: Vec<Model>,

    /// Print JSON instead
    #[arg(long)]
    json: bool,

    /// Also write a page of HTML with a plot of the front; it needs no network. With - the page alone goes to standard output
    #[arg(long, value_name = "PATH|-")]
    report: Option<PathBuf>,

    #[command(flatten)]
    limit: Limit,
}

impl SweepArgs {
    /// What it needs for its inputs and outputs.
    pub(super) fn rights(&self) -> Rights {
        Rights::default()
            .reading(&self.bundle)
            .reading(&self.topology)
            .writing(Kind::Page, &self.report)
    }
}

pub(super) fn run(arguments: &SweepArgs) -> Result<(), CommandError> {
    if arguments.over.iter().any(|given| given == what_if::HELP) {
        return print(&what_if::tunables());
    }
    if arguments.over.is_empty() && arguments.topology.is_empty() && arguments.model.is_empty() {
        let problem =
            "nothing is swept: expected --over KEY=VALUES, --topology MACHINE or --model MODEL";
        return Err(CommandError::Usage(problem.into()));
    }
    let is_page = arguments.report.as_deref().is_some_and(is_standard);
    if is_page && arguments.json {
        let problem = "--report - goes to standard output, as --json does: --report takes a PATH";
        return Err(CommandError::Usage(problem.into()));
    }
    let over = arguments.over.iter().map(|given| given.parse::<Over>());
    let over: Vec<Over> = over.collect::<Result<_, _>>().map_err(ReplayFailure::Over)?;
    let budget = arguments.limit.budget();
    let machines = arguments.topology.iter().map(|given| read_machine_text(given, &budget));
    let machines = machines.collect::<Result<_, _>>()?;
    let failed = ReplayFailure::combinations;
    let combinations = Combinations::of(&over).map_err(failed("--over"))?;
    let combinations = combinations.on(machines).map_err(failed("--topology"))?;
    let combinations = combinations.under(arguments.model.clone()).map_err(failed("--model"))?;
    let input = Input { bundle: arguments.bundle.as_deref(), trace: None, budget };
    let path = arguments.report.as_deref().filter(|path| !is_standard(path));
    let inputs =
        || arguments.bundle.as_deref().into_iter().chain(arguments.topology.iter().map(Path::new));
    let page = path.map(|path| page_file(path, inputs())).transpose()?;
    let replay = Replay::of(input.open()?).map_err(ReplayFailure::from)?;
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let bar = Bar::percent(&format!("{} combinations", combinations.count()));
    let watched = Interruptible::begin(bar)?;
    let sweep = replay.sweep(&combinations, threads, &watched).map_err(ReplayFailure::from)?;
    drop(watched);
    let text = text(&sweep);
    let written = page.map(|page| page.write(&self::page(&sweep))).transpose();
    match (is_page, arguments.json) {
        (true, _) => print(&self::page(&sweep))?,
        (false, true) => print_json(&sweep)?,
        (false, false) => print(&text)?,
    }
    written?;
    Ok(())
}

/// The page.
fn page(sweep: &Sweep) -> String {
    let origin = Origin::new(std::env::args_os(), "none: nothing is random".into());
    let page = WhatIfPage {
        answer: front::sentences(sweep),
        sweep: Some(sweep),
        leaves_out: leaves_out(sweep),
        ..WhatIfPage::default()
    };
    page_of(&format!("Sweep of {}", sweep.bundle), &page, &origin)
}

fn text(sweep: &Sweep) -> String {
    let Sweep { bundle, model, points, .. } = sweep;
    let mut lines = vec![format!("{bundle}: model {model}, {} combinations", points.len())];
    lines.extend(all_with(sweep));
    lines.extend(table(sweep));
    lines.extend(leaves_out(sweep));
    lines.push(String::new());
    lines.extend(front::plots(sweep));
    lines.join("\n") + "\n"
}

/// What was not recorded, and what no replay has.
pub(in crate::commands) fn leaves_out(sweep: &Sweep) -> Vec<String> {
    sweep.lost.iter().cloned().chain([sweep.open_loop.to_owned()]).collect()
}

/// What all combinations have, if something is.
pub(in crate::commands) fn all_with(sweep: &Sweep) -> Option<String> {
    let common = front::Names::of(sweep).common;
    (!common.is_empty()).then(|| format!("all with {}", common.join(" ")))
}

/// A line for what is now on each machine and for each combination, with what is told of them.
pub(in crate::commands) fn table(sweep: &Sweep) -> Vec<String> {
    let Sweep { now, points, costs, .. } = sweep;
    let mut out = String::new();
    let has_machines = points.iter().any(|point| point.machine != points[0].machine);
    let names = front::Names::of(sweep);
    let of_now = |now: &Point| {
        let machine = now.machine.as_ref().filter(|_| has_machines);
        machine.map_or("now".to_owned(), |name| format!("{} now", shown(name)))
    };
    let mut rows = Vec::new();
    for now in now {
        rows.push((of_now(now), now));
        let here = points.iter().filter(|point| point.machine == now.machine);
        rows.extend(here.map(|point| (names.name(point, has_machines), point)));
    }
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0).max(8);
    let _ = writeln!(
        out,
        "  {:<width$} {:>10} {:>13} {:>10} {:>7} {:>8} {:>8} {:>11} {:>11} {:>10}",
        "settings",
        "lock holds",
        "most per hold",
        "kept mean",
        "ratio",
        "refills",
        "drains",
        "given back",
        "cached KiB",
        "model ms"
    );
    for (name, point) in rows {
        let _ = writeln!(
            out,
            "{} {name:<width$} {:>10} {:>13} {:>10} {:>7.2} {:>8} {:>8} {:>11} {:>11} {:>10.2}",
            if point.is_best { "*" } else { " " },
            point.lock_acquisitions.unwrap_or(0),
            point.most_pages_per_hold.unwrap_or(0),
            point.kept_pages_mean.map_or("-".into(), |pages| format!("{pages:.0}")),
            point.bound_ratio,
            point.refills,
            point.drains,
            point.drain_pages,
            point.cached_bytes / 1024,
            point.model_ms.unwrap_or(0.0)
        );
    }
    for note in &sweep.notes {
        let _ = writeln!(out, "{note}");
    }
    let on_one = match has_machines {
        true => {
            " Ratios compare on one machine: that memory is the mean over all its CPUs, idle ones too."
        }
        false => "",
    };
    let _ = writeln!(
        out,
        "* the front: no other on its machine has as few lock holds, pages per hold and pages kept. \
         Ratio: of holds and 32 to the fewest and 32 that would do with as much \
         memory and {COMPARED_AT} pages a hold (replay --bound): below 1 where holds move more.{on_one} Model time by {costs}."
    );
    out.lines().map(ToOwned::to_owned).collect()
}
