//! What each kind of work does for the lab.

use nearpage::Config;
use nearpage_sim::Costs;

use crate::error::LabError;
use crate::options::Options;
use crate::report::Report;
use crate::scenario::Scenario;

/// A kind of work.
pub(crate) trait Kind: Sync {
    /// Runs a scenario of this kind.
    fn run(
        &self,
        scenario: &Scenario,
        costs: &Costs,
        options: &Options<'_>,
    ) -> Result<Report, LabError>;

    /// Runs the part of it that a sweep compares, under other rules and settings.
    fn probe(
        &self,
        scenario: &Scenario,
        costs: &Costs,
        config: Config,
        seed: u64,
    ) -> Result<Probe, LabError>;
}

/// What a combination of settings came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    /// Pages or messages a second of model time.
    pub(crate) work_per_second: f64,
    /// Most pages in one hold of a zone's lock.
    pub(crate) worst_hold_pages: u64,
    /// Bytes in pagesets at the end.
    pub(crate) cached_bytes: u64,
    /// What CPUs wait for zone locks, of a kind that is about that.
    pub(crate) waits: Option<Waits>,
}

/// What CPUs wait for zone locks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waits {
    /// The share of their time.
    pub(crate) zone_lock_percent: f64,
    /// The longest.
    pub(crate) worst_us: f64,
    /// Holds.
    pub(crate) holds: u64,
    /// The longest of them.
    pub(crate) worst_hold_us: f64,
}

impl Probe {
    /// Whether this one is as good as the other in everything, and better in something.
    pub(crate) fn beats(&self, other: &Probe) -> bool {
        let as_good = self.work_per_second >= other.work_per_second
            && self.worst_hold_pages <= other.worst_hold_pages
            && self.cached_bytes <= other.cached_bytes;
        let better = self.work_per_second > other.work_per_second
            || self.worst_hold_pages < other.worst_hold_pages
            || self.cached_bytes < other.cached_bytes;
        as_good && better
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_front_is_what_nothing_beats() {
        let probe = |work, hold, cached| Probe {
            work_per_second: work,
            worst_hold_pages: hold,
            cached_bytes: cached,
            waits: None,
        };
        assert!(probe(2.0, 1, 1).beats(&probe(1.0, 1, 1)));
        assert!(!probe(1.0, 1, 1).beats(&probe(1.0, 1, 1)));
        assert!(!probe(2.0, 2, 1).beats(&probe(1.0, 1, 1)));
    }
}
