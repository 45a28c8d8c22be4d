//! `nearpage replay`: drives the core with a recorded trace, says how exactly it predicts the kernel, and then what
//! other rules, tunables and machines would have done.

mod bound;
mod failure;
mod front;
mod input;
mod rules;
mod sweep;
mod text;
mod what_if;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use nearpage_replay::{Options, Replay, Report, ZoneChoice};
use nearpage_report::Origin;
use nearpage_report::replay::page_of_report;

use super::input::{Limit, is_standard, page_file};
use super::interrupt::Interruptible;
use super::progress::Bar;
use super::{CommandError, print, print_json};
use crate::confined::Rights;
use crate::outputs::{Kind, Output};
use input::Input;
use what_if::WhatIfArgs;

pub use failure::ReplayFailure;

pub(super) use front::{plots as front_plots, sentences as front_sentences};
pub(super) use sweep::{all_with, leaves_out as sweep_leaves_out, table as sweep_table};
pub(super) use what_if::tunables;

/// Replay a recorded trace on the recorded machine, and compare with what its kernel logged.
///
/// With --model, --set, --zonelist-cache, --topology or --repeat the same allocations and frees are replayed once
/// more, under other rules or on another machine, and both are shown side by side.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER_HELP, args_conflicts_with_subcommands = true)]
pub struct ReplayArgs {
    #[command(subcommand)]
    action: Option<Action>,

    /// A bundle: a folder with meta.json and trace.txt.zst, or a tar of one; - is standard input; the default is a
    /// small one of a Linux 6.12 that comes with nearpage
    #[arg(value_name = "BUNDLE|-")]
    bundle: Option<PathBuf>,

    /// Print JSON instead
    #[arg(long)]
    json: bool,

    /// Also write a page of HTML: tables, plots, the machine; it needs no network. With - the page alone goes to
    /// standard output
    #[arg(long, value_name = "PATH|-")]
    report: Option<PathBuf>,

    /// Where the zone of an allocation comes from
    #[arg(long, value_enum, default_value_t)]
    placement: Placement,

    /// Draw N starts more than three among those that the recording leaves open: they widen the range of each figure, and raise its
    /// level
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "explain")]
    starts: u32,

    /// Guess what pagesets held at the start, although the bundle has the kernel's own state
    #[arg(long)]
    no_state: bool,

    /// Read this trace instead of the bundle's: ftrace's trace file, trace-cmd report or perf script; - is standard
    /// input
    #[arg(long, value_name = "FILE|-")]
    trace: Option<PathBuf>,

    /// Tell the life of a page (0x14a04 or 84484, a recorded frame) or the decisions around a time of the trace
    /// (5310.881638, seconds), instead of the comparison; of the recorded machine and its own rules alone
    #[arg(
        long,
        value_name = "PFN|TIME",
        conflicts_with_all = ["model", "set", "zonelist_cache", "topology", "cpus"]
    )]
    explain: Option<String>,

    #[command(flatten)]
    bound: bound::BoundArgs,

    #[command(flatten)]
    what_if: WhatIfArgs,

    #[command(flatten)]
    limit: Limit,
}

impl ReplayArgs {
    /// What it needs for its inputs and outputs.
    pub(super) fn rights(&self) -> Rights {
        let rights = match &self.action {
            Some(Action::Sweep(sweep)) => sweep.rights(),
            Some(Action::Rules(rules)) => rules.rights(),
            None => Rights::default()
                .reading(self.bundle.iter().chain(&self.trace))
                .reading(&self.what_if.topology)
                .writing(Kind::Page, &self.report),
        };
        rights.unpacking()
    }
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Replay under every combination of some tunables, on all cores
    Sweep(sweep::SweepArgs),
    /// Compare sets of rules over many bundles with Linux 6.18
    Rules(rules::RulesArgs),
}

/// `--placement`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
enum Placement {
    /// The model's own: node of the CPU, flags, watermarks
    #[default]
    Model,
    /// The recorded page's: for bundles with memory policies, which are in no event
    Recorded,
}

