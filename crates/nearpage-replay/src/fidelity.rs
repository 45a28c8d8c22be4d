//! The fidelity of a replay: what was predicted beside what the kernel logged, row by row, and one score.
//!
//! A row of the score sets what is predicted wrongly against what could have been wrong: what the kernel moved. Runs of refills and
//! drains, their pages and their lengths are compared zone by zone; pagesets and free lists, list by list, against how far the
//! kernel's own are from where they started. So memory that nobody touches weighs nothing, and a model under which nothing moves
//! scores 0. What follows from the trace itself is shown and does not count: who allocates, how much, and of which zone.

use nearpage::{Migratetype, Order};
use serde::Serialize;

use crate::flow::Flow;
use crate::layout::Blocks;
use crate::outcome::{Outcome, PagesetAt};
use crate::session::{Replayed, ZoneChoice};
use crate::start::Start;
use crate::state_end::StateEnd;
use crate::truth::Truth;

/// From so much on a row counts for the score: of less, one run or page is more than a tenth.
const SCORED_FROM: u64 = 10;

/// What [`Fidelity::percent`] means.
const MEANING: &str = "of what the kernel moved, how much the model moves alike, the mean of the rows that count: all is 100 %, and \
     a model under which nothing moves has 0 %";

/// One quantity at one place: what was predicted, and what the kernel logged.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// Its name.
    pub quantity: &'static str,
    /// `all`, `node N zone Z` or `cpu C node N zone Z`.
    #[serde(rename = "where")]
    pub place: String,
    /// The moment, of quantities that have one: `sample K` or `end`.
    #[serde(rename = "at", skip_serializing_if = "Option::is_none")]
    pub moment: Option<String>,
    /// What the replay came to; `None` where it took the answer from the recording.
    pub predicted: Option<u64>,
    /// What the kernel logged; `None` where the recording does not tell.
    pub recorded: Option<u64>,
    /// |predicted − recorded| / recorded in percent; `None` without one of them, and if nothing was recorded.
    pub error_percent: Option<f64>,
    /// The least and the most that the likely start and the drawn ones come to: [`Fidelity::starts`] has their number. `None` if the
    /// kernel's own state is the start. It is no bound.
    pub drawn_range: Option<[u64; 2]>,
    /// Whether a row of [`Fidelity::scores`] counts what it is about; otherwise it is shown beside.
    pub is_scored: bool,
}

impl Row {
    /// A row with its error. `predicted` is what each of the starts comes to, the prediction first.
    fn new(
        quantity: &'static str,
        place: String,
        moment: Option<String>,
        predicted: Option<&[u64]>,
        recorded: Option<u64>,
    ) -> Row {
        let range = |values: &[u64]| Some([*values.iter().min()?, *values.iter().max()?]);
        // One start alone is no range.
        let drawn_range = predicted.filter(|values| values.len() > 1).and_then(range);
        let predicted = predicted.and_then(|values| values.first().copied());
        let error = |predicted: u64, recorded: u64| {
            (recorded > 0).then(|| predicted.abs_diff(recorded) as f64 / recorded as f64 * 100.0)
        };
        let error_percent = predicted.zip(recorded).and_then(|(of, than)| error(of, than));
        let is_scored = SCORED.contains(&quantity);
        Row { quantity, place, moment, predicted, recorded, error_percent, drawn_range, is_scored }
    }
}

/// Quantities whose rows the score counts. The others follow from the trace, or are of memory that exists: `numa_hit` and its
/// kin and pages of fallback zones are the trace's own allocations, nearly all free pages never moved, and limits are no pages.
const SCORED: [&str; 5] = ["refills", "refill_pages", "drains", "drain_pages", "pcp_count"];

