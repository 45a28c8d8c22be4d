//! `nearpage whatif`: what a machine, a setting or a set of rules would do to a load.

mod load;
mod sweep;
mod text;

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use nearpage::Model;
use nearpage_bundle::predict::ModelChoice;
use nearpage_lab::load::Load;
use nearpage_machine::MachineDescription;
use nearpage_replay::{
    ALL_FREE, Bundle, Input, LoneTrace, Replay, ReplayError, Study, StudyAnswer, Tunable, Wish,
};
use nearpage_report::Origin;
use nearpage_report::whatif::{WhatIfPage, page_of};
use nearpage_trace::processes::Load as Processed;
use serde::Serialize;

use super::input::{
    Limit, STANDARD, STANDARD_INPUT, is_standard, models, page_file, read_machine_text, repeated,
};
use super::interrupt::Interruptible;
use super::progress::Bar;
use super::replay::{ReplayFailure, tunables};
use super::{CommandError, print, print_json};
use crate::confined::Rights;
use crate::outputs::{Kind, Output};
use crate::terminal;

/// Say what a machine, a setting or a set of rules would do to a load.
///
/// INPUT is a recorded load (a bundle of nearpage record, or a trace with a machine) or a load by name, as in nearpage lab. What changes
/// comes first; then the answer in a sentence, with its range; then a table; then what the model leaves out.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub struct WhatIfArgs {
    /// A bundle; a trace (ftrace's trace file, trace-cmd report, perf script, trace.dat or perf.data), which needs --machine; the name of a
    /// load: build, exit, one-way, purge, fill, random, pagecache, faults; - is standard input
    #[arg(value_name = "INPUT", required_unless_present = "change")]
    input: Option<PathBuf>,

    /// Another machine: numactl's text, hwloc's XML, a copy of /sys, the name of one that comes along (memoryless-8n2m), or the short
    /// form in quotes ("--numa 2G,cpus=0-1 --numa 0,cpus=2-3"); - is standard input; may be given several times, as --over
    #[arg(long, value_name = "MACHINE", allow_hyphen_values = true)]
    machine: Vec<String>,

    /// A setting and its new value: pcp.batch_scale_max=0, vm.watermark_scale_factor=200; --change help lists them
    #[arg(long, value_name = "KEY=VALUE|help")]
    change: Vec<String>,

    /// A setting and several values, a list or a range: pcp.batch_scale_max=0..5 or 0,2,5; may be given several times. All combinations
    /// are run, with --machine, --rules and --change; those that no other beats are told, as text and on the page as a plot
    #[arg(long, value_name = "KEY=VALUES")]
    over: Vec<String>,

    /// Sets of rules, with commas between them; the default is those of the recorded kernel. Of a trace that does not tell its kernel, the
    /// first of several stand for it
    #[arg(long, value_name = "RULES", value_delimiter = ',', value_parser = models())]
    rules: Vec<ModelChoice>,

    /// Copies of the load at once; needs --machine
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    repeat: u32,

    /// Starts that are drawn for the range of the answer, if the machine is the recorded one [default: 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1024))]
    starts: Option<u32>,

    /// Also what CPUs wait for zone locks: processes that do what the recorded ones did, on all CPUs of a simulated machine
    #[arg(long)]
    waits: bool,

    /// Print JSON instead
    #[arg(long, conflicts_with = "card")]
    json: bool,

    /// Also write a page of HTML; it needs no network. With - the page alone goes to standard output
    #[arg(long, value_name = "PATH|-")]
    report: Option<PathBuf>,

    /// Plain text of at most 25 lines, for a mail
    #[arg(long)]
    card: bool,

    #[command(flatten)]
    limit: Limit,
}

impl WhatIfArgs {
    /// What it needs for its inputs and outputs.
    pub(super) fn rights(&self) -> Rights {
        let machines = self.machine.iter().map(Path::new);
        let inputs = machines.chain(self.input.as_deref());
        Rights::default().reading(inputs).writing(Kind::Page, &self.report).unpacking()
    }
}

const AFTER_HELP: &str = "\
Examples:
  nearpage whatif bundles/q612-n2-mixed.tar.zst --change pcp.batch_scale_max=0
  nearpage whatif BUNDLE --machine big.numactl --change vm.percpu_pagelist_high_fraction=8 --card
  nearpage whatif BUNDLE --rules linux-6.12,linux-6.18,nearpage
  nearpage whatif perf.data --machine mine.numactl --change pcp.batch_scale_max=0
  nearpage whatif BUNDLE --machine big.numactl --rules linux-6.12,nearpage --over pcp.batch_scale_max=0..6
  nearpage whatif build --machine big.numactl --rules linux-6.12,rfc-2026-owned,nearpage

