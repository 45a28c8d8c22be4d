//! `nearpage lab`: published results and named scenarios on simulated machines.

mod input;
mod interrupt;
mod output;
mod text;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::{MutexGuard, PoisonError};

use clap::Args;
use nearpage::Model;
use nearpage_bench::comparison;
use nearpage_lab::load::{self, Load, LoadWish, scenario_of};
use nearpage_lab::{LabError, Options, Over, Report, Scenario, catalog};
use nearpage_machine::MachineDescription;
use nearpage_sim::Costs;

use output::Output;

use super::CommandError;
use super::bench::{BenchFailure, SingleLoop};
use super::input::{Limit, STANDARD, named_models, read_machine_text, repeated};
use super::progress::Bar;
use crate::confined::Rights;
use crate::outputs::Kind;

/// Run published results and scenarios on simulated machines, and compare.
///
/// Without a name: the list of scenarios. Times are model time: counts come first.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub struct LabArgs {
    /// Scenarios by name, files, or `all`; - is a file on standard input
    #[arg(value_name = "NAME|FILE|all|sweep NAME|costs [NAME]")]
    scenarios: Vec<String>,

    /// With a load by name: the machine that it runs on: numactl's text, hwloc's XML, a copy of /sys, the name of one that comes along,
    /// or the short form in quotes
    #[arg(long, value_name = "MACHINE", allow_hyphen_values = true)]
    machine: Option<String>,

    /// With a load by name: sets of rules, with commas between them [default: linux-6.12,linux-6.18,rfc-2026-owned,nearpage]
    #[arg(long, value_name = "RULES", value_delimiter = ',', value_parser = named_models())]
    rules: Vec<Model>,

    /// With a load by name: CPUs that run it [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=8192))]
    cpus: Option<u32>,

    /// With a load by name: model time of each CPU, about [default: 0.25]
    #[arg(long, value_name = "S", value_parser = parse_seconds)]
    seconds: Option<f64>,

    /// With `sweep NAME`: all combinations of these settings; values are a list or a range
    #[arg(long, value_name = "KEY=VALUES")]
    over: Vec<Over>,

    /// Print a JSON array, one object a scenario; --help says what is in it
    #[arg(long, conflicts_with = "csv")]
    json: bool,

    /// Print one line a figure: scenario,row,column,reference,model,verdict
    #[arg(long)]
    csv: bool,

    /// Also write a page of HTML: tables, plots, the machines; it needs no network. - is standard output, instead of
    /// text
    #[arg(long, value_name = "PATH")]
    report: Option<PathBuf>,

    /// Seed of everything random; the same seed gives the same bytes
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Worker threads for independent runs [default: as many as CPUs]
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    threads: Option<NonZeroUsize>,

    /// How `bulk` handles pages one at a time; refused without bulk [default: exact]
    #[arg(long = "loop", value_name = "HOW", value_enum)]
    single_loop: Option<SingleLoop>,

    /// A table of costs instead of the scenario's own: a name or a file; - is standard input
    #[arg(long, value_name = "FILE")]
    costs: Option<String>,

    /// With `costs`: measure a table of costs on this machine and print it
    #[arg(long)]
    measure: bool,

    #[command(flatten)]
    limit: Limit,
}

impl LabArgs {
    /// What it needs, unless it measures this machine.
    pub(super) fn rights(&self) -> Option<Rights> {
        let inputs = self.scenarios.iter().chain(&self.machine).chain(&self.costs);
        // Scenarios name files of the current folder.
        let rights =
            || Rights::default().reading(["."]).reading(inputs).writing(Kind::Page, &self.report);
        (!self.measure).then(rights)
    }
}

const AFTER_HELP: &str = "\
Loads by name, on a machine of yours: `lab LOAD --machine MACHINE --rules A,B,C [--cpus N] [--seconds S]`. LOAD is build,
exit, one-way, purge, fill, random, pagecache or faults: `lab` alone says what each does, and where its numbers come from.

A figure of the model is `within` its tolerance, `off by` more, or a `known-miss`: listed with a reason. Exit
status 1: something is off that is not listed, or does not hold. `sweep` and `costs` are reserved words; a
file of that name is `./sweep`.

