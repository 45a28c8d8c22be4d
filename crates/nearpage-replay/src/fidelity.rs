//! The fidelity of a replay: what was predicted beside what the kernel logged, row by row, and one score.

use serde::Serialize;

use crate::flow::Flow;
use crate::outcome::{Outcome, PagesetAt};
use crate::session::{Replayed, ZoneChoice};
use crate::start::Start;
use crate::truth::{Truth, find};

/// A row counts for the score if this much of its quantity was recorded or predicted: less is noise.
pub(crate) const SCORED_FROM: u64 = 500;

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
    /// The least and the most that any of the starts comes to; `None` if the kernel's own state is the start.
    pub start_bound: Option<[u64; 2]>,
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
        let bound = |values: &[u64]| Some([*values.iter().min()?, *values.iter().max()?]);
        // One start alone is no range.
        let start_bound = predicted.filter(|values| values.len() > 1).and_then(bound);
        let predicted = predicted.and_then(|values| values.first().copied());
        let error = |predicted: u64, recorded: u64| {
            (recorded > 0).then(|| predicted.abs_diff(recorded) as f64 / recorded as f64 * 100.0)
        };
        let error_percent = predicted.zip(recorded).and_then(|(of, than)| error(of, than));
        Row { quantity, place, moment, predicted, recorded, error_percent, start_bound }
    }

    /// The error that counts for the score, in percent: of what was recorded, or of [`SCORED_FROM`] where less was
    /// recorded. So a large prediction of what did not happen counts as wholly wrong, and the error of a quantity does
    /// not jump where its record passes the limit.
    fn scored_error(&self) -> Option<f64> {
        let (predicted, recorded) = self.predicted.zip(self.recorded)?;
        let is_scored = self.place == "all" && predicted.max(recorded) >= SCORED_FROM;
        let error = predicted.abs_diff(recorded) as f64 / recorded.max(SCORED_FROM) as f64 * 100.0;
        is_scored.then_some(error.min(100.0))
    }
}

/// How exactly a replay predicts what its kernel logged.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct Fidelity {
    /// The score: 100 less the mean of the errors of the quantities, over all zones, of which at least 500 were recorded
    /// or predicted. An error is |predicted − recorded| in percent of what was recorded, or of 500 where less was
    /// recorded, and at most 100. `None` without such a quantity.
    pub percent: Option<f64>,
    /// The same over refills and drains of pagesets whose state no longer depends on the start.
    pub percent_known_state: Option<f64>,
    /// The rows.
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
    let percent_known_state = score(&known_rows(replayed));
    Fidelity { percent: score(&rows), percent_known_state, rows }
}

type Part = (&'static str, fn(&Flow) -> u64);
const PARTS: [Part; 4] = [
    ("refills", |flow| flow.refills),
    ("refill_pages", |flow| flow.refill_pages),
    ("drains", |flow| flow.drains),
    ("drain_pages", |flow| flow.drain_pages),
];

/// Refills and drains of pagesets whose state is known by then, over all zones.
fn known_rows(replayed: &Replayed) -> Vec<Row> {
    let sum = |flows: &[Flow]| flows.iter().fold(Flow::default(), |sum, flow| sum.plus(*flow));
    let (Some(outcome), recorded) = (replayed.outcomes.first(), &replayed.recorded) else {
        return Vec::new();
    };
    let (predicted, kernel) = (sum(&outcome.known_flows), sum(&recorded.known_flows));
    let row = |(quantity, part): Part| {
        let recorded = recorded.has_flow_events.then(|| part(&kernel));
        Row::new(quantity, "all".into(), None, Some(&[part(&predicted)]), recorded)
    };
    PARTS.map(row).to_vec()
}

/// The mean of the scored rows' errors, taken off 100.
fn score(rows: &[Row]) -> Option<f64> {
    let errors: Vec<f64> = rows.iter().filter_map(Row::scored_error).collect();
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    (!errors.is_empty()).then_some(100.0 - mean)
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
            let zones = match snapshot.sample {
                Some(number) => {
                    truth.samples.iter().find(|sample| sample.number == number).map(|s| &*s.zones)
                }
                None => truth.after.as_deref(),
            };
            let moment =
                snapshot.sample.map_or("end".to_owned(), |number| format!("sample {number}"));
            for (index, &PagesetAt { cpu, zone, .. }) in snapshot.pagesets.iter().enumerate() {
                let of = |part: fn(&PagesetAt) -> u64| -> Vec<u64> {
                    let values = |outcome: &Outcome| part(&outcome.snapshots[at].pagesets[index]);
                    self.outcomes.iter().map(values).collect()
                };
                let (counts, highs) = (of(|pageset| pageset.count), of(|pageset| pageset.high));
                let record = zones
                    .and_then(|zones| find(zones, &self.start.zones[zone]))
                    .and_then(|zone| zone.pagesets.iter().find(|pageset| pageset.cpu == cpu));
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
    use super::*;

    fn row(predicted: u64, recorded: u64) -> Row {
        Row::new("drains", "all".into(), None, Some(&[predicted]), Some(recorded))
    }

    #[test]
    fn predictions_of_what_did_not_happen_lower_the_score() {
        let of = |rows: &[(u64, u64)]| {
            score(
                &rows
                    .iter()
                    .map(|&(predicted, recorded)| row(predicted, recorded))
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(of(&[(1000, 1000)]), Some(100.0));
        assert_eq!(of(&[(1000, 1000), (100_000, 0)]), Some(50.0));
        assert_eq!(of(&[(1000, 1000), (499, 0)]), Some(100.0), "noise");
        assert_eq!(of(&[(499, 0)]), None);
        // On both sides of the limit, about the same.
        assert_eq!((of(&[(550, 500)]), of(&[(549, 499)])), (Some(90.0), Some(90.0)));
        assert_eq!(of(&[(0, 500)]), Some(0.0));
        assert_eq!(row(100_000, 0).error_percent, None);
        assert_eq!(row(499, 998).error_percent, Some(50.0));
    }
}
