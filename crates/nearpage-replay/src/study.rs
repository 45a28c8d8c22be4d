//! A what-if as a whole: what changes, the answer with its range, a table, and what the model leaves out.

use nearpage::Model;
use nearpage_machine::work::Observer;
use nearpage_machine::{KernelSettings, MachineDescription};
use serde::Serialize;

use crate::alone::{LoneFacts, LoneTrace};
use crate::bundle::Bundle;
use crate::drawn::Draw;
use crate::error::ReplayError;
use crate::fidelity::{self, Starts, Worst};
use crate::guess::Guess;
use crate::pilot::{PASSES, survey};
use crate::report::{NO_WAITS, OPEN_LOOP, recorded_totals};
use crate::session::{ZoneChoice, replay_likely};
use crate::start::Start;
use crate::survey::Survey;
use crate::timeline::Timeline;
use crate::totals::{Costs, Totals};
use crate::truth::Truth;
use crate::watch::Watch;
use crate::whatif::{Answer, Changes, Keeps, Load, Wish, Wished, passes_for, start_of};

/// What is asked.
#[derive(Clone, Debug, Default)]
pub struct Study {
    /// Machine and settings; [`Wish::model`] is left to `rules`.
    pub wish: Wish,
    /// Sets of rules, each with the same machine and settings. None: those of the recorded kernel.
    pub rules: Vec<Model>,
    /// Starts that are drawn for the range of the answer, on the recorded machine.
    pub starts: u32,
    /// Moments of the [timeline](StudyAnswer::timeline), at least two of the same distance; none if 0.
    pub moments: usize,
}

/// The answer. Its serialization is the JSON of `nearpage whatif`.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct StudyAnswer {
    /// The version of the JSON: 1. Fields are added without another number.
    pub schema: u32,
    /// The name of the bundle, or of the trace.
    pub bundle: String,
    /// The release of its kernel; `None` for a trace alone that does not tell.
    pub kernel: Option<String>,
    /// Whether its rules are those of the nearest kernel that is modelled.
    pub is_nearest_model: bool,
    /// The rules without the change.
    pub model: &'static str,
    /// Of a trace without captures: what it tells, and what it was played on.
    pub alone: Option<Alone>,
    /// What the kernel logged; `None` for a trace without captures, which tells no zones.
    pub recorded: Option<Totals>,
    /// What the model comes to on the recorded machine, if `now` is of another one.
    pub on_recorded: Option<Totals>,
    /// What the model comes to without the change: on the other machine, if there is one and more is changed.
    pub now: Totals,
    /// What `now` is of, in words.
    pub now_is: String,
    /// What it comes to with the change, for each set of rules.
    pub then: Vec<Then>,
    /// The score of the model on the recorded machine, the error of `recorded` beside it.
    pub fidelity_percent: Option<f64>,
    /// The row of that score which is worst.
    pub fidelity_worst: Option<Worst>,
    /// Starts that were drawn.
    pub starts: u32,
    /// How likely another drawn start comes to a ratio within [`Ratio::range`], at least; `None` if none was drawn.
    pub level_percent: Option<f64>,
    /// Why no start was drawn and ratios have no range; `None` if they have one.
    pub no_range: Option<&'static str>,
    /// What the model leaves out for this question, a sentence each.
    pub leaves_out: Vec<String>,
    /// The name of the costs that make up the model time.
    pub costs: &'static str,
    /// What was recorded, now and then over the time of the load, if [`Study::moments`] were asked for.
    #[serde(skip)]
    pub timeline: Timeline,
}

/// A trace without captures, and what it was played on.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct Alone {
    /// What it tells.
    pub trace: LoneFacts,
    /// The machine.
    pub machine: PlayedMachine,
    /// Which CPU plays which, in words.
    pub cpus: String,
    /// Frees of blocks that the trace does not allocate: each takes a block that was free, near the CPU that frees it.
    pub older_frees: u64,
    /// Copies of the trace at once.
    pub repeat: u32,
}

/// A machine that a trace is played on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct PlayedMachine {
    /// Where it comes from: a file, a name.
    pub name: String,
    /// Nodes.
    pub nodes: u64,
    /// CPUs.
    pub cpus: u64,
    /// Bytes that its zones manage.
    pub memory_bytes: u64,
    /// Bytes of a page.
    pub page_bytes: u64,
}

