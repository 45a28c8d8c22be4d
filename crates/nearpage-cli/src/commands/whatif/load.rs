//! What would change for a load by name: waits for locks, on a simulated machine.

use std::collections::BTreeMap;

use nearpage::{Config, Model};
use nearpage_lab::load::{
    self, FIRST, Load, LoadWish, Recorded, scenario_of, scenario_of_recorded,
};
use nearpage_lab::report::Table;
use nearpage_lab::{LabError, ON_THE_FRONT, Options, Over, Report, Scenario};
use nearpage_machine::MachineDescription;
use nearpage_replay::{Bundle, Changes, ReplayError, SizeChange, Tunable};
use nearpage_report::replay::change_lines;
use nearpage_report::whatif::{FigureRow, FigureTable};
use nearpage_sim::workload::lifetimes::Run;
use nearpage_trace::processes::{Blocks, Load as Processed, Processes};
use nearpage_trace::{TraceCounts, TraceEvent};
use serde::Serialize;

use super::text::{Part, Section, add_new};
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
    sizes: Vec<SizeChange>,
    machine: String,
    costs: String,
    seeds: Vec<u64>,
    now: Outcome,
    then: Vec<Outcome>,
    /// What changes, in lines.
    #[serde(skip)]
    lines: Vec<String>,
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
    /// Of the first seed.
    #[serde(flatten)]
    counts: BTreeMap<String, f64>,
    /// The least and the most by all seeds, of counts that differ.
    range: BTreeMap<String, [f64; 2]>,
    /// The settings that are changed, each `KEY=VALUE`.
    #[serde(skip)]
    settings: String,
    /// That they do nothing under these rules, other than those of now.
    #[serde(skip)]
    idle_settings: Option<String>,
}

/// Several machines, rules and settings under a load by name.
#[derive(Debug, Serialize)]
struct Swept {
    schema: u32,
    load: &'static str,
    /// The rules of all.
    #[serde(skip)]
    rules: Vec<&'static str>,
    /// For each machine, the first rules without a setting.
    now: Vec<Outcome>,
    /// One for each machine.
    machines: Vec<Report>,
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
    arguments.tunables()?;
    let parsed = |option: &'static str, all: &[String]| {
        let all = all.iter().map(|given| given.parse::<Over>());
        let all = all.collect::<Result<Vec<_>, _>>();
        all.map_err(|error| CommandError::Usage(format!("{option} {error}")))
    };
    let mut over = parsed("--over", &arguments.over)?;
    over.extend(parsed("--change", &arguments.change)?);
    let names = rules.iter().map(|model| model.name).collect();
    let (schema, load_name) = (1, load.name());
    let mut swept =
        Swept { schema, load: load_name, rules: names, now: Vec::new(), machines: Vec::new() };
    for machine in machines {
        let config = Config::default();
        let wish = LoadWish {
            machine,
            costs: None,
            rules: rules.clone(),
            cpus: None,
            seconds: None,
            config,
        };
        let (scenario, notes) = scenario_of(load, &wish).map_err(LabFailure::from)?;
        let runs = over.iter().map(Over::count).product::<usize>() * wish.rules.len();
        let bar = Bar::telling(&scenario.title, runs, scenario.pages());
        let options = Options { observer: &bar, ..Options::default() };
        let report = load::sweep(&scenario, machine, &over, &options).map_err(LabFailure::from)?;
        let mut report = Report { title: scenario.title, ..report };
        report.notes.splice(0..0, notes);
        swept.machines.push(report);
        let now = rules[0];
        let wish = LoadWish { rules: vec![now], ..wish };
        let (scenario, _) = scenario_of(load, &wish).map_err(LabFailure::from)?;
        let bar = Bar::telling(&format!("{}, now", scenario.title), 1, scenario.pages());
        let options = Options { observer: &bar, ..Options::default() };
        let report = load::run(&scenario, machine, &[options.seed], &options);
        swept.now.push(outcome(load_name, &report.map_err(LabFailure::from)?, now));
    }
    arguments.output(page, &swept.sections(), |page| page, &swept)
}

