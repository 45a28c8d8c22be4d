//! What if: the same allocations and frees under other rules, other tunables or on another machine.

mod changes;
mod homes;
mod machine;
mod player;
#[cfg(test)]
mod tests;
mod wish;

use nearpage::{Model, TopologyBuf};
use nearpage_trace::{TraceEvent, read_trace};

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

/// What is wished, and the start state that is [`start_of`] it.
#[derive(Clone, Copy)]
pub(crate) struct Wished<'a> {
    pub(crate) wish: &'a Wish,
    pub(crate) start: &'a Start,
}

/// So many runs go side by side: each has a machine's memory.
const SIDE_BY_SIDE: usize = 4;

/// Passes over the trace that [`Load::ask_all`] makes for so many wishes.
pub(crate) fn passes_for(wishes: usize) -> u64 {
    wishes.div_ceil(SIDE_BY_SIDE) as u64
}

/// A trace, what is known of it, its own start state, and who watches: what all that is asked about a load has in common.
#[derive(Clone, Copy)]
pub(crate) struct Load<'a> {
    pub(crate) source: &'a Source,
    pub(crate) survey: &'a Survey,
    pub(crate) recorded: &'a Start,
    pub(crate) watch: &'a Watch<'a>,
}

impl Load<'_> {
    /// Replays the trace as wished, with what `guess` says of what the start leaves open.
    ///
    /// # Errors
    ///
    /// The trace cannot be read, or there can be no such machine; [`ReplayError::Stopped`].
    pub(crate) fn ask(
        &self,
        wished: Wished<'_>,
        guess: Guess,
        keeps: Keeps,
    ) -> Result<Answer, ReplayError> {
        Ok(self.ask_all(&[wished], guess, keeps)?.remove(0))
    }

    /// The same, several wishes in a pass over the trace.
    ///
    /// # Errors
    ///
    /// As [`ask`](Self::ask).
    pub(crate) fn ask_all(
        &self,
        wished: &[Wished<'_>],
        guess: Guess,
        keeps: Keeps,
    ) -> Result<Vec<Answer>, ReplayError> {
        let mut answers = Vec::with_capacity(wished.len());
        for wished in wished.chunks(SIDE_BY_SIDE) {
            answers.extend(self.side_by_side(wished, guess, keeps)?);
        }
        Ok(answers)
    }

    fn side_by_side(
        &self,
        wished: &[Wished<'_>],
        guess: Guess,
        keeps: Keeps,
    ) -> Result<Vec<Answer>, ReplayError> {
        let Load { source, survey, recorded, watch } = *self;
        let cpus = wished.iter().map(|Wished { wish, start }| {
            CpuMap::new(wish.cpus, &recorded.topology, &start.topology, &survey.actors)
        });
        let cpus: Vec<CpuMap> = cpus.collect();
        let memories = wished.iter().map(|of| Memory::new(source.name(), of.start, 1));
        let mut memories: Vec<Memory> = memories.collect::<Result<_, _>>()?;
        let mut all = Vec::new();
        for ((memory, &wished), cpus) in memories.iter_mut().zip(wished).zip(&cpus) {
            let Some((core, held)) = memory.cores(source.name(), &[guess.draw()])?.pop() else {
                unreachable!("one core was asked for")
            };
            let start = wished.start;
            let mut run = Run::new(start, survey, core, held, guess.draw(), |pageset, zone| {
                guess.pages(&survey.clues(pageset, zone))
            });
            if keeps.asked {
                run.keep_asked();
            }
            let moments = (keeps.moments > 0).then(|| Moments::new(&run, survey, keeps.moments));
            let is_elsewhere = wished.wish.machine.is_some();
            let player = Player::new(recorded, survey, run, start, cpus, is_elsewhere);
            all.push(Asking { player, moments, wished });
        }
        let mut window = survey.window();
        source.with_trace_text(watch, |name, text| {
            read_trace::<ReplayError>(name, text, |event| {
                if window.admits(&event.event) {
                    all.iter_mut().for_each(|asking| asking.hear(event));
                }
                Ok(())
            })
        })?;
        all.into_iter()
            .zip(&cpus)
            .map(|(asking, cpus)| asking.finish(source, recorded, cpus))
            .collect()
    }
}

/// A run that is asked for.
struct Asking<'a, 'm> {
    player: Player<'a, 'm>,
    moments: Option<Moments>,
    wished: Wished<'a>,
}

impl Asking<'_, '_> {
    fn hear(&mut self, event: &TraceEvent<'_>) {
        let Wished { wish, start } = self.wished;
        if let Some(moments) = &mut self.moments {
            moments.pass_to(&self.player.run, &start.zones, event.time_ns);
        }
        (0..wish.repeat.max(1)).for_each(|copy| self.player.note(event, copy));
    }

    fn finish(
        mut self,
        source: &Source,
        recorded: &Start,
        cpus: &CpuMap,
    ) -> Result<Answer, ReplayError> {
        let Wished { wish, start } = self.wished;
        let mut run = self.player.run;
        run.finish();
        if let Some(moments) = &mut self.moments {
            moments.pass_to(&run, &start.zones, u64::MAX);
        }
        let before = match wish.is_of_machine_alone() {
            true => recorded.clone(),
            false => start_of(source.name(), recorded, &wish.machine_alone())?,
        };
        let is_elsewhere = wish.machine.is_some();
        Ok(Answer {
            moments: self.moments,
            asked: run.take_asked(),
            causes: run.causes().clone(),
            totals: run.totals(),
            counts: run.counts,
            model: start.model,
            changes: Changes::of(recorded, &before, start, wish, cpus),
            machine: is_elsewhere.then(|| (start.topology.clone(), start.page_shift)),
        })
    }
}