/// What it comes to under one set of rules.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct Then {
    /// The name of the rules.
    pub model: &'static str,
    /// What is changed.
    pub changes: Changes,
    /// What it came to.
    pub totals: Totals,
    /// Each beside `now`.
    pub ratios: Ratios,
    /// Frees of a block of which the core had none left.
    pub lost_frees: u64,
    /// Allocations that the core refused below its marks.
    pub refused_allocs: u64,
    /// Why all figures are as without the change, if they are.
    pub no_difference: Option<String>,
    /// That the settings do nothing under these rules, other than those of `now`, if so: all figures are as by the rules alone.
    pub idle_settings: Option<String>,
}

/// Then divided by now; `None` if now is 0.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct Ratios {
    /// Holds of zone locks.
    pub holds: Ratio,
    /// Pages in the longest hold.
    pub longest_hold: Ratio,
    /// Pages in pagesets, the mean over time.
    pub kept: Ratio,
}

/// A ratio, and the least and the most from drawn starts.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct Ratio {
    /// From the likely start.
    pub ratio: Option<f64>,
    /// From all starts, the likely one included; `None` if none was drawn.
    pub range: Option<[f64; 2]>,
}

/// Why answers about another machine have no range.
pub const ALL_FREE: &str = "another machine starts with all memory free, and nothing is drawn";
const KNOWN_START: &str =
    "the recording has the state of the kernel at its start, and nothing is drawn";

/// Answers.
///
/// # Errors
///
/// The trace cannot be read, or there can be no such machine; [`ReplayError::Stopped`].
pub(crate) fn study(
    bundle: &Bundle,
    start: &Start,
    is_nearest_model: bool,
    asked: &Study,
    observer: &dyn Observer,
) -> Result<StudyAnswer, ReplayError> {
    let mut wishes = wishes(&asked.rules, &asked.wish);
    // The recorded rules on another machine are what others are compared with there.
    wishes.iter_mut().filter(|of| of.model == Some(start.model)).for_each(|of| of.model = None);
    if wishes.len() > 1 {
        wishes.retain(|of| !of.is_of_machine_alone());
    }
    let is_alone = wishes.iter().all(Wish::is_of_machine_alone);
    let before = match asked.wish.machine.is_some() && !is_alone {
        true => asked.wish.machine_alone(),
        false => Wish::default(),
    };
    let plan = Plan::of(bundle.name(), start, before, wishes)?;
    let is_known = plan.starts().all(|start| start.state.is_some());
    let no_range = match asked.wish.machine.is_some() {
        true => Some(ALL_FREE),
        false if is_known => Some(KNOWN_START),
        false => (asked.starts == 0).then_some("no start was to be drawn"),
    };
    let starts = if no_range.is_some() { 0 } else { asked.starts };
    let watch = Watch::new(observer, bundle.pass_bytes(), PASSES + 1 + plan.passes(starts));
    let survey = survey(bundle, start, &watch)?;
    let truth = Truth::read(bundle, start, bundle.samples(&watch)?, survey.is_whole)?;
    let replayed = replay_likely(bundle, start, &survey, &watch)?;
    let unlogged = fidelity::unlogged_allocs(start, &replayed, &truth);
    let compared = fidelity::compare(start, &replayed, &truth, &unlogged, ZoneChoice::Model);
    let source = bundle.source();
    let load = Load { source, survey: &survey, recorded: start, watch: &watch };
    let mut timeline = match asked.moments {
        0 => Timeline::default(),
        _ => Timeline::recorded(start, &survey, &replayed.outcomes[0].snapshots, &truth.samples),
    };
    let (now, then) = plan.answers(load, starts, asked.moments, &mut timeline)?;
    let now_is = match &plan.before.machine {
        Some(machine) => format!("{} on {}", now.model.name, machine.source),
        None => format!("{} on the recorded machine", now.model.name),
    };
    Ok(StudyAnswer {
        schema: 1,
        bundle: bundle.name().into(),
        kernel: Some(bundle.recording().kernel.clone()),
        is_nearest_model,
        model: now.model.name,
        alone: None,
        recorded: Some(recorded_totals(start, &replayed.recorded, &compared)),
        on_recorded: plan.before.machine.is_some().then(|| replayed.outcomes[0].totals.clone()),
        now: now.totals,
        now_is,
        then,
        fidelity_percent: compared.percent,
        fidelity_worst: compared.worst,
        starts,
        level_percent: Starts::new(starts.into()).map(|of| of.level_percent),
        no_range,
        leaves_out: bundle.lost().into_iter().chain(leaves_out(asked)).collect(),
        costs: Costs::BENCH.name,
        timeline,
    })
}

