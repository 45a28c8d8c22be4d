//! Who is to blame: a replay beside a summary of its trace, by call site, task, order or type.
//!
//! What an allocation or a free does in the model is charged to whoever asked for it: the holds of zone locks that it took, and the pages
//! that came from another node than its CPU's. The once-a-second work of CPUs is nobody's.

use std::cell::RefCell;

use nearpage_machine::MachineDescription;
use nearpage_machine::work::Observer;
use nearpage_trace::read_trace_with_frames;
use nearpage_trace::summary::{Charge, Summarizer, Summary};

use crate::alone::LoneTrace;
use crate::cpus::CpuMap;
use crate::error::ReplayError;
use crate::guess::Guess;
use crate::machine::Memory;
use crate::pilot::{PASSES, survey};
use crate::replay::Replay;
use crate::run::Run;
use crate::source::Source;
use crate::start::Start;
use crate::survey::Survey;
use crate::watch::Watch;
use crate::whatif::{Player, Wish, start_of};

impl Replay {
    /// Summarizes the trace, and charges each group with what the model does for it on the recorded machine, from the likely start.
    ///
    /// ```
    /// use nearpage_machine::work::Unwatched;
    /// use nearpage_replay::Replay;
    /// use nearpage_trace::summary::{By, Summarizer};
    ///
    /// let summary = Replay::shipped().blame(Summarizer::new(By::Task), &Unwatched)?;
    /// let most = summary.groups.iter().max_by_key(|group| group.holds).expect("there are tasks");
    /// println!("{} caused {:?} holds of zone locks", most.name, most.holds);
    /// # Ok::<(), nearpage_replay::ReplayError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The trace cannot be read or is not of this machine; [`ReplayError::Stopped`].
    pub fn blame(
        &self,
        summarizer: Summarizer,
        observer: &dyn Observer,
    ) -> Result<Summary, ReplayError> {
        let (bundle, start) = (self.bundle(), self.start());
        let watch = Watch::new(observer, bundle.pass_bytes(), PASSES + 1);
        let survey = survey(bundle, start, &watch)?;
        let of = Charged { source: bundle.source(), survey: &survey, recorded: start };
        of.summary(start, &Wish::default(), summarizer, &watch)
    }
}

impl LoneTrace {
    /// The same on a machine, all of whose memory is free at the start.
    ///
    /// # Errors
    ///
    /// The trace cannot be read, or there can be no such machine; [`ReplayError::Stopped`].
    pub fn blame(
        &self,
        machine: &MachineDescription,
        summarizer: Summarizer,
        observer: &dyn Observer,
    ) -> Result<Summary, ReplayError> {
        let (model, _) = self.model(None);
        let (recorded, cpus) = self.recorded(machine, model);
        let wish = Wish { machine: Some(machine.clone()), cpus, ..Wish::default() };
        let start = start_of(self.name(), &recorded, &wish)?;
        let watch = Watch::new(observer, self.source().pass_bytes(), 2);
        let survey = Survey::of_trace(self.source(), &recorded, 0, &watch)?;
        let of = Charged { source: self.source(), survey: &survey, recorded: &recorded };
        of.summary(&start, &wish, summarizer, &watch)
    }
}

/// A trace that was looked through.
struct Charged<'a> {
    source: &'a Source,
    survey: &'a Survey,
    recorded: &'a Start,
}

impl Charged<'_> {
    fn summary(
        &self,
        start: &Start,
        wish: &Wish,
        summarizer: Summarizer,
        watch: &Watch<'_>,
    ) -> Result<Summary, ReplayError> {
        let Charged { source, survey, recorded } = *self;
        let map = CpuMap::new(wish.cpus, &recorded.topology, &start.topology, &survey.actors);
        let mut memory = Memory::new(source.name(), start, 1)?;
        let Some((core, held)) = memory.cores(source.name(), &[None])?.pop() else {
            unreachable!("one core was asked for")
        };
        let run = Run::new(start, survey, core, held, None, |pageset, zone| {
            Guess::Likely.pages(&survey.clues(pageset, zone))
        });
        let mut player = Player::new(recorded, survey, run, start, &map, wish.machine.is_some());
        let mut window = survey.window();
        let mut time_holds = 0;
        let summarizer = RefCell::new(summarizer);
        let counts = source.with_trace_text(watch, |name, text| {
            let each = |event: &nearpage_trace::TraceEvent<'_>| {
                if window.admits(&event.event) {
                    let [holds_before, _] = player.run.so_far();
                    player.pass_time(event, 0);
                    let before = player.run.so_far();
                    time_holds += before[0] - holds_before;
                    player.note(event, 0);
                    let [holds, far_pages] = player.run.so_far();
                    let mut summarizer = summarizer.borrow_mut();
                    summarizer.note(event);
                    let charge =
                        Charge { holds: holds - before[0], far_pages: far_pages - before[1] };
                    summarizer.charge(event.cpu, charge);
                }
                Ok::<(), ReplayError>(())
            };
            read_trace_with_frames(name, text, each, |line| summarizer.borrow_mut().frame(line))
        })?;
        let mut summary = summarizer.into_inner().finish(&counts);
        summary.time_holds = Some(time_holds);
        Ok(summary)
    }
}
