//! A sweep: every combination of some machines, sets of rules and tunables, on several threads, and which of them no other beats.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use nearpage::Model;
use nearpage_machine::MachineDescription;
use nearpage_machine::over::Over;
use nearpage_machine::work::Observer;
use serde::Serialize;

use crate::alone::LoneTrace;
use crate::bundle::Bundle;
use crate::cpus::CpuRule;
use crate::error::ReplayError;
use crate::guess::Guess;
use crate::pilot::{PASSES, survey};
use crate::report::OPEN_LOOP;
use crate::share::Share;
use crate::source::Source;
use crate::start::Start;
use crate::survey::Survey;
use crate::totals::{Costs, Totals};
use crate::watch::Watch;
use crate::whatif::{Keeps, Load, Wish, Wished, start_of};
use crate::yardstick::{bound_of, least_holds};
use nearpage_machine::tunable::{Tunable, TunableError};

/// The most combinations.
const COMBINATIONS_MOST: usize = 4096;

/// Every choice of one value for each of some tunables, on each of some machines, under each of some rules.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Combinations {
    settings: Vec<Vec<Setting>>,
    /// Other machines; the recorded one if there is none.
    machines: Vec<MachineDescription>,
    /// Sets of rules; those of the recorded kernel if there is none.
    rules: Vec<Model>,
}

/// A tunable with its value, and as it was given.
type Setting = (String, Tunable);

/// Tunables that cannot be combined.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CombinationError {
    /// A key that is unknown, or a value that it does not take.
    #[error(transparent)]
    Tunable(#[from] TunableError),
    /// A key that is there more than once.
    #[error("{key} is there twice, expected all its values at once: {key}=VALUE,VALUE...")]
    Twice {
        /// The key.
        key: String,
    },
    /// Rules or a machine that are there more than once.
    #[error("{what} is there twice, expected each once")]
    Repeated {
        /// Its name.
        what: String,
    },
    /// Too many to be replayed.
    #[error("makes {count} combinations, expected up to {COMBINATIONS_MOST}")]
    TooMany {
        /// How many there would be, at least.
        count: usize,
    },
}

impl Combinations {
    /// All combinations, the last key fastest.
    ///
    /// # Errors
    ///
    /// An unknown key, a value that it does not take, a key that is there twice, or too many combinations.
    pub fn of(over: &[Over]) -> Result<Combinations, CombinationError> {
        let mut all = vec![Vec::new()];
        for (at, Over { key, values }) in over.iter().enumerate() {
            if over[..at].iter().any(|other| other.key == *key) {
                return Err(CombinationError::Twice { key: key.clone() });
            }
            let settings = values.iter().map(|value| {
                let text = format!("{key}={value}");
                Ok((text.clone(), text.parse()?))
            });
            let settings = settings.collect::<Result<Vec<Setting>, TunableError>>()?;
            let count = all.len() * settings.len();
            if count > COMBINATIONS_MOST {
                return Err(CombinationError::TooMany { count });
            }
            let with = |before: &Vec<_>| {
                let settings = settings.iter();
                let with = |setting: &Setting| [before, std::slice::from_ref(setting)].concat();
                settings.map(with).collect::<Vec<_>>()
            };
            all = all.iter().flat_map(with).collect();
        }
        Ok(Combinations { settings: all, machines: Vec::new(), rules: Vec::new() })
    }

    /// The same on each of some machines, all of whose memory is free, in place of the recorded one.
    ///
    /// # Errors
    ///
    /// A machine that is there twice, or too many combinations.
    pub fn on(self, machines: Vec<MachineDescription>) -> Result<Combinations, CombinationError> {
        each_once(&machines, |machine| &machine.source)?;
        Combinations { machines, ..self }.bounded()
    }

    /// The same under each of some sets of rules, in place of the recorded kernel's.
    ///
    /// # Errors
    ///
    /// Rules that are there twice, or too many combinations.
    pub fn under(self, rules: Vec<Model>) -> Result<Combinations, CombinationError> {
        each_once(&rules, |model| model.name)?;
        Combinations { rules, ..self }.bounded()
    }

    fn bounded(self) -> Result<Combinations, CombinationError> {
        match self.count() {
            0..=COMBINATIONS_MOST => Ok(self),
            count => Err(CombinationError::TooMany { count }),
        }
    }

    /// For each machine that is swept, or for the recorded one.
    pub(crate) fn for_each_machine<T: Clone>(&self, of: T) -> Vec<T> {
        vec![of; self.machines.len().max(1)]
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.settings.len() * self.machines.len().max(1) * self.rules.len().max(1)
    }

