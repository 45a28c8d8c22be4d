//! The keys of a page-lock storm.

use serde::Deserialize;
use toml::Spanned;

use super::figures::{at_least_one, bytes_of, time_ns_or_0};
use super::wrong::{Checked, wrong};

/// A page-lock storm: each number of processes under each rule.
#[derive(Clone, Debug)]
pub struct LocksWorkload {
    /// Numbers of processes, one a CPU.
    pub processes: Vec<usize>,
    /// Pages of each.
    pub pages: usize,
    /// Faults of each.
    pub faults: u64,
    /// Neighbouring CPUs that share pages.
    pub sharers: usize,
    /// How long a page is locked (ns).
    pub locked_ns: f64,
    /// What goes through the cache of a node with each fault.
    pub streamed_bytes: u64,
    /// Whether the time that a home is busy with a line is calibrated to the reference's second row.
    pub calibrates: bool,
}

impl LocksWorkload {
    /// The largest number of processes.
    pub fn most(&self) -> usize {
        self.processes.iter().copied().max().unwrap_or(1)
    }
}

/// Bytes that a fault streams: far beyond any cache, and sums of many stay countable.
const MOST_STREAMED: u64 = 1 << 40;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LocksTable {
    processes: Vec<Spanned<usize>>,
    pages: Spanned<usize>,
    faults: Spanned<u64>,
    sharers: Option<Spanned<usize>>,
    locked_ns: Option<Spanned<f64>>,
    streamed: Option<Spanned<String>>,
    calibrate: Option<CalibrateTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CalibrateTable {
    home_service: Calibrates,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Calibrates {
    Global,
}

impl LocksTable {
    pub(super) fn check(self, cpus: usize) -> Checked<LocksWorkload> {
        let count = |value: &Spanned<usize>| match *value.get_ref() {
            n if (1..=cpus).contains(&n) => Ok(n),
            n => wrong(value.span(), format!("processes is {n}; accepted: 1 to {cpus}")),
        };
        let processes: Vec<usize> = self.processes.iter().map(count).collect::<Checked<_>>()?;
        if processes.is_empty() {
            return wrong(self.pages.span(), "processes is empty; accepted: one number or more");
        }
        let sharers = self.sharers.as_ref().map(|value| at_least_one("sharers", value));
        let streamed = self.streamed.as_ref().map(|text| match bytes_of("streamed", text)? {
            bytes if bytes <= MOST_STREAMED => Ok(bytes),
            _ => wrong(text.span(), "streamed: accepted: at most 1T a fault"),
        });
        Ok(LocksWorkload {
            processes,
            pages: at_least_one("pages", &self.pages)?,
            faults: at_least_one("faults", &self.faults)?,
            sharers: sharers.transpose()?.unwrap_or(1),
            locked_ns: time_ns_or_0("locked_ns", self.locked_ns.as_ref())?,
            streamed_bytes: streamed.transpose()?.unwrap_or(0),
            calibrates: matches!(
                self.calibrate,
                Some(CalibrateTable { home_service: Calibrates::Global })
            ),
        })
    }
}
