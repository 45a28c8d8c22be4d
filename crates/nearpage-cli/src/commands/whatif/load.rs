//! What would change for a load by name: waits for locks, on a simulated machine.

use std::collections::BTreeMap;

use nearpage::{Config, Model};
use nearpage_lab::load::{Load, LoadWish, Recorded, scenario_of, scenario_of_recorded};
use nearpage_lab::{LabError, Options, Over, Report, Scenario, named_twice};
use nearpage_machine::MachineDescription;
use nearpage_replay::{Bundle, ReplayError, Tunable};
use nearpage_report::whatif::{FigureRow, FigureTable};
use nearpage_sim::workload::lifetimes::Run;
use nearpage_trace::processes::{Blocks, Load as Processed, Processes};
use nearpage_trace::{TraceCounts, TraceEvent};
use serde::Serialize;

use super::text::{Part, Section, aligned};
use super::{CommandError, NOTHING, WhatIfArgs};
use crate::commands::input::DescriptionFailure;
use crate::commands::interrupt::Interruptible;
use crate::commands::lab::LabFailure;
use crate::commands::progress::Bar;
use crate::commands::replay::ReplayFailure;

/// Sizes of pagesets, which follow from a simulated machine.
const SIZES: [&str; 3] = ["pcp.batch", "pcp.high_min", "pcp.high_max"];

