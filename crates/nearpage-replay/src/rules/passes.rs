//! Two passes over a trace.

use nearpage::Model;
use nearpage_trace::{TraceEvent, read_trace};

use super::kept::Kept;
use crate::bundle::Bundle;
use crate::cpus::CpuMap;
use crate::error::ReplayError;
use crate::guess::Guess;
use crate::machine::Memory;
use crate::run::{Pass, Run};
use crate::start::Start;
use crate::survey::Survey;
use crate::watch::Watch;
use crate::whatif::{Player, Wish, start_of};

/// How a trace is played.
pub(super) struct Play {
    /// Under which rules, on which machine.
    pub(super) wish: Wish,
    /// What pagesets held at the start.
    pub(super) guess: Guess,
    /// What is kept beside the figures.
    pub(super) keeps: Keeps,
}

impl Play {
    /// Under other rules on the recorded machine, from the likely start.
    pub(super) fn of(model: Model) -> Play {
        let wish = Wish { model: Some(model), ..Wish::default() };
        Play { wish, guess: Guess::Likely, keeps: Keeps::Asked }
    }
}

/// What is kept of a pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Keeps {
    /// What the core was asked for, 8 bytes a request: [`Pass::asked`].
    Asked,
    /// Nothing that grows with the trace.
    Figures,
}

/// Plays a trace twice, the second time from the state in which the first pass ended. The events are those of the text, or what
/// was `kept` of it.
///
/// # Errors
///
/// The trace cannot be read, or there can be no such machine; [`ReplayError::Stopped`].
pub(super) fn play_twice(
    bundle: &Bundle,
    survey: &Survey,
    recorded: &Start,
    how: &Play,
    kept: Option<&Kept>,
    watch: &Watch<'_>,
) -> Result<[Pass; 2], ReplayError> {
    let Play { wish, guess, keeps } = how;
    let (is_elsewhere, repeat) = (wish.machine.is_some(), wish.repeat.max(1));
    let start = start_of(bundle.name(), recorded, wish)?;
    let map = CpuMap::new(wish.cpus, &recorded.topology, &start.topology, &survey.actors);
    let mut memory = Memory::new(bundle.name(), &start, 1)?;
    let Some((core, held)) = memory.cores(bundle.name(), &[guess.draw()])?.pop() else {
        unreachable!("one core was asked for")
    };
    let mut run = Run::new(&start, survey, core, held, guess.draw(), |pageset, zone| {
        guess.pages(&survey.clues(pageset, zone))
    });
    match keeps {
        Keeps::Asked => run.keep_asked(),
        Keeps::Figures => run.keep_whole(),
    }
    let mut player = Player::new(recorded, survey, run, &start, &map, is_elsewhere);
    let mut play = || {
        let mut note = |event: &TraceEvent<'_>| {
            (0..repeat).for_each(|copy| player.note(event, copy));
        };
        match kept {
            Some(kept) => kept.each(bundle.name(), watch, &mut note)?,
            None => each_in_text(bundle, survey, watch, &mut note)?,
        }
        let end_ns = survey.end_ns.saturating_add(player.shift_ns);
        player.shift_ns = end_ns.saturating_sub(survey.begin_ns);
        Ok::<Pass, ReplayError>(player.run.end_pass(end_ns))
    };
    Ok([play()?, play()?])
}

fn each_in_text(
    bundle: &Bundle,
    survey: &Survey,
    watch: &Watch<'_>,
    f: &mut dyn FnMut(&TraceEvent<'_>),
) -> Result<(), ReplayError> {
    let mut window = survey.window();
    bundle.with_trace_text(watch, |name, text| {
        read_trace::<ReplayError>(name, text, |event| {
            if window.admits(&event.event) {
                f(event);
            }
            Ok(())
        })
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use nearpage_machine::work::Unwatched;

    use super::*;
    use crate::replay::Replay;

    fn passes(model: Model) -> [Pass; 2] {
        let replay = Replay::shipped();
        let watch = Watch::new(&Unwatched, replay.bundle().pass_bytes(), 3);
        let survey = Survey::of(replay.bundle(), replay.start(), &watch).unwrap();
        play_twice(replay.bundle(), &survey, replay.start(), &Play::of(model), None, &watch)
            .unwrap()
    }

    #[test]
    fn both_passes_ask_for_the_same_and_none_frees_what_nobody_has() {
        let [first, second] = passes(Model::LINUX_6_18);
        assert_eq!(first.counts.skipped_frees, 0);
        assert_eq!(first.counts.allocs, second.counts.allocs);
        assert_eq!(first.counts.bulk_pages, second.counts.bulk_pages);
        let unknown = [&first, &second].map(|pass| pass.counts.unknown_frees);
        assert!(unknown[0] > 0 && unknown[1] == 0, "{unknown:?}");
        assert!(second.counts.skipped_frees > 0);
        // What was live at the end of the first pass came back in the second.
        let came_back = second.counts.realloc_of_live - first.counts.realloc_of_live;
        assert!(came_back > 0);
        assert!(second.counts.frees + second.counts.skipped_frees == first.counts.frees);
        assert_eq!((first.counts.lost_frees, second.counts.lost_frees), (0, 0));
    }

    #[test]
    fn a_pass_adds_up() {
        for model in [Model::NEARPAGE, Model::RFC_2026_OWNED, Model::LINUX_6_1] {
            for pass in passes(model) {
                let tallied = &pass.tallied;
                assert!(tallied.causes.sum() > 0, "{}", model.name);
                assert!(tallied.foreign_takes <= tallied.causes.foreign, "{}", model.name);
                assert!(tallied.most_operations <= tallied.operations, "{}", model.name);
                assert!(tallied.kept.mean <= tallied.kept.most as f64, "{}", model.name);
            }
        }
    }
}
