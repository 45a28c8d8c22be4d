//! What things cost, each figure with its source.
//!
//! Times are nanoseconds of model time. Figures by *class* go by distance: the distinct distances of the machine in
//! rising order, class 0 a node's own; the last figure serves all classes beyond it. A source begins with a mark:
//! `S` found and named, `D` derived from such, `M` measured, `K` general knowledge, `R` a range of which the middle
//! is used, `C` calibrated (to which cell, it says).

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A figure and where it comes from.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Figure<T> {
    /// The figure.
    pub value: T,
    /// Mark and source.
    pub source: String,
}

impl<T> Figure<T> {
    /// A figure that a test or a default needs.
    pub fn assumed(value: T) -> Self {
        Self { value, source: "K assumed".into() }
    }
}

impl Figure<f64> {
    /// The figure of what costs nothing because it is not modelled.
    pub fn not_modelled() -> Self {
        Self { value: 0.0, source: "K not modelled".into() }
    }
}

/// A table of costs.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// Version of the table's layout: 1.
    pub schema: u32,
    /// The machine that it describes.
    pub name: String,
    /// Bytes of a cache line.
    pub line_bytes: Figure<u32>,
    /// Bytes of the kernel's metadata for a page (`struct page`).
    pub frame_bytes: Figure<u32>,
    /// Private cache of a CPU, KiB.
    pub private_cache_kb: Figure<u32>,
    /// Cache that the CPUs of a node share, KiB.
    pub node_cache_kb: Figure<u32>,
    /// A line in the CPU's own cache.
    pub own_hit_ns: Figure<f64>,
    /// A line in the node's shared cache.
    pub node_hit_ns: Figure<f64>,
    /// A line that another CPU has modified, by class of the distance to it.
    pub transfer_ns: Figure<Vec<f64>>,
    /// A line from memory, by class of the distance to it.
    pub memory_ns: Figure<Vec<f64>>,
    /// An atomic operation on a line that the CPU owns; a lock nobody else wants.
    pub atomic_ns: Figure<f64>,
    /// From the end of one hold of a lock to the beginning of the next, by class of the distance between the
    /// two CPUs.
    pub handoff_ns: Figure<Vec<f64>>,
    /// What each further waiter adds to a hand-over by reading the lock's line; 0 for queued locks.
    pub reread_ns: Figure<f64>,
    /// How long a line from memory keeps its home node's controller busy; 0: any number at once.
    #[serde(default = "Figure::not_modelled")]
    pub home_service_ns: Figure<f64>,
    /// By how much each further CPU that clears a page of another node at the same time slows accesses between nodes:
    /// 0.05 is 5 %.
    #[serde(default = "Figure::not_modelled")]
    pub load_slowdown: Figure<f64>,
    /// To clear a page, by class of the distance to it.
    pub page_clear_ns: Figure<Vec<f64>>,
    /// Figures that some scenario needs, by name.
    #[serde(default)]
    pub more: BTreeMap<String, Figure<f64>>,
}

/// A table of costs that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CostsError {
    /// Not TOML, or not the right keys; says line and column.
    #[error("{0}")]
    Toml(#[from] toml::de::Error),
    /// A value out of range.
    #[error("{key} is {value}; accepted: {accepted}")]
    Value {
        /// The key.
        key: &'static str,
        /// Its value.
        value: String,
        /// What would do.
        accepted: &'static str,
    },
    /// A scenario needs a figure that the table lacks.
    #[error("the table of costs has no figure [more.{0}]; the scenario needs it")]
    Missing(String),
}

impl Costs {
    /// Reads a table.
    ///
    /// # Errors
    /// [`CostsError`].
    pub fn parse(text: &str) -> Result<Self, CostsError> {
        let costs: Self = toml::from_str(text)?;
        costs.check()?;
        Ok(costs)
    }

    fn check(&self) -> Result<(), CostsError> {
        let refuse = |key, value: String, accepted| Err(CostsError::Value { key, value, accepted });
        if self.schema != 1 {
            return refuse("schema", self.schema.to_string(), "1");
        }
        let line = self.line_bytes.value;
        if !(16..=1024).contains(&line) || !line.is_power_of_two() {
            return refuse("line_bytes", line.to_string(), "a power of two from 16 to 1024");
        }
        let frame = self.frame_bytes.value;
        if !(4..=256).contains(&frame) {
            return refuse("frame_bytes", frame.to_string(), "4 to 256");
        }
        let by_class = [
            ("transfer_ns", &self.transfer_ns),
            ("memory_ns", &self.memory_ns),
            ("handoff_ns", &self.handoff_ns),
            ("page_clear_ns", &self.page_clear_ns),
        ];
        for (key, figures) in by_class {
            if figures.value.is_empty() || !figures.value.iter().all(|&ns| is_time(ns)) {
                let value = format!("{:?}", figures.value);
                return refuse(key, value, "one or more times from 0 to 1e9");
            }
        }
        if !(0.0..=100.0).contains(&self.load_slowdown.value) {
            return refuse("load_slowdown", self.load_slowdown.value.to_string(), "0 to 100");
        }
        let single = [
            ("own_hit_ns", &self.own_hit_ns),
            ("node_hit_ns", &self.node_hit_ns),
            ("atomic_ns", &self.atomic_ns),
            ("reread_ns", &self.reread_ns),
            ("home_service_ns", &self.home_service_ns),
        ];
        for (key, figure) in single {
            if !is_time(figure.value) {
                return refuse(key, figure.value.to_string(), "a time from 0 to 1e9");
            }
        }
        if let Some((key, figure)) = self.more.iter().find(|(_, figure)| !is_time(figure.value)) {
            return refuse("a figure of [more]", format!("{key} = {}", figure.value), "0 to 1e9");
        }
        Ok(())
    }