/// The answer about a load by name.
#[derive(Debug, Serialize)]
struct Answer {
    schema: u32,
    load: &'static str,
    title: String,
    changes: Vec<Change>,
    now: Outcome,
    then: Vec<Outcome>,
    leaves_out: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Change {
    key: &'static str,
    before: String,
    after: String,
    no_effect: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Outcome {
    rules: &'static str,
    #[serde(flatten)]
    counts: BTreeMap<String, f64>,
}

/// Several machines, rules and settings under a load by name.
#[derive(Debug, Serialize)]
struct Swept {
    schema: u32,
    load: &'static str,
    machines: Vec<SweptMachine>,
}

#[derive(Debug, Serialize)]
struct SweptMachine {
    machine: String,
    #[serde(flatten)]
    report: Report,
}

/// Runs all combinations, with the engine of `nearpage lab sweep`.
pub(super) fn sweep(
    arguments: &WhatIfArgs,
    load: Load,
    machines: &[MachineDescription],
) -> Result<(), CommandError> {
    if machines.is_empty() {
        return Err(CommandError::Usage(NO_MACHINE.into()));
    }
    let page = arguments.page()?;
    let mut rules = arguments.rules()?;
    if rules.is_empty() {
        rules.push(Model::LINUX_6_18);
    }
    let over = arguments.over.iter().chain(&arguments.change).map(|given| given.parse::<Over>());
    let over: Vec<Over> = over
        .collect::<Result<_, _>>()
        .map_err(|error| CommandError::Usage(format!("--over {error}")))?;
    if let Some(key) = named_twice(&over) {
        return Err(CommandError::Usage(format!("{key} is there twice")));
    }
    let mut swept = Swept { schema: 1, load: load.name(), machines: Vec::new() };
    for machine in machines {
        let config = Config::default();
        let rules = rules.clone();
        let wish = LoadWish { machine, costs: None, rules, cpus: None, seconds: None, config };
        let (scenario, notes) = scenario_of(load, &wish).map_err(LabFailure::from)?;
        let bar = Bar::of(load.name(), "runs");
        let options = Options { observer: &bar, ..Options::default() };
        let report = nearpage_lab::sweep(&scenario, &over, &options).map_err(LabFailure::from)?;
        let mut report = Report { title: scenario.title, ..report };
        report.notes.splice(0..0, notes);
        swept.machines.push(SweptMachine { machine: machine.source.clone(), report });
    }
    arguments.output(page, &swept.sections(), |page| page, &swept)
}

const NO_MACHINE: &str = "a load by name runs on a machine: expected --machine MACHINE";

impl Swept {
    fn sections(&self) -> Vec<Section> {
        let reports = || self.machines.iter().map(|of| &of.report);
        let titles = reports().map(|report| report.title.clone()).collect();
        let said = self.machines.iter().map(|SweptMachine { machine, report }| {
            let front =
                report.table.rows.iter().filter(|row| row.last().is_some_and(|on| on == "yes"));
            let names: Vec<&str> = front.map(|row| &*row[0]).collect();
            let machine = match self.machines.len() {
                1 => String::new(),
                _ => format!("{machine}: "),
            };
            format!(
                "{machine}{} of {} combinations are on the front: {}.",
                names.len(),
                report.table.rows.len(),
                names.join("; ")
            )
        });
        let mut sections = vec![
            Section::new("What is swept", Part::Changes, titles, 3),
            Section::new("Answer", Part::Answer, said.collect(), 3),
        ];
        for (at, report) in reports().enumerate() {
            let split = |row: &Vec<String>| FigureRow {
                name: row.first().cloned().unwrap_or_default(),
                cells: row.get(1..).unwrap_or_default().to_vec(),
                ..FigureRow::default()
            };
            let table = FigureTable {
                title: report.title.clone(),
                columns: report.table.header.clone(),
                rows: report.table.rows.iter().map(split).collect(),
                ..FigureTable::default()
            };
            // A card has room for two machines.
            let card_most = if at < 2 { 6 } else { 0 };
            sections.push(Section::columns("Combinations", table, card_most));
        }
        let mut notes: Vec<String> = Vec::new();
        for note in reports().flat_map(|report| &report.notes) {
            if !notes.contains(note) {
                notes.push(note.clone());
            }
        }
        sections.push(Section::new("What the model leaves out", Part::LeavesOut, notes, 2));
        sections
    }
}

pub(super) fn run(
    arguments: &WhatIfArgs,
    load: Load,
    machine: Option<&MachineDescription>,
) -> Result<(), CommandError> {
    let usage = |problem: &str| Err(CommandError::Usage(problem.into()));
    let Some(machine) = machine else {
        return usage(NO_MACHINE);
    };
    if arguments.repeat > 1 {
        return usage(
            "--repeat belongs to bundles: a load by name runs on all CPUs of the machine",
        );
    }
    let page = arguments.page()?;
    let mut rules = arguments.rules()?;
    let tunables = arguments.tunables()?;
    if let Some(size) = tunables.iter().find(|tunable| SIZES.contains(&tunable.key())) {
        let problem = format!(
            "--change {}: of a load by name, sizes of pagesets follow from the machine",
            size.key()
        );
        return Err(CommandError::Usage(problem));
    }
    if tunables.is_empty() && rules.len() < 2 {
        return usage(NOTHING);
    }
    // Without a setting, the first rules are those that the others are compared with.
    let now = rules.first().copied().unwrap_or(Model::LINUX_6_18);
    if rules.is_empty() {
        rules.push(now);
    }
    if tunables.is_empty() {
        rules.remove(0);
    }
    let asked = Asked { now, rules: &rules, tunables: &tunables, machine };
    let Compared { title, notes, now: before, then } =
        asked.compared(load.name(), |wish| scenario_of(load, wish))?;
    let changes = tunables.iter().map(|tunable| {
        let settings = nearpage::Settings::default();
        let idle = rules.iter().filter_map(|model| {
            let why = tunable.idle_under(model)?;
            Some(format!("{} has no effect under the rules {}: {why}", tunable.key(), model.name))
        });
        let after = arguments.change.iter().rev().filter_map(|given| given.split_once('='));
        let after = after.into_iter().find(|(key, _)| key.trim() == tunable.key());
        Change {
            key: tunable.key(),
            before: match tunable {
                Tunable::Kernel(change) => change.value_in(&settings),
                _ => format!("as {} has it", now.name),
            },
            after: after.map_or(String::new(), |(_, value)| value.trim().to_owned()),
            no_effect: idle.collect(),
        }
    });
    let answer = Answer {
        schema: 1,
        load: load.name(),
        title,
        changes: changes.collect(),
        now: before,
        then,
        leaves_out: notes,
    };
    arguments.output(page, &sections(&answer), |page| page, &answer)
}

/// What is compared, on a simulated machine.
struct Asked<'a> {
    now: Model,
    rules: &'a [Model],
    tunables: &'a [Tunable],
    machine: &'a MachineDescription,
}

/// What it came to.
struct Compared {
    title: String,
    notes: Vec<String>,
    now: Outcome,
    then: Vec<Outcome>,
}

impl Asked<'_> {
    /// Runs the rules of now, and then the others with the tunables. `scenario` makes a scenario of a wish; its work is called `name`.
    fn compared(
        &self,
        name: &'static str,
        scenario: impl Fn(&LoadWish<'_>) -> Result<(Scenario, Vec<String>), LabError>,
    ) -> Result<Compared, CommandError> {
        let run = |rules: &[Model], tunables: &[Tunable]| {
            let mut config = Config::default();
            let mut rules = rules.to_vec();
            for tunable in tunables {
                rules.iter_mut().for_each(|model| tunable.apply_to_model(model));
                if let Tunable::Kernel(change) = tunable {
                    change.apply(&mut config.settings);
                }
            }
            let machine = self.machine;
            let wish = LoadWish { machine, costs: None, rules, cpus: None, seconds: None, config };
            let (scenario, notes) = scenario(&wish).map_err(LabFailure::from)?;
            let bar = Bar::of(name, "runs");
            let options = Options { observer: &bar, ..Options::default() };
            let report = nearpage_lab::run(&scenario, &options).map_err(LabFailure::from)?;
            let outcomes = wish.rules.iter().map(|model| outcome(name, &report, *model));
            Ok::<_, CommandError>((scenario.title, notes, outcomes.collect::<Vec<_>>()))
        };
        let (title, notes, now) = run(&[self.now], &[])?;
        let (.., then) = run(self.rules, self.tunables)?;
        let now = now.into_iter().next().expect("one set of rules ran");
        Ok(Compared { title, notes, now, then })
    }
}

/// The counts of one set of rules.
fn outcome(name: &str, report: &Report, model: Model) -> Outcome {
    let prefix = format!("{name}, {}: ", model.name);
    let own = report.counts.iter().filter_map(|(name, value)| {
        let name = name.strip_prefix(&prefix)?;
        (!name.contains(' ')).then(|| (name.to_owned(), *value))
    });
    Outcome { rules: model.name, counts: own.collect() }
}

/// What CPUs wait for zone locks with the processes of a recording.
#[derive(Debug, Serialize)]
pub(super) struct Waits {
    title: String,
    now: Outcome,
    then: Vec<Outcome>,
    leaves_out: Vec<String>,
}

/// What its processes did of a recorded load.
pub(super) fn processes(
    events: impl FnOnce(&Interruptible, &mut Each<'_>) -> Result<TraceCounts, ReplayError>,
) -> Result<Processed, CommandError> {
    let mut processes = Processes::default();
    let watched = Interruptible::begin(Bar::percent("processes"))?;
    let mut each = |event: &TraceEvent<'_>| {
        processes.note(event);
        Ok(())
    };
    events(&watched, &mut each).map_err(ReplayFailure::from)?;
    Ok(processes.finish())
}

/// Who hears of the events of a trace.
pub(super) type Each<'e> = dyn FnMut(&TraceEvent<'_>) -> Result<(), ReplayError> + 'e;

