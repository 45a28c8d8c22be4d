//! `nearpage replay rules`: sets of rules over many bundles, against Linux 6.18, and what they must reach.

use std::fmt::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use clap::Args;
use nearpage::Model;
use nearpage_machine::shown;
use nearpage_replay::Replay;
use nearpage_replay::rules::{
    Figure, Mean, REFERENCE, RuleComparison, RuleRow, Verdict, compare_rules,
};

use super::input::Input;
use super::{CommandError, ReplayFailure, is_standard, print, print_json};
use crate::commands::input::{Limit, named_models};
use crate::commands::interrupt::Interruptible;
use crate::commands::progress::Bar;
use crate::confined::Rights;

/// Compare sets of rules over many bundles with Linux 6.18, and say what they miss of what rules must reach.
///
/// Each trace is played twice under each set of rules. The second pass begins in the state in which the first ended: its figures
/// count, and those of the first are shown apart.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub struct RulesArgs {
    /// Bundles: folders with meta.json and trace.txt.zst, or tars of one; - is standard input
    #[arg(value_name = "BUNDLE|-", required = true)]
    bundles: Vec<PathBuf>,

    /// The rules to compare; may be given several times
    #[arg(long, value_parser = named_models(), default_value = Model::NEARPAGE.name)]
    model: Vec<Model>,

    /// Print JSON instead
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    limit: Limit,
}

impl RulesArgs {
    /// What it needs for its inputs.
    pub(super) fn rights(&self) -> Rights {
        Rights::default().reading(&self.bundles)
    }
}

const AFTER_HELP: &str = "\
What is counted:
  hold       a zone's lock or another CPU's pagesets taken, or a write to a word that all CPUs share (the rules nearpage)
  operation  under a hold, a block linked or unlinked, or a word written for a block; Linux's rules are charged what
             block-by-block refills and drains do
  kept       pages in pagesets, the mean over time
  bound      holds against the fewest that would do (replay --bound): the pooled class, K = 2016, H the rules' own mean
  whole      aligned ranges of 512 pages that nobody has any of, in zones or pagesets, the mean over time
  order 9    requests for blocks of order 9 that were served
  failed     requests that were refused; below min: those without a right to reserves that were served from below min
  Ratios are (n + 32) / (that of linux-6.18 + 32). Means are geometric. Bundles with fewer than 100 holds under linux-6.18
  enter them together, by the sum of their counts.

