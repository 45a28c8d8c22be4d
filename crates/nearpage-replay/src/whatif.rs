//! What if: the same allocations and frees under other rules, other tunables or on another machine.

mod changes;
mod homes;
mod machine;
mod player;
#[cfg(test)]
mod tests;
mod wish;

use nearpage::{Model, TopologyBuf};
use nearpage_trace::read_trace;

use crate::bound::Asked;
use crate::cpus::CpuMap;
use crate::error::ReplayError;
use crate::guess::Guess;
use crate::machine::Memory;
use crate::run::{Causes, Run, RunCounts};
use crate::source::Source;
use crate::start::Start;
use crate::survey::Survey;
use crate::timeline::Moments;
use crate::totals::Totals;
use crate::watch::Watch;
pub use changes::{Change, Changes, OrderChange, OtherMachine, SettingChange, SizeChange};
pub(crate) use machine::start_of;
pub(crate) use player::Player;
pub use wish::Wish;

/// What it would have come to.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// The totals.
    pub(crate) totals: Totals,
    /// Holds of zone locks, by what caused them.
    pub(crate) causes: Causes,
    /// What the core was asked for, if it was to be kept.
    pub(crate) asked: Option<Asked>,
    /// How the run stood over its time, if that was to be kept.
    pub(crate) moments: Option<Moments>,
    /// What did not go as recorded.
    pub(crate) counts: RunCounts,
    /// The rules.
    pub(crate) model: Model,
    /// What was changed for it.
    pub(crate) changes: Changes,
    /// The other machine, if it is another, and log2 of the bytes of its pages.
    pub(crate) machine: Option<(TopologyBuf, u32)>,
}

/// What is kept of a run beside its totals.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Keeps {
    /// What the core is asked for.
    pub(crate) asked: bool,
    /// How it stands at so many moments; none if 0.
    pub(crate) moments: usize,
}

impl Keeps {
    pub(crate) const ASKED: Keeps = Keeps { asked: true, moments: 0 };
}

/// Replays a trace as wished, from `start`, which is [`start_of`] the wish, with what `guess` says of the rest. `recorded` is its own start state.
///
/// # Errors
///
/// The trace cannot be read, or there can be no such machine; [`ReplayError::Stopped`].
#[expect(clippy::too_many_arguments, reason = "each is another thing, and all callers have them")]
pub(crate) fn ask(
    source: &Source,
    survey: &Survey,
    recorded: &Start,
    start: &Start,
    wish: &Wish,
    guess: Guess,
    keeps: Keeps,
    watch: &Watch<'_>,
) -> Result<Answer, ReplayError> {
    let repeat = wish.repeat.max(1);
    let is_elsewhere = wish.machine.is_some();
    let map = CpuMap::new(wish.cpus, &recorded.topology, &start.topology);
    let before = match wish.is_of_machine_alone() {
        true => recorded.clone(),
        false => start_of(source.name(), recorded, &wish.machine_alone())?,
    };
    let mut memory = Memory::new(source.name(), start, 1)?;
    let Some((core, held)) = memory.cores(source.name(), &[guess.draw()])?.pop() else {
        unreachable!("one core was asked for")
    };
    let mut run = Run::new(start, survey, core, held, guess.draw(), |pageset, zone| {
        guess.pages(&survey.clues(pageset, zone))
    });
    if keeps.asked {
        run.keep_asked();
    }
    let mut moments = (keeps.moments > 0).then(|| Moments::new(&run, survey, keeps.moments));
    let mut player = Player::new(recorded, survey, run, start, &map, is_elsewhere);
    let mut window = survey.window();
    source.with_trace_text(watch, |name, text| {
        read_trace::<ReplayError>(name, text, |event| {
            if window.admits(&event.event) {
                if let Some(moments) = &mut moments {
                    moments.pass_to(&player.run, &start.zones, event.time_ns);
                }
                (0..repeat).for_each(|copy| player.note(event, copy));
            }
            Ok(())
        })
    })?;
    let mut run = player.run;
    run.finish();
    if let Some(moments) = &mut moments {
        moments.pass_to(&run, &start.zones, u64::MAX);
    }
    Ok(Answer {
        moments,
        asked: run.take_asked(),
        causes: run.causes().clone(),
        totals: run.totals(),
        counts: run.counts,
        model: start.model,
        changes: Changes::of(recorded, &before, start, wish, &map),
        machine: is_elsewhere.then(|| (start.topology.clone(), start.page_shift)),
    })
}
