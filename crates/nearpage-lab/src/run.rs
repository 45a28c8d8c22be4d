//! One scenario.

use crate::error::LabError;
use crate::options::Options;
use crate::report::Report;
use crate::scenario::Scenario;
use crate::{catalog, kinds, misses};

/// Runs a scenario.
///
/// # Errors
///
/// [`LabError`] if the scenario cannot be run as it is written, or the observer stopped it.
pub fn run(scenario: &Scenario, options: &Options<'_>) -> Result<Report, LabError> {
    let own;
    let costs = match options.costs {
        Some(costs) => costs,
        None => {
            own = catalog::costs_of_scenario(&scenario.machine.costs)?;
            &own
        }
    };
    let (costs, notes) = &catalog::completed(costs, &scenario.workload);
    let mut report = kinds::of(&scenario.workload).run(scenario, costs, options)?;
    report.notes.extend(notes.iter().cloned());
    misses::judge(&mut report);
    Ok(report)
}
