//! `nearpage replay --bound`: rules beside the fewest holds that would do.

use std::fmt::Write;

use clap::Args;
use nearpage_replay::bound::{Class, Limits};
use nearpage_replay::{BoundPoint, COMPARED_AT, Question, Replay, Standing, Yardstick};
use nearpage_report::Origin;
use nearpage_report::yardstick::{self, RulePoint};

use super::{CommandError, ReplayArgs, ReplayFailure, is_standard, print, print_json};
use crate::commands::interrupt::Interruptible;
use crate::commands::progress::Bar;
use crate::outputs::Output;

/// The options of a bound.
#[derive(Args, Debug)]
#[command(next_help_heading = "Bound")]
pub(super) struct BoundArgs {
    /// Tell how few holds of zone locks would do, beside what the recorded kernel's rules and each --model take, instead of
    /// the comparison
    #[arg(
        long,
        conflicts_with_all = [
            "explain", "placement", "starts", "set", "zonelist_cache", "topology", "map_cpus", "repeat", "cpus"
        ]
    )]
    pub(super) bound: bool,

    /// A point of the bound: pages for each CPU, and pages that a hold moves at most; may be given several times [default: a
    /// curve]
    #[arg(
        long,
        value_name = "H:K",
        requires = "bound",
        value_parser = point,
        allow_hyphen_values = true
    )]
    at: Vec<Limits>,

    /// What the pagesets of the bound hold at the start
    #[arg(long, value_enum, default_value_t, requires = "bound")]
    start: StartLevel,
}

/// `--start`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
enum StartLevel {
    /// What is best for them
    #[default]
    Any,
    /// As many pages as were recorded
    Recorded,
}

fn point(text: &str) -> Result<Limits, String> {
    let problem = || "expected H:K, pages for each CPU and pages a hold, each 1 at least: 4096:512";
    let (kept, moved) = text.split_once(':').ok_or_else(problem)?;
    let pages = |text: &str| text.parse().ok().filter(|&pages: &u64| pages > 0).ok_or_else(problem);
    Ok(Limits { kept: pages(kept)?, moved: pages(moved)? })
}

/// Answers, and prints or writes the answer.
pub(super) fn run(
    arguments: &ReplayArgs,
    replay: &Replay,
    page: Option<Output>,
) -> Result<(), CommandError> {
    let BoundArgs { at, start, .. } = &arguments.bound;
    let question = Question {
        models: arguments.what_if.models(replay),
        points: at.clone(),
        from_recorded: *start == StartLevel::Recorded,
    };
    let watched = Interruptible::begin(Bar::percent("replay"))?;
    let answer = replay.bound(&question, &watched).map_err(ReplayFailure::from)?;
    drop(watched);
    let written = page.map(|page| page.write(&render(&answer))).transpose();
    if arguments.report.as_deref().is_some_and(is_standard) {
        print(&render(&answer))?;
    } else if arguments.json {
        print_json(&answer)?;
    } else {
        print(&text(&answer))?;
    }
    written?;
    Ok(())
}

fn text(answer: &Yardstick) -> String {
    let Yardstick { bundle, kernel, cpus, requests, models, points, costs, .. } = answer;
    let mut out = String::new();
    let of_other = if answer.is_nearest_model { ", the nearest that is modelled" } else { "" };
    let _ = writeln!(out, "{bundle}: kernel {kernel}, model {}{of_other}", models[0].model);
    let _ = writeln!(out, "{cpus} CPUs, {requests} allocations and frees that pagesets serve");
    if *requests == 0 {
        let _ = writeln!(
            out,
            "no pageset is used in this trace: every hold is forced, there is nothing to compare"
        );
    }
    if answer.trace_is_unproven {
        let _ = writeln!(out, "{}", nearpage_report::replay::UNPROVEN);
    }
    let width = models.iter().map(|of| of.model.len()).max().unwrap_or(0).max(8);
    let _ = writeln!(
        out,
        "\n{:<width$} {:>9} {:>9} {:>9} {:>8} {:>8} {:>8}  direct by order",
        "holds", "all", "refill", "drain", "direct", "foreign", "upkeep"
    );
    for Standing { model, holds, causes, .. } in models {
        let by_order = causes.direct.iter().map(|(order, holds)| format!("{order}: {holds}"));
        let by_order: Vec<String> = by_order.collect();
        let direct: u64 = causes.direct.values().sum();
        let _ = writeln!(
            out,
            "{model:<width$} {holds:>9} {:>9} {:>9} {direct:>8} {:>8} {:>8}  {}",
            causes.refill,
            causes.drain,
            causes.foreign,
            causes.upkeep,
            by_order.join(", ")
        );
    }
    let _ = writeln!(
        out,
        "\n{:<width$} {:>9} {:>9} {:>9} {:>10} {:>10} {:>10}",
        "pages", "mean", "most", "at end", "mean a CPU", "a hold", "us a hold"
    );
    for of in models {
        let _ = writeln!(
            out,
            "{:<width$} {:>9.0} {:>9} {:>9} {:>10} {:>10} {:>10.1}",
            of.model,
            of.kept_pages_mean,
            of.kept_pages_max,
            of.kept_pages_end,
            of.h,
            of.longest_hold_pages,
            of.longest_hold_ns / 1000.0
        );
    }
    let _ = writeln!(
        out,
        "\n{:<width$} {:>9} {:>9} {:>9} {:>10}  {:<8} least pages a CPU for as many holds",
        "bound", "holds", "fewest", "forced", "ratio", "class"
    );
    for of in models {
        let least = of.least_h.map_or("-".into(), |pages| pages.to_string());
        let _ = writeln!(
            out,
            "{:<width$} {:>9} {:>9} {:>9} {:>10.2}  {:<8} {least}",
            of.model,
            of.holds,
            of.bound,
            of.forced,
            of.ratio,
            of.class.name()
        );
    }
    let _ = writeln!(
        out,
        "of the class of the rules, with the mean of the rules for H, and K = {COMPARED_AT}; ratio: (holds + 32) / (fewest + 32)"
    );
    let _ = writeln!(
        out,
        "\n{:>12} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "H, a CPU", "K, a hold", "pooled", "per-cpu", "lists", "forced"
    );
    for of_point in points.chunks(Class::ALL.len()) {
        let BoundPoint { h, k, forced, .. } = of_point[0];
        let _ = write!(out, "{h:>12} {k:>10}");
        for point in of_point {
            let _ = write!(out, " {:>10}", point.fewest);
        }
        let _ = writeln!(out, " {forced:>10}");
    }
    let _ = writeln!(out, "model time by {costs}. {}", answer.open_loop);
    out
}

fn render(answer: &Yardstick) -> String {
    let origin = Origin::new(std::env::args_os(), "none: nothing is random".into());
    let rules = answer.models.iter().map(|of| RulePoint {
        name: of.model,
        kept: of.kept_pages_mean / answer.cpus.max(1) as f64,
        holds: of.holds,
    });
    let rules: Vec<RulePoint<'_>> = rules.collect();
    yardstick::page_of(&answer.bundle, &rules, &answer.points, &text(answer), &origin)
}
