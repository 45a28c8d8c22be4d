//! `sweep`: a scenario under all combinations of some settings, and which of them no other beats.
//!
//! A combination is on the Pareto front if none other is at least as good in all three: work a second of model time,
//! most pages moved in one hold of a zone's lock, and the most that pagesets held at the end.

use nearpage::rules::CacheRule;
use nearpage::{Config, Model};
use nearpage_sim::Costs;
use nearpage_sim::pool;

use super::error::LabError;
use super::report::Report;
use super::scenario::{Scenario, Workload};
use super::{Options, catalog, hog, huge, locks, messages, slab};

/// A setting and the values that it takes.
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
}

const KEYS: [(&str, Key, &str); 4] = [
    ("model", Key::Model, "names of models"),
    ("pcp.batch_scale_max", Key::BatchScaleMax, "0 to 6"),
    ("zonelist_cache", Key::ZonelistCache, "off, original, keyed"),
    ("vm.percpu_pagelist_high_fraction", Key::HighFraction, "0, or 8 and more"),
];

/// What a combination came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    /// Pages or messages a second of model time.
    pub(super) work_per_second: f64,
    /// Most pages in one hold.
    pub(super) worst_hold_pages: u64,
    /// Bytes in pagesets at the end.
    pub(super) cached_bytes: u64,
}

impl Probe {
    fn beats(&self, other: &Probe) -> bool {
        let as_good = self.work_per_second >= other.work_per_second
            && self.worst_hold_pages <= other.worst_hold_pages
            && self.cached_bytes <= other.cached_bytes;
        let better = self.work_per_second > other.work_per_second
            || self.worst_hold_pages < other.worst_hold_pages
            || self.cached_bytes < other.cached_bytes;
        as_good && better
    }
}

impl std::str::FromStr for Over {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || KEYS.map(|(name, ..)| name).join(", ");
        let (name, values) = text
            .split_once('=')
            .ok_or_else(|| format!("expected KEY=VALUES; keys: {}", known()))?;
        let found = KEYS.iter().find(|(key, ..)| *key == name);
        let (_, key, accepted) =
            found.ok_or_else(|| format!("{name:?} is no key; keys: {}", known()))?;
        let values = match values.split_once("..") {
            Some((first, last)) => range(first, last)
                .ok_or_else(|| format!("{values:?} is no range; accepted: {accepted}"))?,
            None => values.split(',').map(str::to_owned).collect(),
        };
        let over = Self { key: *key, values };
        for value in &over.values {
            apply(Config::default(), over.key, value)
                .ok_or_else(|| format!("{name} cannot be {value:?}; accepted: {accepted}"))?;
        }
        Ok(over)
    }
}

/// All numbers from the first to the last one; `None` if there are none.
fn range(first: &str, last: &str) -> Option<Vec<String>> {
    let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
    let all = first..=last.min(first.saturating_add(1000));
    (first <= last).then(|| all.map(|value| value.to_string()).collect())
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
    let done = |finished| (options.progress)(finished, combinations.len());
    let run = |(_, config): &(String, Config)| probe(scenario, *config, costs, options.seed);
    let probes = pool::run(options.threads, &combinations, run, done);
    let probes: Vec<Probe> = probes.into_iter().collect::<Result<_, _>>()?;
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

fn probe(scenario: &Scenario, config: Config, costs: &Costs, seed: u64) -> Result<Probe, LabError> {
    match &scenario.workload {
        Workload::MemoryHog(work) => hog::probe(scenario, work, costs, config),
        Workload::Messages(all, _) => messages::probe(scenario, all, costs, config),
        Workload::HugeThenSingle(pages) => huge::probe(scenario, *pages, costs, config),
        Workload::PageLocks(work) => locks::probe(scenario, work, costs, config, seed),
        Workload::SlabMessages(work) => slab::probe(scenario, work, costs, config, seed),
    }
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
            ("pcp.batch", "expected KEY=VALUES"),
            ("pcp.batch=1", "is no key; keys: model"),
            ("pcp.batch_scale_max=7", "cannot be \"7\"; accepted: 0 to 6"),
            ("pcp.batch_scale_max=a..b", "is no range"),
            ("zonelist_cache=on", "accepted: off, original, keyed"),
            ("pcp.batch_scale_max=6..0", "is no range"),
        ] {
            assert!(over(text).unwrap_err().contains(expected), "{text}");
        }
    }

    #[test]
    fn the_front_is_what_nothing_beats() {
        let probe = |work, hold, cached| Probe {
            work_per_second: work,
            worst_hold_pages: hold,
            cached_bytes: cached,
        };
        assert!(probe(2.0, 1, 1).beats(&probe(1.0, 1, 1)));
        assert!(!probe(1.0, 1, 1).beats(&probe(1.0, 1, 1)));
        assert!(!probe(2.0, 2, 1).beats(&probe(1.0, 1, 1)));
    }
}
