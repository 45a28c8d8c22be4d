//! `sweep`: a scenario under all combinations of some settings, and which of them no other beats.
//!
//! A combination is on the Pareto front if none other is at least as good in all three: work a second of model time,
//! most pages moved in one hold of a zone's lock, and the most that pagesets held at the end.

use nearpage::rules::CacheRule;
use nearpage::{Config, Model};
use nearpage_machine::over;
use nearpage_machine::tunable::{Tunable, TunableError};

use crate::error::LabError;
use crate::kind::{Probe, Waits};
use crate::options::Options;
use crate::report::Report;
use crate::scenario::Scenario;
use crate::{catalog, kinds};

/// A setting and the values that it takes, as `KEY=VALUES`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Over {
    key: String,
    values: Vec<(String, Value)>,
}

/// A value of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Model(Model),
    ZonelistCache(CacheRule),
    Tunable(Tunable),
}

/// The column that says `yes` for what no other beats.
pub const ON_THE_FRONT: &str = "on the front";
/// Its place: behind the settings and the three columns of what is asked first.
const FRONT_AT: usize = 4;

/// The keys beside those of tunables.
const MODEL: &str = "model";
const ZONELIST_CACHE: &str = "zonelist_cache";

/// A text that is no setting with values that a sweep could take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OverError {
    /// The text has no key and values.
    #[error("{0}; keys: {keys}", keys = known())]
    Text(#[from] over::OverError),
    /// There is no such key.
    #[error("{key:?} is no key; keys: {keys}", keys = known())]
    Key {
        /// The key.
        key: String,
    },
    /// Sizes of pagesets follow from a simulated machine.
    #[error("{key} is for a replay: here sizes of pagesets follow from the machine; keys: {keys}", keys = known())]
    Size {
        /// The key.
        key: String,
    },
    /// There is no such model.
    #[error("{problem}")]
    Model {
        /// What is wrong, with the models that there are.
        problem: String,
    },
    /// The setting does not take such a value.
    #[error("{key} cannot be {value:?}; accepted: {accepted}")]
    Value {
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// What would be accepted.
        accepted: String,
    },
}

/// Keys of tunables that act on a simulated machine.
fn tunables() -> impl Iterator<Item = nearpage_machine::tunable::SettingKey> {
    Tunable::keys().filter(|key| !is_size(key.name))
}

fn is_size(key: &str) -> bool {
    ["pcp.batch", "pcp.high_min", "pcp.high_max"].contains(&key)
}

fn known() -> String {
    let keys = [MODEL, ZONELIST_CACHE].into_iter().chain(tunables().map(|key| key.name));
    keys.collect::<Vec<_>>().join(", ")
}

impl Over {
    /// The key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// How many values it takes.
    pub fn count(&self) -> usize {
        self.values.len()
    }
}

impl std::str::FromStr for Over {
    type Err = OverError;

    fn from_str(text: &str) -> Result<Self, OverError> {
        let over::Over { key, values } = text.parse()?;
        let values = values.into_iter().map(|text| {
            let value = value(&key, &text)?;
            Ok((text, value))
        });
        Ok(Self { values: values.collect::<Result<_, OverError>>()?, key })
    }
}

fn value(key: &str, text: &str) -> Result<Value, OverError> {
    let refused = |accepted: &str| OverError::Value {
        key: key.into(),
        value: text.into(),
        accepted: accepted.into(),
    };
    match key {
        MODEL => Model::named(text)
            .map(Value::Model)
            .map_err(|unknown| OverError::Model { problem: unknown.to_string() }),
        ZONELIST_CACHE => match text {
            "off" => Ok(Value::ZonelistCache(CacheRule::Off)),
            "original" => Ok(Value::ZonelistCache(CacheRule::Original)),
            "keyed" => Ok(Value::ZonelistCache(CacheRule::Keyed)),
            _ => Err(refused("off, original, keyed")),
        },
        _ if is_size(key) => Err(OverError::Size { key: key.into() }),
        _ => {
            let Some(known) = tunables().find(|known| known.name == key) else {
                return Err(OverError::Key { key: key.into() });
            };
            let tunable = format!("{key}={text}").parse();
            let tunable = tunable.map_err(|_: TunableError| refused(known.values))?;
            let config = apply(Config::default(), Value::Tunable(tunable));
            match config.settings.check() {
                Ok(()) => Ok(Value::Tunable(tunable)),
                Err(error) => Err(refused(error.accepted)),
            }
        }
    }
}

fn apply(mut config: Config, value: Value) -> Config {
    match value {
        Value::Model(model) => config.model = model,
        Value::ZonelistCache(rule) => config.model.zonelist_cache = rule,
        Value::Tunable(tunable) => {
            tunable.apply_to_model(&mut config.model);
            if let Tunable::Kernel(change) = tunable {
                change.apply(&mut config.settings);
            }
        }
    }
    config
}

/// All combinations of values, the last setting fastest, each with a name. They begin as what `bases` name.
fn combinations(bases: Vec<(String, Config)>, over: &[Over]) -> Vec<(String, Config)> {
    let mut all = bases;
    // A model is all rules at once: others change what it says.
    let (models, others): (Vec<&Over>, Vec<&Over>) =
        over.iter().partition(|over| over.key == MODEL);
    for Over { key, values } in models.into_iter().chain(others) {
        let with = |(name, config): &(String, Config), (text, value): &(String, Value)| {
            let separator = if name.is_empty() { "" } else { ", " };
            (format!("{name}{separator}{key}={text}"), apply(*config, *value))
        };
        all = all
            .iter()
            .flat_map(|before| values.iter().map(move |value| with(before, value)))
            .collect();
    }
    all
}

