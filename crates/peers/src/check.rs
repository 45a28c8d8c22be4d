//! The musts: what nearpage has to reach beside its peers, as data, and their evaluation.
//!
//! Each figure is made of medians of one run. A row that is not there is a miss with its reason, shown as `n/a`: a
//! promise that nothing has measured is not kept.

mod malloc;
mod musts;
mod objects;

use serde::Serialize;

use crate::fact::Fact;
use crate::pages::Run;
use crate::sample::{Bench, Key, Row};
use crate::source::Role;
pub use musts::MUSTS;

/// A bound of a figure.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Bound {
    /// This or less.
    AtMost(f64),
    /// This or more.
    AtLeast(f64),
}

impl Bound {
    /// Whether `value` is within the bound.
    pub fn holds(self, value: f64) -> bool {
        match self {
            Bound::AtMost(limit) => value <= limit,
            Bound::AtLeast(limit) => value >= limit,
        }
    }
}

/// One promise.
pub struct Must {
    /// Short name.
    pub name: &'static str,
    /// What is compared.
    pub what: &'static str,
    /// Written behind figure and bounds.
    pub unit: &'static str,
    /// What has to hold; `None` for what is only aimed at.
    pub limit: Option<Bound>,
    /// What is aimed at.
    pub aim: Bound,
    /// Makes the figure.
    pub figure: fn(&Results) -> Result<Figure, String>,
}

/// A figure, and what it is made of.
#[derive(Clone, PartialEq, Debug)]
pub struct Figure {
    /// The figure itself.
    pub value: f64,
    /// The medians behind it.
    pub made_of: String,
}

/// How one promise came out.
#[derive(Debug, Serialize)]
pub struct Verdict {
    /// Name of the promise.
    pub name: &'static str,
    /// What is compared.
    pub what: &'static str,
    /// The figure; `None` if something that it is made of was not measured.
    pub value: Option<f64>,
    /// Unit of the figure.
    pub unit: &'static str,
    /// What the figure is made of, or what is missing.
    pub made_of: String,
    /// The bound that has to hold, in words.
    pub must: Option<String>,
    /// The bound that is aimed at, in words.
    pub aim: String,
    /// Whether what has to hold does.
    pub ok: bool,
    /// Whether what is aimed at is reached.
    pub aim_reached: bool,
}

/// Evaluates all promises about pages.
pub fn evaluate(results: &Results) -> Vec<Verdict> {
    MUSTS.iter().map(|must| verdict(must, results)).collect()
}

/// Evaluates all promises about objects.
pub fn evaluate_objects(results: &Results) -> Vec<Verdict> {
    objects::MUSTS.iter().map(|must| verdict(must, results)).collect()
}

/// Evaluates all promises about the malloc.
pub fn evaluate_malloc(results: &Results) -> Vec<Verdict> {
    malloc::MUSTS.iter().map(|must| verdict(must, results)).collect()
}

fn verdict(must: &Must, results: &Results) -> Verdict {
    let figure = (must.figure)(results);
    let value = figure.as_ref().ok().map(|figure| figure.value);
    let holds = |bound: Bound| value.is_some_and(|value| bound.holds(value));
    Verdict {
        name: must.name,
        what: must.what,
        value,
        unit: must.unit,
        made_of: figure.map_or_else(|missing| missing, |figure| figure.made_of),
        must: must.limit.map(|bound| words(bound, must.unit)),
        aim: words(must.aim, must.unit),
        ok: must.limit.is_none_or(holds),
        aim_reached: holds(must.aim),
    }
}

/// A bound as it is written.
pub fn words(bound: Bound, unit: &str) -> String {
    match bound {
        Bound::AtMost(limit) => format!("<= {limit}{unit}"),
        Bound::AtLeast(limit) => format!(">= {limit}{unit}"),
    }
}

const NO_SEQUENCES: &str = "nearpage ran without restartable sequences, NEARPAGE_RSEQ=off \
     or not to be had here: `nearpage topo` says why";

/// All that a run has measured.
pub struct Results<'a> {
    /// Times per page.
    pub rows: &'a [Row],
    /// The rest.
    pub facts: &'a [Fact],
    /// nearpage's pageset storage, as [`crate::nearpage::storage`] names it.
    pub storage: Option<&'static str>,
}

