//! A what-if as a whole: what changes, the answer with its range, a table, and what the model leaves out.

use nearpage::Model;
use nearpage_machine::work::Observer;
use serde::Serialize;

use crate::bundle::Bundle;
use crate::drawn::Draw;
use crate::error::ReplayError;
use crate::fidelity;
use crate::guess::Guess;
use crate::pilot::{PASSES, survey};
use crate::report::{OPEN_LOOP, recorded_totals};
use crate::session::{ZoneChoice, replay_likely};
use crate::start::Start;
use crate::survey::Survey;
use crate::totals::{Costs, Totals};
use crate::truth::Truth;
use crate::watch::Watch;
use crate::whatif::{Answer, Changes, Wish, ask, start_of};

/// What is asked.
#[derive(Clone, Debug, Default)]
pub struct Study {
    /// Machine and settings; [`Wish::model`] is left to `rules`.
    pub wish: Wish,
    /// Sets of rules, each with the same machine and settings. None: those of the recorded kernel.
    pub rules: Vec<Model>,
    /// Starts that are drawn for the range of the answer, on the recorded machine.
    pub starts: u32,
}

/// The answer. Its serialization is the JSON of `nearpage whatif`.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct StudyAnswer {
    /// The version of the JSON: 1. Fields are added without another number.
    pub schema: u32,
    /// The name of the bundle.
    pub bundle: String,
    /// The release of its kernel.
    pub kernel: String,
    /// Whether its rules are those of the nearest kernel that is modelled.
    pub is_nearest_model: bool,
    /// What the kernel logged.
    pub recorded: Totals,
    /// What the model comes to without the change: on the other machine, if there is one and more is changed.
    pub now: Totals,
    /// What `now` is of, in words.
    pub now_is: String,
    /// What it comes to with the change, for each set of rules.
    pub then: Vec<Then>,
    /// The score of the model on the recorded machine, the error of `recorded` beside it.
    pub fidelity_percent: Option<f64>,
    /// Starts that were drawn.
    pub starts: u32,
    /// What the model leaves out for this question, a sentence each.
    pub leaves_out: Vec<String>,
    /// The name of the costs that make up the model time.
    pub costs: &'static str,
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
    let wishes: Vec<Wish> = match asked.rules.is_empty() {
        true => vec![Wish { model: None, ..asked.wish.clone() }],
        false => {
            let of = |&model: &Model| Wish { model: Some(model), ..asked.wish.clone() };
            asked.rules.iter().map(of).collect()
        }
    };
    // What cannot be is said before the work.
    let others = wishes.iter().map(|wish| start_of(bundle.name(), start, wish));
    let others: Vec<Start> = others.collect::<Result<_, _>>()?;
    let is_alone = wishes.iter().all(Wish::is_of_machine_alone);
    let before = match asked.wish.machine.is_some() && !is_alone {
        true => asked.wish.machine_alone(),
        false => Wish::default(),
    };
    let before_start = start_of(bundle.name(), start, &before)?;
    // Another machine has all its memory free at the start, and of this one it may be known: nothing is drawn.
    let is_known = others.iter().chain([&before_start]).all(|start| start.state.is_some());
    let starts = if asked.wish.machine.is_some() || is_known { 0 } else { asked.starts };
    let runs = (1 + wishes.len() as u64) * (1 + u64::from(starts));
    let watch = Watch::new(observer, bundle.pass_bytes(), PASSES + 1 + runs);
    let survey = survey(bundle, start, &watch)?;
    let truth = Truth::read(bundle, start, bundle.samples(&watch)?, survey.is_whole)?;
    let replayed = replay_likely(bundle, start, &survey, &watch)?;
    let unlogged = fidelity::unlogged_allocs(start, &replayed, &truth);
    let compared = fidelity::compare(start, &replayed, &truth, &unlogged, ZoneChoice::Model);
    let scene = Scene { bundle, survey: &survey, recorded: start, watch: &watch };
    let now = scene.answer(&before, &before_start, Guess::Likely)?;
    let drawn: Vec<Guess> =
        (1..=starts).map(|number| Guess::Drawn(Draw::new(number.into()))).collect();
    let nows = drawn.iter().map(|&guess| scene.answer(&before, &before_start, guess));
    let nows: Vec<Answer> = nows.collect::<Result<_, _>>()?;
    let mut then = Vec::new();
    for (wish, other) in wishes.iter().zip(&others) {
        let answer = scene.answer(wish, other, Guess::Likely)?;
        let drawn = drawn.iter().map(|&guess| scene.answer(wish, other, guess));
        let drawn: Vec<Answer> = drawn.collect::<Result<_, _>>()?;
        then.push(Then::of(&now, &nows, answer, &drawn));
    }
    let now_is = match before.machine {
        Some(machine) => format!("{} on {}", now.model.name, machine.source),
        None => format!("{} on the recorded machine", now.model.name),
    };
    Ok(StudyAnswer {
        schema: 1,
        bundle: bundle.name().into(),
        kernel: bundle.recording().kernel.clone(),
        is_nearest_model,
        recorded: recorded_totals(start, &replayed.recorded, &compared),
        now: now.totals,
        now_is,
        then,
        fidelity_percent: compared.percent,
        starts,
        leaves_out: leaves_out(asked),
        costs: Costs::BENCH.name,
    })
}

struct Scene<'a> {
    bundle: &'a Bundle,
    survey: &'a Survey,
    recorded: &'a Start,
    watch: &'a Watch<'a>,
}

impl Scene<'_> {
    fn answer(&self, wish: &Wish, start: &Start, guess: Guess) -> Result<Answer, ReplayError> {
        ask(self.bundle, self.survey, self.recorded, start, wish, guess, false, self.watch)
    }
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
            totals: then.totals,
            changes: then.changes,
        }
    }
}

/// What the model leaves out for a question.
fn leaves_out(asked: &Study) -> Vec<String> {
    let mut all = vec![OPEN_LOOP.to_owned()];
    all.push("waits for locks: a replay runs one event after the other; nearpage lab build and the other loads have them".into());
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