impl LoneTrace {
    /// Answers a what-if on `machine`, all of whose memory is free at the start. Of a kernel that the trace does not tell, the first of
    /// several rules stand for it, or those of a recent one. Nothing need be changed: then the answer is what the load comes to there.
    ///
    /// # Errors
    ///
    /// The trace cannot be read, or there can be no such machine; [`ReplayError::Stopped`].
    pub fn study(
        &self,
        machine: &MachineDescription,
        asked: &Study,
        observer: &dyn Observer,
    ) -> Result<StudyAnswer, ReplayError> {
        study_alone(self, machine, asked, observer)
    }
}

fn study_alone(
    trace: &LoneTrace,
    machine: &MachineDescription,
    asked: &Study,
    observer: &dyn Observer,
) -> Result<StudyAnswer, ReplayError> {
    let is_unknown = trace.facts().kernel.is_none();
    let (model, is_nearest_model) = trace.model(asked.rules.first().copied());
    // Without a setting, rules that stand for the kernel's are what the others are compared with.
    let is_base = is_unknown && asked.wish.tunables.is_empty();
    let rules = asked.rules.get(usize::from(is_base)..).unwrap_or_default();
    let (start, cpus) = trace.recorded(machine, model);
    let source = trace.source();
    let wish = Wish { machine: Some(machine.clone()), cpus, ..asked.wish.clone() };
    let has_change = !rules.is_empty() || !asked.wish.tunables.is_empty();
    let mut wishes = if has_change { wishes(rules, &wish) } else { Vec::new() };
    if wishes.len() > 1 {
        wishes.retain(|of| of.model != Some(model) || !of.tunables.is_empty());
    }
    let plan = Plan::of(source.name(), &start, wish.machine_alone(), wishes)?;
    let watch = Watch::new(observer, source.pass_bytes(), 1 + plan.passes(0));
    let survey = Survey::of_trace(source, &start, 0, &watch)?;
    let load = Load { source, survey: &survey, recorded: &start, watch: &watch };
    let mut timeline = Timeline::default();
    let (now, mut then) = plan.answers(load, 0, asked.moments, &mut timeline)?;
    for of in &mut then {
        // It is the machine of both.
        of.changes.machine = None;
    }
    let older_frees = now.counts.unknown_frees;
    Ok(StudyAnswer {
        schema: 1,
        bundle: trace.name().into(),
        kernel: trace.facts().kernel.clone(),
        is_nearest_model,
        model: now.model.name,
        recorded: None,
        on_recorded: None,
        now_is: format!("{} on {}", now.model.name, machine.source),
        then,
        fidelity_percent: None,
        fidelity_worst: None,
        starts: 0,
        level_percent: None,
        no_range: Some(ALL_FREE),
        leaves_out: unknown(trace, asked.wish.repeat, &now, machine)
            .into_iter()
            .chain(leaves_out(asked))
            .collect(),
        alone: Some(Alone {
            trace: trace.facts().clone(),
            machine: PlayedMachine::of(machine, &plan.before_start),
            cpus: now.changes.cpus.unwrap_or_default(),
            older_frees,
            repeat: asked.wish.repeat.max(1),
        }),
        now: now.totals,
        costs: Costs::BENCH.name,
        timeline,
    })
}

/// A wish for each set of rules; the recorded kernel's if there is none.
fn wishes(rules: &[Model], wish: &Wish) -> Vec<Wish> {
    if rules.is_empty() {
        return vec![Wish { model: None, ..wish.clone() }];
    }
    rules.iter().map(|&model| Wish { model: Some(model), ..wish.clone() }).collect()
}

