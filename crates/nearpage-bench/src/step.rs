//! Steps and rounds: a benchmark is a list of steps, and a round does each of them once.

use std::{fmt, io};

use nearpage_linux::MemoryError;
use nearpage_machine::work::{Observer, Stopped};

use crate::counts::Counters;
use crate::rows::{Row, Sample, Samples};

/// One thing that a benchmark measures, on one allocator.
pub struct Step<'a> {
    /// Whose pages.
    pub allocator: &'static str,
    /// Measures it once.
    pub run: Box<dyn Fn() -> Result<Vec<Sample>, StepError> + 'a>,
}

impl fmt::Debug for Step<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Step").field("allocator", &self.allocator).finish_non_exhaustive()
    }
}

/// Why a step could not be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// The allocator had no page to give.
    #[error("there was no page left")]
    Exhausted,
    /// The allocator gave a block of which a page was in use.
    #[error("it gave a block of order 9 of which a page is in use")]
    InUse,
    /// The allocator refused to take its own pages back.
    #[error("{0} frees were refused")]
    Refused(u64),
    /// There is no memory of this size and these rules.
    #[error("{0}")]
    Memory(#[source] Box<MemoryError>),
    /// A thread could not run where it should.
    #[error("a thread could not be run on a CPU of its own: {0}")]
    Threads(#[from] io::Error),
}

impl From<MemoryError> for StepError {
    fn from(error: MemoryError) -> Self {
        Self::Memory(error.into())
    }
}

/// Why rounds ended early.
#[derive(Debug)]
pub enum Ended {
    /// A step could not be done.
    Step {
        /// The allocator that was measured.
        allocator: &'static str,
        /// Why.
        error: StepError,
    },
    /// The observer asked for it.
    Stopped(Stopped),
}

impl From<Stopped> for Ended {
    fn from(stopped: Stopped) -> Self {
        Self::Stopped(stopped)
    }
}

/// Does `rounds` rounds, and one before them that does not count: it brings memory and caches in.
///
/// `counters` reads those of an allocator, by its name: what it counted during a step stands beside times that do not say it
/// themselves. The observer hears of each step before it begins, on this thread: it takes no time from a step.
///
/// # Errors
///
/// [`Ended`].
pub fn run_rounds(
    steps: &[Step<'_>],
    rounds: usize,
    counters: &dyn Fn(&str) -> Option<Counters>,
    observer: &dyn Observer,
) -> Result<Vec<Row>, Ended> {
    let all = ((rounds + 1) * steps.len()) as u64;
    let mut done = 0;
    let mut samples = Samples::default();
    for round in 0..=rounds {
        // Each round starts with another step, so that nobody always comes first.
        for step in steps.iter().cycle().skip(round % steps.len().max(1)).take(steps.len()) {
            observer.step(done, all)?;
            let allocator = step.allocator;
            let before = counters(allocator);
            let measured = (step.run)().map_err(|error| Ended::Step { allocator, error })?;
            let moves = counters(allocator).zip(before).and_then(|(now, then)| now.since(then));
            for sample in measured {
                let sample = Sample { moves: sample.moves.or(moves), ..sample };
                match round {
                    0 => samples.declare(sample.key),
                    _ => samples.add(sample),
                }
            }
            done += 1;
        }
    }
    observer.step(done, all)?;
    Ok(samples.rows())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::ops::ControlFlow;

    use nearpage_machine::work::Unwatched;

    use super::*;
    use crate::rows::{Key, Work};

    fn step<'a>(
        allocator: &'static str,
        log: &'a RefCell<Vec<&'static str>>,
        fails_at: usize,
    ) -> Step<'a> {
        let run = move || {
            log.borrow_mut().push(allocator);
            if log.borrow().len() == fails_at {
                return Err(StepError::Exhausted);
            }
            let key = Key { work: Work::Pair, allocator, threads: 1, n: 1 };
            Ok(vec![Sample { key, ns: log.borrow().len() as f64, samples_ns: vec![], moves: None }])
        };
        Step { allocator, run: Box::new(run) }
    }

    #[test]
    fn steps_take_turns_and_the_first_round_does_not_count() {
        let log = RefCell::default();
        let steps = [step("a", &log, 0), step("b", &log, 0)];
        let rows = run_rounds(&steps, 2, &|_| None, &Unwatched).unwrap();
        assert_eq!(*log.borrow(), ["a", "b", "b", "a", "a", "b"]);
        let medians: Vec<_> =
            rows.iter().map(|row| (row.key.allocator, row.summary.median)).collect();
        assert_eq!(medians, [("a", 4.5), ("b", 4.5)]);
    }

    #[test]
    fn a_step_that_fails_ends_it() {
        let log = RefCell::default();
        let steps = [step("a", &log, 4), step("b", &log, 0)];
        let Err(Ended::Step { allocator, error }) = run_rounds(&steps, 2, &|_| None, &Unwatched)
        else {
            panic!("the second step of a fails");
        };
        assert_eq!((allocator, error.to_string()), ("a", "there was no page left".into()));
        assert!(run_rounds(&[], 2, &|_| None, &Unwatched).unwrap().is_empty());
    }

    #[test]
    fn an_observer_ends_it_between_two_steps() {
        let log = RefCell::default();
        let steps = [step("a", &log, 0), step("b", &log, 0)];
        let until_3 = |done: u64, all: u64| {
            assert_eq!(all, 6);
            if done < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        assert!(matches!(run_rounds(&steps, 2, &|_| None, &until_3), Err(Ended::Stopped(_))));
        assert_eq!(log.borrow().len(), 3);
    }
}
