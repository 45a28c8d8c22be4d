//! The lab: scenarios on simulated machines, and what published tables say beside them.
//!
//! A [`scenario`] is a file: machine, rules of the allocator, workload, what to calibrate, and a reference table if
//! there is one. Each kind of workload has a file here that runs it and makes a [`Report`]: rows with a verdict each,
//! things that must hold, and counts. [`misses`] lists what the model is known not to reach.

pub mod catalog;
pub mod error;
mod hog;
mod homes;
mod huge;
mod lifetimes;
mod locks;
mod messages;
pub mod misses;
pub mod report;
pub mod scenario;
mod slab;
pub mod sweep;

use std::num::NonZeroUsize;

use nearpage_sim::{Costs, Samples, Sim};

use error::LabError;
use report::Report;
use scenario::{Scenario, Workload};

/// How to run.
pub struct Options<'a> {
    /// Seed of everything random.
    pub seed: u64,
    /// Worker threads; results do not depend on them.
    pub threads: NonZeroUsize,
    /// A table of costs instead of the scenario's own.
    pub costs: Option<&'a Costs>,
    /// Whether some runs of each scenario are sampled over their time.
    pub samples: bool,
    /// Told of runs that are done, and how many there will be.
    pub progress: &'a (dyn Fn(usize, usize) + Sync),
}

/// What came out of a run, and its samples if it was sampled.
type Sampled<T> = (T, Option<Samples>);

/// Runs something on a machine, sampled if that is wanted.
fn sampled<T>(sim: &Sim<'_, '_>, is_wanted: bool, run: impl FnOnce() -> T) -> Sampled<T> {
    if is_wanted {
        sim.sample();
    }
    let outcome = run();
    (outcome, sim.take_samples())
}

/// Runs a scenario.
///
/// # Errors
/// [`LabError`] if it cannot be run as it is written.
pub fn run(scenario: &Scenario, options: &Options<'_>) -> Result<Report, LabError> {
    let own;
    let costs = match options.costs {
        Some(costs) => costs,
        None => {
            own = catalog::costs(&scenario.machine.costs)?;
            &own
        }
    };
    let mut report = match &scenario.workload {
        Workload::MemoryHog(hog) => hog::run(scenario, hog, costs, options)?,
        Workload::SlabMessages(work) => slab::run(scenario, work, costs, options)?,
        Workload::HugeThenSingle(pages) => huge::run(scenario, *pages, costs, options)?,
        Workload::PageLocks(work) => locks::run(scenario, work, costs, options)?,
        Workload::Messages(all, lifetimes) => {
            let mut report = messages::run(scenario, all, costs, options)?;
            if let Some(work) = lifetimes {
                lifetimes::add(scenario, work, options, &mut report)?;
            }
            report
        }
    };
    misses::judge(&mut report);
    Ok(report)
}