/// A row of the score: what was predicted wrongly, against what could have been.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct Score {
    /// Its name.
    pub quantity: &'static str,
    /// What it sums up, in words.
    pub of: &'static str,
    /// What the kernel moved: runs, or pages.
    pub moved: u64,
    /// The sum of all differences, none of which makes up for another.
    pub wrong: u64,
    /// 100 less what is wrong in percent of what moved, at least 0; `None` if both are below 10: the row does not count.
    pub percent: Option<f64>,
}

impl Score {
    fn new(quantity: &'static str, of: &'static str, moved: u64, wrong: u64) -> Score {
        let error = wrong as f64 / moved.max(SCORED_FROM) as f64;
        let is_counted = moved.max(wrong) >= SCORED_FROM;
        let percent = is_counted.then(|| 100.0 * (1.0 - error.min(1.0)));
        Score { quantity, of, moved, wrong, percent }
    }
}

/// The row of the score that is worst.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct Worst {
    /// Its name.
    pub quantity: &'static str,
    /// Its score.
    pub percent: f64,
}

/// Starts that were drawn among those which the recording leaves open.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct Starts {
    /// How many.
    pub drawn: u64,
    /// How likely another start, drawn in the same way, comes to a figure within the range of these, at least: (n - 1) / (n + 1). It says
    /// nothing of what the rules get wrong.
    pub level_percent: f64,
}

impl Starts {
    /// So many; `None` of none.
    pub(crate) fn new(drawn: u64) -> Option<Starts> {
        let level_percent = 100.0 * drawn.saturating_sub(1) as f64 / (drawn + 1) as f64;
        (drawn > 0).then_some(Starts { drawn, level_percent })
    }
}

/// How exactly a replay predicts what its kernel logged.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct Fidelity {
    /// The score: the mean of the [`scores`](Self::scores) that count. `None` if none does.
    pub percent: Option<f64>,
    /// What that means, in a sentence.
    pub meaning: &'static str,
    /// The least of the scores that count.
    pub worst: Option<Worst>,
    /// The score over runs of refills and drains and their pages, of pagesets whose state no longer depends on the start.
    pub percent_known_state: Option<f64>,
    /// The rows of the score.
    pub scores: Vec<Score>,
    /// Of which starts [`Row::drawn_range`] is the range; `None` if the kernel's own state is the start.
    pub starts: Option<Starts>,
    /// What was predicted and recorded, in full.
    pub rows: Vec<Row>,
}

impl Fidelity {
    /// The row of a quantity over all zones.
    pub fn over_all(&self, quantity: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.quantity == quantity && row.place == "all")
    }
}

/// Compares a replay with what was recorded. `unlogged` are the [`unlogged_allocs`].
pub(crate) fn compare(
    start: &Start,
    replayed: &Replayed,
    truth: &Truth,
    unlogged: &[i64],
    choice: ZoneChoice,
) -> Fidelity {
    let mut table = Table { start, outcomes: &replayed.outcomes, rows: Vec::new() };
    let recorded = &replayed.recorded;
    let log = recorded.has_kernel_events;
    let has_flows = recorded.has_flow_events;
    let flow =
        |of: fn(&Flow) -> u64| move |zone: usize| has_flows.then(|| of(&recorded.flows[zone]));
    for (quantity, part) in PARTS {
        let predicted = move |outcome: &Outcome, zone: usize| part(&outcome.flows[zone]);
        table.by_zone(quantity, Some(&predicted), flow(part), None);
    }
    table.pagesets(truth);
    let free = |outcome: &Outcome, zone: usize| outcome.free_pages[zone];
    let at_end = |zone: usize| truth.free_after.as_ref().map(|pages| pages[zone]);
    table.by_zone("free_pages", Some(&free), at_end, Some("end"));
    table.numa(truth, unlogged, choice);
    let fallback = |outcome: &Outcome, zone: usize| outcome.fallback_pages[zone];
    let fallback = placed(&fallback, choice);
    // The frames of allocations tell, but they are also what is replayed: without a log of the kernel there is nothing
    // to compare with.
    let has_log = log || truth.after.is_some();
    let from = |zone: usize| has_log.then(|| recorded.fallback_pages[zone]);
    table.by_zone("fallback_pages", fallback, from, None);
    let extfrag: Vec<u64> = replayed.outcomes.iter().map(|outcome| outcome.extfrag).collect();
    table.add("extfrag", "all".into(), None, Some(&extfrag), log.then_some(recorded.extfrag));
    let rows = table.rows;
    let scores = scores_of(start, &replayed.outcomes[0], replayed, truth);
    let known = flow_scores(&replayed.outcomes[0].known_flows, &recorded.known_flows);
    let known = mean(&known).filter(|_| has_flows);
    Fidelity {
        percent: mean(&scores),
        meaning: MEANING,
        worst: worst(&scores),
        percent_known_state: known,
        scores,
        starts: Starts::new(replayed.outcomes.len() as u64 - 1),
        rows,
    }
}

