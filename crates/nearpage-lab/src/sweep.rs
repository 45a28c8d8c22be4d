//! `sweep`: a scenario under all combinations of some settings, and which of them no other beats.
//!
//! A combination is on the Pareto front if none other is at least as good in all three: work a second of model time,
//! most pages moved in one hold of a zone's lock, and the most that pagesets held at the end.

use nearpage::rules::CacheRule;
use nearpage::{Config, Model, ZoneInstances};
use nearpage_machine::over;

use crate::error::LabError;
use crate::kind::Probe;
use crate::options::Options;
use crate::report::Report;
use crate::scenario::Scenario;
use crate::{catalog, kinds};

/// A setting and the values that it takes, as `KEY=VALUES`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Over {
    key: Key,
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Model,
    BatchScaleMax,
    ZonelistCache,
    HighFraction,
    ZoneInstances,
}

const KEYS: [(&str, Key, &str); 5] = [
    ("model", Key::Model, "names of models"),
    ("pcp.batch_scale_max", Key::BatchScaleMax, "0 to 6"),
    ("zone.instances", Key::ZoneInstances, "1 to 64"),
    ("zonelist_cache", Key::ZonelistCache, "off, original, keyed"),
    ("vm.percpu_pagelist_high_fraction", Key::HighFraction, "0, or 8 and more"),
];

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
        key: &'static str,
        /// The value.
        value: String,
        /// What would be accepted.
        accepted: &'static str,
    },
}

fn known() -> String {
    KEYS.map(|(name, ..)| name).join(", ")
}

impl std::str::FromStr for Over {
    type Err = OverError;

    fn from_str(text: &str) -> Result<Self, OverError> {
        let over::Over { key: name, values } = text.parse()?;
        let Some(&(key_name, key, accepted)) = KEYS.iter().find(|(key, ..)| *key == name) else {
            return Err(OverError::Key { key: name });
        };
        if key == Key::Model
            && let Some(Err(unknown)) =
                values.iter().map(|name| Model::named(name)).find(Result::is_err)
        {
            return Err(OverError::Model { problem: unknown.to_string() });
        }
        match values.iter().find(|value| apply(Config::default(), key, value).is_none()) {
            Some(value) => Err(OverError::Value { key: key_name, value: value.clone(), accepted }),
            None => Ok(Self { key, values }),
        }
    }
}

/// The first key that is there more than once.
pub fn named_twice(over: &[Over]) -> Option<&'static str> {
    let count = |key: Key| over.iter().filter(|over| over.key == key).count();
    KEYS.iter().find(|(_, key, _)| count(*key) > 1).map(|(name, ..)| *name)
}

fn apply(config: Config, key: Key, value: &str) -> Option<Config> {
    let mut config = config;
    match key {
        Key::Model => config.model = Model::by_name(value)?,
        Key::BatchScaleMax => {
            config.model.pcp.batch_scale_max =
                value.parse().ok().filter(|&scale: &u8| scale <= 6)?;
        }
        Key::ZoneInstances => {
            let count = value.parse().ok().filter(|count| (1..=64).contains(count))?;
            config.model.zone_instances = ZoneInstances::Count(count);
        }
        Key::ZonelistCache => {
            config.model.zonelist_cache = match value {
                "off" => CacheRule::Off,
                "original" => CacheRule::Original,
                "keyed" => CacheRule::Keyed,
                _ => return None,
            };
        }
        Key::HighFraction => {
            config.settings.percpu_pagelist_high_fraction = value.parse().ok()?;
            config.settings.check().ok()?;
        }
    }
    Some(config)
}

/// All combinations of values, the last setting fastest, each with a name.
fn combinations(config: Config, over: &[Over]) -> Vec<(String, Config)> {
    let mut all = vec![(String::new(), config)];
    // A model is all rules at once: others change what it says.
    let (models, others): (Vec<&Over>, Vec<&Over>) =
        over.iter().partition(|over| over.key == Key::Model);
    for Over { key, values } in models.into_iter().chain(others) {
        let with = |(name, config): &(String, Config), value: &String| {
            let separator = if name.is_empty() { "" } else { ", " };
            let key_name =
                KEYS.iter().find(|(_, known, _)| known == key).map_or("", |(name, ..)| name);
            let config = apply(*config, *key, value).expect("checked when it was read");
            (format!("{name}{separator}{key_name}={value}"), config)
        };
        all = all
            .iter()
            .flat_map(|before| values.iter().map(move |value| with(before, value)))
            .collect();
    }
    all
}

/// Runs all combinations.
///
/// # Errors
/// [`LabError`] if the scenario cannot be run as it is written.
pub fn run(scenario: &Scenario, over: &[Over], options: &Options<'_>) -> Result<Report, LabError> {
    let own = catalog::costs(&scenario.machine.costs)?;
    let costs = options.costs.unwrap_or(&own);
    let combinations = combinations(scenario.config, over);
    let kind = kinds::of(&scenario.workload);
    let probes: Vec<Probe> = options
        .each(&combinations, |(_, config)| kind.probe(scenario, costs, *config, options.seed))?;
    let mut report = Report::new(&format!("sweep {}", scenario.name), &scenario.title);
    let header =
        ["settings", "work a model second", "worst hold, pages", "cached, KiB", "on the front"];
    report.table.header = header.map(str::to_owned).to_vec();
    for ((name, _), probe) in combinations.iter().zip(&probes) {
        let is_beaten = probes.iter().any(|other| other.beats(probe));
        let front = if is_beaten { "" } else { "yes" };
        report.table.rows.push(vec![
            name.clone(),
            format!("{:.0}", probe.work_per_second),
            probe.worst_hold_pages.to_string(),
            (probe.cached_bytes >> 10).to_string(),
            front.into(),
        ]);
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
        let all = combinations(Config::default(), &[scales, caches]);
        assert_eq!(all.len(), 6);
        assert_eq!(all[3].0, "pcp.batch_scale_max=1, zonelist_cache=keyed");
        assert_eq!(all[3].1.model.pcp.batch_scale_max, 1);
        for (text, expected) in [
            ("pcp.batch", "expected KEY=VALUE,VALUE... or KEY=FIRST..LAST; keys: model, pcp"),
            ("pcp.batch=1", "is no key; keys: model"),
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