impl<'a> Results<'a> {
    /// Those of a run.
    pub fn of(run: &'a Run) -> Self {
        Self { rows: &run.rows, facts: &run.facts, storage: run.machine.storage }
    }

    /// The promises about nearpage are about its restartable sequences. Without them its rows are those of
    /// nearpage-locked, and a ratio made of them says nothing about a promise.
    fn check_judgeable(&self, allocator: &str) -> Result<(), String> {
        match self.storage {
            Some("locked") if allocator == "nearpage" => Err(NO_SEQUENCES.into()),
            _ => Ok(()),
        }
    }

    /// Median of `allocator`; `Err` names the row that is missing.
    fn median(&self, key: Key, allocator: &str) -> Result<f64, String> {
        self.check_judgeable(allocator)?;
        let of = |row: &&Row| row.key() == key && row.allocator == allocator;
        let row = self.rows.iter().find(of);
        let Key { bench, threads, n } = key;
        let missing =
            || format!("no row {} of {allocator}, threads {threads}, n {n}", bench.name());
        row.map(|row| row.ns_median).ok_or_else(missing)
    }

    /// The fastest of those with one of `roles`, and its median.
    fn best(&self, key: Key, roles: &[Role]) -> Result<(&'static str, f64), String> {
        let rivals = self.rows.iter().filter(|row| roles.contains(&Role::of(row.allocator)));
        let best = rivals
            .filter(|row| row.key() == key)
            .min_by(|a, b| a.ns_median.total_cmp(&b.ns_median));
        best.map(|row| (row.allocator, row.ns_median))
            .ok_or_else(|| format!("no row {} of any peer", key.bench.name()))
    }

    /// The one row of `allocator` for `bench` on `threads` threads, whatever its `n`.
    fn only(&self, bench: Bench, threads: usize, allocator: &str) -> Result<(Key, f64), String> {
        self.check_judgeable(allocator)?;
        let of =
            |row: &&Row| (row.bench, row.threads, row.allocator) == (bench, threads, allocator);
        let row = self.rows.iter().find(of);
        row.map(|row| (row.key(), row.ns_median))
            .ok_or_else(|| format!("no row {} of {allocator}, threads {threads}", bench.name()))
    }

    /// The one row of `allocator` for `bench`, whatever its threads and `n`.
    fn only_any(&self, bench: Bench, allocator: &str) -> Result<(Key, f64), String> {
        self.check_judgeable(allocator)?;
        let row = self.rows.iter().find(|row| (row.bench, row.allocator) == (bench, allocator));
        row.map(|row| (row.key(), row.ns_median))
            .ok_or_else(|| format!("no row {} of {allocator}", bench.name()))
    }

    fn fact(&self, name: &str) -> Result<f64, String> {
        let fact = self.facts.iter().find(|fact| fact.name == name);
        fact.map(|fact| fact.value).ok_or_else(|| format!("no fact {name}"))
    }
}

