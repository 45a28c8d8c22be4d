//! What a what-if changes: machine, rules, settings, and what follows from them before anything is allocated.

use std::fmt::Display;

use nearpage::rules::CacheRule;
use nearpage::rules::pagesets::Sizes;
use nearpage::rules::zonelists::NodeOrder;
use nearpage::{Marks, Model, NodeIndex, ZoneInstances, ZoneKind};
use nearpage_machine::MachineDescription;
use nearpage_machine::tunable::Tunable;
use serde::Serialize;

use super::machine::{elsewhere, start_of};
use super::wish::Wish;
use crate::cpus::CpuMap;
use crate::error::ReplayError;
use crate::start::{Start, StartZone};

/// What a what-if changes. Before is the recorded machine under its kernel's rules and settings; if the machine is another
/// and settings or rules are changed too, before is that machine without these changes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Changes {
    /// The machine, if it is not the recorded one.
    pub machine: Option<OtherMachine>,
    /// The names of the rules.
    pub rules: Change<&'static str>,
    /// Settings that were asked for.
    pub settings: Vec<SettingChange>,
    /// Watermarks, reserves and sizes of pagesets that moved.
    pub sizes: Vec<SizeChange>,
    /// Fallback orders that moved.
    pub fallback: Vec<OrderChange>,
    /// Which CPU plays which, in words; `None` on the recorded machine.
    pub cpus: Option<String>,
    /// Copies of the trace at once.
    pub repeat: u32,
}

/// Something before and after.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Change<T> {
    /// Without the what-if.
    pub before: T,
    /// With it.
    pub after: T,
}

/// Another machine, beside the recorded one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct OtherMachine {
    /// Where it comes from: a file, a name.
    pub name: String,
    /// Nodes.
    pub nodes: Change<u64>,
    /// CPUs.
    pub cpus: Change<u64>,
    /// Bytes that its zones manage.
    pub memory_bytes: Change<u64>,
    /// Bytes of a page.
    pub page_bytes: Change<u64>,
    /// Sizes that are others there, before rules and settings are changed. Where none are, [`Changes::sizes`] has them.
    pub sizes: Vec<SizeChange>,
    /// The same for fallback orders.
    pub fallback: Vec<OrderChange>,
}

/// A setting that was asked for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct SettingChange {
    /// Its key.
    pub key: &'static str,
    /// Its value without the what-if; of zones that differ, one after the other.
    pub before: String,
    /// Its value.
    pub after: String,
    /// Why it does nothing, if so: a sentence.
    pub no_effect: Option<String>,
}

/// A size that moved, in pages unless its name says otherwise.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct SizeChange {
    /// `node 0 zone Normal`; instances of one zone are numbered.
    #[serde(rename = "where")]
    pub place: String,
    /// `min`, `low`, `high`, `promo`, `reserve for Normal`, `batch`, `high_min`, `high_max`.
    pub what: String,
    /// Before; `None` if there was no such zone.
    pub before: Option<u64>,
    /// After; `None` if there is no such zone.
    pub after: Option<u64>,
}

/// A fallback order that moved.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct OrderChange {
    /// Whose.
    pub node: u32,
    /// Before; `None` if there was no such node.
    pub before: Option<Vec<u32>>,
    /// After; `None` if there is no such node.
    pub after: Option<Vec<u32>>,
}

impl Changes {
    /// `before` is the start state without the what-if, `start` the one with it.
    pub(crate) fn of(
        recorded: &Start,
        before: &Start,
        start: &Start,
        wish: &Wish,
        map: &CpuMap,
    ) -> Changes {
        let is_elsewhere = wish.machine.is_some();
        let moved = || (sizes(&values(recorded), &values(before)), orders(recorded, before));
        let (sizes, fallback) = if is_elsewhere { moved() } else { Default::default() };
        Changes {
            machine: wish.machine.as_ref().map(|machine| OtherMachine {
                name: machine.source.clone(),
                nodes: change(recorded, start, |of| of.topology.nodes.len() as u64),
                cpus: change(recorded, start, cpus),
                memory_bytes: change(recorded, start, |of| of.managed().to_bytes(of.page_shift)),
                page_bytes: change(recorded, start, |of| 1 << of.page_shift),
                sizes,
                fallback,
            }),
            rules: change(recorded, start, |of| of.model.name),
            cpus: (is_elsewhere || wish.repeat > 1).then(|| map.describe(wish.repeat.max(1))),
            repeat: wish.repeat.max(1),
            ..Changes::between(before, start, wish)
        }
    }

