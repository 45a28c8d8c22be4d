//! Scenarios and tables of costs by name: built in, or in a file.

use std::path::Path;

use nearpage_machine::Budget;
use nearpage_sim::Costs;

use crate::error::LabError;
use crate::scenario::{Scenario, Workload};
use crate::text::{self, read};

pub use crate::text::read_all;

/// Scenarios, in the order of `lab all`.
const SCENARIOS: [(&str, &str); 16] = [
    ("zonelist-cache", include_str!("../scenarios/zonelist-cache.toml")),
    ("memoryless-slab", include_str!("../scenarios/memoryless-slab.toml")),
    ("pcp-autotune", include_str!("../scenarios/pcp-autotune.toml")),
    ("zone-instances-224c", include_str!("../scenarios/zone-instances-224c.toml")),
    ("pcp-batch-tails", include_str!("../scenarios/pcp-batch-tails.toml")),
    ("page-waitqueue", include_str!("../scenarios/page-waitqueue.toml")),
    ("memoryless-8n2m", include_str!("../scenarios/memoryless-8n2m.toml")),
    ("gb200-34n", include_str!("../scenarios/gb200-34n.toml")),
    ("cxl-2s+1", include_str!("../scenarios/cxl-2s+1.toml")),
    ("p9-sparse", include_str!("../scenarios/p9-sparse.toml")),
    ("node0-empty", include_str!("../scenarios/node0-empty.toml")),
    ("hot-add-later", include_str!("../scenarios/hot-add-later.toml")),
    ("container-exit-18x6GB", include_str!("../scenarios/container-exit-18x6GB.toml")),
    ("jemalloc-purger", include_str!("../scenarios/jemalloc-purger.toml")),
    ("thp-then-order0", include_str!("../scenarios/thp-then-order0.toml")),
    ("skb-order3", include_str!("../scenarios/skb-order3.toml")),
];

/// Tables of costs.
const COSTS: [(&str, &str); 7] = [
    ("altix-sn2", include_str!("../costs/altix-sn2.toml")),
    ("amd-1s64", include_str!("../costs/amd-1s64.toml")),
    ("amd-8x6", include_str!("../costs/amd-8x6.toml")),
    ("hp-sx2000", include_str!("../costs/hp-sx2000.toml")),
    ("intel-8s160", include_str!("../costs/intel-8s160.toml")),
    ("intel-2s224", include_str!("../costs/intel-2s224.toml")),
    ("intel-2s128", include_str!("../costs/intel-2s128.toml")),
];

/// The names of all scenarios.
pub fn names() -> impl Iterator<Item = &'static str> + Clone {
    SCENARIOS.iter().map(|(name, _)| *name)
}

/// The scenario of a name, or in a file.
///
/// # Errors
///
/// [`LabError`] if there is none, or it is wrong.
pub fn scenario(name: &str) -> Result<Scenario, LabError> {
    if let Some((name, text)) = SCENARIOS.iter().find(|(known, _)| *known == name) {
        return Scenario::parse(name, text);
    }
    if !Path::new(name).exists() {
        let known = names().collect::<Vec<_>>().join(", ");
        return Err(LabError::Unknown { name: name.into(), known });
    }
    Scenario::from_bytes(name, &read(name)?)
}

/// The table of costs of a name, or in a file.
///
/// # Errors
///
/// [`LabError`] if there is none, or it is wrong.
pub fn costs(name: &str) -> Result<Costs, LabError> {
    match COSTS.iter().find(|(known, _)| *known == name) {
        Some((name, text)) => costs_from_bytes(name, text.as_bytes()),
        None => costs_from_bytes(name, &read_costs(name)?),
    }
}

/// The table of costs that a scenario names: one that comes along, or a file of the current folder.
pub(crate) fn costs_of_scenario(name: &str) -> Result<Costs, LabError> {
    if is_built_in(name) {
        return costs(name);
    }
    costs_from_bytes(
        name,
        &text::read_named(name, Budget::SCENARIO_BYTES)?.ok_or_else(|| unknown_costs(name))?,
    )
}

/// The table of costs that a file has; `name` is the name that errors begin with.
///
/// # Errors
///
/// [`LabError`] if it is wrong.
pub fn costs_from_bytes(name: &str, bytes: &[u8]) -> Result<Costs, LabError> {
    let text = text::of(name, bytes, "a table of costs as TOML")?;
    Costs::parse(text).map_err(|error| LabError::Costs { name: name.into(), error })
}

/// The text of a table of costs.
///
/// # Errors
///
/// [`LabError`] if there is none.
pub fn costs_text(name: &str) -> Result<String, LabError> {
    match COSTS.iter().find(|(known, _)| *known == name) {
        Some((_, text)) => Ok((*text).to_owned()),
        None => text::of(name, &read_costs(name)?, "a table of costs as TOML").map(str::to_owned),
    }
}

/// A table with what some work needs: a figure that it lacks is taken from the nearest table that comes along and has it, which a
/// sentence for each says.
pub(crate) fn completed(costs: &Costs, work: &Workload) -> (Costs, Vec<String>) {
    let needed: &[&str] = match work {
        Workload::MemoryHog(_) => &["fault_ns", "store_ns", "teardown_ns", "zone_reclaim_ns"],
        Workload::PageLocks(_) => &["page_fault_ns"],
        _ => &[],
    };
    let (mut full, mut notes) = (costs.clone(), Vec::new());
    for &name in needed.iter().filter(|name| !costs.more.contains_key(**name)) {
        let tables = COSTS.iter().filter_map(|(table, text)| {
            let other = Costs::parse(text).ok()?;
            let figure = other.more.get(name)?.clone();
            Some((far(costs, &other), *table, figure))
        });
        let nearest = tables.min_by(|one, other| one.0.total_cmp(&other.0));
        if let Some((_, table, figure)) = nearest {
            notes.push(format!("costs: {name} is that of {table}: {} has none", costs.name));
            full.more.insert(name.into(), figure);
        }
    }
    (full, notes)
}

/// How far two tables are from each other: by what they have in common, the times of memory and caches.
fn far(one: &Costs, other: &Costs) -> f64 {
    let figures = |of: &Costs| {
        let last = |of: &[f64]| of.last().copied().unwrap_or(0.0);
        [
            of.own_hit_ns.value,
            of.node_hit_ns.value,
            of.atomic_ns.value,
            of.memory_ns.value[0],
            last(&of.memory_ns.value),
            last(&of.transfer_ns.value),
            of.page_clear_ns.value[0],
        ]
    };
    let ratio = |(one, other): (f64, f64)| (one.max(0.1) / other.max(0.1)).ln().abs();
    figures(one).into_iter().zip(figures(other)).map(ratio).sum()
}

/// Whether a name stands for what is built in, not for a file.
pub fn is_built_in(name: &str) -> bool {
    names().chain(cost_names()).any(|known| known == name)
}

/// The names of all tables of costs.
pub fn cost_names() -> impl Iterator<Item = &'static str> {
    COSTS.iter().map(|(name, _)| *name)
}

/// A file, which may be a table of costs.
fn read_costs(name: &str) -> Result<Vec<u8>, LabError> {
    match Path::new(name).exists() {
        true => read(name),
        false => Err(unknown_costs(name)),
    }
}

fn unknown_costs(name: &str) -> LabError {
    let known = cost_names().collect::<Vec<_>>().join(", ");
    LabError::UnknownCosts { name: name.into(), known }
}
