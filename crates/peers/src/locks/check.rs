//! The musts of page locks.

use super::Run;
use super::hand_over::HandOvers;
use super::measure::{Bench, Row};
use crate::check::Bound::{self, AtLeast, AtMost};
use crate::check::{Figure, Verdict, words};

/// Evaluates all promises.
pub fn evaluate(run: &Run) -> Vec<Verdict> {
    let ratio = |bench| ratio(&run.rows, bench);
    let inverse = |figure: Figure| Figure { value: 1.0 / figure.value, ..figure };
    vec![
        verdict(
            "lock-pair",
            "page lock and unlock, uncontended, against parking_lot's raw mutex",
            ("x", AtMost(1.2), AtMost(1.0)),
            ratio(Bench::LockPair),
        ),
        verdict(
            "lock-contended",
            "2 threads on one page lock: throughput against parking_lot",
            ("x", AtLeast(0.8), AtLeast(1.0)),
            ratio(Bench::LockContended).map(inverse),
        ),
        verdict(
            "lock-hand-overs",
            "64 threads, 64 pages: share of the hand-overs done, no wake-up lost",
            ("", AtLeast(1.0), AtLeast(1.0)),
            Ok(hand_overs(&run.hand_overs)),
        ),
    ]
}

/// nearpage's median, as a multiple of parking_lot's.
fn ratio(rows: &[Row], bench: Bench) -> Result<Figure, String> {
    let median = |name: &str| {
        let row = rows.iter().find(|row| row.bench == bench && row.allocator == name);
        row.map(|row| row.ns_median).ok_or_else(|| format!("no row {bench:?} of {name}"))
    };
    let (nearpage, parking_lot) = (median("nearpage")?, median("parking_lot")?);
    let made_of = format!("nearpage {nearpage} ns; parking_lot {parking_lot} ns");
    Ok(Figure { value: nearpage / parking_lot, made_of })
}

fn hand_overs(found: &HandOvers) -> Figure {
    let HandOvers { slept, wanted, rests, lost, longest_wait_ms, .. } = *found;
    let share = if wanted == 0 { 1.0 } else { (slept as f64 / wanted as f64).min(1.0) };
    let made_of = format!(
        "{slept} of {wanted} wake-ups, all at rest {rests} times, {lost} threads lost, longest wait \
         {longest_wait_ms:.1} ms"
    );
    Figure { value: if lost == 0 { share } else { 0.0 }, made_of }
}

fn verdict(
    name: &'static str,
    what: &'static str,
    (unit, must, aim): (&'static str, Bound, Bound),
    figure: Result<Figure, String>,
) -> Verdict {
    let value = figure.as_ref().ok().map(|figure| figure.value);
    let holds = |bound: Bound| value.is_some_and(|value| bound.holds(value));
    Verdict {
        name,
        what,
        value,
        unit,
        made_of: figure.map_or_else(|missing| missing, |figure| figure.made_of),
        must: Some(words(must, unit)),
        aim: words(aim, unit),
        ok: holds(must),
        aim_reached: holds(aim),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    fn run(pair: f64, contended: f64, lost: usize) -> Run {
        let row = |bench: Bench, allocator, ns| Row {
            bench,
            allocator,
            threads: bench.threads(),
            n: 0,
            ns_median: ns,
            ns_min: ns,
            ns_max: ns,
        };
        let rows = vec![
            row(Bench::LockPair, "nearpage", pair),
            row(Bench::LockPair, "parking_lot", 10.0),
            row(Bench::LockContended, "nearpage", contended),
            row(Bench::LockContended, "parking_lot", 100.0),
        ];
        let hand_overs = HandOvers {
            threads: 64,
            pages: 64,
            wanted: 100,
            locks: 200,
            slept: 101,
            handed_over: 1,
            longest_wait_ms: 3.0,
            seconds: 1.0,
            rests: 1,
            lost,
        };
        Run { machine: Machine::this(), rows, hand_overs }
    }

    fn missed(run: &Run) -> Vec<&'static str> {
        let verdicts = evaluate(run);
        verdicts.iter().filter(|verdict| !verdict.ok).map(|verdict| verdict.name).collect()
    }

    #[test]
    fn each_promise_is_missed_by_what_breaks_it() {
        assert_eq!(missed(&run(12.0, 125.0, 0)), Vec::<&str>::new());
        assert_eq!(missed(&run(12.1, 125.0, 0)), ["lock-pair"]);
        assert_eq!(missed(&run(12.0, 126.0, 0)), ["lock-contended"]);
        assert_eq!(missed(&run(12.0, 125.0, 1)), ["lock-hand-overs"]);
        let mut few = run(12.0, 125.0, 0);
        few.hand_overs.slept = 99;
        assert_eq!(missed(&few), ["lock-hand-overs"]);
        few.rows.clear();
        assert_eq!(missed(&few).len(), 3);
    }
}