JSON of a bundle or a trace (--json):
  schema               1
  bundle, kernel       what was recorded; is_nearest_model: whether the rules are those of another kernel
  alone                null, or of a trace: trace (kernel, events, allocs, frees, ...), machine, cpus, older_frees, repeat;
                       recorded and fidelity_percent are null then
  recorded, now, then[].totals
                       what the kernel logged; what the model comes to without the change (now_is says where), and with it
  on_recorded          what it comes to on the recorded machine, if now is of another one; else null
  then[]               model, changes (machine, rules, settings[], sizes[], fallback[], cpus, repeat), ratios (holds,
                       longest_hold, kept: ratio and range), lost_frees, refused_allocs, no_difference; changes.machine
                       has sizes[] and fallback[] too: what the machine alone moves, where more is changed,
                       idle_settings (that they do nothing under other rules, or null)
  fidelity_percent     the score of the model on the recorded machine; fidelity_worst: its worst row
  starts               starts that were drawn; level_percent: how likely one more comes to a ratio within its range; no_range: why
                       none was drawn, or null
  leaves_out[]         what the model leaves out
  waits                null, or with --waits: title, now, then[] and leaves_out[] as of a load by name
JSON of a sweep: as of nearpage replay sweep: points[] with machine, rules, settings[], lock_acquisitions, most_pages_per_hold,
kept_pages_mean, refill_pages, drain_pages, bound and bound_ratio: (lock_acquisitions + 32) / (bound + 32), least_holds, pareto (whether it is on the front);
now[]: the same of the recorded kernel's rules without a setting, for each machine; notes[]. Of a load by name, as of nearpage lab sweep: machines[], each with machine, costs, seeds[], notes[] and counts by the name of
the combination: zone_lock_percent, worst_wait_us, holds, worst_hold_us, work_per_second, worst_hold_pages, cached_bytes, on_front; now[]: counts of the
first rules without a setting, for each machine.
JSON of a load by name:
  schema               1
  load, title          what runs on which machine
  machine, costs       where the machine comes from, and its table of costs
  changes[]            key, before, after, no_effect[]; the rules have the key rules
  sizes[]              watermarks and sizes of pagesets that move, as of a bundle
  seeds[]              seeds of the runs of each; counts are of the first
  now, then[]          rules; counts by name: zone_lock_percent, holds, worst_wait_us, worst_hold_us, score: pages a second of a
                       CPU, 100 now, ...; range: the least and the most of counts that differ by seed
  leaves_out[]         what the model leaves out, and where its numbers come from

Exit status: 0 done, 1 the output could not be written, 2 wrong usage or unreadable input, 130 after Ctrl-C.";

/// Runs the command.
///
/// # Errors
///
/// The input cannot be read, nothing is changed, or the output cannot be written.
pub fn run(arguments: &WhatIfArgs) -> Result<(), CommandError> {
    if arguments.change.iter().any(|given| given == "help") {
        return print(&tunables());
    }
    arguments.check()?;
    if arguments.starts.is_some_and(|starts| starts != arguments.drawn()) {
        terminal::note(format!("--starts has no effect: {ALL_FREE}"));
    }
    let budget = arguments.limit.budget();
    let machines = arguments.machine.iter().map(|given| read_machine_text(given, &budget));
    let mut machines: Vec<MachineDescription> = machines.collect::<Result<_, _>>()?;
    let load = arguments.load();
    if arguments.waits && arguments.repeat > 1 {
        terminal::note("--repeat has no effect on --waits: all CPUs of the machine run then");
    }
    if load.is_some() && arguments.waits {
        terminal::note("--waits has no effect: waits are the answer about a load by name");
    }
    if let Some(load) = load {
        return match arguments.is_sweep() {
            true => load::sweep(arguments, load, &machines),
            false => load::run(arguments, load, machines.first()),
        };
    }
    // Nothing is written yet: Ctrl-C ends the process at once.
    let watched = Bar::percent("read");
    let input = match is_standard(arguments.input()) {
        true => Input::read(STANDARD_INPUT, io::stdin().lock(), &budget, &watched),
        false => Input::open(arguments.input(), &budget, &watched),
    };
    drop(watched);
    let input = input.map_err(ReplayFailure::from)?;
    if arguments.is_sweep() {
        return sweep::run(arguments, input, machines);
    }
    let machine = machines.pop();
    match input {
        Input::Bundle(bundle) => of_bundle(arguments, *bundle, machine),
        Input::Trace(trace) => of_trace(arguments, &trace, machine),
    }
}