/// The rules that a sweep begins with: if it names none, those that the scenario compares.
fn bases(scenario: &Scenario, over: &[Over]) -> Vec<(String, Config)> {
    if scenario.models.is_empty() || over.iter().any(|over| over.key == MODEL) {
        return vec![(String::new(), scenario.config)];
    }
    let models = scenario.models.iter();
    models
        .map(|of| (format!("{MODEL}={}", of.name), scenario.config.with_model(of.model)))
        .collect()
}

/// Of each setting that does nothing under rules that are swept, why.
fn idle(combinations: &[(String, Config)], over: &[Over]) -> Vec<String> {
    let mut notes = Vec::new();
    for Over { key, values } in over {
        let Some((_, Value::Tunable(tunable))) = values.first() else { continue };
        for (_, config) in combinations {
            let Some(why) = tunable.idle_under(&config.model) else { continue };
            let note = format!("{key} has no effect under the rules {}: {why}", config.model.name);
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
    notes
}

/// Runs all combinations.
///
/// # Errors
/// [`LabError`] if the scenario cannot be run as it is written.
pub fn run(scenario: &Scenario, over: &[Over], options: &Options<'_>) -> Result<Report, LabError> {
    let own = catalog::costs_of_scenario(&scenario.machine.costs)?;
    let (costs, notes) = catalog::completed(options.costs.unwrap_or(&own), &scenario.workload);
    let costs = &costs;
    let combinations = combinations(bases(scenario, over), over);
    let kind = kinds::of(&scenario.workload);
    let probes: Vec<Probe> = options
        .each(&combinations, |(_, config)| kind.probe(scenario, costs, *config, options.seed))?;
    let mut report = Report::new(&format!("sweep {}", scenario.name), &scenario.title);
    report.notes.extend(notes);
    report.notes.extend(idle(&combinations, over));
    let mut rules: Vec<&str> = combinations.iter().map(|(_, config)| config.model.name).collect();
    rules.dedup();
    let cpus = scenario.machine.machine.cpus().count();
    report.notes.push(format!("{cpus} CPUs, costs {}; rules {}", costs.name, rules.join(", ")));
    let of_waits = ["zone lock %", "worst wait, us", "holds"];
    let has_waits = probes.iter().any(|probe| probe.waits.is_some());
    let others = ["work a model second", "worst hold, pages", "cached, KiB"];
    // What is asked first stands first: waits, if there are any.
    let header = ["settings"].iter().chain(of_waits.iter().filter(|_| has_waits)).chain(&others);
    report.table.header = header.map(|name| (*name).to_owned()).collect();
    report.table.header.insert(FRONT_AT, ON_THE_FRONT.into());
    for ((name, _), probe) in combinations.iter().zip(&probes) {
        let is_beaten = probes.iter().any(|other| other.beats(probe));
        let front = if is_beaten { "" } else { "yes" };
        let mut row = vec![name.clone()];
        if let Some(Waits { zone_lock_percent, worst_us, holds, worst_hold_us }) = probe.waits {
            row.extend([
                format!("{zone_lock_percent:.2}"),
                format!("{worst_us:.1}"),
                holds.to_string(),
            ]);
            report.count(format!("{name}: zone_lock_percent"), zone_lock_percent);
            report.count(format!("{name}: worst_wait_us"), worst_us);
            report.count(format!("{name}: holds"), holds as f64);
            report.count(format!("{name}: worst_hold_us"), worst_hold_us);
        }
        row.extend([
            format!("{:.0}", probe.work_per_second),
            probe.worst_hold_pages.to_string(),
            (probe.cached_bytes >> 10).to_string(),
        ]);
        row.insert(FRONT_AT, front.into());
        report.table.rows.push(row);
        report.count(format!("{name}: work_per_second"), probe.work_per_second);
        report.count(format!("{name}: worst_hold_pages"), probe.worst_hold_pages as f64);
        report.count(format!("{name}: cached_bytes"), probe.cached_bytes as f64);
        report.count(format!("{name}: on_front"), f64::from(u8::from(!is_beaten)));
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_combined() {
        let over = |text: &str| text.parse::<Over>();
        let scales = over("pcp.batch_scale_max=0..2").unwrap();
        let caches = over("zonelist_cache=off,keyed").unwrap();
        let all = combinations(vec![(String::new(), Config::default())], &[scales, caches]);
        assert_eq!(all.len(), 6);
        assert_eq!(all[3].0, "pcp.batch_scale_max=1, zonelist_cache=keyed");
        assert_eq!(all[3].1.model.pcp.batch_scale_max, 1);
        for (text, expected) in [
            (
                "pcp.batch",
                "expected KEY=VALUE,VALUE... or KEY=FIRST..LAST; keys: model, zonelist_cache, vm.",
            ),
            ("pcp.nothing=1", "is no key; keys: model"),
            ("pcp.batch=1", "pcp.batch is for a replay"),
            ("vm.percpu_pagelist_high_fraction=7", "accepted: 0, or 8 and more"),
            ("pcp.batch_scale_max=7", "cannot be \"7\"; accepted: 0 to 6"),
            ("pcp.batch_scale_max=a..b", "is no range"),
            (
                "model=linux-6.18,linux-7.1",
                "\"linux-7.1\" is no model (no difference known from linux-6.18",
            ),
            ("zone.instances=0", "accepted: 1 to 64"),
            ("zonelist_cache=on", "accepted: off, original, keyed"),
            ("pcp.batch_scale_max=6..0", "is no range"),
        ] {
            let error = over(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
