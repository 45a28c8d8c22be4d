//! `nearpage replay`: drives the core with a recorded trace, says how exactly it predicts the kernel, and then what
//! other rules, tunables and machines would have done.

mod json;
mod objects;
mod page;
mod sweep;
mod text;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use nearpage::units::{NodeId, PageCount};
use nearpage::zonelist::cache::CacheRule;
use nearpage_sim::NodeSpec;

use super::lab::LabFailure;
use super::{CommandError, print};
use nearpage_bundle::predict::ModelChoice;
use nearpage_lab::catalog;
use nearpage_machine::{MachineDescription, MachineInput};
use nearpage_replay::cpus::CpuRule;
use nearpage_replay::explain::Subject;
use nearpage_replay::fidelity::{Fidelity, SCORED_FROM, Truth};
use nearpage_replay::objects::Objects;
use nearpage_replay::recorded::Flow;
use nearpage_replay::run::{Totals, ZoneChoice};
use nearpage_replay::session::{Replayed, replay};
use nearpage_replay::setting::Setting;
use nearpage_replay::source::{Bundle, Sample};
use nearpage_replay::start::{Start, free_pages_after, settings};
use nearpage_replay::whatif::{Answer, Wish, ask};
use nearpage_report::file::PageFile;

/// Replay a recorded trace on the recorded machine, and compare with what its kernel logged.
///
/// With --model, --set, --zonelist-cache, --topology or --repeat the same allocations and frees are replayed once
/// more, under other rules or on another machine, and both are shown side by side.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER_HELP, args_conflicts_with_subcommands = true)]
pub struct ReplayArgs {
    #[command(subcommand)]
    action: Option<Action>,

    /// A bundle: a folder with meta.json and trace.txt.zst, or a tar of one; the default is a small one of a Linux
    /// 6.12 that comes with nearpage
    #[arg(value_name = "BUNDLE")]
    bundle: Option<PathBuf>,

    /// Print JSON instead
    #[arg(long)]
    json: bool,

    /// Also write a page of HTML: tables, plots, the machine; it needs no network
    #[arg(long, value_name = "PATH")]
    report: Option<PathBuf>,

    /// Where the zone of an allocation comes from
    #[arg(long, value_enum, default_value_t)]
    placement: Placement,

    /// Read this trace instead of the bundle's: ftrace's trace file, trace-cmd report or perf script
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Tell the life of a page (0x14a04 or 84484, a recorded frame) or the decisions around a time of the trace
    /// (5310.881638, seconds), instead of the comparison
    #[arg(long, value_name = "PFN|TIME")]
    explain: Option<String>,

    #[command(flatten)]
    what_if: WhatIfArgs,
}

/// What is to be different.
#[derive(Args, Debug)]
#[command(next_help_heading = "What if")]
struct WhatIfArgs {
    /// Whose rules, instead of the recorded kernel's
    #[arg(long, value_parser = super::input::models(), default_value_t)]
    model: ModelChoice,

    /// A tunable: pcp.batch_scale_max=0, vm.watermark_scale_factor=200; --set help lists them
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,

    /// Whether scans of zonelists remember full zones
    #[arg(long, value_enum, value_name = "RULE")]
    zonelist_cache: Option<ZonelistCache>,

    /// Another machine, all of whose memory is free: a file that nearpage topo --topology reads, the name of one of the
    /// lab (memoryless-8n2m), or the short form in quotes ("--numa 2G,cpus=0-1 --numa 0,cpus=2-3")
    #[arg(long, value_name = "MACHINE", allow_hyphen_values = true)]
    topology: Option<String>,

    /// Which of its CPUs plays a recorded one
    #[arg(long, value_enum, default_value_t)]
    map_cpus: CpuRule,

    /// Copies of the trace at once; needs --cpus or --topology
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    repeat: u32,