    /// What moves on one machine.
    fn between(before: &Start, start: &Start, wish: &Wish) -> Changes {
        let (then, now) = (values(before), values(start));
        Changes {
            rules: change(before, start, |of| of.model.name),
            settings: settings(wish, before, start, &then, &now),
            sizes: sizes(&then, &now),
            fallback: orders(before, start),
            repeat: 1,
            ..Changes::default()
        }
    }

    /// What other rules and settings change on a machine, before anything runs there.
    ///
    /// # Errors
    ///
    /// There can be no such machine.
    pub fn on(
        machine: &MachineDescription,
        before: Model,
        rules: Model,
        tunables: &[Tunable],
    ) -> Result<Changes, ReplayError> {
        let name = machine.source.as_str();
        let before = elsewhere(name, machine, before, |_| ())?;
        let (model, tunables) = (Some(rules), tunables.to_vec());
        let wish = Wish { model, machine: Some(machine.clone()), tunables, ..Wish::default() };
        let start = start_of(name, &before, &wish)?;
        Ok(Changes::between(&before, &start, &wish))
    }

    /// Why a what-if comes to the same as without it, as far as that can be told.
    pub(crate) fn why_the_same(&self) -> String {
        let idle: Vec<&str> =
            self.settings.iter().filter_map(|set| set.no_effect.as_deref()).collect();
        match idle.is_empty() {
            false => idle.join("; "),
            true => "no figure depends on the change with this load on this machine".into(),
        }
    }

    /// That the settings do nothing under the rules.
    pub(crate) fn idle_settings(&self) -> String {
        let keys: Vec<&str> = self.settings.iter().map(|set| set.key).collect();
        let (keys, rules) = (keys.join(", "), self.rules.after);
        let does = if self.settings.len() == 1 { "does" } else { "do" };
        format!(
            "{keys} {does} nothing under the rules {rules} with this load: all figures are as by the rules alone"
        )
    }
}

fn change<T>(before: &Start, after: &Start, of: impl Fn(&Start) -> T) -> Change<T> {
    Change { before: of(before), after: of(after) }
}

fn cpus(of: &Start) -> u64 {
    of.topology.nodes.iter().map(|node| node.cpus.len() as u64).sum()
}

/// Each setting that was asked for, once: the last one of a key holds.
fn settings(
    wish: &Wish,
    before: &Start,
    start: &Start,
    then: &[Value],
    now: &[Value],
) -> Vec<SettingChange> {
    let mut all: Vec<SettingChange> = Vec::new();
    for tunable in &wish.tunables {
        let key = tunable.key();
        all.retain(|known| known.key != key);
        let (before, after) = (setting(tunable, before), setting(tunable, start));
        let idle = tunable.idle_under(&start.model);
        let no_effect = match idle {
            Some(why) => {
                Some(format!("{key} has no effect under the rules {}: {why}", start.model.name))
            }
            None if before == after && then == now => Some(format!("{key} is {after} without it")),
            None if matches!(tunable, Tunable::ZoneInstances(_)) && then == now => Some(format!(
                "{key} has no effect on this machine: no node has Normal memory for so many"
            )),
            None => None,
        };
        all.push(SettingChange { key, before, after, no_effect });
    }
    if let Some(rule) = wish.zonelist_cache {
        let (key, name) = ("zonelist_cache", |of: &Start| cache_name(of.model.zonelist_cache));
        let no_effect = (rule == before.model.zonelist_cache)
            .then(|| format!("{key} is {} without it", name(start)));
        let (before, after) = (name(before).to_owned(), name(start).to_owned());
        all.push(SettingChange { key, before, after, no_effect });
    }
    all
}

fn cache_name(rule: CacheRule) -> &'static str {
    match rule {
        CacheRule::Off => "off",
        CacheRule::Original => "original",
        CacheRule::Keyed => "keyed",
    }
}

/// The value of a tunable's key in a start state.
fn setting(tunable: &Tunable, of: &Start) -> String {
    let switch = |on: bool| if on { "on" } else { "off" }.to_owned();
    let pcp = &of.model.pcp;
    let sizes = |pages: fn(&Sizes) -> u64| {
        let pagesets = of.zones.iter().filter_map(|zone| zone.pagesets.first());
        distinct(pagesets.map(|pageset| pages(&pageset.sizes)))
    };
    match tunable {
        Tunable::Kernel(change) => change.value_in(&of.settings),
        Tunable::BatchScaleMax(_) if pcp.batch_scale_max > 6 => "no limit".into(),
        Tunable::BatchScaleMax(_) => pcp.batch_scale_max.to_string(),
        Tunable::Batch(_) => sizes(|of| of.batch.0),
        Tunable::HighMin(_) => sizes(|of| of.high_min.0),
        Tunable::HighMax(_) => sizes(|of| of.high_max.0),
        Tunable::TunesHigh(_) => switch(pcp.tunes_high),
        Tunable::BelowHigh(_) => switch(pcp.below_high),
        Tunable::FreeHigh(_) => switch(pcp.free_high.is_some()),
        Tunable::ZoneInstances(_) => match of.model.zone_instances {
            ZoneInstances::Count(count) => count.to_string(),
            ZoneInstances::OfPages(pages) => format!("one for {pages} pages"),
            _ => "unknown".into(),
        },
        _ => "unknown".into(),
    }
}

