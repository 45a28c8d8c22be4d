//! The entry: a bundle in its start state, replayed as asked.

use std::num::NonZeroUsize;
use std::path::Path;

use nearpage::Model;
use nearpage_bundle::predict::ModelChoice;
use nearpage_machine::work::Observer;
use nearpage_machine::{Budget, InputError, MachineDescription};
use nearpage_slab::SlabRules;

use crate::bundle::Bundle;
use crate::cpus::CpuRule;
use crate::error::ReplayError;
use crate::explain::Subject;
use crate::fidelity;
use crate::guess::Guess;
use crate::objects::{self, replay_objects};
use crate::pilot::{PASSES, survey};
use crate::report::{
    Machine, OPEN_LOOP, Report, RuleTotals, StateReport, TraceFacts, WhatIf, placement_disagrees,
};
use crate::series::Series;
use crate::session::{ZoneChoice, passes, replay};
use crate::start::{Start, known_state};
use crate::study::{Study, StudyAnswer, study};
use crate::sweep::{Combinations, Ground, Point, Sweep, sweep};
use crate::truth::Truth;
use crate::watch::Watch;
use crate::whatif::{Keeps, Load, Wish, Wished, passes_for, start_of};
use crate::yardstick::{Question, Yardstick, measure};

/// What is asked of a replay beside the comparison with the kernel.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where the zone of an allocation comes from.
    pub zones: ZoneChoice,
    /// How many starts more than three are drawn among those that the trace leaves open. They widen
    /// [`Row::drawn_range`](crate::Row::drawn_range), and raise its level.
    pub starts: u32,
    /// What is to be explained.
    pub explain: Option<Subject>,
    /// What is to be different in a second run; nothing by default.
    pub wish: Wish,
    /// Sets of rules, under each of which the trace is replayed as wished but for [`Wish::model`].
    pub rules: Vec<Model>,
    /// Sets of rules of objects, under each of which the slab events of the trace are replayed.
    pub slab_rules: Vec<SlabRules>,
}

/// A bundle whose machine was put into the state of `before`.
#[derive(Debug)]
pub struct Replay {
    bundle: Bundle,
    start: Start,
    /// Why it does not begin with the kernel's own state, if so.
    lacks_state: Option<String>,
    is_nearest_model: bool,
}

impl Replay {
    /// Opens a bundle: a folder with `meta.json`, or a tar of one.
    ///
    /// # Errors
    ///
    /// It is no bundle, or its captures are damaged.
    pub fn open(path: &Path, budget: &Budget) -> Result<Replay, ReplayError> {
        Replay::of(Bundle::open(path, budget)?)
    }

    /// The small bundle that comes with this crate: Linux 6.12 with two nodes and two CPUs under a mixed load.
    ///
    /// # Panics
    ///
    /// Never: it is whole.
    pub fn shipped() -> Replay {
        Replay::of(Bundle::shipped()).expect("the bundle that comes along is whole")
    }

    /// Reads the start state of a bundle, under the rules of its kernel or of the nearest one that is modelled.
    ///
    /// # Errors
    ///
    /// Its captures are damaged.
    pub fn of(bundle: Bundle) -> Result<Replay, ReplayError> {
        let recording = bundle.recording();
        let chosen = ModelChoice::Auto.for_kernel(&recording.kernel);
        let capture = recording.capture(Some("before"))?;
        let page_bytes = recording.page_bytes.filter(|bytes| bytes.is_power_of_two());
        let start = Start::read(bundle.name(), capture, page_bytes.unwrap_or(4096), chosen.model)?;
        let (start, lacks_state) = match known_state(&bundle, &start)? {
            Ok(state) => (start.with_state(bundle.name(), state)?, None),
            Err(why) => (start, Some(why)),
        };
        Ok(Replay { bundle, start, lacks_state, is_nearest_model: chosen.is_of_other_kernel })
    }

    /// The bundle.
    pub fn bundle(&self) -> &Bundle {
        &self.bundle
    }

    /// The start state.
    pub(crate) fn start(&self) -> &Start {
        &self.start
    }

