//! What several machines, sets of rules and settings would do to a recorded load, and which of them no other beats.

use std::num::NonZeroUsize;

use nearpage_machine::MachineDescription;
use nearpage_machine::over::Over;
use nearpage_replay::{ALL_FREE, Combinations, Input, Replay, Sweep};
use nearpage_report::whatif::WhatIfPage;

use super::text::{Part, Section};
use super::{CommandError, WhatIfArgs};
use crate::commands::interrupt::Interruptible;
use crate::commands::progress::Bar;
use crate::commands::replay::{
    ReplayFailure, all_with, front_plots, front_sentences, sweep_leaves_out as leaves_out,
    sweep_table,
};

pub(super) fn run(
    arguments: &WhatIfArgs,
    input: Input,
    machines: Vec<MachineDescription>,
) -> Result<(), CommandError> {
    let page = arguments.page()?;
    let kernel = match &input {
        Input::Bundle(bundle) => Some(bundle.recording().kernel.clone()),
        Input::Trace(trace) => trace.facts().kernel.clone(),
    };
    let named = kernel.as_deref().unwrap_or("");
    let rules = arguments.rules.iter().map(|choice| choice.for_kernel(named).model).collect();
    let failed = ReplayFailure::combinations;
    let combinations = Combinations::of(&arguments.settings()?).map_err(failed("--over"))?;
    let combinations = combinations.on(machines).map_err(failed("--machine"))?;
    let combinations = combinations.under(rules).map_err(failed("--rules"))?;
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let bar = Bar::percent(&format!("{} combinations", combinations.count()));
    let watched = Interruptible::begin(bar)?;
    let sweep = match input {
        Input::Bundle(bundle) => {
            Replay::of(*bundle).and_then(|replay| replay.sweep(&combinations, threads, &watched))
        }
        Input::Trace(trace) => trace.sweep(&combinations, threads, &watched),
    };
    let sweep = sweep.map_err(ReplayFailure::from)?;
    drop(watched);
    let sections = sections(&sweep, kernel.as_deref());
    let with_front = |page| WhatIfPage { sweep: Some(&sweep), ..page };
    arguments.output(page, &sections, with_front, &sweep)
}

fn sections(sweep: &Sweep, kernel: Option<&str>) -> Vec<Section> {
    let Sweep { bundle, model, points, .. } = sweep;
    let kernel = kernel.unwrap_or("unknown");
    let mut swept = vec![format!(
        "{bundle}: kernel {kernel}, rules {model} unless said; {} combinations",
        points.len()
    )];
    swept.extend(all_with(sweep));
    let mut machines: Vec<&str> =
        points.iter().filter_map(|point| point.machine.as_deref()).collect();
    machines.dedup();
    if !machines.is_empty() {
        swept.push(format!("machines, all free at the start: {}", machines.join(", ")));
    }
    let mut answer = front_sentences(sweep);
    answer.push(match machines.is_empty() {
        true => {
            "No range: each is run from the likely start; without --over others are drawn.".into()
        }
        false => format!("No range: {ALL_FREE}."),
    });
    vec![
        Section::new("What is swept", Part::Changes, swept, 5),
        Section::new("Answer", Part::Answer, answer, 9),
        Section::new("Combinations", Part::Nothing, sweep_table(sweep), 14),
        Section::new("The front", Part::Nothing, front_plots(sweep), 0),
        Section::new("What the model leaves out", Part::LeavesOut, leaves_out(sweep), 2),
    ]
}

impl WhatIfArgs {
    /// Settings with their values: those that are swept, and those that all combinations have.
    fn settings(&self) -> Result<Vec<Over>, CommandError> {
        self.tunables()?;
        let over = self.over.iter().map(|given| given.parse::<Over>());
        let mut all: Vec<Over> = over.collect::<Result<_, _>>().map_err(ReplayFailure::Over)?;
        for given in &self.change {
            let (key, value) = given.split_once('=').unwrap_or((given, ""));
            all.push(Over { key: key.trim().into(), values: vec![value.trim().into()] });
        }
        Ok(all)
    }
}