/// All values, each once.
fn distinct<T: Display + PartialEq>(values: impl Iterator<Item = T>) -> String {
    let mut all: Vec<T> = Vec::new();
    for value in values {
        if !all.contains(&value) {
            all.push(value);
        }
    }
    all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// A size with its place.
type Value = (String, String, u64);

/// All sizes of a start state, by zone.
fn values(of: &Start) -> Vec<Value> {
    let kinds: Vec<ZoneKind> =
        ZoneKind::ALL.into_iter().filter(|kind| of.zones.iter().any(|z| z.kind == *kind)).collect();
    let mut all = Vec::new();
    for (at, zone) in of.zones.iter().enumerate() {
        let place = place(&of.zones, at);
        let mut add = |what: &str, pages: u64| all.push((place.clone(), what.to_owned(), pages));
        let Marks { min, low, high, promo } = zone.marks;
        add("min", min.0);
        add("low", low.0);
        add("high", high.0);
        add("promo", promo.0);
        for kind in kinds.iter().filter(|kind| **kind > zone.kind) {
            add(&format!("reserve for {}", kind.name()), zone.reserve[kind.index()].0);
        }
        if let Some(pageset) = zone.pagesets.first() {
            let most = if of.model.pcp.tunes_high {
                pageset.sizes.high_max
            } else {
                pageset.sizes.high_min
            };
            add("batch", pageset.sizes.batch.0);
            add("high_min", pageset.sizes.high_min.0);
            add("high_max", most.0);
        }
    }
    all.push(("all zones".into(), "watermark_boost_factor".into(), of.boost_factor.into()));
    all
}

/// The name of a zone, numbered among the instances of one.
fn place(zones: &[StartZone], at: usize) -> String {
    let zone = &zones[at];
    let is_same = |other: &&StartZone| other.node == zone.node && other.kind == zone.kind;
    if zones.iter().filter(is_same).count() < 2 {
        return zone.name();
    }
    format!("{}, instance {}", zone.name(), zones[..at].iter().filter(is_same).count() + 1)
}

fn sizes(then: &[Value], now: &[Value]) -> Vec<SizeChange> {
    let find = |all: &[Value], (place, what, _): &Value| {
        all.iter().find(|value| value.0 == *place && value.1 == *what).map(|value| value.2)
    };
    let gone = then.iter().filter(|value| find(now, value).is_none());
    let all = now.iter().chain(gone).map(|value| SizeChange {
        place: value.0.clone(),
        what: value.1.clone(),
        before: find(then, value),
        after: find(now, value),
    });
    all.filter(|size| size.before != size.after).collect()
}

/// The fallback order of each node, by ids.
fn fallback(of: &Start) -> Vec<(u32, Vec<u32>)> {
    let count = of.topology.nodes.len();
    let id = |node: NodeIndex| of.topology.nodes[node.0 as usize].id.0;
    let mut orders = Vec::new();
    let rebuilt = of.topology.with(|topology| {
        let cpu_term = of.model.cpu_term_at_boot;
        NodeOrder { topology, online: topology, cpu_term }.rebuild(
            &mut vec![0; count],
            &mut vec![NodeIndex(0); count],
            |node, order| orders.push((id(node), order.iter().map(|&node| id(node)).collect())),
        );
    });
    rebuilt.map(|()| orders).unwrap_or_default()
}

fn orders(before: &Start, start: &Start) -> Vec<OrderChange> {
    let (then, now) = (fallback(before), fallback(start));
    let find = |all: &[(u32, Vec<u32>)], node: u32| {
        all.iter().find(|(of, _)| *of == node).map(|(_, order)| order.clone())
    };
    let gone = then.iter().filter(|(node, _)| find(&now, *node).is_none());
    let nodes = now.iter().chain(gone).map(|(node, _)| *node);
    let all =
        nodes.map(|node| OrderChange { node, before: find(&then, node), after: find(&now, node) });
    all.filter(|order| order.before != order.after).collect()
}