    /// The recorded machine with `cpus` CPUs, dealt out over the nodes that have any, and `times` as much memory: a
    /// machine for [`Wish::machine`].
    ///
    /// # Errors
    ///
    /// There can be no such machine.
    pub fn scaled_machine(&self, cpus: u32, times: u32) -> Result<MachineDescription, InputError> {
        self.start.scaled(cpus, times)
    }

    /// Replays the trace, compares it with what the kernel logged, and answers what `options` ask.
    ///
    /// The observer is told bytes of the packed trace, of all passes over it.
    ///
    /// # Errors
    ///
    /// The trace cannot be read or is not of this machine, or there can be no such machine as is wished;
    /// [`ReplayError::Stopped`] if the observer asks for it.
    pub fn run(&self, options: &Options, observer: &dyn Observer) -> Result<Report, ReplayError> {
        let Replay { bundle, start, .. } = self;
        let wish = &options.wish;
        let unchanged =
            (wish.machine.is_some() && !wish.is_of_machine_alone()).then(|| wish.machine_alone());
        let asked = (!wish.is_empty()).then(|| wish.clone());
        let asked: Vec<Wish> = asked.into_iter().chain(unchanged).collect();
        let of_rules = |&model| Wish { model: Some(model), ..wish.clone() };
        let of_rules: Vec<Wish> = options.rules.iter().map(of_rules).collect();
        // What cannot be is said before the work.
        let starts = |wishes: &[Wish]| -> Result<Vec<Start>, ReplayError> {
            wishes.iter().map(|wish| start_of(bundle.name(), start, wish)).collect()
        };
        let (others, others_of_rules) = (starts(&asked)?, starts(&of_rules)?);
        let asked_passes = passes_for(asked.len()) + passes_for(of_rules.len());
        let passes = PASSES + 1 + passes(options.starts) + asked_passes;
        let watch = Watch::new(observer, bundle.pass_bytes(), passes);
        let survey = survey(bundle, start, &watch)?;
        let elsewhere = others.first().filter(|_| wish.machine.is_some());
        let slab_rules = &options.slab_rules;
        if !slab_rules.is_empty() && !survey.has_objects {
            return Err(ReplayError::NoObjects { input: bundle.name().into() });
        }
        watch.expect_more(objects::passes(&survey, elsewhere.is_some(), slab_rules.len()));
        let truth = Truth::read(bundle, start, bundle.samples(&watch)?, survey.is_whole)?;
        // The bundle's own trace is of its own recording, whatever it lacks.
        if let Some(input) = bundle.other_trace() {
            survey.check_recording(input, truth.samples.len() as u64, truth.allocs())?;
        }
        let replayed =
            replay(bundle, start, &survey, options.zones, options.starts, options.explain, &watch)?;
        let unlogged = fidelity::unlogged_allocs(start, &replayed, &truth);
        let fidelity = fidelity::compare(start, &replayed, &truth, &unlogged, options.zones);
        let (source, recorded) = (bundle.source(), start);
        let load = Load { source, survey: &survey, recorded, watch: &watch };
        let ask = |wishes: &[Wish], starts: &[Start]| {
            let wished = wishes.iter().zip(starts).map(|(wish, start)| Wished { wish, start });
            load.ask_all(&wished.collect::<Vec<_>>(), Guess::Likely, Keeps::default())
        };
        let mut answers = ask(&asked, &others)?.into_iter();
        let what_if = answers
            .next()
            .map(|answer| WhatIf::of(start, &replayed, &fidelity, answers.next(), answer));
        let rules = ask(&of_rules, &others_of_rules)?.into_iter().map(RuleTotals::of).collect();
        let elsewhere = elsewhere.map(|other| (other, wish.cpus));
        let objects = replay_objects(bundle, &survey, start, elsewhere, slab_rules, &watch)?;
        let lost_events = bundle.recording().lost_events;
        Ok(Report {
            schema: 1,
            bundle: bundle.name().into(),
            kernel: bundle.recording().kernel.clone(),
            model: start.model.name,
            placement_disagrees: placement_disagrees(&fidelity),
            fidelity,
            trace: TraceFacts::of(start, &survey, &replayed, &unlogged, lost_events),
            what_if,
            objects,
            open_loop: OPEN_LOOP,
            is_nearest_model: self.is_nearest_model,
            explained: options.explain.map(|subject| subject.name(start)),
            trace_is_unproven: bundle.other_trace().is_some() && survey.is_part(),
            lacks_after: survey.is_whole && truth.lacks_after(),
            lacks_flows: !replayed.recorded.has_flow_events,
            changed_zones: truth.changed_zones(),
            rules,
            series: Series::of(start, &replayed.outcomes[0].snapshots, &truth.samples),
            machine: Machine::of(start),
            state: StateReport::of(start, &survey, &replayed),
            lacks_state: self.lacks_state.clone(),
            explain: options.explain.map(|_| replayed.explained),
        })
    }

