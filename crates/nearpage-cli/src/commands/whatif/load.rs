//! What would change for a load by name: waits for locks, on a simulated machine.

use std::collections::BTreeMap;

use nearpage::{Config, Model};
use nearpage_lab::load::{Load, LoadWish, scenario_of};
use nearpage_lab::{Options, Report};
use nearpage_machine::MachineDescription;
use nearpage_replay::Tunable;
use serde::Serialize;

use super::text::Section;
use super::{CommandError, NOTHING, WhatIfArgs};
use crate::commands::lab::LabFailure;
use crate::commands::progress::Bar;

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

pub(super) fn run(
    arguments: &WhatIfArgs,
    load: Load,
    machine: Option<&MachineDescription>,
) -> Result<(), CommandError> {
    let usage = |problem: &str| Err(CommandError::Usage(problem.into()));
    let Some(machine) = machine else {
        return usage("a load by name runs on a machine: expected --machine MACHINE");
    };
    if arguments.repeat > 1 {
        return usage(
            "--repeat belongs to bundles: a load by name runs on all CPUs of the machine",
        );
    }
    let page = arguments.page()?;
    let mut rules = arguments.rules()?;
    let tunables = arguments.tunables()?;
    let sizes = ["pcp.batch", "pcp.high_min", "pcp.high_max"];
    if let Some(size) = tunables.iter().find(|tunable| sizes.contains(&tunable.key())) {
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
    let config = |rules: &[Model], tunables: &[Tunable]| {
        let mut config = Config::default();
        let mut rules = rules.to_vec();
        for tunable in tunables {
            rules.iter_mut().for_each(|model| tunable.apply_to_model(model));
            if let Tunable::Kernel(change) = tunable {
                change.apply(&mut config.settings);
            }
        }
        (rules, config)
    };
    let wish = |(rules, config): (Vec<Model>, Config)| LoadWish {
        machine,
        costs: None,
        rules,
        cpus: None,
        seconds: None,
        config,
    };
    let run = |wish: LoadWish<'_>| -> Result<(String, Vec<String>, Report), CommandError> {
        let (scenario, notes) = scenario_of(load, &wish).map_err(LabFailure::from)?;
        let bar = Bar::of(load.name(), "runs");
        let options = Options { observer: &bar, ..Options::default() };
        let report = nearpage_lab::run(&scenario, &options).map_err(LabFailure::from)?;
        Ok((scenario.title, notes, report))
    };
    let (title, notes, before) = run(wish(config(&[now], &[])))?;
    let (.., after) = run(wish(config(&rules, &tunables)))?;
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
        now: outcome(load, &before, now),
        then: rules.iter().map(|&model| outcome(load, &after, model)).collect(),
        leaves_out: notes,
    };
    arguments.output(page, &sections(&answer), &answer)
}

/// The counts of one set of rules.
fn outcome(load: Load, report: &Report, model: Model) -> Outcome {
    let prefix = format!("{}, {}: ", load.name(), model.name);
    let own = report.counts.iter().filter_map(|(name, value)| {
        let name = name.strip_prefix(&prefix)?;
        (!name.contains(' ')).then(|| (name.to_owned(), *value))
    });
    Outcome { rules: model.name, counts: own.collect() }
}

fn sections(answer: &Answer) -> Vec<Section> {
    let mut changes = vec![answer.title.clone()];
    let names: Vec<&str> = answer.then.iter().map(|of| of.rules).collect();
    changes.push(format!("rules: {} -> {}", answer.now.rules, names.join(", ")));
    for change in &answer.changes {
        changes.push(format!("{}: {} -> {}", change.key, change.before, change.after));
        changes.extend(change.no_effect.clone());
    }
    let count = |of: &Outcome, name: &str| of.counts.get(name).copied();
    let said = answer.then.iter().map(|then| {
        let text = |name: &str, unit: &str| match (count(then, name), count(&answer.now, name)) {
            (Some(then), Some(now)) => format!("{then} {unit} for {now}"),
            _ => format!("unknown {unit}"),
        };
        format!(
            "{}: CPUs wait for zone locks {} of their time, at worst {}, with {}.",
            then.rules,
            text("zone_lock_percent", "%"),
            text("worst_wait_us", "us"),
            text("holds", "holds")
        )
    });
    let said: Vec<String> = said.collect();
    let mut head = format!("{:<24} {:>14}", "quantity", "now");
    answer.then.iter().for_each(|then| head += &format!(" {:>16} {:>8}", then.rules, "ratio"));
    let mut table =
        vec![format!("now: {}; nothing is recorded of a load by name", answer.now.rules), head];
    for (name, now) in &answer.now.counts {
        let mut line = format!("{name:<24} {now:>14}");
        for then in &answer.then {
            let value = count(then, name);
            let ratio = value.filter(|_| *now > 0.0).map(|value| format!("{:.2}", value / now));
            let value = value.map_or("-".into(), |value| value.to_string());
            line += &format!(" {value:>16} {:>8}", ratio.unwrap_or("-".into()));
        }
        table.push(line);
    }
    vec![
        Section::new("What changes", changes, 5),
        Section::new("Answer", said, 4),
        Section::new("Now, then", table, 8),
        Section::new("What the model leaves out", answer.leaves_out.clone(), 4),
    ]
}