/// The evaluation, on made-up rows.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::task;

    fn row(bench: Bench, allocator: &'static str, threads: usize, n: usize, ns: f64) -> Row {
        Row { bench, allocator, threads, n, ns_median: ns, ns_min: ns, ns_max: ns }
    }

    const RSEQ: Option<&str> = Some("rseq");

    /// Rows with which every promise and every aim is kept.
    fn good_rows() -> Vec<Row> {
        let mut rows = vec![
            row(Bench::Pair, "rseq-limit", 1, 1, 2.0),
            row(Bench::Pair, "nearpage", 1, 1, 3.0),
            row(Bench::Pair, "nearpage", 2, 1, 3.1),
            row(Bench::Pair, "nearpage-locked", 1, 1, 18.0),
            row(Bench::Pair, "harness-floor", 1, 1, 0.1),
            row(Bench::Pair, "snmalloc", 1, 1, 7.0),
            row(Bench::Pair, "glibc", 1, 1, 90.0),
            row(Bench::Order9Pair, "nearpage", 1, 1, 4.0),
            row(Bench::Cross, "nearpage", 2, 1, 10.0),
            row(Bench::Cross, "snmalloc", 2, 1, 40.0),
            row(Bench::Pair, "bare-stacks", 1, 1, 1.0),
            row(Bench::Pair, "bare-stacks", 2, 1, 1.0),
        ];
        for bench in [Bench::Fill, Bench::FreeLifo, Bench::FreeRandom] {
            rows.push(row(bench, "nearpage", 1, 200_000, 4.0));
            rows.push(row(bench, "nearpage", 2, 200_000, 4.4));
            rows.push(row(bench, "bitmap-allocator", 1, 200_000, 17.0));
            rows.push(row(bench, "bare-stacks", 1, 200_000, 1.0));
            rows.push(row(bench, "bare-stacks", 2, 200_000, 1.1));
        }
        for n in task::series(16_384) {
            rows.push(row(Bench::SingleAlloc, "nearpage", 1, n, 3.0));
            rows.push(row(Bench::SingleFree, "nearpage", 1, n, 3.0));
            for bench in [Bench::BulkAlloc, Bench::BulkFree] {
                for threads in 1..=2 {
                    rows.push(row(bench, "nearpage", threads, n, 0.5));
                    rows.push(row(bench, "bare-stacks", threads, n, 0.5));
                }
            }
        }
        rows
    }

    fn good_facts() -> Vec<Fact> {
        vec![
            Fact { name: Fact::ONLINE_64G_MS, value: 4.0 },
            Fact { name: Fact::ONLINE_64G_RESIDENT_MIB, value: 7.0 },
        ]
    }

    /// Names of the promises that are missed with these rows.
    fn missed(rows: &[Row]) -> Vec<&'static str> {
        let facts = good_facts();
        let verdicts = evaluate(&Results { rows, facts: &facts, storage: RSEQ });
        verdicts.iter().filter(|verdict| !verdict.ok).map(|verdict| verdict.name).collect()
    }

    /// The good rows with another median where `which` says so.
    fn with(ns: f64, which: impl Fn(&Row) -> bool) -> Vec<Row> {
        let mut rows = good_rows();
        let mut changed = 0;
        for row in rows.iter_mut().filter(|row| which(row)) {
            row.ns_median = ns;
            changed += 1;
        }
        assert!(changed > 0, "the test changes a row");
        rows
    }

    fn is(bench: Bench, allocator: &'static str, threads: usize) -> impl Fn(&Row) -> bool {
        move |row| (row.bench, row.allocator, row.threads) == (bench, allocator, threads)
    }

    #[test]
    fn good_rows_keep_all_promises_and_reach_all_aims() {
        let (rows, facts) = (good_rows(), good_facts());
        for verdict in evaluate(&Results { rows: &rows, facts: &facts, storage: RSEQ }) {
            assert!(verdict.ok && verdict.aim_reached, "{verdict:?}");
        }
    }

    #[test]
    fn each_promise_is_missed_by_the_row_that_breaks_it() {
        let slow_large = |row: &Row| is(Bench::BulkAlloc, "nearpage", 1)(row) && row.n == 16_384;
        let breaks: [(Vec<Row>, &[&str]); 9] = [
            (with(1.19, is(Bench::Pair, "rseq-limit", 1)), &["pair-limit"]),
            (with(3.5, is(Bench::Pair, "snmalloc", 1)), &["pair-peer"]),
            (with(7.9, is(Bench::Fill, "bitmap-allocator", 1)), &["fill-peer"]),
            (with(5.9, is(Bench::FreeLifo, "bitmap-allocator", 1)), &["free-lifo-peer"]),
            (
                with(1.9, is(Bench::FreeRandom, "bitmap-allocator", 1)),
                &["free-random-peer", "free-random-bitmap"],
            ),
            (with(4.0, is(Bench::Pair, "nearpage", 2)), &["two-threads-pair"]),
            (with(0.7, is(Bench::BulkFree, "nearpage", 2)), &["two-threads-bulk"]),
            (with(7.3, is(Bench::FreeLifo, "nearpage", 2)), &["two-threads-fill"]),
            (with(1.6, slow_large), &["bulk-single", "bulk-flat"]),
        ];
        for (rows, expected) in breaks {
            assert_eq!(missed(&rows), expected);
        }
        let small = |row: &Row| is(Bench::BulkFree, "nearpage", 1)(row) && row.n == 3;
        assert_eq!(missed(&with(3.7, small)), ["bulk-small"]);
        assert_eq!(missed(&with(19.0, is(Bench::Cross, "snmalloc", 2))), ["cross-peer"]);
        assert_eq!(missed(&with(9.1, is(Bench::Order9Pair, "nearpage", 1))), ["order9"]);
        assert_eq!(missed(&with(30.1, is(Bench::Pair, "nearpage-locked", 1))), ["locked-pair"]);
    }

    #[test]
    fn a_limit_itself_keeps_the_promise() {
        assert_eq!(missed(&with(3.6, is(Bench::Pair, "snmalloc", 1))), Vec::<&str>::new());
        assert_eq!(missed(&with(30.0, is(Bench::Pair, "nearpage-locked", 1))), Vec::<&str>::new());
    }

    #[test]
    fn a_missing_row_is_a_miss_that_names_it() {
        let rows: Vec<Row> =
            good_rows().into_iter().filter(|row| !row.allocator.starts_with("nearpage")).collect();
        let verdicts = evaluate(&Results { rows: &rows, facts: &[], storage: RSEQ });
        assert!(
            verdicts.iter().filter(|verdict| verdict.must.is_some()).all(|verdict| !verdict.ok)
        );
        let reason =
            |name| &verdicts.iter().find(|verdict| verdict.name == name).expect(name).made_of;
        assert_eq!(reason("pair-peer"), "no row pair of nearpage, threads 1, n 1");
        assert_eq!(reason("bulk-single"), "no row bulk_alloc of nearpage, threads 1, n 16");
        assert_eq!(reason("online-time"), "no fact online_64g_ms");
    }

    #[test]
    fn without_sequences_only_what_is_not_about_them_is_judged() {
        let (rows, facts) = (good_rows(), good_facts());
        let verdicts = evaluate(&Results { rows: &rows, facts: &facts, storage: Some("locked") });
        let judged = verdicts.iter().filter(|verdict| verdict.value.is_some());
        let names: Vec<_> = judged.map(|verdict| verdict.name).collect();
        assert_eq!(names, ["locked-pair", "online-time", "online-memory"]);
        let mut text = Vec::new();
        crate::report::write_checks(&mut text, &verdicts).expect("memory takes all");
        let text = String::from_utf8(text).expect("text");
        let pair = text.lines().find(|line| line.contains("pair-limit")).expect("a line");
        assert!(pair.starts_with("n/a "), "{pair}");
        assert!(pair.contains("without restartable sequences, NEARPAGE_RSEQ=off or"), "{pair}");
        assert!(text.ends_with("\n14 of 18 missed, 14 of them cannot be judged (n/a)\n"), "{text}");
    }

    #[test]
    fn what_is_only_aimed_at_is_never_missed() {
        let rows = with(0.7, is(Bench::BulkAlloc, "nearpage", 1));
        let facts = good_facts();
        let verdicts = evaluate(&Results { rows: &rows, facts: &facts, storage: RSEQ });
        let aim = verdicts.iter().find(|verdict| verdict.name == "bulk-ns").expect("bulk-ns");
        assert!(aim.ok && !aim.aim_reached && aim.must.is_none(), "{aim:?}");
    }

    #[test]
    fn a_bound_is_not_a_peer() {
        let (rows, facts) = (good_rows(), good_facts());
        let results = Results { rows: &rows, facts: &facts, storage: RSEQ };
        let pair = Key { bench: Bench::Pair, threads: 1, n: 1 };
        assert_eq!(results.best(pair, &[Role::Peer]), Ok(("snmalloc", 7.0)));
    }

    #[test]
    fn a_pool_of_one_size_counts_in_pairs_and_is_shown_elsewhere() {
        let mut rows = good_rows();
        rows.push(row(Bench::Pair, "dpdk", 1, 1, 3.5));
        rows.push(row(Bench::Fill, "dpdk", 1, 200_000, 3.5));
        assert_eq!(missed(&rows), ["pair-peer"]);
        let facts = good_facts();
        let verdicts = evaluate(&Results { rows: &rows, facts: &facts, storage: RSEQ });
        let fill = verdicts.iter().find(|verdict| verdict.name == "fill-peer").expect("fill-peer");
        assert_eq!(fill.made_of, "nearpage 4 ns; bitmap-allocator 17 ns; not counted: dpdk 3.5 ns");
    }
}