const AFTER_HELP: &str = "\
Fidelity:
  of a row  100 % less what is predicted wrongly, in percent of what the kernel moved; a row counts from 10 on
  percent   the mean of the rows that count: runs of refills and drains, their pages, their lengths (holds), pagesets,
            free lists. A model under which nothing moves has 0 %

Examples:
  nearpage replay
  nearpage replay BUNDLE --json
  nearpage replay BUNDLE --report out.html
  nearpage replay BUNDLE --explain 5310.881638
  nearpage replay BUNDLE --starts 32
  nearpage replay BUNDLE --bound --model nearpage
  nearpage replay BUNDLE --bound --at 4096:512 --at 4096:2016 --json
  nearpage replay BUNDLE --set pcp.batch_scale_max=0
  nearpage replay --set help
  nearpage replay BUNDLE --topology \"--numa 2G,cpus=0-3 --numa 0,cpus=4-7 --numa 2G\" --map-cpus round-robin
  nearpage replay BUNDLE --topology memoryless-8n2m --map-cpus comm
  nearpage replay sweep BUNDLE --over pcp.batch_scale_max=0..6 --over pcp.free_high=on,off
  nearpage replay rules bundles/*.tar.zst --model nearpage --model rfc-2026-owned
  ssh HOST sudo nearpage record -o - -- make | nearpage replay -

JSON (--json):
  schema                       1
  fidelity.percent             the score, or null if nothing is recorded; meaning: a sentence; worst: quantity, percent
  fidelity.percent_known_state the same over refills and drains of pagesets once nothing is left in their busy lists of
                               what was there before the trace
  fidelity.scores[]            quantity, of (what it sums up), moved, wrong, percent, null if the row does not count
  fidelity.starts              null with the kernel's own state, or drawn and level_percent of the ranges
  fidelity.rows[]              quantity, where, predicted, recorded, error_percent, drawn_range [lo, hi] over the likely
                               start and the drawn ones, or null, is_scored; at: the moment, of quantities that have one
  trace                        counts of events, lost events, frees logged twice, failed allocations, ...; the
                               window; unlogged_allocs by zone
  lacks_state                  null, or why the replay does not begin with the kernel's own state
  state                        null, or what that state told: gap (microseconds, events, pages, misfits: what lay between
                               the reading of each list and the first event that is replayed), pageset_pages,
                               free_pages; same_frames of allocs are the blocks that the kernel gave; untold_frees and
                               untold_takes have no event; has_upkeep; end: lists after the load, of pagesets and
                               free_lists: lists, same, recorded_pages, predicted_pages, differing_pages,
                               moved_pages, pages_in_place, rows[] that differ (where, recorded, predicted, in_both); tuning[]
  what_if                      null, or the totals recorded, predicted and what_if, cpus and costs; changes: machine,
                               rules, settings[] (key, before, after, no_effect), sizes[], fallback[], cpus, repeat
  objects                      null, or how slab events went together, and a column of counts for each machine
  explain                      null, or the lines of --explain
  open_loop                    what that means
  is_nearest_model             whether the rules are those of another kernel than the recorded
  explained                    null, or what --explain names
  placement_disagrees          whether memory policies are likely: --placement recorded goes by the pages
  trace_is_unproven            whether nothing shows that the trace given with --trace is of this recording
  lacks_after                  whether after/zoneinfo is missing or empty
  lacks_flows                  whether the window has no event of refills and drains
  changed_zones[]              where, managed_before, managed_after: zones whose memory came or went
  rules[]                      if --model is given several times, the totals of each: model, totals, changes,
                               lost_frees, refused_allocs

JSON (--bound --json):
  schema                       1
  bundle, kernel, cpus         what was replayed; CPUs with pagesets
  requests                     allocations and frees that pagesets serve
  trace_is_unproven            whether nothing shows that the trace given with --trace is of this recording
  models[]                     the recorded kernel's rules, then each --model: model, holds, causes (refill, drain,
                               direct by order, foreign, upkeep), kept_pages_mean, _max, _max_of_cpu and _end over all
                               CPUs, longest_hold_pages, longest_hold_ns; class, h, k, bound, forced, ratio:
                               (holds + 32) / (bound + 32); least_h: H with which as many holds would do;
                               least_holds: the bound with the most a CPU kept for H and the longest hold for K
  points[]                     h (pages a CPU), k (pages a hold), class (pooled, per-cpu, lists), fewest, and forced,
                               which is a part of fewest

Open loop: the allocations and frees of the trace come as they were recorded, whatever the model answers. Reclaim,
tasks and CPUs do not react to it.

Exit status: 0 done, 1 the output could not be written, 2 wrong usage or unreadable input, 130 after Ctrl-C.";

/// Runs the command.
///
/// # Errors
///
/// The bundle cannot be read or replayed, or the output cannot be written.
pub fn run(arguments: &ReplayArgs) -> Result<(), CommandError> {
    match &arguments.action {
        Some(Action::Sweep(sweep)) => return sweep::run(sweep),
        Some(Action::Rules(rules)) => return rules::run(rules),
        None => {}
    }
    if arguments.what_if.asks_for_help() {
        return print(&what_if::tunables());
    }
    let budget = arguments.limit.budget();
    let (bundle, trace) = (arguments.bundle.as_deref(), arguments.trace.as_deref());
    let input = Input { bundle, trace, budget };
    arguments.check(&input)?;
    let explain = arguments.explain.as_deref().map(str::parse).transpose();
    let explain = explain.map_err(ReplayFailure::Explain)?;
    let bundle = input.open()?;
    let bundle = if arguments.no_state { bundle.without_state() } else { bundle };
    let replay = Replay::of(bundle).map_err(ReplayFailure::from)?;
    let page = arguments.page_file(&input)?;
    if arguments.bound.bound {
        return bound::run(arguments, &replay, page);
    }
    let zones = match arguments.placement {
        Placement::Model => ZoneChoice::Model,
        Placement::Recorded => ZoneChoice::Recorded,
    };
    let named = arguments.what_if.models(&replay);
    let rules = if named.len() > 1 { named } else { Vec::new() };
    let (wish, slab_rules) =
        (arguments.what_if.wish(&replay, &budget)?, arguments.what_if.slab_rules());
    let starts = arguments.starts;
    let options = Options { zones, starts, explain, wish, rules, slab_rules };
    let watched = Interruptible::begin(Bar::percent("replay"))?;
    let report = replay.run(&options, &watched).map_err(ReplayFailure::from)?;
    drop(watched);
    // A page that cannot be written is no reason to keep the result.
    let written = page.map(|page| page.write(&page_of(&report))).transpose();
    arguments.print(&report)?;
    written?;
    Ok(())
}

/// The page, which says by which command it is made.
fn page_of(report: &Report) -> String {
    page_of_report(report, &Origin::new(std::env::args_os(), "none: nothing is random".into()))
}

impl ReplayArgs {
    /// Options that contradict each other.
    fn check(&self, input: &Input<'_>) -> Result<(), CommandError> {
        let standard_inputs =
            input.standard_inputs() + usize::from(self.what_if.reads_standard_input());
        if standard_inputs > 1 {
            let problem =
                "standard input (-) can be read once: as the bundle, as --trace or as --topology";
            return Err(CommandError::Usage(problem.into()));
        }
        if self.json && self.report.as_deref().is_some_and(is_standard) {
            let problem = "--json and --report - both go to standard output: --report takes a PATH";
            return Err(CommandError::Usage(problem.into()));
        }
        if self.bound.bound && !self.what_if.slab_rules().is_empty() {
            let problem = "--bound is about pages: --model takes the rules of pages with it";
            return Err(CommandError::Usage(problem.into()));
        }
        self.what_if.check()
    }

    /// The file of the page.
    fn page_file(&self, input: &Input<'_>) -> Result<Option<Output>, CommandError> {
        let Some(path) = self.report.as_deref().filter(|path| !is_standard(path)) else {
            return Ok(None);
        };
        let topology = self.what_if.topology.as_deref().map(Path::new);
        Ok(Some(page_file(path, input.paths().chain(topology))?))
    }

    /// The result on standard output.
    fn print(&self, report: &Report) -> Result<(), CommandError> {
        if self.report.as_deref().is_some_and(is_standard) {
            return print(&page_of(report));
        }
        if self.json { print_json(report) } else { print(&text::render(report)) }
    }
}