type Part = (&'static str, fn(&Flow) -> u64);
const PARTS: [Part; 4] = [
    ("refills", |flow| flow.refills),
    ("refill_pages", |flow| flow.refill_pages),
    ("drains", |flow| flow.drains),
    ("drain_pages", |flow| flow.drain_pages),
];

/// Runs and their pages, zone by zone: what the kernel moved, and what is wrong of it.
fn flow_scores(predicted: &[Flow], recorded: &[Flow]) -> [Score; 4] {
    PARTS.map(|(quantity, part)| {
        let moved = recorded.iter().map(part).sum();
        let pairs = predicted.iter().zip(recorded);
        let wrong = pairs.map(|(own, kernel)| part(own).abs_diff(part(kernel))).sum();
        let of =
            if quantity.ends_with("pages") { "pages of those runs" } else { "runs of each zone" };
        Score::new(quantity, of, moved, wrong)
    })
}

/// The rows of the score of an outcome, as far as the recording tells.
fn scores_of(start: &Start, outcome: &Outcome, replayed: &Replayed, truth: &Truth) -> Vec<Score> {
    let (recorded, end) = (&replayed.recorded, replayed.end.as_ref());
    let mut scores = Vec::new();
    if recorded.has_flow_events {
        scores.extend(flow_scores(&outcome.flows, &recorded.flows));
        let (own, kernel) = (&outcome.lengths, recorded.lengths());
        let of = "pages of those runs, the longest beside the longest";
        scores.push(Score::new("holds", of, kernel.pages(), own.differing_pages(kernel)));
    }
    scores.extend(pageset_score(start, outcome, end, truth));
    scores.extend(free_list_score(start, outcome, end, truth));
    scores
}

/// Each CPU's pageset at each sample and at the end; list by list at the end, if the kernel's lists are known.
fn pageset_score(
    start: &Start,
    outcome: &Outcome,
    end: Option<&StateEnd>,
    truth: &Truth,
) -> Option<Score> {
    let (mut moved, mut wrong, mut is_told) = (0, 0, end.is_some());
    for snapshot in &outcome.snapshots {
        if end.is_some() && snapshot.sample.is_none() {
            continue;
        }
        for own in &snapshot.pagesets {
            let count = truth.pageset(start, snapshot.sample, own).and_then(|record| record.count);
            let Some(recorded) = count else { continue };
            let before = start.zones[own.zone].pageset(own.cpu).map_or(0, |at| at.count.0);
            moved += recorded.abs_diff(before);
            wrong += recorded.abs_diff(own.count);
            is_told = true;
        }
    }
    let of = match end {
        Some(_) => "pages of each pageset at each sample, and of each of its lists at the end",
        None => "pages of each pageset at each sample and at the end",
    };
    if let Some(lists) = end.map(|end| &end.pagesets) {
        moved += lists.moved_pages;
        wrong += lists.differing_pages;
    }
    is_told.then(|| Score::new("pagesets", of, moved, wrong))
}

/// Each free list at the end.
fn free_list_score(
    start: &Start,
    outcome: &Outcome,
    end: Option<&StateEnd>,
    truth: &Truth,
) -> Option<Score> {
    let of = "pages of each free list at the end, by zone, type and order";
    if let Some(lists) = end.map(|end| &end.free_lists) {
        return Some(Score::new("free_lists", of, lists.moved_pages, lists.differing_pages));
    }
    let (mut moved, mut wrong) = (0, 0);
    let predicted = start.zones.iter().zip(&outcome.free_lists);
    for ((zone, own), kernel) in predicted.zip(truth.free_lists_after.as_ref()?) {
        moved += differing_pages(kernel, &zone.free);
        wrong += differing_pages(kernel, own);
    }
    Some(Score::new("free_lists", of, moved, wrong))
}

/// Pages by which free lists differ.
fn differing_pages(one: &Blocks, other: &Blocks) -> u64 {
    let lists = Migratetype::ALL
        .into_iter()
        .flat_map(|of| (0..Order::COUNT).map(move |order| (of.index(), order)));
    lists.map(|(of, order)| one[of][order].abs_diff(other[of][order]) << order).sum()
}

/// The worst of the rows that count.
fn worst(scores: &[Score]) -> Option<Worst> {
    let counted = scores
        .iter()
        .filter_map(|&Score { quantity, percent, .. }| Some(Worst { quantity, percent: percent? }));
    counted.min_by(|a, b| a.percent.total_cmp(&b.percent))
}

/// The mean of the rows that count.
fn mean(scores: &[Score]) -> Option<f64> {
    let counted: Vec<f64> = scores.iter().filter_map(|score| score.percent).collect();
    (!counted.is_empty()).then(|| counted.iter().sum::<f64>() / counted.len() as f64)
}

type OfZone<'a> = &'a dyn Fn(&Outcome, usize) -> u64;

/// A prediction about placement: none if the recording placed the pages.
fn placed(of: OfZone<'_>, choice: ZoneChoice) -> Option<OfZone<'_>> {
    (choice == ZoneChoice::Model).then_some(of)
}

/// By zone, how many more allocations the kernel counted than the trace has events or calls of. They are taken off the
/// recorded `numa_hit`.
pub(crate) fn unlogged_allocs(start: &Start, replayed: &Replayed, truth: &Truth) -> Vec<i64> {
    let of_zone = |zone: usize| {
        let [hit, miss, _] = truth.numa_changes(&start.zones[zone]);
        let logged = replayed.recorded.allocs[zone] + replayed.outcomes[0].untold_allocs[zone];
        Some(hit? as i64 + miss? as i64 - logged as i64 - start.allocs_before(zone))
    };
    (0..start.zones.len()).map(|zone| of_zone(zone).unwrap_or(0)).collect()
}

struct Table<'a> {
    start: &'a Start,
    outcomes: &'a [Outcome],
    rows: Vec<Row>,
}

impl Table<'_> {
    fn add(
        &mut self,
        quantity: &'static str,
        place: String,
        moment: Option<String>,
        predicted: Option<&[u64]>,
        recorded: Option<u64>,
    ) {
        self.rows.push(Row::new(quantity, place, moment, predicted, recorded));
    }

    /// A row for each zone, and their sum.
    fn by_zone(
        &mut self,
        quantity: &'static str,
        predicted: Option<OfZone<'_>>,
        recorded: impl Fn(usize) -> Option<u64>,
        moment: Option<&str>,
    ) {
        let zones = 0..self.start.zones.len();
        let moment = moment.map(str::to_owned);
        let values = |zones: std::ops::Range<usize>| {
            let sum = |outcome, of: OfZone<'_>| zones.clone().map(|zone| of(outcome, zone)).sum();
            predicted.map(|of| self.outcomes.iter().map(|o| sum(o, of)).collect::<Vec<u64>>())
        };
        let all = values(zones.clone());
        let each: Vec<_> = zones.clone().map(|zone| values(zone..zone + 1)).collect();
        let total = zones.clone().map(&recorded).sum::<Option<u64>>();
        self.add(quantity, "all".into(), moment.clone(), all.as_deref(), total);
        for (zone, predicted) in zones.zip(each) {
            let place = self.start.zones[zone].name();
            self.add(quantity, place, moment.clone(), predicted.as_deref(), recorded(zone));
        }
    }

    fn numa(&mut self, truth: &Truth, unlogged: &[i64], choice: ZoneChoice) {
        for (counter, quantity) in ["numa_hit", "numa_miss", "numa_foreign"].into_iter().enumerate()
        {
            let start = self.start;
            let recorded = |zone: usize| {
                let change = truth.numa_changes(&start.zones[zone])[counter]?;
                let before = unlogged[zone] + start.allocs_before(zone);
                let without_event = if counter == 0 { before } else { 0 };
                Some(change.saturating_add_signed(-without_event))
            };
            let predicted = |outcome: &Outcome, zone: usize| outcome.numa[zone][counter];
            self.by_zone(quantity, placed(&predicted, choice), recorded, None);
        }
    }

    /// Limit and pages of each pageset at each sample and at the end, and all pages at the end.
    fn pagesets(&mut self, truth: &Truth) {
        let mut total = (vec![0; self.outcomes.len()], Some(0));
        let Some(first) = self.outcomes.first() else { return };
        for (at, snapshot) in first.snapshots.iter().enumerate() {
            let moment =
                snapshot.sample.map_or("end".to_owned(), |number| format!("sample {number}"));
            for (index, pageset) in snapshot.pagesets.iter().enumerate() {
                let &PagesetAt { cpu, zone, .. } = pageset;
                let of = |part: fn(&PagesetAt) -> u64| -> Vec<u64> {
                    let values = |outcome: &Outcome| part(&outcome.snapshots[at].pagesets[index]);
                    self.outcomes.iter().map(values).collect()
                };
                let (counts, highs) = (of(|pageset| pageset.count), of(|pageset| pageset.high));
                let record = truth.pageset(self.start, snapshot.sample, pageset);
                let count = record.and_then(|record| record.count);
                let high = record.and_then(|record| record.high);
                if snapshot.sample.is_none() {
                    total.0.iter_mut().zip(&counts).for_each(|(sum, count)| *sum += count);
                    total.1 = total.1.zip(count).map(|(sum, count)| sum + count);
                }
                let place = format!("cpu {cpu} {}", self.start.zones[zone].name());
                self.add("pcp_high", place.clone(), Some(moment.clone()), Some(&highs), high);
                self.add("pcp_count", place, Some(moment.clone()), Some(&counts), count);
            }
        }
        let has_end = first.snapshots.iter().any(|snapshot| snapshot.sample.is_none());
        if has_end {
            self.add("pcp_count", "all".into(), Some("end".into()), Some(&total.0), total.1);
        }
    }
}

