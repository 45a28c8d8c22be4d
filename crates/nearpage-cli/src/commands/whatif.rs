//! `nearpage whatif`: what a machine, a setting or a set of rules would do to a load.

mod load;
mod text;

use std::path::{Path, PathBuf};

use clap::Args;
use nearpage::Model;
use nearpage_bundle::predict::ModelChoice;
use nearpage_lab::load::Load;
use nearpage_machine::MachineDescription;
use nearpage_replay::{Replay, Study, StudyAnswer, Tunable, Wish};
use nearpage_report::{Origin, text_page};
use serde::Serialize;

use super::input::{is_standard, models, page_file, read_machine_text};
use super::interrupt::Interruptible;
use super::progress::Bar;
use super::replay::{ReplayFailure, open_bundle, tunables};
use super::{CommandError, print, print_json};
use crate::confined::Rights;
use crate::terminal;

/// Say what a machine, a setting or a set of rules would do to a load.
///
/// INPUT is a recorded load (a bundle of nearpage record) or a load by name, as in nearpage lab. What changes comes first; then the
/// answer in a sentence, with its range; then a table; then what the model leaves out.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub struct WhatIfArgs {
    /// A bundle (- is standard input), or the name of a load: build, exit, one-way, purge, fill, random, pagecache, faults
    #[arg(value_name = "INPUT")]
    input: PathBuf,

    /// Another machine: numactl's text, hwloc's XML, a copy of /sys, the name of one that comes along (memoryless-8n2m), or the short
    /// form in quotes ("--numa 2G,cpus=0-1 --numa 0,cpus=2-3"); - is standard input
    #[arg(long, value_name = "MACHINE", allow_hyphen_values = true)]
    machine: Option<String>,

    /// A setting and its new value: pcp.batch_scale_max=0, vm.watermark_scale_factor=200; --change help lists them
    #[arg(long, value_name = "KEY=VALUE|help")]
    change: Vec<String>,

    /// Sets of rules, with commas between them; the default is those of the recorded kernel
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
}

impl WhatIfArgs {
    /// What it needs for its inputs and outputs.
    pub(super) fn rights(&self) -> Rights {
        let inputs = [Some(&*self.input), self.machine.as_deref().map(Path::new)];
        Rights::default().reading(inputs.into_iter().flatten()).writing(&self.report).unpacking()
    }
}

const AFTER_HELP: &str = "\
Examples:
  nearpage whatif bundles/q612-n2-mixed.tar.zst --change pcp.batch_scale_max=0
  nearpage whatif BUNDLE --machine big.numactl --change vm.percpu_pagelist_high_fraction=8 --card
  nearpage whatif BUNDLE --rules linux-6.12,linux-6.18,nearpage
  nearpage whatif build --machine big.numactl --rules linux-6.12,rfc-2026-owned,nearpage

JSON of a bundle (--json):
  schema               1
  bundle, kernel       what was recorded; is_nearest_model: whether the rules are those of another kernel
  recorded, now, then[].totals
                       what the kernel logged; what the model comes to without the change (now_is says where), and with it
  then[]               model, changes (machine, rules, settings[], sizes[], fallback[], cpus, repeat), ratios (holds,
                       longest_hold, kept: ratio and range), lost_frees, refused_allocs, no_difference
  fidelity_percent     the score of the model on the recorded machine
  starts               starts that were drawn
  leaves_out[]         what the model leaves out
  waits                null, or with --waits: title, now, then[] and leaves_out[] as of a load by name
JSON of a load by name:
  schema               1
  load, title          what runs on which machine
  changes[]            key, before, after
  now, then[]          rules; counts by name: zone_lock_percent, holds, worst_wait_us, worst_hold_us, ...
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
        terminal::note(
            "--starts has no effect: another machine starts with all memory free, and nothing is drawn",
        );
    }
    let machine = arguments.machine.as_deref().map(read_machine_text).transpose()?;
    let load = arguments.input.to_str().and_then(Load::by_name);
    if load.is_some() && arguments.waits {
        terminal::note("--waits has no effect: waits are the answer about a load by name");
    }
    match load {
        Some(load) => load::run(arguments, load, machine.as_ref()),
        None => of_bundle(arguments, machine),
    }
}

