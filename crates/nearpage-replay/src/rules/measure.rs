//! A bundle that is measured many times: what a first pass over its trace tells is found once.

use std::sync::{Arc, Mutex, PoisonError};

use nearpage_machine::work::Observer;
use serde::Serialize;

use super::kept::Kept;
use super::passes::{Keeps, Play, play_twice};
use crate::drawn::Draw;
use crate::error::ReplayError;
use crate::guess::Guess;
use crate::pilot;
use crate::replay::Replay;
use crate::run::{Causes, Pass};
use crate::survey::Survey;
use crate::watch::Watch;
use crate::whatif::{Wish, start_of};

/// What rules came to in a pass: the figures of a [`RuleRow`](super::RuleRow) that need nothing kept of the pass. Memory does not
/// grow with the trace.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct Figures {
    /// Holds of zone locks and takes of another CPU's pagesets.
    pub holds: u64,
    /// The same, by cause.
    pub holds_by_cause: Causes,
    /// Those of them that are takes of another CPU's pagesets.
    pub foreign_takes: u64,
    /// Blocks linked and unlinked under them, and words written there for blocks.
    pub operations: u64,
    /// The most of one hold.
    pub longest_hold_operations: u64,
    /// Pages in the pagesets of all CPUs, the mean over time.
    pub kept_pages_mean: f64,
    /// The most after any request.
    pub kept_pages_max: u64,
    /// Aligned ranges of 512 pages of which nobody has any, the mean over time.
    pub whole_mean: f64,
    /// How many they were at the end.
    pub whole_end: u64,
    /// Requests for blocks of order 9 that were served.
    pub order_9_served: u64,
    /// Pages from another node than the CPU's.
    pub remote_pages: u64,
    /// Requests that were refused; of those in bulk, the pages.
    pub failed: u64,
    /// Requests without a right to reserves that were served from below `min`.
    pub served_below_min: u64,
    /// Pages from another zone than the preferred one, since that was below its watermark.
    pub watermark_fallbacks: u64,
    /// Frees that were skipped since nobody had the block.
    pub skipped_frees: u64,
    /// Blocks allocated and freed, and pages allocated in bulk.
    pub requests: u64,
    /// CPUs with pagesets.
    pub cpus: u64,
}

impl Figures {
    /// What a pass tallied, as figures.
    pub(super) fn of(pass: &Pass) -> Figures {
        let Pass { tallied, counts, remote_pages, watermark_fallbacks, .. } = pass;
        Figures {
            holds: tallied.causes.sum(),
            holds_by_cause: tallied.causes.clone(),
            foreign_takes: tallied.foreign_takes,
            operations: tallied.operations,
            longest_hold_operations: tallied.most_operations,
            kept_pages_mean: tallied.kept.mean,
            kept_pages_max: tallied.kept.most,
            whole_mean: tallied.whole_mean,
            whole_end: tallied.whole_end,
            order_9_served: counts.order_9_served,
            remote_pages: *remote_pages,
            failed: counts.refused_allocs,
            served_below_min: counts.served_below_min,
            watermark_fallbacks: *watermark_fallbacks,
            skipped_frees: counts.skipped_frees,
            requests: counts.allocs + counts.frees + counts.bulk_pages,
            cpus: tallied.cpus,
        }
    }
}

/// A bundle that is measured many times.
///
/// ```
/// use nearpage::Model;
/// use nearpage_machine::work::Unwatched;
/// use nearpage_replay::rules::Prepared;
/// use nearpage_replay::{Replay, Wish};
///
/// let prepared = Prepared::new(Replay::shipped(), &Unwatched)?;
/// let mut wish = Wish { model: Some(Model::LINUX_6_18), ..Wish::default() };
/// let [_, plain] = prepared.measure(&wish, 0, &Unwatched)?;
/// wish.tunables.push("pcp.batch_scale_max=0".parse().expect("a setting of Linux"));
/// let [_, unscaled] = prepared.measure(&wish, 0, &Unwatched)?;
/// assert!(plain.holds < unscaled.holds);
/// # Ok::<(), nearpage_replay::ReplayError>(())
/// ```
#[derive(Debug)]
pub struct Prepared {
    replay: Replay,
    survey: Survey,
    /// The events, unless there is no room for them.
    kept: Option<Kept>,
    /// The same with what a pilot run found. Drawn starts alone need that.
    piloted: Mutex<Option<Arc<Survey>>>,
}

impl Prepared {
    /// Looks through the trace of a bundle, and keeps its events in an unnamed temporary file, some 7 bytes each; without room
    /// for that, its text is read each time. The observer is told bytes of the packed trace.
    ///
    /// # Errors
    ///
    /// The trace cannot be read; [`ReplayError::Stopped`].
    pub fn new(replay: Replay, observer: &dyn Observer) -> Result<Prepared, ReplayError> {
        let watch = Watch::new(observer, replay.bundle().pass_bytes(), 2);
        let survey = Survey::of(replay.bundle(), replay.start(), &watch)?;
        let kept = match Kept::of(replay.bundle(), &survey, &watch) {
            Err(ReplayError::Stopped(stopped)) => return Err(stopped.into()),
            kept => kept.ok(),
        };
        Ok(Prepared { replay, survey, kept, piloted: Mutex::new(None) })
    }

