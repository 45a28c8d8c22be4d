//! Rules beside the offline optimum: how many holds of zone locks they take, and how few would do.

use nearpage::{Model, PageCount, PageblockOwners};
use nearpage_machine::work::Observer;
use serde::Serialize;

use crate::bound::{Asked, Class, Fewest, Limits};
use crate::bundle::Bundle;
use crate::error::ReplayError;
use crate::guess::Guess;
use crate::pilot::{PASSES, survey};
use crate::report::OPEN_LOOP;
use crate::run::Causes;
use crate::start::Start;
use crate::totals::{Costs, Totals};
use crate::truth::Truth;
use crate::watch::Watch;
use crate::whatif::{Answer, Keeps, Load, Wish, Wished, start_of};

/// Pages that a hold of the bound moves at most where a set of rules is compared with it: more than Linux's pagesets move
/// with the largest batch, 63 pages times 2^5.
pub const COMPARED_AT: u64 = 2016;

/// Added to both sides of a ratio, so that small counts say nothing.
const DAMPING: u64 = 32;

/// What is asked about rules and their bound.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// Rules beside those of the recorded kernel.
    pub models: Vec<Model>,
    /// H for each CPU and K, both in pages, of points of the bound. If there are none, the answer has a curve over H for
    /// some K.
    pub points: Vec<Limits>,
    /// Whether the stores of the bound start with the recorded pages instead of what is best for them.
    pub from_recorded: bool,
}

/// The answer. Its serialization is the JSON of `nearpage replay --bound`.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct Yardstick {
    /// The version of the JSON: 1. Fields are added without another number.
    pub schema: u32,
    /// The name of the bundle.
    pub bundle: String,
    /// The release of its kernel.
    pub kernel: String,
    /// Whether the first rules are those of another kernel than the recorded, the nearest that is modelled.
    pub is_nearest_model: bool,
    /// CPUs with pagesets.
    pub cpus: u64,
    /// Allocations and frees that pagesets serve; with none there is nothing to compare.
    pub requests: u64,
    /// Whether the trace was given beside the bundle and may be a part of a recording, so that nothing shows that it is of
    /// this one.
    pub trace_is_unproven: bool,
    /// The recorded kernel's rules, then those that were asked for.
    pub models: Vec<Standing>,
    /// Points of the bounds.
    pub points: Vec<BoundPoint>,
    /// The name of the costs that make up the model time.
    pub costs: &'static str,
    /// What an open loop means.
    pub open_loop: &'static str,
}

/// A set of rules beside its bound.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct Standing {
    /// The name of the rules.
    pub model: &'static str,
    /// Times that a zone's lock was taken to move pages.
    pub holds: u64,
    /// The same, by cause.
    pub causes: Causes,
    /// Pages in the pagesets of all CPUs, the mean over time.
    pub kept_pages_mean: f64,
    /// The most after any request.
    pub kept_pages_max: u64,
    /// The most in those of one CPU.
    pub kept_pages_max_of_cpu: u64,
    /// How many they were at the end.
    pub kept_pages_end: u64,
    /// Most pages that moved in one hold.
    pub longest_hold_pages: u64,
    /// The longest that any hold took, in nanoseconds of model time: to return a page takes longer than to take it, so that
    /// may be another hold.
    pub longest_hold_ns: f64,
    /// The class of rules that the bound is of.
    pub class: Class,
    /// The pages for each CPU of the bound: the mean of these rules.
    pub h: u64,
    /// The pages a hold of the bound: [`COMPARED_AT`].
    pub k: u64,
    /// The fewest holds of its class, those that are forced included.
    pub bound: u64,
    /// Those of them that are forced.
    pub forced: u64,
    /// (holds + 32) / (bound + 32).
    pub ratio: f64,
    /// The fewest holds of the class with the most that one CPU kept for H and the longest hold for K, from the recorded start:
    /// never above `holds`.
    pub least_holds: u64,
    /// The fewest pages for each CPU with which as many holds would do, of the same class at the same K.
    pub least_h: Option<u64>,
}

/// A point of a bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct BoundPoint {
    /// Pages for each CPU; the pooled class has so many times the CPUs.
    pub h: u64,
    /// Pages a hold.
    pub k: u64,
    /// The class of rules.
    pub class: Class,
    /// The fewest holds, those that are forced included.
    pub fewest: u64,
    /// Those of them that are forced.
    pub forced: u64,
}