const NO_MACHINE: &str = "a load by name runs on a machine: expected --machine MACHINE";

impl Swept {
    fn sections(&self) -> Vec<Section> {
        let reports = || self.machines.iter();
        let mut swept = vec![format!("rules: {}", self.rules.join(", "))];
        for report in reports() {
            swept.push(report.title.clone());
            swept.extend(report.ran.iter().flat_map(|ran| ran.lines()));
        }
        let is_named = self.machines.len() > 1;
        let mut said: Vec<String> =
            reports().zip(&self.now).map(|(report, now)| front(report, now, is_named)).collect();
        let is_idle = |note: &&String| note.contains(" has no effect ");
        add_new(&mut said, reports().flat_map(|of| of.notes.iter().filter(is_idle).cloned()));
        let mut sections = vec![
            Section::new("What is swept", Part::Changes, swept, 4),
            Section::new("Answer", Part::Answer, said, 6),
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
        let others = |report: &Report| {
            report.notes.iter().filter(|note| !is_idle(note)).cloned().collect::<Vec<_>>()
        };
        add_new(&mut notes, reports().flat_map(others));
        sections.push(Section::new("What the model leaves out", Part::LeavesOut, notes, 2));
        sections
    }
}

/// Which combinations no other beats, each point of the front once, with what it comes to.
fn front(report: &Report, now: &Outcome, is_named: bool) -> String {
    let Table { header, rows } = &report.table;
    let place = header.iter().position(|name| name == ON_THE_FRONT);
    let is_on = |row: &&Vec<String>| place.is_some_and(|at| row[at] == "yes");
    let on: Vec<&Vec<String>> = rows.iter().filter(is_on).collect();
    let mut points: Vec<(&Vec<String>, usize)> = Vec::new();
    for row in &on {
        match points.iter_mut().find(|(point, _)| point[1..] == row[1..]) {
            Some((_, alike)) => *alike += 1,
            None => points.push((row, 0)),
        }
    }
    let point = |(row, alike): &(&Vec<String>, usize)| {
        let alike = match alike {
            0 => String::new(),
            more => format!(", and {more} more that come to the same"),
        };
        let figures = header.iter().zip(*row).take(place.unwrap_or(0)).skip(1);
        let figures: Vec<String> = figures.map(|(name, of)| format!("{name} {of}")).collect();
        format!("{} ({}{alike})", row[0], figures.join(", "))
    };
    let different = match points.len() {
        of if of == on.len() => String::new(),
        of => format!(", {of} of them different"),
    };
    let machine = report.ran.as_ref().filter(|_| is_named);
    format!(
        "{}{} of {} combinations are on the front{different}: {}. Now, {}: zone lock % {}, worst wait, us {}, holds {}.",
        machine.map_or(String::new(), |ran| format!("{}: ", ran.machine)),
        on.len(),
        rows.len(),
        points.iter().map(point).collect::<Vec<_>>().join("; "),
        now.rules,
        ranged(now, "zone_lock_percent", ""),
        ranged(now, "worst_wait_us", ""),
        ranged(now, "holds", "")
    )
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
    let of_rules = rules.iter().map(|rules| Changes::on(machine, now, *rules, &tunables));
    let of_rules: Vec<Changes> = of_rules.collect::<Result<_, _>>().map_err(ReplayFailure::from)?;
    let others = rules.iter().filter(|rules| **rules != now).map(|rules| Change {
        key: "rules",
        before: now.name.into(),
        after: rules.name.into(),
        no_effect: Vec::new(),
    });
    let settings = of_rules.first().map_or(&[][..], |of| &of.settings);
    let changes = settings.iter().map(|setting| {
        let same = of_rules.iter().flat_map(|of| &of.settings).filter(|of| of.key == setting.key);
        Change {
            key: setting.key,
            before: setting.before.clone(),
            after: setting.after.clone(),
            no_effect: same.filter_map(|of| of.no_effect.clone()).collect(),
        }
    });
    let seeds = load.seeds(1);
    let settings = arguments.change.join(" ");
    let asked = Asked {
        now,
        rules: &rules,
        tunables: &tunables,
        settings: &settings,
        machine,
        seeds: &seeds,
    };
    let Compared { title, costs, notes, now: before, then } =
        asked.compared(load.name(), |wish| scenario_of(load, wish))?;
    let answer = Answer {
        schema: 1,
        load: load.name(),
        title,
        changes: others.chain(changes).collect(),
        sizes: of_rules.first().map_or(Vec::new(), |of| of.sizes.clone()),
        machine: machine.source.clone(),
        costs,
        seeds,
        now: before,
        then,
        lines: change_lines(&of_rules),
        leaves_out: notes,
    };
    arguments.output(page, &sections(&answer), |page| page, &answer)
}

/// What is compared, on a simulated machine.
struct Asked<'a> {
    now: Model,
    rules: &'a [Model],
    tunables: &'a [Tunable],
    /// The same as they were given.
    settings: &'a str,
    machine: &'a MachineDescription,
    /// Seeds of the runs of each.
    seeds: &'a [u64],
}