/// What is run: once without the change, and once for each set of rules with it.
struct Plan {
    before: Wish,
    before_start: Start,
    wishes: Vec<Wish>,
    others: Vec<Start>,
    /// Of a wish for other rules with settings, the rules alone.
    by_rules_alone: Vec<Option<(Wish, Start)>>,
}

impl Plan {
    /// What cannot be is said before the work.
    fn of(
        input: &str,
        start: &Start,
        before: Wish,
        wishes: Vec<Wish>,
    ) -> Result<Plan, ReplayError> {
        let others = wishes.iter().map(|wish| start_of(input, start, wish));
        let others: Vec<Start> = others.collect::<Result<_, _>>()?;
        let before_start = start_of(input, start, &before)?;
        let alone = |wish: &Wish| {
            let has_both = wish.model.is_some() && !wish.tunables.is_empty();
            let alone = Wish { tunables: Vec::new(), ..wish.clone() };
            has_both.then(|| start_of(input, start, &alone).map(|start| (alone, start))).transpose()
        };
        let by_rules_alone = wishes.iter().map(alone).collect::<Result<_, _>>()?;
        Ok(Plan { before, before_start, wishes, others, by_rules_alone })
    }

    /// The start states of all of them.
    fn starts(&self) -> impl Iterator<Item = &Start> {
        self.others.iter().chain([&self.before_start])
    }

    /// Passes over the trace for runs from the likely start, and from so many drawn ones.
    fn passes(&self, starts: u32) -> u64 {
        let alone = self.by_rules_alone.iter().flatten().count();
        passes_for(1 + self.wishes.len()) * (1 + u64::from(starts)) + passes_for(alone)
    }

    /// Adds to `timeline` what runs from the likely start went through.
    fn answers(
        &self,
        load: Load<'_>,
        starts: u32,
        moments: usize,
        timeline: &mut Timeline,
    ) -> Result<(Answer, Vec<Then>), ReplayError> {
        let keeps = Keeps { moments, ..Keeps::default() };
        let (now, then) = self.all(load, Guess::Likely, keeps)?;
        let thens = then.iter().zip(&self.others).map(|(answer, start)| ("then", answer, start));
        for (when, answer, start) in [("now", &now, &self.before_start)].into_iter().chain(thens) {
            if let Some(moments) = &answer.moments {
                let name = format!("{when}: {}", answer.model.name);
                timeline.add(name, start, load.survey, moments);
            }
        }
        let mut nows = Vec::new();
        let mut drawn: Vec<Vec<Answer>> = then.iter().map(|_| Vec::new()).collect();
        for number in 1..=starts {
            let guess = Guess::Drawn(Draw::new(number.into()));
            let (now, then) = self.all(load, guess, Keeps::default())?;
            nows.push(now);
            drawn.iter_mut().zip(then).for_each(|(all, answer)| all.push(answer));
        }
        let then = then.into_iter().zip(&drawn);
        let mut then: Vec<Then> =
            then.map(|(answer, drawn)| Then::of(&now, &nows, answer, drawn)).collect();
        let (has_both, alone): (Vec<_>, Vec<_>) = then
            .iter_mut()
            .zip(&self.by_rules_alone)
            .filter_map(|(then, alone)| {
                let (wish, start) = alone.as_ref()?;
                Some((then, Wished { wish, start }))
            })
            .unzip();
        let alone = load.ask_all(&alone, Guess::Likely, Keeps::default())?;
        for (then, alone) in has_both.into_iter().zip(alone) {
            if then.no_difference.is_none() && alone.totals == then.totals {
                then.idle_settings = Some(then.changes.idle_settings());
            }
        }
        Ok((now, then))
    }

    /// What it comes to without the change, and with it for each set of rules.
    fn all(
        &self,
        load: Load<'_>,
        guess: Guess,
        keeps: Keeps,
    ) -> Result<(Answer, Vec<Answer>), ReplayError> {
        let others = self.wishes.iter().zip(&self.others);
        let wished = [(&self.before, &self.before_start)].into_iter().chain(others);
        let wished: Vec<Wished<'_>> = wished.map(|(wish, start)| Wished { wish, start }).collect();
        let mut all = load.ask_all(&wished, guess, keeps)?;
        let now = all.remove(0);
        Ok((now, all))
    }
}