JSON (--json): [{\"schema\": 1, \"name\", \"rows\", \"holds\", \"counts\", \"notes\"}], and of a load by name machine, costs, seeds[], and range:
the least and the most of counts that differ by seed
  rows[]             row, column, reference, model, verdict, tolerance (what is accepted)
  holds[]            what, value, ok
  counts             by name
CSV (--csv): the rows; then what must hold, with an empty column and reference, the value as model, and `holds` or
`fails` as verdict; then counts, with `count`.

Sweep: `lab sweep NAME --over pcp.batch_scale_max=0..6 --over zonelist_cache=off,original,keyed`. Keys: model,
pcp.batch_scale_max, zone.instances, zonelist_cache, vm.percpu_pagelist_high_fraction. A combination is on the
front if no other has as much work a model second, as few pages in its worst hold, and as little in pagesets.

Scenario files (TOML):
  schema             1
  name, title        text
  [machine]          costs (a name or a file), and catalog = \"p9-sparse\", a machine that comes with nearpage, or
    page_size        4K to 64K
    nodes            [{ ids = \"0-3,8\", cpus_each = 2, memory = \"4G\" }, ...]
    distance         { matrix = [[10, 20], [20, 10]] }, or { local = 10, groups = [{ nodes = 4, distance =
                     22 }], other = 30 }: nodes that share a group of 4 are at 22, others at 30
  [allocator]        model (as in `nearpage topo --model`), zone_reclaim = true|false, zone_instances = 4: zones
                     that the Normal memory of a node is divided into
  [variants]         patches = [0, 1, 3]: of the series of 2023, all up to each; for [[workload.messages]]
                     models = [\"linux-6.18\", { model = \"rfc-2023-zones\", instances = 4, batch_scale_max = 5 }]:
                     for [[workload.contention]]
  one of
  [workload.memory-hog]  scale, memory = [\"12G\"], threads = [1, 19], stores_per_page, hot_add = 1: the node whose
                     memory comes after a first run
  [workload.slab-messages]  objects = [256, 512], messages and burst of each CPU, published_messages,
                     message_ns, others = [further machines, each with a name]
  [workload.block-requests]  object = 256, depth, turn, warm_up_ns, window_ns, request_ns or published = {
                     before, after } (calibrates it), machine and whole = { name, costs, nodes, distance }:
                     without memory on some nodes, and with; stands beside slab-messages
  [[workload.messages]]  name, pairs, messages, turn, window, copy_ns or calibrate = { zone_lock_percent =
                     50.0 }, blocks = [{ order = 3, every = 1, freed_by = \"receiver\" or \"sender\" }]
  [workload.page-lock-storm]  processes = [20, 160], pages and faults of each, streamed = \"30M\" a fault,
                     sharers = 1 (CPUs that share pages), locked_ns, calibrate = { home_service = \"global\" }
  [workload.process-lifetimes]  machine = { name, costs, nodes, distance }, cpus, trace = \"gcc\", \"container\"
                     or a file, warm_up and count of each CPU, moves_percent, free_ns, page_ns or
                     zone_lock_percent = 43.6 (calibrates it); may stand beside messages
  [[workload.contention]]  name, one of fill = { processes, memory = \"6G\", rounds, leave_together, bystanders },
                     purge = { pairs, pages, window } and build = { cpus, trace, warm_up, count, moves_percent };
                     scale (divides memory of machine and work), free_ns, page_ns or calibrate = {
                     zone_lock_percent = 13.01 } or { refill_us = 449.8 } by the first model, reference = [{
                     columns = [\"variant\", ...], rows }]; may stand beside messages
  [workload.huge-then-single]  pages
  [calibrate]        scale and load_slowdown = { memory = \"12G\", threads = 1 }: cells of a memory hog's
                     reference
  [reference]        columns = [...], rows = [[...]]
Tables of costs (TOML): each figure is { value = ..., source = \"...\" }; `lab costs NAME` prints one,
`lab costs --measure` makes one of this machine. Ctrl-C prints what is finished (exit status 130).";

/// What a lab run failed of.
#[derive(Debug, thiserror::Error)]
pub enum LabFailure {
    /// A scenario cannot be run as it is written.
    #[error(transparent)]
    Input(#[from] LabError),
    /// Costs of this machine cannot be measured.
    #[error("costs cannot be measured: {0}")]
    Costs(#[source] nearpage_bench::costs::MeasureError),
    /// A figure is off, or something does not hold.
    #[error("{0}: something is off that is not in the list of known misses, or does not hold")]
    Off(String),
}

impl LabFailure {
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::Input(_) | Self::Costs(_) => 2,
            Self::Off(_) => 1,
        }
    }
}

pub(super) fn run(arguments: &LabArgs) -> Result<(), CommandError> {
    if arguments.scenarios.is_empty() {
        let is_plain =
            arguments.report.is_none() && arguments.over.is_empty() && !arguments.measure;
        if !is_plain || arguments.json || arguments.csv || arguments.single_loop.is_some() {
            return Err(CommandError::Usage(
                "which scenario? Accepted: names, files, or `all`; `lab` alone lists the names"
                    .into(),
            ));
        }
        return super::print(&text::list().map_err(LabFailure::from)?);
    }
    if arguments.scenarios[0] == "costs" {
        return print_costs(arguments);
    }
    if arguments.measure {
        return Err(CommandError::Usage("`--measure` belongs to `lab costs`".into()));
    }
    let (names, is_sweep) = match arguments.scenarios.split_first() {
        Some((first, names)) if first == "sweep" => (names, true),
        _ => (&*arguments.scenarios, false),
    };
    check_sweep(arguments, names, is_sweep)?;
    let machine = arguments.machine.as_deref();
    let machine = machine.map(|text| read_machine_text(text, &arguments.limit.budget()));
    let machine = machine.transpose()?;
    check_standard_input(arguments, names)?;
    let loads = loads(names);
    check_loads(arguments, names, &loads)?;
    let scenarios = match (&machine, loads.is_empty()) {
        (Some(machine), false) => arguments.loads(&loads, machine)?,
        _ => scenarios(names).map_err(|error| match is_sweep {
            true => LabFailure::from(error),
            false => with_all_names(error).into(),
        })?,
    };
    check_loop(arguments, &scenarios)?;
    let costs = arguments.costs.as_deref().map(input::costs).transpose();
    let costs = costs.map_err(LabFailure::from)?;
    let work = interrupt::Shared::default();
    let names = scenarios.iter().map(|entry| entry.name().to_owned()).collect();
    lock(&work).left = names;
    let output = Arc::new(Output::of(arguments, &scenarios)?);
    interrupt::watch(&work, output.clone()).map_err(CommandError::Output)?;
    for scenario in &scenarios {
        let report = match scenario {
            Entry::Bulk if is_sweep => {
                return Err(CommandError::Usage(
                    "bulk is measured on real memory: there is nothing to sweep".into(),
                ));
            }
            Entry::Bulk => bulk(arguments.single_loop.unwrap_or(SingleLoop::Exact))?,
            Entry::Simulated(scenario) => {
                let bar = Bar::of(&scenario.name, "runs");
                simulate(scenario, &options(arguments, costs.as_ref(), &bar), arguments)?
            }
            Entry::Load(load, scenario, notes) => {
                let seeds = match is_sweep {
                    true => vec![arguments.seed],
                    false => load.seeds(arguments.seed),
                };
                let machine = machine.as_ref().expect("a load has a machine");
                let runs = scenario.models.len() * seeds.len();
                let bar = Bar::telling(&scenario.name, runs, scenario.pages());
                let options = options(arguments, costs.as_ref(), &bar);
                let mut report = match is_sweep {
                    true => load::sweep(scenario, machine, &arguments.over, &options),
                    false => load::run(scenario, machine, &seeds, &options),
                }
                .map_err(LabFailure::from)?;
                let ran = report.ran.iter().flat_map(|ran| ran.lines());
                let notes: Vec<String> = notes.iter().cloned().chain(ran).collect();
                report.notes.splice(0..0, notes);
                report
            }
        };
        output.print_one(&report)?;
        let mut work = lock(&work);
        work.left.remove(0);
        work.reports.push(report);
    }
    // Kept to the end: an interruption finds all or nothing printed.
    let work = lock(&work);
    let reports = &work.reports;
    output.end(reports)?;
    let failed: Vec<&str> =
        reports.iter().filter(|report| report.has_failed()).map(|report| &*report.name).collect();
    if failed.is_empty() { Ok(()) } else { Err(LabFailure::Off(failed.join(", ")).into()) }
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.001..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "expected seconds from 0.001 to 3600".into())
}

/// The loads that are named, if nothing else is.
fn loads(names: &[String]) -> Vec<Load> {
    let loads = names.iter().map(|name| Load::by_name(name));
    loads.collect::<Option<Vec<_>>>().unwrap_or_default()
}

/// Options of loads go with loads, and loads with a machine.
fn check_loads(arguments: &LabArgs, names: &[String], loads: &[Load]) -> Result<(), CommandError> {
    let given = [
        ("--machine", arguments.machine.is_some()),
        ("--rules", !arguments.rules.is_empty()),
        ("--cpus", arguments.cpus.is_some()),
        ("--seconds", arguments.seconds.is_some()),
    ];
    let given = given.into_iter().find(|(_, is_given)| *is_given);
    if let (Some((option, _)), true) = (given, loads.is_empty()) {
        let all = Load::ALL.map(Load::name).join(", ");
        let problem = format!(
            "{option} goes with loads by name alone: {all}; scenarios have a machine and rules of their own"
        );
        return Err(CommandError::Usage(problem));
    }
    if !loads.is_empty() && arguments.machine.is_none() {
        let problem =
            format!("{} runs on a machine of yours: expected --machine MACHINE", names[0]);
        return Err(CommandError::Usage(problem));
    }
    Ok(())
}

fn parse_threads(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "expected a number of threads, 1 or more".into())
}

impl LabArgs {
    /// Loads as scenarios on a machine.
    fn loads(
        &self,
        loads: &[Load],
        machine: &MachineDescription,
    ) -> Result<Vec<Entry>, LabFailure> {
        let rules = match self.rules.is_empty() {
            true => {
                vec![Model::LINUX_6_12, Model::LINUX_6_18, Model::RFC_2026_OWNED, Model::NEARPAGE]
            }
            false => self.rules.clone(),
        };
        let wish = LoadWish {
            machine,
            costs: self.costs.as_deref(),
            rules,
            cpus: self.cpus.map(|cpus| cpus as usize),
            seconds: self.seconds,
            config: nearpage::Config::default(),
        };
        let entry = |&load: &Load| {
            let (scenario, notes) = scenario_of(load, &wish)?;
            Ok(Entry::Load(load, Box::new(scenario), notes))
        };
        loads.iter().map(entry).collect()
    }
}

/// What comes from standard input comes once.
fn check_standard_input(arguments: &LabArgs, names: &[String]) -> Result<(), CommandError> {
    let of_scenarios = names.iter().filter(|name| *name == STANDARD).count();
    let of_costs = usize::from(arguments.costs.as_deref() == Some(STANDARD));
    let of_machine = usize::from(arguments.machine.as_deref() == Some(STANDARD));
    if of_scenarios + of_costs + of_machine > 1 {
        return Err(CommandError::Usage("standard input (-) can be read once".into()));
    }
    Ok(())
}

/// An option that changes nothing of what is run would let its user believe that it did.
fn check_loop(arguments: &LabArgs, scenarios: &[Entry]) -> Result<(), CommandError> {
    let Some(single_loop) = arguments.single_loop else { return Ok(()) };
    if scenarios.iter().any(|entry| matches!(entry, Entry::Bulk)) {
        return Ok(());
    }
    let how = nearpage_bench::SingleLoop::from(single_loop).name();
    let names: Vec<&str> = scenarios.iter().map(Entry::name).collect();
    let names = names.join(", ");
    let message = format!("--loop {how}: it belongs to bulk, and changes nothing in {names}");
    Err(CommandError::Usage(message))
}

fn check_sweep(arguments: &LabArgs, names: &[String], is_sweep: bool) -> Result<(), CommandError> {
    let usage = |message: &str| Err(CommandError::Usage(message.into()));
    if let Some(key) = repeated(arguments.over.iter().map(Over::key)) {
        return Err(CommandError::Usage(format!("`--over {key}=...` is there twice")));
    }
    match (is_sweep, arguments.over.is_empty(), names.len()) {
        (true, true, _) => usage("lab sweep takes `--over KEY=VALUES` once or more"),
        (true, _, 0) => usage("lab sweep takes the name of a scenario, or a file"),
        (false, false, _) => usage("`--over` belongs to `lab sweep NAME`"),
        _ => Ok(()),
    }
}

/// What a name stands for.
enum Entry {
    Simulated(Box<Scenario>),
    /// A load by name, and what had to be assumed.
    Load(Load, Box<Scenario>, Vec<String>),
    /// Real memory.
    Bulk,
}

impl Entry {
    fn name(&self) -> &str {
        match self {
            Self::Simulated(scenario) | Self::Load(_, scenario, _) => &scenario.name,
            Self::Bulk => comparison::NAME,
        }
    }

    fn scenario(&self) -> Option<&Scenario> {
        match self {
            Self::Simulated(scenario) | Self::Load(_, scenario, _) => Some(scenario),
            Self::Bulk => None,
        }
    }
}

fn bulk(single_loop: SingleLoop) -> Result<Report, BenchFailure> {
    Ok(comparison::run(single_loop.into(), &Bar::of(comparison::NAME, "steps"))?)
}

fn options<'a>(arguments: &LabArgs, costs: Option<&'a Costs>, bar: &'a Bar) -> Options<'a> {
    let threads = arguments.threads.or_else(|| std::thread::available_parallelism().ok());
    Options {
        seed: arguments.seed,
        threads: threads.unwrap_or(NonZeroUsize::MIN),
        costs,
        samples: arguments.report.is_some(),
        observer: bar,
    }
}

fn simulate(
    scenario: &Scenario,
    options: &Options<'_>,
    arguments: &LabArgs,
) -> Result<Report, LabFailure> {
    if arguments.over.is_empty() {
        Ok(nearpage_lab::run(scenario, options)?)
    } else {
        Ok(nearpage_lab::sweep(scenario, &arguments.over, options)?)
    }
}

fn print_costs(arguments: &LabArgs) -> Result<(), CommandError> {
    let is_plain = !arguments.json && !arguments.csv && arguments.report.is_none();
    let is_unchanged = arguments.over.is_empty()
        && arguments.single_loop.is_none()
        && arguments.costs.is_none()
        && arguments.threads.is_none()
        && arguments.machine.is_none()
        && arguments.rules.is_empty()
        && arguments.cpus.is_none()
        && arguments.seconds.is_none();
    if !is_plain || !is_unchanged {
        return Err(CommandError::Usage(
            "lab costs prints TOML; it takes none of `--json`, `--csv`, `--report`, `--over`, `--loop`, `--costs`, \
             `--threads`, `--machine`, `--rules`, `--cpus`, `--seconds`"
                .into(),
        ));
    }
    match (arguments.measure, &arguments.scenarios[1..]) {
        (true, []) => {
            let costs = nearpage_bench::costs::measure(&Bar::of("costs", "figures"));
            let costs = costs.map_err(LabFailure::Costs)?;
            super::print(&format!("# Measured by `nearpage lab costs --measure`.\n{costs}"))
        }
        (false, []) => super::print(&text::cost_names()),
        (false, [name]) => super::print(&input::costs_text(name).map_err(LabFailure::from)?),
        _ => Err(CommandError::Usage("lab costs takes one name, or `--measure`".into())),
    }
}

fn lock(work: &interrupt::Shared) -> MutexGuard<'_, interrupt::Work> {
    work.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The names of all scenarios, in the order of `lab all`: those of the catalogue, and the one on real memory.
fn all_names() -> impl Iterator<Item = &'static str> + Clone {
    catalog::names().chain([comparison::NAME])
}

fn scenarios(names: &[String]) -> Result<Vec<Entry>, LabError> {
    let each = |name: &String| match name.as_str() {
        "all" => all_names().map(str::to_owned).collect(),
        _ => vec![name.clone()],
    };
    let entry = |name: String| match name.as_str() {
        comparison::NAME => Ok(Entry::Bulk),
        _ => input::scenario(&name).map(|scenario| Entry::Simulated(Box::new(scenario))),
    };
    names.iter().flat_map(each).map(entry).collect()
}

/// The library's error about an unknown name lists the simulated scenarios; this command runs one more.
fn with_all_names(error: LabError) -> LabError {
    match error {
        LabError::Unknown { name, .. } => {
            LabError::Unknown { name, known: all_names().collect::<Vec<_>>().join(", ") }
        }
        error => error,
    }
}