/// The recorded machine of a bundle.
pub(super) fn recorded_machine(bundle: &Bundle) -> Result<MachineDescription, CommandError> {
    let recorded = bundle.recording().capture(Some("before"))?.machine()?;
    let machine = MachineDescription::new("the recorded machine".into(), recorded.machine);
    Ok(machine.map_err(DescriptionFailure::from)?)
}

/// Waits of a recorded load, which ran on so many CPUs, on a machine: under the rules of now, and then under others with tunables.
pub(super) fn waits(
    load: &Processed,
    cpus: usize,
    machine: &MachineDescription,
    now: Model,
    rules: &[Model],
    tunables: &[Tunable],
) -> Result<Waits, CommandError> {
    let run = |of: &Blocks| Run { allocates: of.allocates, blocks: of.count, order: of.order };
    let recorded = Recorded {
        moved_percent: load.moved_percent(),
        processes: load.processes.iter().map(|of| of.iter().map(run).collect()).collect(),
        cpus,
    };
    let asked = Asked { now, rules, tunables, machine };
    let compared =
        asked.compared("recorded", |wish| scenario_of_recorded(recorded.clone(), wish))?;
    let mut leaves_out = compared.notes;
    leaves_out.push("settings that are not changed are Linux's defaults".into());
    let sizes = tunables.iter().filter(|tunable| SIZES.contains(&tunable.key()));
    leaves_out.extend(sizes.map(|size| {
        format!(
            "{} has no effect on waits: sizes of pagesets follow from the machine there",
            size.key()
        )
    }));
    Ok(Waits { title: compared.title, now: compared.now, then: compared.then, leaves_out })
}

