//! Work under the patches of 2023: messages, and processes after them; then what is compared between models.

use nearpage::Config;
use nearpage_sim::Costs;

use super::{contention, lifetimes, messages};
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
        let mut report = match scenario.patches.is_empty() {
            true => Report::new(&scenario.name, &scenario.title),
            false => messages::run(scenario, &self.messages, costs, options)?,
        };
        if let Some(work) = &self.lifetimes {
            lifetimes::add(scenario, work, options, &mut report)?;
        }
        if !self.contention.is_empty() {
            contention::add(scenario, &self.contention, costs, options, &mut report)?;
        }
        Ok(report)
    }

    /// Messages alone, or the first work that models are compared in if there are none.
    fn probe(
        &self,
        scenario: &Scenario,
        costs: &Costs,
        config: Config,
        seed: u64,
    ) -> Result<Probe, LabError> {
        if let ([], Some(work)) = (&*self.messages, self.contention.first()) {
            return contention::probe(scenario, work, costs, config, seed);
        }
        messages::probe(scenario, &self.messages, costs, config)
    }
}