/// What it came to.
struct Compared {
    title: String,
    costs: String,
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
        let mut notes: Vec<String> = Vec::new();
        let mut run = |rules: &[Model], tunables: &[Tunable]| {
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
            let (scenario, told) = scenario(&wish).map_err(LabFailure::from)?;
            add_new(&mut notes, told);
            let when = if tunables.is_empty() { "" } else { ", with the change" };
            let runs = wish.rules.len() * self.seeds.len();
            let bar = Bar::telling(&format!("{name}{when}"), runs, scenario.pages());
            let options = Options { observer: &bar, ..Options::default() };
            let report = load::run(&scenario, machine, self.seeds, &options);
            let report = report.map_err(LabFailure::from)?;
            let outcomes: Vec<Outcome> =
                wish.rules.iter().map(|model| outcome(name, &report, *model)).collect();
            Ok::<_, CommandError>((scenario.title, scenario.machine.costs, outcomes))
        };
        // Without the change: the rules of now, and those that are changed, which may be the same.
        let changed = self.rules.iter().filter(|_| !self.tunables.is_empty());
        let others = changed.filter(|rules| **rules != self.now);
        let without: Vec<Model> = [self.now].iter().chain(others).copied().collect();
        let (title, costs, mut without) = run(&without, &[])?;
        let mut then = match self.rules {
            [] => Vec::new(),
            rules => run(rules, self.tunables)?.2,
        };
        let speed = without[0].counts.get(SPEED).copied().unwrap_or(0.0);
        without.iter_mut().chain(&mut then).for_each(|of| of.score_beside(speed));
        for then in then.iter_mut().filter(|_| !self.tunables.is_empty()) {
            then.settings = self.settings.to_owned();
            let is_same = |of: &Outcome| of.rules == then.rules && of.counts == then.counts;
            then.idle_settings = without.iter().any(is_same).then(|| {
                format!(
                    "under the rules {} the change does nothing with this load: all figures are as without it",
                    then.rules
                )
            });
        }
        Ok(Compared { title, costs, notes, now: without.swap_remove(0), then })
    }
}

impl Outcome {
    /// The rules, and what is changed beside them.
    fn name(&self) -> String {
        let with = if self.settings.is_empty() { "" } else { " with " };
        format!("{}{with}{}", self.rules, self.settings)
    }

