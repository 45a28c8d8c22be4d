//! How scenarios are run.

use std::fmt;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;

use nearpage_machine::work::{Observer, Unwatched};
use nearpage_sim::{Costs, Samples, Sim, pool};

use crate::error::LabError;

/// How to run a scenario.
///
/// ```
/// use nearpage_lab::Options;
///
/// let options = Options { seed: 7, ..Options::default() };
/// assert!(options.costs.is_none());
/// ```
#[derive(Clone, Copy)]
pub struct Options<'a> {
    /// Seed of everything random. The same seed gives the same bytes.
    pub seed: u64,
    /// Worker threads for independent runs. Results do not depend on them.
    pub threads: NonZeroUsize,
    /// A table of costs instead of the scenario's own.
    pub costs: Option<&'a Costs>,
    /// Whether some runs of each scenario are sampled over their time.
    pub samples: bool,
    /// Hears of runs that are done. If it asks the work to stop, no further run begins.
    pub observer: &'a dyn Observer,
}

impl Default for Options<'_> {
    /// Seed 1, a thread for each CPU that this process may use, and nobody who watches.
    fn default() -> Self {
        let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        Self { seed: 1, threads, costs: None, samples: false, observer: &Unwatched }
    }
}

impl fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, threads, costs, samples, observer: _ } = self;
        f.debug_struct("Options")
            .field("seed", seed)
            .field("threads", threads)
            .field("costs", &costs.map(|costs| &costs.name))
            .field("samples", samples)
            .finish_non_exhaustive()
    }
}

impl Options<'_> {
    /// Does independent runs on all threads; their results have the order of the jobs.
    pub(crate) fn each<J: Sync, R: Send>(
        &self,
        jobs: &[J],
        run: impl Fn(&J) -> Result<R, LabError> + Sync,
    ) -> Result<Vec<R>, LabError> {
        pool::run(self.threads, jobs, run, self.observer)?.into_iter().collect()
    }

    /// The same for runs that come before those which are counted, as those that calibrate.
    pub(crate) fn each_before<J: Sync, R: Send>(
        &self,
        jobs: &[J],
        run: impl Fn(&J) -> Result<R, LabError> + Sync,
    ) -> Result<Vec<R>, LabError> {
        pool::run(self.threads, jobs, run, &Uncounted(self.observer))?.into_iter().collect()
    }
}

/// Only asks whether to stop.
struct Uncounted<'a>(&'a dyn Observer);

impl Observer for Uncounted<'_> {
    fn progress(&self, _done: u64, _all: u64) -> ControlFlow<()> {
        self.0.progress(0, 0)
    }
}

/// What came out of a run, and its samples if it was sampled.
pub(crate) type Sampled<T> = (T, Option<Samples>);

/// Runs something on a machine, sampled if that is wanted.
pub(crate) fn sampled<T>(
    sim: &Sim<'_, '_>,
    is_wanted: bool,
    run: impl FnOnce() -> T,
) -> Sampled<T> {
    if is_wanted {
        sim.sample();
    }
    let outcome = run();
    (outcome, sim.take_samples())
}