#[cfg(test)]
mod tests {
    use nearpage::Model;
    use nearpage_machine::work::Unwatched;

    use super::*;
    use crate::bundle::Bundle;
    use crate::flow::Lengths;
    use crate::pilot::survey;
    use crate::session::replay_likely;
    use crate::watch::Watch;

    /// A replay that can be told to have come to something else.
    struct Told {
        start: Start,
        truth: Truth,
        replayed: Replayed,
    }

    impl Told {
        fn new() -> Told {
            let bundle = Bundle::shipped();
            let before = bundle.recording().capture(Some("before")).unwrap();
            let start = Start::read(bundle.name(), before, 4096, Model::LINUX_6_12).unwrap();
            let watch = Watch::new(&Unwatched, bundle.pass_bytes(), 9);
            let survey = survey(&bundle, &start, &watch).unwrap();
            let truth = Truth::read(&bundle, &start, bundle.samples(&watch).unwrap(), true);
            let replayed = replay_likely(&bundle, &start, &survey, &watch).unwrap();
            Told { start, truth: truth.unwrap(), replayed }
        }

        /// The rows of the score of what it came to, but for a change.
        fn with(&self, change: impl FnOnce(&mut Outcome)) -> Vec<Score> {
            let mut outcome = self.replayed.outcomes[0].clone();
            change(&mut outcome);
            let Told { start, truth, replayed } = self;
            scores_of(start, &outcome, replayed, truth)
        }