    /// CPUs of a machine with the recorded nodes, dealt out over those that have CPUs, and with memory for --repeat
    #[arg(long, value_name = "M", conflicts_with = "topology", value_parser = clap::value_parser!(u32).range(1..=4096))]
    cpus: Option<u32>,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Replay under every combination of some tunables, on all cores
    Sweep(sweep::SweepArgs),
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

/// `--zonelist-cache`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum ZonelistCache {
    /// None, as Linux since 4.4
    Off,
    /// As Linux until 4.3: one bit a zone
    Original,
    /// nearpage's: by order and watermark
    Keyed,
}

const AFTER_HELP: &str = "\
Fidelity:
  error   = |predicted - recorded| / recorded
  percent = 100 - mean of min(error, 100) over the rows with where: all that have at least 500 recorded

Examples:
  nearpage replay
  nearpage replay BUNDLE --json
  nearpage replay BUNDLE --report out.html
  nearpage replay BUNDLE --explain 5310.881638
  nearpage replay BUNDLE --set pcp.batch_scale_max=0
  nearpage replay BUNDLE --topology \"--numa 2G,cpus=0-3 --numa 0,cpus=4-7 --numa 2G\" --map-cpus round-robin
  nearpage replay BUNDLE --topology memoryless-8n2m --map-cpus comm
  nearpage replay sweep BUNDLE --over pcp.batch_scale_max=0,1,2,3,4,5,6

JSON (--json):
  schema                       1
  fidelity.percent             the score, or null if nothing is recorded
  fidelity.percent_known_state the same over refills and drains of pagesets once nothing is left in their busy lists of
                               what was there before the trace
  fidelity.rows[]              quantity, where, predicted, recorded, error_percent, start_bound [lo, hi]; at: the
                               moment, of quantities that have one
  trace                        what was met: events, lost events, frees told twice, failed allocations, ...
  what_if                      null, or the totals recorded, predicted and what_if, cpus and costs
  objects                      null, or how slab events went together, and a column of counts for each machine
  explain                      null, or the lines of --explain
  open_loop                    what that means

Open loop: the allocations and frees of the trace come as they were recorded, whatever the model answers. Reclaim,
tasks and CPUs do not react to it.

Exit status: 0 done, 2 wrong usage or unreadable input.";

/// A replay and what it is compared with.
struct Report {
    bundle: Bundle,
    start: Start,
    replayed: Replayed,
    fidelity: Fidelity,
    is_of_other_kernel: bool,
    what_if: Option<Answer>,
    objects: Option<Objects>,
    explained: Option<Subject>,
}

/// What a replay cannot say, in every report.
const OPEN_LOOP: &str = "open loop: allocations and frees come as recorded, whatever the model answers; reclaim, tasks and \
     CPUs do not react";

impl Report {
    /// What the kernel's log comes to, as far as it tells. Refills and drains are runs of lines.
    fn recorded_totals(&self) -> Totals {
        let recorded = &self.replayed.recorded;
        let flow = recorded.flows.iter().fold(Flow::default(), |sum, flow| sum.plus(*flow));
        let mut pages_by_node: Vec<(NodeId, u64)> = Vec::new();
        for (zone, &pages) in self.start.zones.iter().zip(&recorded.pages) {
            match pages_by_node.iter_mut().find(|(node, _)| *node == zone.node) {
                Some((_, sum)) => *sum += pages,
                None => pages_by_node.push((zone.node, pages)),
            }
        }
        let cached =
            self.fidelity.rows.iter().find(|row| row.quantity == "pcp_count" && row.place == "all");
        let cached = PageCount(cached.and_then(|row| row.recorded).unwrap_or(0));
        Totals {
            refills: flow.refills,
            refill_pages: flow.refill_pages,
            drains: flow.drains,
            drain_pages: flow.drain_pages,
            pages_by_node,
            cached_bytes: cached.bytes(self.start.page_shift),
            remote_pages: recorded.remote_pages,
            ..Totals::default()
        }
    }

