//! Steps and rounds: a benchmark is a list of steps, and a round does each of them once.

use std::io;

use indicatif::{ProgressBar, ProgressStyle};

use super::rows::{Row, Sample, Samples};

/// One thing that a benchmark measures, on one allocator.
pub struct Step<'a> {
    /// Whose pages.
    pub allocator: &'static str,
    /// Measures it once.
    pub run: Box<dyn Fn() -> Result<Vec<Sample>, StepError> + 'a>,
}

/// Why a step could not be done.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The allocator had no page to give.
    #[error("there was no page left")]
    Exhausted,
    /// A thread could not run where it should.
    #[error("a thread could not be run on a CPU of its own: {0}")]
    Threads(#[from] io::Error),
}

/// Does `rounds` rounds, and one before them that does not count: it brings memory and caches in.
///
/// # Errors
///
/// The allocator whose step failed, and why.
pub fn run_rounds(
    name: &'static str,
    steps: &[Step<'_>],
    rounds: usize,
) -> Result<Vec<Row>, (&'static str, StepError)> {
    let progress = progress_bar(name, (rounds + 1) * steps.len());
    let mut samples = Samples::default();
    for round in 0..=rounds {
        // Each round starts with another step, so that nobody always comes first.
        for step in steps.iter().cycle().skip(round % steps.len().max(1)).take(steps.len()) {
            let measured = (step.run)().map_err(|error| (step.allocator, error))?;
            for sample in measured {
                match round {
                    0 => samples.declare(sample.key),
                    _ => samples.add(sample),
                }
            }
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    Ok(samples.rows())
}

/// On standard error, and only on a terminal. It has no thread of its own that would take time away.
fn progress_bar(name: &'static str, steps: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix:>8} {bar:40} {percent:>3} %  {eta} left");
    ProgressBar::new(steps as u64)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        .with_prefix(name)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::super::rows::{Key, Work};
    use super::*;

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
            Ok(vec![Sample { key, ns: log.borrow().len() as f64, samples_ns: vec![] }])
        };
        Step { allocator, run: Box::new(run) }
    }

    #[test]
    fn steps_take_turns_and_the_first_round_does_not_count() {
        let log = RefCell::default();
        let steps = [step("a", &log, 0), step("b", &log, 0)];
        let rows = run_rounds("pairs", &steps, 2).unwrap();
        assert_eq!(*log.borrow(), ["a", "b", "b", "a", "a", "b"]);
        let medians: Vec<_> =
            rows.iter().map(|row| (row.key.allocator, row.summary.median)).collect();
        assert_eq!(medians, [("a", 4.5), ("b", 4.5)]);
    }

    #[test]
    fn a_step_that_fails_ends_it() {
        let log = RefCell::default();
        let steps = [step("a", &log, 4), step("b", &log, 0)];
        let (allocator, error) = run_rounds("pairs", &steps, 2).unwrap_err();
        assert_eq!((allocator, error.to_string()), ("a", "there was no page left".into()));
        assert!(run_rounds("pairs", &[], 2).unwrap().is_empty());
    }
}