impl Waits {
    pub(super) fn section(&self) -> Section {
        let mut lines = vec![self.title.clone()];
        lines.extend(sentences(&self.now, &self.then));
        lines.extend(aligned(&table(&self.now, &self.then), WIDTHS));
        lines.extend(self.leaves_out.clone());
        Section::new("Waits for zone locks", Part::Text, lines, 4)
    }
}

fn sections(answer: &Answer) -> Vec<Section> {
    let mut changes = vec![answer.title.clone()];
    let names: Vec<&str> = answer.then.iter().map(|of| of.rules).collect();
    changes.push(format!("rules: {} -> {}", answer.now.rules, names.join(", ")));
    for change in &answer.changes {
        changes.push(format!("{}: {} -> {}", change.key, change.before, change.after));
        changes.extend(change.no_effect.clone());
    }
    let said = sentences(&answer.now, &answer.then);
    let notes = vec![format!("now: {}; nothing is recorded of a load by name", answer.now.rules)];
    let table = FigureTable { notes, ..table(&answer.now, &answer.then) };
    vec![
        Section::new("What changes", Part::Changes, changes, 5),
        Section::new("Answer", Part::Answer, said, 4),
        Section::figures(table, WIDTHS, 8),
        Section::new("What the model leaves out", Part::LeavesOut, answer.leaves_out.clone(), 4),
    ]
}

/// Of names, and of figures now.
const WIDTHS: [usize; 2] = [24, 14];

/// Whole counts whole; of others three digits that say something.
fn short(value: f64) -> String {
    if value == value.trunc() {
        return format!("{value:.0}");
    }
    let power = value.abs().log10().floor() as i32;
    let digits = (2 - power).clamp(0, 12) as usize;
    format!("{value:.digits$}")
}

fn count(of: &Outcome, name: &str) -> Option<f64> {
    of.counts.get(name).copied()
}

/// A sentence for each set of rules.
fn sentences(now: &Outcome, then: &[Outcome]) -> Vec<String> {
    let said = then.iter().map(|then| {
        let text = |name: &str, unit: &str| match (count(then, name), count(now, name)) {
            (Some(then), Some(now)) => format!("{} {unit} (now {})", short(then), short(now)),
            _ => format!("unknown {unit}"),
        };
        format!(
            "{}: of their time, CPUs wait for zone locks {}; at worst {}; {}.",
            then.rules,
            text("zone_lock_percent", "%"),
            text("worst_wait_us", "us"),
            text("holds", "holds")
        )
    });
    said.collect()
}

/// A row for each count.
fn table(now: &Outcome, then: &[Outcome]) -> FigureTable {
    let mut columns = vec!["quantity".to_owned(), "now".to_owned()];
    columns.extend(then.iter().flat_map(|then| [then.rules.to_owned(), "ratio".to_owned()]));
    let row = |(name, now): (&String, &f64)| {
        let mut cells = vec![short(*now)];
        for then in then {
            let value = count(then, name);
            let ratio = value.filter(|_| *now > 0.0).map(|value| format!("{:.2}", value / now));
            cells.push(value.map_or("-".into(), short));
            cells.push(ratio.unwrap_or("-".into()));
        }
        FigureRow { name: name.clone(), cells, ..FigureRow::default() }
    };
    let rows = now.counts.iter().map(row).collect();
    FigureTable { columns, rows, ..FigureTable::default() }
}