        /// With so many pages in each pageset.
        fn fill(&self, outcome: &mut Outcome, count: impl Fn(Option<u32>, &PagesetAt) -> u64) {
            for snapshot in &mut outcome.snapshots {
                for pageset in &mut snapshot.pagesets {
                    pageset.count = count(snapshot.sample, pageset);
                }
            }
        }
    }

    /// The two ends of the scale.
    #[test]
    fn all_is_100_and_nothing_is_0() {
        let told = Told::new();
        let nothing = told.with(|outcome| {
            outcome.flows.fill(Flow::default());
            outcome.lengths = Lengths::default();
            outcome.free_lists = told.start.zones.iter().map(|zone| zone.free).collect();
            let before =
                |of: &PagesetAt| told.start.zones[of.zone].pageset(of.cpu).unwrap().count.0;
            told.fill(outcome, |_, of| before(of));
        });
        assert!(nothing.iter().all(|score| score.percent == Some(0.0)), "{nothing:?}");
        assert_eq!(mean(&nothing), Some(0.0));
        let all = told.with(|outcome| {
            outcome.flows = told.replayed.recorded.flows.clone();
            outcome.lengths = told.replayed.recorded.lengths().clone();
            outcome.free_lists = told.truth.free_lists_after.clone().unwrap();
            told.fill(outcome, |sample, of| {
                let record = told.truth.pageset(&told.start, sample, of);
                record.and_then(|record| record.count).unwrap_or(0)
            });
        });
        assert!(all.len() == 7 && all.iter().all(|score| score.wrong == 0), "{all:?}");
        assert_eq!(mean(&all), Some(100.0));
    }