/// Answers a question about the rules of a bundle and others.
///
/// # Errors
///
/// The trace cannot be read, a point is impossible on the machine, or there can be no such machine;
/// [`ReplayError::Stopped`].
pub(crate) fn measure(
    bundle: &Bundle,
    start: &Start,
    is_nearest_model: bool,
    question: &Question,
    observer: &dyn Observer,
) -> Result<Yardstick, ReplayError> {
    question.points.iter().try_for_each(|point| check_point(bundle.name(), start, *point))?;
    let mut rules = vec![start.model];
    for model in &question.models {
        if !rules.iter().any(|known| known.name == model.name) {
            rules.push(*model);
        }
    }
    let wishes = rules.iter().map(|&model| Wish { model: Some(model), ..Wish::default() });
    let watch = Watch::new(observer, bundle.pass_bytes(), PASSES + rules.len() as u64);
    let survey = survey(bundle, start, &watch)?;
    if let Some(input) = bundle.other_trace() {
        let truth = Truth::read(bundle, start, bundle.samples(&watch)?, survey.is_whole)?;
        survey.check_recording(input, truth.samples.len() as u64, truth.allocs())?;
    }
    let (source, recorded) = (bundle.source(), start);
    let load = Load { source, survey: &survey, recorded, watch: &watch };
    let mut models = Vec::new();
    let mut of_recorded = None;
    for wish in wishes {
        let other = start_of(bundle.name(), start, &wish)?;
        let wished = Wished { wish: &wish, start: &other };
        let mut answer = load.ask(wished, Guess::Likely, Keeps::ASKED)?;
        let asked = answer.asked.take().unwrap_or_default();
        models.push(standing(&answer, &asked, start.managed(), question.from_recorded));
        of_recorded.get_or_insert(asked);
    }
    let asked = of_recorded.unwrap_or_default();
    let points = match question.points.is_empty() {
        true => curve(models[0].h, start.managed()),
        false => question.points.clone(),
    };
    let points = points.iter().flat_map(|&limits| {
        let of_class = |class| {
            let all = asked.fewest(class, limits, question.from_recorded);
            let Limits { kept: h, moved: k } = limits;
            BoundPoint { h, k, class, fewest: all.fewest, forced: all.forced }
        };
        Class::ALL.map(of_class)
    });
    Ok(Yardstick {
        schema: 1,
        bundle: bundle.name().into(),
        kernel: bundle.recording().kernel.clone(),
        is_nearest_model,
        cpus: asked.cpus(),
        requests: asked.of_pagesets(),
        trace_is_unproven: bundle.other_trace().is_some() && survey.is_part(),
        models,
        points: points.collect(),
        costs: Costs::BENCH.name,
        open_loop: OPEN_LOOP,
    })
}

/// The class of rules that a model is of. All keep types and orders apart; of some, pages that one CPU frees serve another without the
/// zone.
fn class_of(model: &Model) -> Class {
    match model.owners {
        PageblockOwners::Cpus | PageblockOwners::Quotas => Class::Pooled,
        _ => Class::Lists,
    }
}

/// The fewest holds of a class, as far as they bind a model. Rules that cache blocks of all orders need none for those that
/// Linux's pagesets do not serve.
pub(crate) fn fewest_of(
    model: &Model,
    asked: &Asked,
    class: Class,
    limits: Limits,
    from_recorded: bool,
) -> Fewest {
    binding(model, asked.fewest(class, limits, from_recorded))
}

/// What binds a model of the fewest holds of its class.
fn binding(model: &Model, all: Fewest) -> Fewest {
    match model.owners {
        PageblockOwners::Quotas => Fewest { fewest: all.fewest - all.forced, forced: 0 },
        _ => all,
    }
}