    /// All of them: machines slowest, settings fastest.
    fn all(&self) -> Vec<Choice<'_>> {
        let machines: Vec<_> = match self.machines.is_empty() {
            true => vec![None],
            false => self.machines.iter().map(Some).collect(),
        };
        let rules: Vec<_> = match self.rules.is_empty() {
            true => vec![None],
            false => self.rules.iter().copied().map(Some).collect(),
        };
        let mut all = Vec::new();
        for (of_machine, &machine) in machines.iter().enumerate() {
            for (of_rules, &model) in rules.iter().enumerate() {
                let at = [of_machine, of_rules];
                let of = |settings| Choice { at, machine, model, settings };
                all.extend(self.settings.iter().map(|settings| of(&**settings)));
            }
        }
        all
    }

    /// The place of each machine's choice that changes nothing; those that are not there are added at the end.
    fn add_now<'c>(&'c self, choices: &mut Vec<Choice<'c>>, recorded: Model) -> Vec<usize> {
        let changes_nothing = |of: &Choice<'_>| {
            of.settings.is_empty() && of.model.is_none_or(|model| model == recorded)
        };
        let mut add = |of_machine: usize| {
            let is_now = |of: &Choice<'_>| of.at[0] == of_machine && changes_nothing(of);
            choices.iter().position(is_now).unwrap_or_else(|| {
                let machine = self.machines.get(of_machine);
                choices.push(Choice { at: [of_machine, 0], machine, model: None, settings: &[] });
                choices.len() - 1
            })
        };
        (0..self.machines.len().max(1)).map(&mut add).collect()
    }
}

fn each_once<T: PartialEq>(all: &[T], name: fn(&T) -> &str) -> Result<(), CombinationError> {
    let repeated = all.iter().enumerate().find(|(at, one)| all[..*at].contains(one));
    repeated.map_or(Ok(()), |(_, one)| Err(CombinationError::Repeated { what: name(one).into() }))
}

/// One combination.
#[derive(Clone, Copy)]
struct Choice<'c> {
    /// The places of machine and rules among those that are swept.
    at: [usize; 2],
    machine: Option<&'c MachineDescription>,
    model: Option<Model>,
    settings: &'c [Setting],
}

impl Choice<'_> {
    fn wish(&self) -> Wish {
        Wish {
            tunables: self.settings.iter().map(|(_, tunable)| *tunable).collect(),
            machine: self.machine.cloned(),
            model: self.model,
            ..Wish::default()
        }
    }
}

/// A finished sweep. Its serialization is the JSON of `nearpage replay sweep`.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct Sweep {
    /// The version of the JSON: 1. Fields are added without another number.
    pub schema: u32,
    /// The name of the costs that make up the model time.
    pub costs: &'static str,
    /// [`OPEN_LOOP`].
    pub open_loop: &'static str,
    /// For each machine, or for the recorded one: the recorded kernel's rules without a setting.
    pub now: Vec<Point>,
    /// A point for each combination, in their order.
    pub points: Vec<Point>,
    /// The name of the bundle.
    pub bundle: String,
    /// The name of the rules.
    pub model: &'static str,
    /// Keys that did nothing, a sentence each.
    pub notes: Vec<String>,
    /// What of the load was not recorded, a sentence each.
    pub lost: Vec<String>,
}

/// A combination and what it came to.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct Point {
    /// Bytes in pagesets at the end.
    pub cached_bytes: u64,
    /// Trips of pagesets to their zones with pages.
    pub drains: u64,
    /// Times that a zone's lock was taken to move pages.
    pub lock_acquisitions: Option<u64>,
    /// Model time in milliseconds.
    pub model_ms: Option<f64>,
    /// Most pages that moved in one hold.
    pub most_pages_per_hold: Option<u64>,
    /// Whether no other point of its machine is as good in all three and better in one: acquisitions of locks, pages in the
    /// longest hold, pages kept.
    #[serde(rename = "pareto")]
    pub is_best: bool,
    /// Trips of pagesets to their zones for pages.
    pub refills: u64,
    /// Pages that pagesets took from their zones.
    pub refill_pages: u64,
    /// Pages that pagesets gave back.
    pub drain_pages: u64,
    /// The name of the machine; `None` for the recorded one.
    pub machine: Option<String>,
    /// The name of the rules.
    pub rules: &'static str,
    /// The combination, each `KEY=VALUE`.
    pub settings: Vec<String>,
    /// The fewest holds with as much memory and [`COMPARED_AT`](crate::COMPARED_AT) pages a hold, as
    /// [`Standing::bound`](crate::Standing::bound).
    pub bound: u64,
    /// (holds + 32) / (bound + 32), as [`Standing::ratio`](crate::Standing::ratio).
    pub bound_ratio: f64,
    /// As [`Standing::least_holds`](crate::Standing::least_holds): never above `lock_acquisitions`.
    pub least_holds: u64,
    /// Pages in the pagesets of all CPUs, the mean over time.
    pub kept_pages_mean: Option<f64>,
}

