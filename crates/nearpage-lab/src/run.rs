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
            own = catalog::costs(&scenario.machine.costs)?;
            &own
        }
    };
    let mut report = kinds::of(&scenario.workload).run(scenario, costs, options)?;
    misses::judge(&mut report);
    Ok(report)
}