Examples:
  nearpage replay rules bundles/*.tar.zst
  nearpage replay rules bundles/*.tar.zst --model nearpage --model rfc-2026-owned --json

JSON (--json):
  schema        1
  reference     linux-6.18
  rows[]        for each bundle the reference, then each --model, of the second pass: bundle, model, holds,
                holds_by_cause (refill, drain, direct by order, foreign, upkeep), foreign_takes, operations,
                longest_hold_operations, kept_pages_mean, kept_pages_max, whole_mean, whole_end, order_9_served,
                remote_pages, failed, served_below_min, bound_ratio, fewest, watermark_fallbacks, skipped_frees, cpus
  means[]       for each set of rules and figure, named as in rows: model, figure, geometric_mean, worst, worst_bundle,
                sum, reference_sum
  musts[]       for each --model: model, figure, must, goal, is_met, reaches_goal, where_short, missed_in
  first_pass[]  as rows
  open_loop     what that means

Exit status: 0 all musts are met, 1 one is missed or the output could not be written, 2 wrong usage or unreadable input, 130 after Ctrl-C.";

/// Threads: each replays a bundle.
const THREADS: NonZeroUsize = NonZeroUsize::new(2).expect("two are more than none");

pub(super) fn run(arguments: &RulesArgs) -> Result<(), CommandError> {
    let RulesArgs { bundles, model, json, limit } = arguments;
    check_twice(bundles)?;
    let open = |path: &PathBuf| {
        let bundle = Input { bundle: Some(path), trace: None, budget: limit.budget() }.open()?;
        Replay::of(bundle).map_err(ReplayFailure::from)
    };
    let replays = bundles.iter().map(open).collect::<Result<Vec<Replay>, ReplayFailure>>()?;
    let watched = Interruptible::begin(Bar::percent("replay rules"))?;
    let compared =
        compare_rules(&replays, model, THREADS, &watched).map_err(ReplayFailure::from)?;
    drop(watched);
    match json {
        true => print_json(&compared)?,
        false => print(&text(&compared))?,
    }
    match compared.musts.iter().filter(|must| !must.is_met).count() {
        0 => Ok(()),
        missed => Err(ReplayFailure::Missed(missed).into()),
    }
}

/// Refuses a bundle that is named twice.
fn check_twice(bundles: &[PathBuf]) -> Result<(), CommandError> {
    let place = |path: &Path| match is_standard(path) {
        true => path.to_owned(),
        false => path.canonicalize().unwrap_or_else(|_| path.to_owned()),
    };
    let places: Vec<PathBuf> = bundles.iter().map(|path| place(path)).collect();
    let mut seen = places.iter().enumerate();
    match seen.find(|(at, place)| places[..*at].contains(place)) {
        Some((at, _)) => {
            let name = shown(&bundles[at]);
            Err(CommandError::Usage(format!("{name} is given twice, expected each bundle once")))
        }
        None => Ok(()),
    }
}

fn text(compared: &RuleComparison) -> String {
    let RuleComparison { rows, means, musts, first_pass, open_loop, .. } = compared;
    let mut models: Vec<&str> = Vec::new();
    rows.iter().for_each(|row| {
        if !models.contains(&row.model) {
            models.push(row.model);
        }
    });
    let mut out = String::new();
    let passes = [("second pass", rows), ("first pass, shown apart", first_pass)];
    for (title, rows) in passes {
        for model in &models {
            let _ = writeln!(out, "{model}, {title}");
            add_rows(&mut out, rows, model);
            let _ = writeln!(out);
        }
    }
    for model in &models {
        let means: Vec<&Mean> = means.iter().filter(|mean| mean.model == *model).collect();
        let musts: Vec<&Verdict> = musts.iter().filter(|must| must.model == *model).collect();
        add_musts(&mut out, model, &means, &musts);
        let _ = writeln!(out);
    }
    let _ = writeln!(
        out,
        "Ratios are (n + 32) / (that of {} + 32), to the bound (holds + 32) / (fewest + 32). {open_loop}",
        REFERENCE.name
    );
    out
}

/// A row for each bundle.
fn add_rows(out: &mut String, rows: &[RuleRow], model: &str) {
    let of_model = rows.iter().filter(|row| row.model == model);
    let width = of_model.clone().map(|row| row.bundle.len()).max().unwrap_or(0).max(6);
    let _ = writeln!(
        out,
        "{:<width$} {:>7} {:>5} {:>8} {:>10} {:>5} {:>7} {:>9} {:>5} {:>6} {:>9} {:>7} {:>7} {:>7} {:>6} {:>9}",
        "bundle",
        "holds",
        "ratio",
        "foreign",
        "operations",
        "ratio",
        "longest",
        "kept",
        "ratio",
        "bound",
        "whole",
        "at end",
        "order 9",
        "remote",
        "failed",
        "below min"
    );
    let reference =
        |bundle: &str| rows.iter().find(|row| row.bundle == bundle && row.model == REFERENCE.name);
    for row in of_model {
        let ratio = |figure: Figure| {
            let of = reference(&row.bundle).map_or(0.0, |of| figure.of(of));
            format!("{:.2}", (figure.of(row) + 32.0) / (of + 32.0))
        };
        let _ = writeln!(
            out,
            "{:<width$} {:>7} {:>5} {:>8} {:>10} {:>5} {:>7} {:>9.0} {:>5} {:>6.2} {:>9.1} {:>7} {:>7} {:>7} {:>6} {:>9}",
            row.bundle,
            row.holds,
            ratio(Figure::Holds),
            row.foreign_takes,
            row.operations,
            ratio(Figure::Operations),
            row.longest_hold_operations,
            row.kept_pages_mean,
            ratio(Figure::KeptPagesMean),
            row.bound_ratio,
            row.whole_mean,
            row.whole_end,
            row.order_9_served,
            row.remote_pages,
            row.failed,
            row.served_below_min
        );
    }
}

/// A row for each figure: what it comes to over all bundles, and what it must.
fn add_musts(out: &mut String, model: &str, means: &[&Mean], musts: &[&Verdict]) {
    let _ = writeln!(
        out,
        "{model:<24} {:>8} {:>8} {:<20} {:<7} {:<44} goal",
        "mean", "worst", "in", "", "must"
    );
    for mean in means {
        let must = musts.iter().find(|must| must.figure == mean.figure);
        let verdict = must.map_or("", |must| if must.is_met { "met" } else { "MISSED" });
        let [wanted, goal] = must.map_or([String::new(), String::new()], |must| {
            let reached = match must.reaches_goal {
                Some(true) => ", reached",
                _ => "",
            };
            let short = must.where_short.map_or(String::new(), |mean| format!(" ({mean:.3})"));
            [must.must.to_string(), format!("{}{short}{reached}", must.goal)]
        });
        let line = format!(
            "{:<24} {:>8.3} {:>8.3} {:<20} {verdict:<7} {wanted:<44} {goal}",
            mean.figure.name(),
            mean.geometric_mean,
            mean.worst,
            mean.worst_bundle,
        );
        let _ = writeln!(out, "{}", line.trim_end());
        if let Some(must) = must.filter(|must| !must.missed_in.is_empty()) {
            let _ = writeln!(out, "  missed in {}", must.missed_in.join(", "));
        }
        if mean.figure == Figure::RemotePages {
            let _ = writeln!(
                out,
                "  {:.0} in all, {:.0} under {}",
                mean.sum, mean.reference_sum, REFERENCE.name
            );
        }
    }
}