/// What a combination came to, beside the bound.
struct Judged {
    totals: Totals,
    bound: u64,
    bound_ratio: f64,
    least_holds: u64,
}

/// Who hears of points as they are finished, on the threads that finish them.
pub(crate) type Heard<'h> = dyn Fn(&Point) + Sync + 'h;

impl Point {
    /// Whether it is among the best is known at the end.
    fn of(choice: &Choice<'_>, recorded: Model, judged: &Judged) -> Point {
        let Judged { totals, bound, bound_ratio, least_holds } = judged;
        Point {
            machine: choice.machine.map(|machine| machine.source.clone()),
            rules: choice.model.unwrap_or(recorded).name,
            bound: *bound,
            bound_ratio: *bound_ratio,
            least_holds: *least_holds,
            kept_pages_mean: totals.kept_pages_mean,
            cached_bytes: totals.cached_bytes,
            drains: totals.drains,
            lock_acquisitions: totals.lock_acquisitions,
            model_ms: totals.model_ms,
            most_pages_per_hold: totals.most_pages_per_hold,
            is_best: false,
            refills: totals.refills,
            refill_pages: totals.refill_pages,
            drain_pages: totals.drain_pages,
            settings: choice.settings.iter().map(|(text, _)| text.clone()).collect(),
        }
    }
}

/// A load, and what is known of the machine that recorded it.
pub(crate) struct Ground<'g> {
    pub(crate) source: &'g Source,
    /// The bundle; `None` for a trace without captures.
    pub(crate) bundle: Option<&'g Bundle>,
    /// What of the load was not recorded, a sentence each.
    pub(crate) lost: Vec<String>,
    /// For each machine that is swept, or for the recorded one, the recorded start, and how recorded CPUs go to those of the machine.
    pub(crate) recorded: Vec<(&'g Start, CpuRule)>,
}

impl Ground<'_> {
    fn passes(&self) -> u64 {
        if self.bundle.is_some() { PASSES } else { 1 }
    }

    fn survey(&self, watch: &Watch<'_>) -> Result<Survey, ReplayError> {
        let (start, _) = self.recorded[0];
        match self.bundle {
            Some(bundle) => survey(bundle, start, watch),
            None => Survey::of_trace(self.source, start, 0, watch),
        }
    }
}

impl LoneTrace {
    /// Plays the trace under every combination of some tunables, on some machines, at least one, and under some rules, on `threads`
    /// threads. Of a kernel that the trace does not tell, those of a recent one stand for it.
    ///
    /// # Errors
    ///
    /// No machine; the trace cannot be read, or Linux would refuse a combination; [`ReplayError::Stopped`].
    pub fn sweep(
        &self,
        combinations: &Combinations,
        threads: NonZeroUsize,
        observer: &dyn Observer,
    ) -> Result<Sweep, ReplayError> {
        if combinations.machines.is_empty() {
            return Err(ReplayError::NoMachine { input: self.name().into() });
        }
        let (model, _) = self.model(None);
        let machines = combinations.machines.iter();
        let recorded: Vec<_> = machines.map(|machine| self.recorded(machine, model)).collect();
        let recorded = recorded.iter().map(|(start, rule)| (start, *rule)).collect();
        let ground =
            Ground { source: self.source(), bundle: None, lost: self.facts().lost(), recorded };
        sweep(&ground, combinations, threads, observer, &|_| ())
    }
}