    /// The bundle in its start state.
    pub fn replay(&self) -> &Replay {
        &self.replay
    }

    /// Plays the trace twice as wished, as [`compare_rules`](super::compare_rules) does: the figures of each pass. Seed 0 is
    /// the likely start; another one is drawn among those that the trace leaves open. The observer is told bytes of the packed
    /// trace, of all passes.
    ///
    /// # Errors
    ///
    /// The trace cannot be read, or there can be no such machine; [`ReplayError::Stopped`].
    pub fn measure(
        &self,
        wish: &Wish,
        seed: u64,
        observer: &dyn Observer,
    ) -> Result<[Figures; 2], ReplayError> {
        let (bundle, start) = (self.replay.bundle(), self.replay.start());
        // What cannot be is said before the work.
        start_of(bundle.name(), start, wish)?;
        let kept = self.kept.as_ref();
        let pass_bytes = kept.map_or(bundle.pass_bytes(), Kept::bytes);
        let watch = Watch::new(observer, pass_bytes, 2);
        let (wish, keeps) = (wish.clone(), Keeps::Figures);
        let passes = match seed {
            0 => {
                let how = Play { wish, guess: Guess::Likely, keeps };
                play_twice(bundle, &self.survey, start, &how, kept, &watch)?
            }
            _ => {
                let survey = self.piloted(observer)?;
                let how = Play { wish, guess: Guess::Drawn(Draw::new(seed)), keeps };
                play_twice(bundle, &survey, start, &how, kept, &watch)?
            }
        };
        Ok(passes.each_ref().map(Figures::of))
    }

    fn piloted(&self, observer: &dyn Observer) -> Result<Arc<Survey>, ReplayError> {
        let mut piloted = self.piloted.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(survey) = &*piloted {
            return Ok(survey.clone());
        }
        let bundle = self.replay.bundle();
        let watch = Watch::new(observer, bundle.pass_bytes(), pilot::PASSES);
        let survey = pilot::survey(bundle, self.replay.start(), &watch)?;
        Ok(piloted.insert(Arc::new(survey)).clone())
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use nearpage::Model;
    use nearpage_machine::work::Unwatched;

    use super::*;
    use crate::rules::compare_rules;

    fn wish(model: Model) -> Wish {
        Wish { model: Some(model), ..Wish::default() }
    }

    #[test]
    fn figures_are_those_of_the_comparison() {
        let compared =
            compare_rules(&[Replay::shipped()], &[Model::NEARPAGE], NonZeroUsize::MIN, &Unwatched);
        let compared = compared.unwrap();
        let prepared = Prepared::new(Replay::shipped(), &Unwatched).unwrap();
        for (at, model) in [Model::LINUX_6_18, Model::NEARPAGE].into_iter().enumerate() {
            let passes = prepared.measure(&wish(model), 0, &Unwatched).unwrap();
            for (figures, row) in passes.iter().zip([&compared.first_pass[at], &compared.rows[at]])
            {
                let own = serde_json::to_value(figures).unwrap();
                let of_row = serde_json::to_value(row).unwrap();
                for (name, value) in own.as_object().unwrap() {
                    if name != "requests" {
                        assert_eq!(of_row.get(name), Some(value), "{}: {name}", model.name);
                    }
                }
            }
        }
    }

    #[test]
    fn a_seed_is_a_start_and_says_the_same_each_time() {
        let prepared = Prepared::new(Replay::shipped(), &Unwatched).unwrap();
        let of = |seed| prepared.measure(&wish(Model::LINUX_6_12), seed, &Unwatched).unwrap();
        let (likely, one, two) = (of(0), of(1), of(2));
        assert!(likely[0] != one[0] && one[0] != two[0]);
        assert_eq!(one, of(1));
        assert_eq!(likely[0].requests, one[0].requests);
    }

    #[test]
    fn another_machine_has_its_own_figures() {
        let prepared = Prepared::new(Replay::shipped(), &Unwatched).unwrap();
        let machine = prepared.replay().scaled_machine(16, 2).unwrap();
        let there = Wish { machine: Some(machine), repeat: 2, ..wish(Model::NEARPAGE) };
        let [_, figures] = prepared.measure(&there, 0, &Unwatched).unwrap();
        let [_, plain] = prepared.measure(&wish(Model::NEARPAGE), 0, &Unwatched).unwrap();
        assert_eq!((figures.cpus, plain.cpus), (16, 4));
        assert!(figures.requests > plain.requests * 3 / 2, "{figures:?}");
    }
}