    /// The score is 100 for what has this speed: that of now.
    fn score_beside(&mut self, speed: f64) {
        self.range.remove(SCORE);
        let own = self.counts.get(SPEED).copied().unwrap_or(0.0);
        self.counts.insert(SCORE.into(), 100.0 * own / speed.max(f64::MIN_POSITIVE));
    }
}

/// The counts of one set of rules.
fn outcome(name: &str, report: &Report, model: Model) -> Outcome {
    let prefix = format!("{name}, {}: ", model.name);
    let own = |name: &String| {
        let name = name.strip_prefix(&prefix)?;
        (!name.contains(' ')).then(|| name.to_owned())
    };
    let counts = report.counts.iter().filter_map(|(name, value)| Some((own(name)?, *value)));
    let range = report.ran.iter().flat_map(|ran| &ran.range);
    let range = range.filter_map(|(name, range)| Some((own(name)?, *range))).collect();
    let counts = counts.collect();
    Outcome { rules: model.name, counts, range, settings: String::new(), idle_settings: None }
}

/// What CPUs wait for zone locks with the processes of a recording.
#[derive(Debug, Serialize)]
pub(super) struct Waits {
    title: String,
    now: Outcome,
    then: Vec<Outcome>,
    pub(super) leaves_out: Vec<String>,
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
    (tunables, settings): (&[Tunable], &str),
) -> Result<Waits, CommandError> {
    let run = |of: &Blocks| Run { allocates: of.allocates, blocks: of.count, order: of.order };
    let recorded = Recorded {
        moved_percent: load.moved_percent(),
        processes: load.processes.iter().map(|of| of.iter().map(run).collect()).collect(),
        page_ns: (load.span_ns as f64 * cpus as f64 / load.pages.max(1) as f64).max(1.0),
        cpus,
    };
    // The rules of now alone are there already.
    let rules: Vec<Model> =
        rules.iter().copied().filter(|rules| !tunables.is_empty() || *rules != now).collect();
    let asked = Asked { now, rules: &rules, tunables, settings, machine, seeds: &[1] };
    let compared =
        asked.compared("recorded", |wish| scenario_of_recorded(recorded.clone(), wish))?;
    let mut leaves_out = compared.notes;
    leaves_out.push("settings that are not changed are Linux's defaults".into());
    leaves_out.push("of the two times for a longest hold believe this one, worst_hold_us: here each page's line comes from memory or from another CPU, as on a machine under load; the table's is a bound from below, by a warm benchmark whose lines were in the cache".into());
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
    /// The answer about waits, and its table.
    pub(super) fn sections(&self) -> [Section; 2] {
        let said = sentences(&self.now, &self.then);
        let table = FigureTable { notes: vec![self.title.clone()], ..table(&self.now, &self.then) };
        [
            Section::new("Waits for zone locks", Part::Answer, said, 9),
            Section::figures(table, WIDTHS, 6),
        ]
    }
}

fn sections(answer: &Answer) -> Vec<Section> {
    let mut changes = vec![answer.title.clone()];
    changes.extend(answer.lines.clone());
    let said = sentences(&answer.now, &answer.then);
    let mut note = format!("now: {}", answer.now.rules);
    if let Some(then) = answer.then.iter().find(|then| !then.settings.is_empty()) {
        let who = if answer.then.len() == 1 { "then" } else { "others" };
        note += &format!("; {who}: with {}", then.settings);
    }
    if answer.seeds.len() > 1 {
        note +=
            &format!("; of seed 1, low and high above are of seeds 1 to {}", answer.seeds.len());
    }
    let notes = vec![note + "; nothing is recorded of a load by name"];
    let table = FigureTable { notes, ..table(&answer.now, &answer.then) };
    vec![
        Section::new("What changes", Part::Changes, changes, 7),
        Section::new("Answer", Part::Answer, said, 4),
        Section::figures(table, WIDTHS, 8),
        Section::new("What the model leaves out", Part::LeavesOut, answer.leaves_out.clone(), 4),
    ]
}