/// Replays all combinations on `threads` threads.
///
/// # Errors
///
/// The trace cannot be read, or Linux would refuse a combination; [`ReplayError::Stopped`].
pub(crate) fn sweep(
    ground: &Ground<'_>,
    combinations: &Combinations,
    threads: NonZeroUsize,
    observer: &dyn Observer,
    heard: &Heard<'_>,
) -> Result<Sweep, ReplayError> {
    let Ground { source, recorded, .. } = ground;
    let (start, _) = recorded[0];
    let mut choices = combinations.all();
    let asked = choices.len();
    let now = combinations.add_now(&mut choices, start.model);
    let wish = |choice: &Choice<'_>| Wish { cpus: recorded[choice.at[0]].1, ..choice.wish() };
    let wishes: Vec<Wish> = choices.iter().map(wish).collect();
    let start_of = |at: usize| start_of(source.name(), recorded[choices[at].at[0]].0, &wishes[at]);
    // What cannot be is said before the work.
    (0..wishes.len()).try_for_each(|at| start_of(at).map(drop))?;
    let pass_bytes = source.pass_bytes();
    let share = Share::new(observer, pass_bytes * (ground.passes() + wishes.len() as u64));
    let survey = ground.survey(&Watch::new(&share.part(), pass_bytes, ground.passes()))?;
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(usize, Result<Judged, ReplayError>)>> = Mutex::new(Vec::new());
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(wish) = wishes.get(at) else { return };
            let part = share.part();
            let watch = Watch::new(&part, pass_bytes, 1);
            let judged = start_of(at)
                .and_then(|other| {
                    let (recorded, _) = recorded[choices[at].at[0]];
                    let load = Load { source, survey: &survey, recorded, watch: &watch };
                    load.ask(Wished { wish, start: &other }, Guess::Likely, Keeps::ASKED)
                })
                .map(|mut answer| {
                    let asked = answer.asked.take().unwrap_or_default();
                    let (bound, bound_ratio) = bound_of(&answer, &asked);
                    let least_holds = least_holds(&answer, &asked);
                    Judged { totals: answer.totals, bound, bound_ratio, least_holds }
                });
            match &judged {
                Ok(_) if at >= asked => {}
                Ok(judged) => heard(&Point::of(&choices[at], start.model, judged)),
                // Nothing is made of the others any more.
                Err(_) => next.store(wishes.len(), Ordering::Relaxed),
            }
            results.lock().unwrap_or_else(PoisonError::into_inner).push((at, judged));
        }
    };
    std::thread::scope(|scope| {
        // This thread is one of them: there may be no other.
        for _ in 1..threads.get().min(wishes.len()) {
            scope.spawn(work);
        }
        work();
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(at, _)| *at);
    let judged = results.into_iter().map(|(_, judged)| judged).collect::<Result<Vec<_>, _>>()?;
    let now = now.into_iter().map(|at| Point::of(&choices[at], start.model, &judged[at])).collect();
    choices.truncate(asked);
    let all: Vec<Totals> = judged.iter().map(|of| of.totals.clone()).take(asked).collect();
    let points = choices.iter().zip(&judged).map(|(choice, judged)| {
        let beside = choices.iter().zip(&all).filter(|(other, _)| other.at[0] == choice.at[0]);
        let is_best = is_best(&judged.totals, beside.map(|(_, totals)| totals));
        Point { is_best, ..Point::of(choice, start.model, judged) }
    });
    let points: Vec<Point> = points.collect();
    Ok(Sweep {
        now,
        costs: Costs::BENCH.name,
        open_loop: OPEN_LOOP,
        notes: idle(&choices, &all, start.model),
        points,
        schema: 1,
        bundle: source.name().into(),
        lost: ground.lost.clone(),
        model: start.model.name,
    })
}