fn of_bundle(
    arguments: &WhatIfArgs,
    bundle: Bundle,
    machine: Option<MachineDescription>,
) -> Result<(), CommandError> {
    if machine.is_none() && arguments.change.is_empty() && arguments.rules.is_empty() {
        return Err(CommandError::Usage(NOTHING.into()));
    }
    let page = arguments.page()?;
    let replay = Replay::of(bundle).map_err(ReplayFailure::from)?;
    let kernel = &replay.bundle().recording().kernel;
    let study = arguments.study(machine, kernel)?;
    let watched = Interruptible::begin(Bar::percent("whatif"))?;
    let answer = replay.study(&study, &watched).map_err(ReplayFailure::from)?;
    drop(watched);
    let waits = match arguments.waits {
        true => {
            let now = ModelChoice::Auto.for_kernel(kernel).model;
            let here = load::recorded_machine(replay.bundle())?;
            let cpus = here.topology.nodes.iter().map(|node| node.cpus.len()).sum();
            let machine = study.wish.machine.as_ref().unwrap_or(&here);
            let done = load::processes(|watched, each| replay.bundle().events(watched, each))?;
            Some(arguments.waits(&done, cpus, machine, now, &study)?)
        }
        false => None,
    };
    arguments.answer(page, &answer, &waits)
}

fn of_trace(
    arguments: &WhatIfArgs,
    trace: &LoneTrace,
    machine: Option<MachineDescription>,
) -> Result<(), CommandError> {
    let Some(machine) = machine else {
        let input = trace.name().into();
        return Err(ReplayFailure::from(ReplayError::NoMachine { input }).into());
    };
    let page = arguments.page()?;
    let study = arguments.study(None, trace.facts().kernel.as_deref().unwrap_or(""))?;
    let watched = Interruptible::begin(Bar::percent("whatif"))?;
    let answer = trace.study(&machine, &study, &watched).map_err(ReplayFailure::from)?;
    drop(watched);
    let waits = match arguments.waits {
        true => {
            let done = load::processes(|watched, each| trace.events(watched, each))?;
            let cpus = trace.facts().cpus as usize;
            let now = Model::named(answer.model).expect("a model by its own name");
            Some(arguments.waits(&done, cpus, &machine, now, &study)?)
        }
        false => None,
    };
    arguments.answer(page, &answer, &waits)
}

/// The answer, and waits beside it.
#[derive(Serialize)]
struct WithWaits<'a> {
    #[serde(flatten)]
    answer: &'a StudyAnswer,
    waits: &'a Option<load::Waits>,
}

/// Starts that are drawn unless said.
const STARTS: u32 = 8;

/// Moments of a page's plots over time.
const MOMENTS: usize = 400;

const NOTHING: &str =
    "nothing is changed: expected --machine MACHINE, --change KEY=VALUE or --rules A,B,...";

/// The keys of some `KEY=...`.
fn keys(given: &[String]) -> impl Iterator<Item = &str> + Clone {
    given.iter().map(|given| given.split('=').next().unwrap_or("").trim())
}

impl WhatIfArgs {
    fn check(&self) -> Result<(), CommandError> {
        let usage = |problem: &str| Err(CommandError::Usage(problem.into()));
        if self.input.is_none() {
            return usage(
                "expected INPUT: a bundle, a trace with --machine, or the name of a load",
            );
        }
        let is_again = |(at, rules): &(usize, &ModelChoice)| self.rules[..*at].contains(rules);
        if self.rules.iter().enumerate().any(|of| is_again(&of)) {
            return usage("--rules has a set of rules twice, expected each once");
        }
        if self.repeat > 1 && self.machine.is_empty() {
            return usage("--repeat needs a machine: --machine MACHINE");
        }
        let standard = self.machine.iter().filter(|given| *given == STANDARD).count();
        if standard + usize::from(is_standard(self.input())) > 1 {
            return usage("standard input (-) can be read once: as INPUT or as --machine");
        }
        if let Some(machine) = repeated(self.machine.iter().map(String::as_str)) {
            return usage(&format!("--machine {machine} is there twice, expected each once"));
        }
        if let Some(key) = repeated(keys(&self.over)) {
            return usage(&format!(
                "--over {key} is there twice, expected all its values at one --over"
            ));
        }
        if let Some(key) = repeated(keys(&self.over).chain(keys(&self.change))) {
            return usage(&format!(
                "--change {key} is there twice, expected one value; --over takes several"
            ));
        }
        if self.is_sweep() && (self.repeat > 1 || self.waits || self.starts.is_some()) {
            return usage(
                "--repeat, --waits and --starts go with one answer, without --over and with one --machine at most",
            );
        }
        if (self.json || self.card) && self.report.as_deref().is_some_and(is_standard) {
            return usage(
                "--report - goes to standard output, as --json and --card do: --report takes a PATH",
            );
        }
        Ok(())
    }