/// What a set of rules comes to beside the bound of its class.
fn standing(answer: &Answer, asked: &Asked, managed: PageCount, from_recorded: bool) -> Standing {
    let (class, k) = (class_of(&answer.model), COMPARED_AT);
    let holds = answer.totals.lock_acquisitions.unwrap_or(0);
    let longest_hold_pages = answer.totals.most_pages_per_hold.unwrap_or(0);
    let mean = answer.totals.kept_pages_mean.unwrap_or(0.0);
    let h = own_mean(&answer.totals);
    let all = asked.fewest(class, Limits { kept: h, moved: k }, from_recorded);
    let bound = binding(&answer.model, all);
    // What is not forced on these rules, they may take besides.
    let may_take = holds + all.forced - bound.forced;
    let most_kept = managed.0 / asked.cpus().max(1);
    let most_of_cpu = answer.totals.kept_pages_most_of_cpu.unwrap_or(0);
    Standing {
        least_holds: least_holds(answer, asked),
        model: answer.model.name,
        holds,
        causes: answer.causes.clone(),
        kept_pages_mean: mean,
        kept_pages_max: answer.totals.kept_pages_most.unwrap_or(0),
        kept_pages_max_of_cpu: most_of_cpu,
        kept_pages_end: answer.totals.kept_pages_end.unwrap_or(0),
        longest_hold_pages,
        longest_hold_ns: answer.totals.longest_hold_ns.unwrap_or(0.0),
        class,
        h,
        k,
        bound: bound.fewest,
        forced: bound.forced,
        ratio: ratio(holds, bound.fewest),
        least_h: asked.least_kept(class, k, may_take, most_kept, from_recorded),
    }
}

/// The bound of rules' class at K = [`COMPARED_AT`] and their own mean for H, and the ratio of what they came to, to it.
pub(crate) fn bound_of(answer: &Answer, asked: &Asked) -> (u64, f64) {
    let limits = Limits { kept: own_mean(&answer.totals), moved: COMPARED_AT };
    let class = class_of(&answer.model);
    let bound = fewest_of(&answer.model, asked, class, limits, false).fewest;
    (bound, ratio(answer.totals.lock_acquisitions.unwrap_or(0), bound))
}

/// The bound of the rules' class with the most that one CPU kept for H, and the longest hold for K, from the recorded start:
/// the rules are one choice of those that it binds.
pub(crate) fn least_holds(answer: &Answer, asked: &Asked) -> u64 {
    let most_of_cpu = answer.totals.kept_pages_most_of_cpu.unwrap_or(0);
    let longest = match answer.model.owners {
        // A claim is a number, whatever it is: the pages come without a hold.
        PageblockOwners::Quotas => u64::from(u32::MAX),
        _ => answer.totals.most_pages_per_hold.unwrap_or(0),
    };
    let own = Limits { kept: most_of_cpu, moved: longest.max(1) };
    fewest_of(&answer.model, asked, class_of(&answer.model), own, true).fewest
}

/// The mean pages for each CPU, 1 at least.
fn own_mean(totals: &Totals) -> u64 {
    mean_of_cpu(totals.kept_pages_mean.unwrap_or(0.0), totals.cpus.unwrap_or(1))
}

/// The pages for each of so many CPUs, 1 at least.
pub(crate) fn mean_of_cpu(mean: f64, cpus: u64) -> u64 {
    ((mean / cpus.max(1) as f64).round() as u64).max(1)
}

/// A ratio of counts: small ones say nothing.
pub(crate) fn ratio(holds: u64, bound: u64) -> f64 {
    (holds + DAMPING) as f64 / (bound + DAMPING) as f64
}

/// From a sixteenth of what rules keep to four times that, for holds of 64, 512 and 2016 pages.
fn curve(mean: u64, managed: PageCount) -> Vec<Limits> {
    let kept = (-4..=2).map(|log2: i32| match log2 {
        ..0 => mean >> -log2,
        _ => mean << log2,
    });
    let mut kept: Vec<u64> = kept.map(|pages| pages.clamp(1, managed.0.max(1))).collect();
    kept.dedup();
    let points = |moved| kept.iter().map(move |&kept| Limits { kept, moved });
    [64, 512, COMPARED_AT].into_iter().flat_map(points).collect()
}

/// Refuses a point that no pageset of the machine can have.
fn check_point(input: &str, start: &Start, point: Limits) -> Result<(), ReplayError> {
    let managed = start.managed().0;
    let Limits { kept, moved } = point;
    if kept == 0 || moved == 0 || kept > managed || moved > managed {
        return Err(ReplayError::Point { input: input.into(), kept, moved, managed });
    }
    Ok(())
}
