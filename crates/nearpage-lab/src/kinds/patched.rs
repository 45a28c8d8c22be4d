//! Work under the patches of 2023: messages, and processes after them.

use nearpage::Config;
use nearpage_sim::Costs;

use super::{lifetimes, messages};
use crate::error::LabError;
use crate::kind::{Kind, Probe};
use crate::options::Options;
use crate::report::Report;
use crate::scenario::{PatchedWorkload, Scenario};

impl Kind for PatchedWorkload {
    fn run(
        &self,
        scenario: &Scenario,
        costs: &Costs,
        options: &Options<'_>,
    ) -> Result<Report, LabError> {
        let mut report = messages::run(scenario, &self.messages, costs, options)?;
        if let Some(work) = &self.lifetimes {
            lifetimes::add(scenario, work, options, &mut report)?;
        }
        Ok(report)
    }

    /// Messages alone.
    fn probe(
        &self,
        scenario: &Scenario,
        costs: &Costs,
        config: Config,
        _seed: u64,
    ) -> Result<Probe, LabError> {
        messages::probe(scenario, &self.messages, costs, config)
    }
}