    /// Answers a what-if as a whole: what changes, how much it moves holds, the longest hold and what is kept, from a likely start and
    /// from drawn ones, and what the model leaves out.
    ///
    /// ```
    /// use nearpage_machine::work::Unwatched;
    /// use nearpage_replay::{Replay, Study, Wish};
    ///
    /// let tunables = vec!["pcp.batch_scale_max=0".parse()?];
    /// let study = Study { wish: Wish { tunables, ..Wish::default() }, starts: 2, ..Study::default() };
    /// let answer = Replay::shipped().study(&study, &Unwatched)?;
    /// let holds = answer.then[0].ratios.holds;
    /// println!("{:?} times as many holds, from drawn starts {:?}", holds.ratio, holds.range);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The trace cannot be read or is not of this machine, or there can be no such machine; [`ReplayError::Stopped`].
    pub fn study(
        &self,
        asked: &Study,
        observer: &dyn Observer,
    ) -> Result<StudyAnswer, ReplayError> {
        study(&self.bundle, &self.start, self.is_nearest_model, asked, observer)
    }

    /// Replays the trace under some sets of rules, and says how far each is from the fewest holds that would do: see
    /// [`bound`](crate::bound).
    ///
    /// The observer is told bytes of the packed trace, of all passes over it. What the rules are asked for is kept in memory, 8
    /// bytes a request.
    ///
    /// ```
    /// use nearpage_machine::work::Unwatched;
    /// use nearpage_replay::{Question, Replay};
    ///
    /// let answer = Replay::shipped().bound(&Question::default(), &Unwatched)?;
    /// let linux = &answer.models[0];
    /// println!("{}: {} holds, {} would do", linux.model, linux.holds, linux.bound);
    /// # Ok::<(), nearpage_replay::ReplayError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The trace cannot be read or is not of this machine, or the machine cannot have such a point; [`ReplayError::Stopped`].
    pub fn bound(
        &self,
        question: &Question,
        observer: &dyn Observer,
    ) -> Result<Yardstick, ReplayError> {
        measure(&self.bundle, &self.start, self.is_nearest_model, question, observer)
    }

    /// Replays the trace under every combination of some tunables, on `threads` threads.
    ///
    /// The observer is told bytes of the packed trace, of all passes over it.
    ///
    /// # Errors
    ///
    /// The trace cannot be read, or Linux would refuse a combination; [`ReplayError::Stopped`].
    pub fn sweep(
        &self,
        combinations: &Combinations,
        threads: NonZeroUsize,
        observer: &dyn Observer,
    ) -> Result<Sweep, ReplayError> {
        self.sweep_each(combinations, threads, observer, |_| ())
    }

    /// As [`sweep`](Self::sweep), and tells each point when it is finished, on the thread that did: what is finished is not lost
    /// when the sweep is stopped. They come in any order, and [`Point::is_best`] is false: it is known at the end.
    ///
    /// # Errors
    ///
    /// As [`sweep`](Self::sweep).
    pub fn sweep_each(
        &self,
        combinations: &Combinations,
        threads: NonZeroUsize,
        observer: &dyn Observer,
        each: impl Fn(&Point) + Sync,
    ) -> Result<Sweep, ReplayError> {
        let ground = Ground {
            source: self.bundle.source(),
            bundle: Some(&self.bundle),
            lost: self.bundle.lost().into_iter().collect(),
            recorded: combinations.for_each_machine((&self.start, CpuRule::default())),
        };
        sweep(&ground, combinations, threads, observer, &each)
    }
}