    /// Whether so many pages came from elsewhere than predicted that a policy is likely.
    fn placement_disagrees(&self) -> bool {
        const ENOUGH: f64 = 5.0;
        let rows = self.fidelity.rows.iter();
        let mut placed = rows.filter(|row| row.quantity == "fallback_pages" && row.place == "all");
        placed.any(|row| {
            row.recorded.is_some_and(|pages| pages >= SCORED_FROM)
                && row.error_percent().is_some_and(|error| error > ENOUGH)
        })
    }
}

/// Runs the command.
///
/// # Errors
///
/// The bundle cannot be read or replayed, or the output cannot be written.
pub fn run(arguments: &ReplayArgs) -> Result<(), CommandError> {
    if let Some(Action::Sweep(sweep)) = &arguments.action {
        return sweep::run(sweep);
    }
    let shipped = shipped_bundle();
    let path = arguments.bundle.as_deref().unwrap_or(&shipped);
    let bundle = Bundle::open(path, arguments.trace.as_deref())?;
    let choice = match arguments.placement {
        Placement::Model => ZoneChoice::Model,
        Placement::Recorded => ZoneChoice::Recorded,
    };
    let (start, is_of_other_kernel) = start_of(&bundle)?;
    let inputs: Vec<&Path> =
        [Some(path), arguments.trace.as_deref()].into_iter().flatten().collect();
    let file =
        arguments.report.as_deref().map(|report| PageFile::at(report, &inputs)).transpose()?;
    let wish = arguments.what_if.wish(&bundle, &start)?;
    let explained = arguments.explain.as_deref().map(Subject::parse).transpose()?;
    let replayed = replay(&bundle, &start, choice, explained)?;
    let samples = bundle.samples()?;
    let fidelity = compare(&bundle, &start, &replayed, &samples, choice)?;
    let what_if = match wish.is_empty() {
        true => None,
        false => Some(ask(&bundle, &replayed.survey, &start, settings(&bundle, &start)?, &wish)?),
    };
    let objects = objects::of(&bundle, &start, &replayed.survey, &wish)?;
    let report = Report {
        bundle,
        start,
        replayed,
        fidelity,
        is_of_other_kernel,
        what_if,
        objects,
        explained,
    };
    if let Some(file) = file {
        file.write(&page::render(&report, &samples))?;
    }
    if arguments.json { print(&json::render(&report)) } else { print(&text::render(&report)) }
}

/// The bundle that comes with the sources: in the folder that the command runs in, or where it was built.
fn shipped_bundle() -> PathBuf {
    const SHIPPED: &str = "bundles/q612-n2-mixed.tar.zst";
    let here = PathBuf::from(SHIPPED);
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    match sources {
        Some(sources) if !here.exists() => sources.join(SHIPPED),
        _ => here,
    }
}

/// The start state under the recorded kernel's rules, and whether they are those of another kernel.
fn start_of(bundle: &Bundle) -> Result<(Start, bool), CommandError> {
    let chosen = ModelChoice::Auto.for_kernel(&bundle.recording.kernel);
    let capture = bundle.recording.capture(Some("before"))?;
    let page_bytes = bundle.recording.page_bytes.filter(|bytes| bytes.is_power_of_two());
    let start = Start::read(&bundle.name(), capture, page_bytes.unwrap_or(4096), chosen.model)?;
    Ok((start, chosen.is_of_other_kernel))
}

fn compare(
    bundle: &Bundle,
    start: &Start,
    replayed: &Replayed,
    samples: &[Sample],
    choice: ZoneChoice,
) -> Result<Fidelity, CommandError> {
    let before = bundle.recording.capture(Some("before"))?.machine()?;
    let after = bundle.recording.capture(Some("after")).ok();
    let after = after.filter(|_| replayed.survey.is_whole);
    let machine = after.map(|after| after.machine()).transpose()?;
    let free_after = after.map(|after| free_pages_after(after, start)).transpose()?.flatten();
    let truth = Truth {
        before: &before.zones,
        after: machine.as_ref().map(|machine| &*machine.zones),
        free_after,
        samples,
    };
    Ok(Fidelity::of(start, replayed, &truth, choice))
}