    /// What is asked about a recorded load whose kernel is known, or about one of an unknown kernel: "".
    fn study(
        &self,
        machine: Option<MachineDescription>,
        kernel: &str,
    ) -> Result<Study, CommandError> {
        Ok(Study {
            wish: Wish {
                tunables: self.tunables()?,
                machine,
                repeat: self.repeat,
                ..Wish::default()
            },
            rules: self.rules.iter().map(|choice| choice.for_kernel(kernel).model).collect(),
            starts: self.drawn(),
            moments: if self.report.is_some() { MOMENTS } else { 0 },
        })
    }

    fn waits(
        &self,
        done: &Processed,
        cpus: usize,
        machine: &MachineDescription,
        now: Model,
        study: &Study,
    ) -> Result<load::Waits, CommandError> {
        let rules = if study.rules.is_empty() { vec![now] } else { study.rules.clone() };
        let settings = self.change.join(" ");
        load::waits(done, cpus, machine, now, &rules, (&study.wish.tunables, &settings))
    }

    /// The answer about a recorded load, with waits beside it.
    fn answer(
        &self,
        page: Option<Output>,
        answer: &StudyAnswer,
        waits: &Option<load::Waits>,
    ) -> Result<(), CommandError> {
        let mut sections = text::of_study(answer);
        if let Some(waits) = waits {
            text::drop_no_waits(&mut sections);
            text::add_waits(&mut sections, waits.sections(), &waits.leaves_out);
        }
        let with_time = |page| WhatIfPage { timeline: Some(&answer.timeline), ..page };
        self.output(page, &sections, with_time, &WithWaits { answer, waits })
    }

    /// What was random, for the origin of a page.
    fn seed(&self) -> String {
        match (self.load(), self.drawn()) {
            (Some(load), _) if load.draws() && self.is_sweep() => "1".into(),
            (Some(load), _) if load.draws() => format!("1 to {}", load.seeds(1).len()),
            (_, 0) => "none: nothing is random".into(),
            (_, starts) => format!("drawn starts 1 to {starts}, the same each time"),
        }
    }

    /// The input, which is there once [`check`](Self::check) has passed.
    fn input(&self) -> &Path {
        self.input.as_deref().unwrap_or(Path::new(""))
    }

    /// The load, if it is one by name.
    fn load(&self) -> Option<Load> {
        self.input().to_str().and_then(Load::by_name)
    }

    /// Whether more is asked than one machine with one value of each setting.
    fn is_sweep(&self) -> bool {
        !self.over.is_empty() || self.machine.len() > 1
    }

    /// Starts that are drawn.
    fn drawn(&self) -> u32 {
        let draws = self.machine.is_empty() && !self.is_sweep() && self.load().is_none();
        if draws { self.starts.unwrap_or(STARTS) } else { 0 }
    }

    fn tunables(&self) -> Result<Vec<Tunable>, CommandError> {
        let tunables = self.change.iter().map(|given| given.parse::<Tunable>());
        let tunables: Result<Vec<Tunable>, _> = tunables.collect();
        tunables.map_err(|error| CommandError::Usage(format!("--change {error}")))
    }

    /// The rules that are named, of a load that no kernel ran.
    fn rules(&self) -> Result<Vec<Model>, CommandError> {
        let named = self.rules.iter().map(|choice| match choice {
            ModelChoice::Auto => Err(CommandError::Usage(
                "--rules auto goes with a bundle, which tells the kernel".into(),
            )),
            choice => Ok(choice.for_kernel("").model),
        });
        named.collect()
    }

    fn page(&self) -> Result<Option<Output>, CommandError> {
        let Some(path) = self.report.as_deref().filter(|path| !is_standard(path)) else {
            return Ok(None);
        };
        let machines = self.machine.iter().map(Path::new);
        Ok(Some(page_file(path, machines.chain([self.input()]))?))
    }

    /// The answer where it was asked for; `with` adds to the page what is not in the sections.
    fn output<'p>(
        &self,
        page: Option<Output>,
        sections: &[text::Section],
        with: impl FnOnce(WhatIfPage<'static>) -> WhatIfPage<'p>,
        document: &impl Serialize,
    ) -> Result<(), CommandError> {
        let render = || {
            let origin = Origin::new(std::env::args_os(), self.seed());
            page_of("What if", &with(text::page_of(sections)), &origin)
        };
        if self.report.as_deref().is_some_and(is_standard) {
            return print(&render());
        }
        let written = page.map(|page| page.write(&render())).transpose();
        if self.json {
            print_json(document)?;
        } else if self.card {
            print(&text::card(sections))?;
        } else {
            print(&text::whole(sections))?;
        }
        written?;
        Ok(())
    }
}
