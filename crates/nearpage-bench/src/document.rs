//! A run as a document.

use serde::Serialize;

use crate::machine::Machine;
use crate::rows::Row;
use crate::run::Measured;
use crate::work::fragmentation::Fragmentation;
use crate::work::zonelist::Scans;

/// Version of the layout.
const SCHEMA: u32 = 1;

/// The JSON document of a run: the machine, and what all benchmarks came to.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Document {
    /// Version of this layout.
    pub schema: u32,
    /// What was measured on.
    pub machine: Machine,
    /// The clock of single calls, `rdtscp` or `clock`; none without [`Bench::Mixed`](crate::Bench::Mixed).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_clock: Option<&'static str>,
    /// Times.
    pub rows: Vec<Row>,
    /// What scans did; none without [`Bench::Zonelist`](crate::Bench::Zonelist).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scans: Vec<Scans>,
    /// Ranges that stayed whole; none without [`Bench::Fragmentation`](crate::Bench::Fragmentation).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fragmentation: Vec<Fragmentation>,
}

impl Document {
    /// A document without figures.
    pub fn of(machine: Machine) -> Self {
        let (rows, scans, fragmentation) = (Vec::new(), Vec::new(), Vec::new());
        Self { schema: SCHEMA, machine, call_clock: None, rows, scans, fragmentation }
    }

    /// Adds what a benchmark came to.
    pub fn add(&mut self, measured: Measured) {
        self.call_clock = self.call_clock.or(measured.call_clock);
        self.rows.extend(measured.rows);
        self.scans.extend(measured.scans);
        self.fragmentation.extend(measured.fragmentation);
    }
}