impl WhatIfArgs {
    fn wish(&self, bundle: &Bundle, start: &Start) -> Result<Wish, CommandError> {
        let model = match self.model {
            ModelChoice::Auto => None,
            choice => Some(choice.for_kernel(&bundle.recording.kernel).model),
        };
        let settings = self.set.iter().map(|given| Setting::parse(given));
        let zonelist_cache = self.zonelist_cache.map(|rule| match rule {
            ZonelistCache::Off => CacheRule::Off,
            ZonelistCache::Original => CacheRule::Original,
            ZonelistCache::Keyed => CacheRule::Keyed,
        });
        if self.repeat > 1 && self.cpus.is_none() && self.topology.is_none() {
            let problem = "--repeat needs a machine: --cpus M or --topology MACHINE".into();
            return Err(CommandError::Usage(problem));
        }
        Ok(Wish {
            model,
            settings: settings.collect::<Result<_, _>>()?,
            zonelist_cache,
            machine: self.machine(start)?,
            cpus: self.map_cpus,
            repeat: self.repeat,
        })
    }

    fn machine(&self, start: &Start) -> Result<Option<MachineDescription>, CommandError> {
        let input = match (&self.topology, self.cpus) {
            (Some(text), _) if text.trim_start().starts_with("--numa") => short_form(text),
            (Some(name), _) if catalog::names().any(|known| known == name) => of_lab(name)?,
            (Some(path), _) => MachineInput::Path(path.into()),
            (None, Some(cpus)) => MachineInput::ShortForm {
                nodes: start.scaled_nodes(cpus, self.repeat),
                distances: start.distances_in_short_form(),
            },
            (None, None) => return Ok(None),
        };
        Ok(Some(MachineDescription::read(&input)?))
    }
}

/// The machine of a scenario of the lab, in short form.
fn of_lab(name: &str) -> Result<MachineInput, CommandError> {
    let machine = catalog::scenario(name).map_err(LabFailure::from)?.machine.machine;
    let count = machine.nodes.len();
    let is_plain = machine.nodes.iter().enumerate().all(|(at, node)| node.id.0 as usize == at);
    if !is_plain || machine.page_bytes() != 4096 {
        let problem = format!(
            "--topology {name}: its nodes or pages are numbered or sized in a way that the short form cannot say"
        );
        return Err(CommandError::Usage(problem));
    }
    let node = |node: &NodeSpec| {
        let cpus: Vec<String> = node.cpus.iter().map(ToString::to_string).collect();
        let cpus =
            if cpus.is_empty() { String::new() } else { format!(",cpus={}", cpus.join(",")) };
        format!("{}K{cpus}", node.bytes / 1024)
    };
    let entry = |at: usize| format!("{},{}={}", at / count, at % count, machine.distances[at]);
    let distances = (0..count * count).filter(|at| at / count != at % count).map(entry).collect();
    Ok(MachineInput::ShortForm { nodes: machine.nodes.iter().map(node).collect(), distances })
}

/// The values of `--numa` and `--numa-distance` in a text.
fn short_form(text: &str) -> MachineInput {
    let (mut nodes, mut distances) = (Vec::new(), Vec::new());
    let mut words = text.split_whitespace();
    while let Some(word) = words.next() {
        let (key, value) = match word.split_once('=').filter(|(key, _)| key.starts_with("--numa")) {
            Some((key, value)) => (key, value),
            None => (word, words.next().unwrap_or_default()),
        };
        match key {
            "--numa-distance" => distances.push(value.to_owned()),
            _ => nodes.push(value.to_owned()),
        }
    }
    MachineInput::ShortForm { nodes, distances }
}