    /// What moves the wrong way, and twice as much, is no better than nothing.
    #[test]
    fn wrong_moves_make_up_for_nothing() {
        let score = |moved, wrong| Score::new("drains", "", moved, wrong).percent;
        assert_eq!(score(1000, 0), Some(100.0));
        assert_eq!(score(1000, 10), Some(99.0));
        assert_eq!(
            (score(1000, 1000), score(1000, 9000), score(0, 10)),
            (Some(0.0), Some(0.0), Some(0.0))
        );
        assert_eq!((score(9, 9), score(0, 0)), (None, None), "too few");
        let told = Told::new();
        // Pages that one zone has too many and another too few.
        let drained = told.with(|outcome| {
            outcome.flows = told.replayed.recorded.flows.clone();
            outcome.flows[0].drain_pages += 5000;
            outcome.flows[1].drain_pages -= 5000;
        });
        let drained = drained.iter().find(|score| score.quantity == "drain_pages").unwrap();
        assert_eq!(drained.wrong, 10_000);
    }

    /// What is given with the trace, or is of memory that exists, cannot raise a score.
    #[test]
    fn what_is_right_by_construction_counts_nothing() {
        let told = Told::new();
        let whole = told.with(|_| ());
        let changed = told.with(|outcome| {
            outcome.numa.fill([1 << 40; 3]);
            outcome.free_pages.fill(0);
            outcome.fallback_pages.fill(1 << 40);
            outcome.extfrag = 1 << 40;
        });
        assert_eq!(changed, whole);
        assert!(SCORED.iter().all(|name| !name.starts_with("numa") && *name != "free_pages"));
    }
}