/// Of names, and of figures now.
const WIDTHS: [usize; 2] = [34, 12];

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

/// A count with its unit, and the least and the most by all seeds.
fn ranged(of: &Outcome, name: &str, unit: &str) -> String {
    let value = count(of, name).map_or("unknown".into(), short);
    let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
    let range = of.range.get(name).map_or(String::new(), |[least, most]| {
        format!(" [low {}, high {}]", short(*least), short(*most))
    });
    value + &unit + &range
}

/// A sentence for each set of rules; if nothing is changed, for those of now.
fn sentences(now: &Outcome, then: &[Outcome]) -> Vec<String> {
    let sentence = |of: &Outcome, beside: &dyn Fn(&str) -> String| {
        let text = |name: &str, unit: &str| ranged(of, name, unit) + &beside(name);
        let refused = match count(of, "refused").unwrap_or(0.0) {
            0.0 => String::new(),
            refused => format!(
                " {refused:.0} requests are refused: who has no page does no work and waits for nobody."
            ),
        };
        format!(
            "{}: of their time, CPUs wait for zone locks {}; at worst {}; {}, the longest {}.{refused}",
            of.name(),
            text("zone_lock_percent", "%"),
            text("worst_wait_us", "us"),
            text("holds", "holds"),
            text("worst_hold_us", "us")
        )
    };
    let alone = |_: &str| String::new();
    let beside = |name: &str| format!(" (now {})", ranged(now, name, ""));
    // Of several, now is told once.
    let first = (then.len() != 1).then(|| format!("Now, {}", sentence(now, &alone)));
    let said = then.iter().flat_map(|of| {
        let idle = of.idle_settings.as_ref().map(|idle| format!("{idle}."));
        [Some(sentence(of, if then.len() == 1 { &beside } else { &alone })), idle]
    });
    first.into_iter().chain(said.flatten()).collect()
}

/// A count in words.
fn words(name: &str) -> String {
    let words = match name {
        "zone_lock_percent" => "waiting for zone locks, % of time",
        "worst_wait_us" => "longest wait, us",
        "holds" => "zone-lock holds",
        "worst_hold_us" => "longest hold, us",
        "cached_pages_most" => "pages kept while others work, most",
        "most_pages_per_hold" => "pages in the longest hold",
        "pages_from_zone" => "pages from zones",
        "pages_per_second" => "pages a second of a CPU",
        "pages" => "pages allocated",
        "refused" => "requests refused",
        "score" => "score: 100 is now",
        other => other,
    };
    words.into()
}

/// What rules are compared by.
const SPEED: &str = "pages_per_second";
const SCORE: &str = "score";

/// A row for each count.
fn table(now: &Outcome, then: &[Outcome]) -> FigureTable {
    let mut columns = vec!["quantity".to_owned(), "now".to_owned()];
    let head = |of: &Outcome| match then {
        [_] if of.rules == now.rules => "then".to_owned(),
        _ => of.rules.to_owned(),
    };
    columns.extend(then.iter().flat_map(|then| [head(then), "ratio".to_owned()]));
    let row = |(name, now): (&String, &f64)| {
        let mut cells = vec![short(*now)];
        for then in then {
            let value = count(then, name);
            let ratio = value.filter(|_| *now > 0.0).map(|value| format!("{:.2}", value / now));
            cells.push(value.map_or("-".into(), short));
            cells.push(ratio.unwrap_or("-".into()));
        }
        let are_pages = name.contains("pages") && !name.contains("second");
        FigureRow { name: words(name), cells, are_pages }
    };
    // What is asked first stands first.
    let first = FIRST.iter().filter_map(|name| now.counts.get_key_value(*name));
    let others = now.counts.iter().filter(|(name, _)| !FIRST.contains(&name.as_str()));
    let rows = first.chain(others).map(row).collect();
    FigureTable { columns, rows, ..FigureTable::default() }
}