impl PlayedMachine {
    fn of(machine: &MachineDescription, start: &Start) -> PlayedMachine {
        let nodes = &start.topology.nodes;
        PlayedMachine {
            name: machine.source.clone(),
            nodes: nodes.len() as u64,
            cpus: nodes.iter().map(|node| node.cpus.len() as u64).sum(),
            memory_bytes: start.managed().to_bytes(start.page_shift),
            page_bytes: 1 << start.page_shift,
        }
    }
}

/// What is not known of a trace without captures, and what stands for it.
fn unknown(
    trace: &LoneTrace,
    repeat: u32,
    now: &Answer,
    machine: &MachineDescription,
) -> Vec<String> {
    let LoneFacts { frees, .. } = trace.facts();
    let frees = frees * u64::from(repeat.max(1));
    let older = now.counts.unknown_frees;
    // A card has what comes first.
    let mut all = trace.facts().lost();
    all.push(format!(
        "unknown: what was allocated and what pagesets held at the start; all memory is free and pagesets are empty. Of {frees} frees, \
         {older} are of blocks that the trace does not allocate: each takes one near the CPU that frees"
    ));
    if now.counts.lost_frees > 0 {
        all.push(format!("{} frees, for which the machine had no block", now.counts.lost_frees));
    }
    if machine.machine.settings == KernelSettings::default() {
        all.push("unknown: sysctls; Linux's defaults for this machine stand for them".into());
    }
    if trace.facts().kernel.is_none() {
        let name = now.model.name;
        all.push(format!(
            "unknown: the kernel; the rules of {name} stand for it (--rules A,B compares B with A)"
        ));
    }
    if !trace.fits(machine) {
        all.push(
            "unknown: the machine that recorded it, which has other CPUs; they are dealt out over the nodes".into(),
        );
    }
    all.push(
        "unknown: which node was asked for, which is in no event; each request is near its CPU"
            .into(),
    );
    all
}

impl Then {
    fn of(now: &Answer, nows: &[Answer], then: Answer, drawn: &[Answer]) -> Then {
        let ratio = |of: fn(&Totals) -> Option<f64>| {
            let divide = |then: &Answer, now: &Answer| {
                let (then, now) = (of(&then.totals)?, of(&now.totals)?);
                (now > 0.0).then(|| then / now)
            };
            let ratio = divide(&then, now);
            let all = drawn.iter().zip(nows).filter_map(|(then, now)| divide(then, now));
            let fold = |[least, most]: [f64; 2], of: f64| [least.min(of), most.max(of)];
            let range = ratio.map(|ratio| all.fold([ratio, ratio], fold));
            Ratio { ratio, range: range.filter(|_| !drawn.is_empty()) }
        };
        let ratios = Ratios {
            holds: ratio(|of| of.lock_acquisitions.map(|holds| holds as f64)),
            longest_hold: ratio(|of| of.most_pages_per_hold.map(|pages| pages as f64)),
            kept: ratio(|of| of.kept_pages_mean),
        };
        let is_same = then.totals == now.totals;
        Then {
            model: then.model.name,
            ratios,
            lost_frees: then.counts.lost_frees,
            refused_allocs: then.counts.refused_allocs,
            no_difference: is_same.then(|| then.changes.why_the_same()),
            idle_settings: None,
            totals: then.totals,
            changes: then.changes,
        }
    }
}

/// What the model leaves out for a question.
fn leaves_out(asked: &Study) -> Vec<String> {
    let mut all = vec![OPEN_LOOP.to_owned()];
    all.push(NO_WAITS.into());
    if asked.wish.machine.is_some() {
        all.push("the other machine starts with all memory free: what an aged one lacks in whole pageblocks is not seen".into());
        all.push("tasks would run elsewhere on it: which CPU plays which is the mapping above, no scheduler".into());
    }
    if asked.wish.repeat > 1 {
        all.push("copies of the trace run in step: they share no file and no lock".into());
    }
    let has_marks = |of: &nearpage_machine::tunable::Tunable| {
        ["vm.min_free_kbytes", "vm.watermark_scale_factor", "vm.watermark_boost_factor"]
            .contains(&of.key())
    };
    if asked.wish.tunables.iter().any(has_marks) {
        all.push("reclaim and compaction that other watermarks would start or end".into());
    }
    all
}