/// Of each key whose values made no difference, why.
fn idle(choices: &[Choice<'_>], totals: &[Totals], recorded: Model) -> Vec<String> {
    let mut notes = Vec::new();
    for at in 0..choices.first().map_or(0, |choice| choice.settings.len()) {
        let tunable = choices[0].settings[at].1;
        let is_alike = |one: &Choice<'_>, other: &Choice<'_>| {
            let mut pairs = one.settings.iter().zip(other.settings).enumerate();
            one.at == other.at && pairs.all(|(of, (one, other))| of == at || one.1 == other.1)
        };
        let key = tunable.key();
        let mut add = |note: String| {
            if !notes.contains(&note) {
                notes.push(note);
            }
        };
        for choice in choices {
            let model = choice.model.unwrap_or(recorded);
            if let Some(why) = tunable.idle_under(&model) {
                add(format!("{key} has no effect under the rules {}: {why}", model.name));
            }
        }
        let all = || choices.iter().zip(totals);
        // Of each set of rules that had several values, whether they made a difference.
        let mut acts = BTreeMap::<usize, (Model, bool)>::new();
        for (one, of_one) in all() {
            let alike = || all().filter(|(other, _)| is_alike(one, other));
            if alike().count() > 1 {
                let model = one.model.unwrap_or(recorded);
                let (_, acted) = acts.entry(one.at[1]).or_insert((model, false));
                *acted |= alike().any(|(_, of_other)| of_other != of_one);
            }
        }
        let is_silent =
            |(model, acted): &&(Model, bool)| !acted && tunable.idle_under(model).is_none();
        let silent: Vec<Model> = acts.values().filter(is_silent).map(|(model, _)| *model).collect();
        for model in &silent {
            let under = match silent.len() == acts.len() {
                true => String::new(),
                false => format!("under the rules {} ", model.name),
            };
            add(format!("{key}: {under}no figure depends on it with this load and these values"));
        }
    }
    notes
}

/// Whether no other is as good in all objectives and better in one: lock acquisitions, the most pages in one hold, pages kept.
fn is_best<'t>(one: &Totals, mut all: impl Iterator<Item = &'t Totals>) -> bool {
    let objectives = |of: &Totals| {
        let counts =
            [of.lock_acquisitions, of.most_pages_per_hold].map(|of| of.map(|of| of as f64));
        [counts[0], counts[1], of.kept_pages_mean]
    };
    let own = objectives(one);
    !all.any(|other| {
        let other = objectives(other);
        other != own && other.iter().zip(&own).all(|(other, own)| other <= own)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(texts: &[&str]) -> Result<Combinations, CombinationError> {
        let over: Vec<Over> = texts.iter().map(|text| text.parse().unwrap()).collect();
        Combinations::of(&over)
    }

    #[test]
    fn all_combinations_are_made() {
        let all = of(&["pcp.batch_scale_max=0,5", "pcp.batch=31,63"]).unwrap();
        assert_eq!(all.count(), 4);
        let texts: Vec<&str> = all.settings[1].iter().map(|(text, _)| &**text).collect();
        assert_eq!(texts, ["pcp.batch_scale_max=0", "pcp.batch=63"]);
        assert_eq!(of(&["pcp.batch_scale_max=0..6"]).unwrap().count(), 7);
        assert_eq!(of(&["pcp.batch=1..64", "pcp.high_min=1..64"]).unwrap().count(), 4096);
    }

    #[test]
    fn rules_and_machines_multiply() {
        let all = of(&["pcp.batch_scale_max=0,5"]).unwrap();
        let all = all.under(vec![Model::LINUX_6_12, Model::NEARPAGE]).unwrap();
        assert_eq!(all.count(), 4);
        let names: Vec<_> = all.all().iter().map(|of| of.model.map(|model| model.name)).collect();
        assert_eq!(names[1..3], [Some("linux-6.12"), Some("nearpage")]);
        let many = of(&["pcp.batch=1..64", "pcp.high_min=1..64"]).unwrap();
        let twice = many.clone().under(vec![Model::NEARPAGE; 2]);
        assert_eq!(twice.unwrap_err().to_string(), "nearpage is there twice, expected each once");
        let many = many.under(vec![Model::LINUX_6_12, Model::NEARPAGE]);
        assert_eq!(many, Err(CombinationError::TooMany { count: 8192 }));
    }

    #[test]
    fn what_changes_nothing_is_run_once() {
        let settings = of(&["pcp.batch_scale_max=0,5"]).unwrap();
        let mut all = settings.all();
        assert_eq!(settings.add_now(&mut all, Model::LINUX_6_12), [2]);
        assert!(all.len() == 3 && all[2].settings.is_empty());
        let rules = of(&[]).unwrap().under(vec![Model::NEARPAGE, Model::LINUX_6_12]).unwrap();
        let mut all = rules.all();
        assert_eq!(rules.add_now(&mut all, Model::LINUX_6_12), [1]);
        assert_eq!(all.len(), 2);
    }

    #[test]
    fn what_cannot_be_combined_is_refused() {
        let message = |texts: &[&str]| of(texts).unwrap_err().to_string();
        assert!(message(&["pcp.batch_scale_max=9"]).starts_with("pcp.batch_scale_max=9: "));
        assert!(message(&["pcp.batch_scale_max=5..7"]).starts_with("pcp.batch_scale_max=7: "));
        assert!(message(&["pcp.batch=1", "pcp.batch=2"]).contains("pcp.batch is there twice"));
        let many = ["pcp.batch=1..100", "pcp.high_min=1..41"];
        assert_eq!(message(&many), "makes 4100 combinations, expected up to 4096");
    }

    #[test]
    fn the_best_are_those_that_no_other_beats() {
        let totals = |locks, pages| Totals {
            lock_acquisitions: Some(locks),
            most_pages_per_hold: Some(pages),
            ..Totals::default()
        };
        let all = [totals(10, 100), totals(20, 50), totals(20, 100), totals(5, 200)];
        let best: Vec<bool> = all.iter().map(|one| is_best(one, all.iter())).collect();
        assert_eq!(best, [true, true, false, true]);
        let kept = |pages| Totals { kept_pages_mean: Some(pages), ..totals(20, 100) };
        let all = [kept(5.0), kept(6.0)];
        assert_eq!(all.each_ref().map(|one| is_best(one, all.iter())), [true, false]);
    }
}