fn of_bundle(
    arguments: &WhatIfArgs,
    machine: Option<MachineDescription>,
) -> Result<(), CommandError> {
    if machine.is_none() && arguments.change.is_empty() && arguments.rules.is_empty() {
        return Err(CommandError::Usage(NOTHING.into()));
    }
    let page = arguments.page()?;
    let replay = Replay::of(open_bundle(&arguments.input)?).map_err(ReplayFailure::from)?;
    let kernel = &replay.bundle().recording().kernel;
    let study = Study {
        wish: Wish {
            tunables: arguments.tunables()?,
            machine,
            repeat: arguments.repeat,
            ..Wish::default()
        },
        rules: arguments.rules.iter().map(|choice| choice.for_kernel(kernel).model).collect(),
        starts: arguments.drawn(),
    };
    let watched = Interruptible::begin(Bar::percent("whatif"))?;
    let answer = replay.study(&study, &watched).map_err(ReplayFailure::from)?;
    drop(watched);
    let mut sections = text::of_bundle(&answer);
    let waits = match arguments.waits {
        true => {
            let now = ModelChoice::Auto.for_kernel(kernel).model;
            let rules = if study.rules.is_empty() { vec![now] } else { study.rules };
            let Wish { machine, tunables, .. } = &study.wish;
            Some(load::waits(replay.bundle(), machine.as_ref(), now, &rules, tunables)?)
        }
        false => None,
    };
    if let Some(waits) = &waits {
        text::add_waits(&mut sections, waits.section());
    }
    arguments.output(page, &sections, &WithWaits { answer: &answer, waits: &waits })
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

const NOTHING: &str =
    "nothing is changed: expected --machine MACHINE, --change KEY=VALUE or --rules A,B,...";

impl WhatIfArgs {
    fn check(&self) -> Result<(), CommandError> {
        let usage = |problem: &str| Err(CommandError::Usage(problem.into()));
        if self.repeat > 1 && self.machine.is_none() {
            return usage("--repeat needs a machine: --machine MACHINE");
        }
        if is_standard(&self.input) && self.machine.as_deref() == Some("-") {
            return usage("standard input (-) can be read once: as INPUT or as --machine");
        }
        if (self.json || self.card) && self.report.as_deref().is_some_and(is_standard) {
            return usage(
                "--report - goes to standard output, as --json and --card do: --report takes a PATH",
            );
        }
        Ok(())
    }

    /// Starts that are drawn.
    fn drawn(&self) -> u32 {
        if self.machine.is_some() { 0 } else { self.starts.unwrap_or(STARTS) }
    }

    fn tunables(&self) -> Result<Vec<Tunable>, CommandError> {
        let tunables = self.change.iter().map(|given| given.parse::<Tunable>());
        let tunables = tunables.collect::<Result<_, _>>();
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

    fn page(&self) -> Result<Option<nearpage_report::file::PageFile>, CommandError> {
        let Some(path) = self.report.as_deref().filter(|path| !is_standard(path)) else {
            return Ok(None);
        };
        let machine = self.machine.as_deref().map(Path::new);
        let inputs = [Some(self.input.as_path()), machine].into_iter().flatten();
        Ok(Some(page_file(path, inputs)?))
    }

    /// The answer where it was asked for.
    fn output(
        &self,
        page: Option<nearpage_report::file::PageFile>,
        sections: &[text::Section],
        document: &impl serde::Serialize,
    ) -> Result<(), CommandError> {
        let render = || {
            let origin = Origin::new(std::env::args_os(), text::seed(self.drawn()));
            let sections = sections.iter().map(|of| (of.title, of.lines.join("\n")));
            text_page("What if", &origin, &sections.collect::<Vec<_>>(), &[])
        };
        let written = page.map(|page| page.write(&render())).transpose();
        if self.report.as_deref().is_some_and(is_standard) {
            print(&render())?;
        } else if self.json {
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