    /// A further figure.
    ///
    /// # Errors
    /// [`CostsError::Missing`].
    pub fn more(&self, name: &str) -> Result<f64, CostsError> {
        let figure = self.more.get(name).ok_or_else(|| CostsError::Missing(name.into()))?;
        Ok(figure.value)
    }

    /// All lines cost the same, for tests.
    pub fn flat() -> Self {
        let ns = Figure::assumed;
        Self {
            schema: 1,
            name: "flat".into(),
            line_bytes: Figure::assumed(64),
            frame_bytes: Figure::assumed(64),
            private_cache_kb: Figure::assumed(256),
            node_cache_kb: Figure::assumed(1024),
            own_hit_ns: ns(1.0),
            node_hit_ns: ns(10.0),
            transfer_ns: Figure::assumed(vec![50.0, 100.0]),
            memory_ns: Figure::assumed(vec![80.0, 140.0]),
            atomic_ns: ns(5.0),
            handoff_ns: Figure::assumed(vec![60.0, 120.0]),
            reread_ns: ns(0.0),
            home_service_ns: Figure::not_modelled(),
            load_slowdown: Figure::not_modelled(),
            page_clear_ns: Figure::assumed(vec![100.0, 300.0]),
            more: BTreeMap::new(),
        }
    }
}

/// The table as a file, which [`Costs::parse`] reads.
impl fmt::Display for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "schema = {}\nname = {}", self.schema, quoted(&self.name))?;
        line(f, "line_bytes", &self.line_bytes)?;
        line(f, "frame_bytes", &self.frame_bytes)?;
        line(f, "private_cache_kb", &self.private_cache_kb)?;
        line(f, "node_cache_kb", &self.node_cache_kb)?;
        line(f, "own_hit_ns", &self.own_hit_ns)?;
        line(f, "node_hit_ns", &self.node_hit_ns)?;
        line(f, "transfer_ns", &self.transfer_ns)?;
        line(f, "memory_ns", &self.memory_ns)?;
        line(f, "atomic_ns", &self.atomic_ns)?;
        line(f, "handoff_ns", &self.handoff_ns)?;
        line(f, "reread_ns", &self.reread_ns)?;
        for (key, figure) in
            [("home_service_ns", &self.home_service_ns), ("load_slowdown", &self.load_slowdown)]
        {
            if *figure != Figure::not_modelled() {
                line(f, key, figure)?;
            }
        }
        line(f, "page_clear_ns", &self.page_clear_ns)?;
        if !self.more.is_empty() {
            writeln!(f, "\n[more]")?;
        }
        self.more.iter().try_for_each(|(name, figure)| line(f, &quoted(name), figure))
    }
}

fn line(f: &mut fmt::Formatter<'_>, key: &str, figure: &Figure<impl fmt::Debug>) -> fmt::Result {
    let Figure { value, source } = figure;
    writeln!(f, "{key} = {{ value = {value:?}, source = {} }}", quoted(source))
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

fn is_time(ns: f64) -> bool {
    (0.0..=1e9).contains(&ns)
}

/// Picoseconds of so many nanoseconds: the unit of clocks, so that sums are exact.
pub fn picoseconds(ns: f64) -> u64 {
    (ns * 1000.0).round() as u64
}

/// A table by class in picoseconds, for so many classes.
pub fn by_class(figures: &[f64], classes: usize) -> Vec<u64> {
    (0..classes).map(|class| picoseconds(figures[class.min(figures.len() - 1)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_written_as_it_is_read() {
        let mut costs = Costs::flat();
        costs.name = "a \"name\" with \\ and\ttab".into();
        costs.load_slowdown = Figure { value: 0.05, source: "M".into() };
        costs.more.insert("page fault".into(), Figure { value: 1e-7, source: "S 'x'".into() });
        let text = costs.to_string();
        assert_eq!(Costs::parse(&text).unwrap_or_else(|error| panic!("{error}: {text}")), costs);
        assert!(!text.contains("home_service_ns"), "{text}");
    }
}
