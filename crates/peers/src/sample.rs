//! What is measured, and how the measurements of several rounds become rows.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::stats::Summary;

/// The benchmarks, by the names that the JSON has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bench {
    /// One page allocated and freed, again and again.
    Pair,
    /// Many pages allocated one at a time.
    Fill,
    /// The same freed, last allocated first.
    FreeLifo,
    /// The same freed in random order.
    FreeRandom,
    /// Of many pages that are held, one chosen at random is freed and another allocated.
    Replace,
    /// Pages allocated on one CPU and freed on the other.
    Cross,
    /// One 2 MiB block allocated and freed, again and again.
    Order9Pair,
    /// `n` pages allocated one at a time.
    SingleAlloc,
    /// The same freed one at a time.
    SingleFree,
    /// `n` pages allocated by one call.
    BulkAlloc,
    /// The same freed by one call.
    BulkFree,
    /// One object allocated and freed, again and again; `n` is its size in bytes, as in all rows of objects.
    ObjPair,
    /// A million objects allocated.
    ObjFill,
    /// The same freed in random order.
    ObjFreeRandom,
    /// Objects allocated on one CPU and freed on the other.
    ObjCross,
    /// Pairs by all CPUs of an emulated node that has memory.
    ObjPairNear,
    /// Pairs by all CPUs of an emulated node without memory.
    ObjPairMemoryless,
    /// The same with the behaviour before 2010.
    ObjPairMemorylessOld,
}

impl Bench {
    /// All benchmarks, in the order of the report.
    pub const ALL: [Bench; 18] = [
        Bench::Pair,
        Bench::Order9Pair,
        Bench::Fill,
        Bench::FreeLifo,
        Bench::FreeRandom,
        Bench::Replace,
        Bench::Cross,
        Bench::SingleAlloc,
        Bench::SingleFree,
        Bench::BulkAlloc,
        Bench::BulkFree,
        Bench::ObjPair,
        Bench::ObjFill,
        Bench::ObjFreeRandom,
        Bench::ObjCross,
        Bench::ObjPairNear,
        Bench::ObjPairMemoryless,
        Bench::ObjPairMemorylessOld,
    ];

    /// The name of this benchmark in the JSON.
    pub fn name(self) -> &'static str {
        match self {
            Bench::Pair => "pair",
            Bench::Fill => "fill",
            Bench::FreeLifo => "free_lifo",
            Bench::FreeRandom => "free_random",
            Bench::Replace => "replace",
            Bench::Cross => "cross",
            Bench::Order9Pair => "order9_pair",
            Bench::SingleAlloc => "single_alloc",
            Bench::SingleFree => "single_free",
            Bench::BulkAlloc => "bulk_alloc",
            Bench::BulkFree => "bulk_free",
            Bench::ObjPair => "obj_pair",
            Bench::ObjFill => "obj_fill",
            Bench::ObjFreeRandom => "obj_free_random",
            Bench::ObjCross => "obj_cross",
            Bench::ObjPairNear => "obj_pair_near",
            Bench::ObjPairMemoryless => "obj_pair_memoryless",
            Bench::ObjPairMemorylessOld => "obj_pair_memoryless_old",
        }
    }

    /// Whether this benchmark is run for a series of `n`.
    pub fn is_series(self) -> bool {
        matches!(self, Bench::SingleAlloc | Bench::SingleFree | Bench::BulkAlloc | Bench::BulkFree)
            || self == Bench::ObjPair
    }

    /// Whether this benchmark is about objects.
    pub fn is_of_objects(self) -> bool {
        self.name().starts_with("obj_")
    }

    /// Whether this benchmark compares nearpage with itself.
    #[cfg(test)]
    pub fn is_of_nearpage_alone(self) -> bool {
        matches!(self, Bench::ObjPairNear | Bench::ObjPairMemoryless | Bench::ObjPairMemorylessOld)
    }
}

/// What one measurement is of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct Key {
    /// The benchmark.
    pub bench: Bench,
    /// Threads at work, each on a CPU of its own.
    pub threads: usize,
    /// Pages per call in a series, pages held in `fill`, `free_*` and `replace`, else 1.
    pub n: usize,
}

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// What it is of.
    pub key: Key,
    /// Nanoseconds per page, or per allocation and free together in pairs, `replace` and `cross`.
    pub ns: f64,
}

/// The measurements of all rounds of one thing.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The benchmark.
    pub bench: Bench,
    /// The allocator's name.
    pub allocator: &'static str,
    /// As in [`Key`].
    pub threads: usize,
    /// As in [`Key`].
    pub n: usize,
    /// Median over the rounds.
    pub ns_median: f64,
    /// The fastest round.
    pub ns_min: f64,
    /// The slowest round.
    pub ns_max: f64,
}

impl Row {
    /// What this row is of.
    pub fn key(&self) -> Key {
        Key { bench: self.bench, threads: self.threads, n: self.n }
    }
}

/// Collects the samples of all rounds.
#[derive(Default)]
pub struct Samples {
    by_key: BTreeMap<(Key, usize), (&'static str, Vec<f64>)>,
}

impl Samples {
    /// Adds `samples` of the allocator that was registered at position `rank`.
    pub fn add(&mut self, rank: usize, allocator: &'static str, samples: &[Sample]) {
        for sample in samples {
            let entry = self.by_key.entry((sample.key, rank));
            entry.or_insert_with(|| (allocator, Vec::new())).1.push(sample.ns);
        }
    }

    /// The rows, by benchmark, threads, `n`, and then in the order of registration.
    pub fn rows(&self) -> Vec<Row> {
        let row = |(&(key, _), (allocator, values)): (&(Key, usize), &(&'static str, Vec<f64>))| {
            let Summary { median, min, max } = Summary::of(values)?;
            Some(Row {
                bench: key.bench,
                allocator,
                threads: key.threads,
                n: key.n,
                ns_median: round_ns(median),
                ns_min: round_ns(min),
                ns_max: round_ns(max),
            })
        };
        self.by_key.iter().filter_map(row).collect()
    }
}

/// Rounds to a picosecond, far below what repeats.
fn round_ns(ns: f64) -> f64 {
    (ns * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_the_median_of_their_own_samples() {
        let key = Key { bench: Bench::Pair, threads: 1, n: 1 };
        let mut samples = Samples::default();
        for ns in [3.0, 1.0, 2.00049] {
            samples.add(1, "b", &[Sample { key, ns }]);
            samples.add(0, "a", &[Sample { key, ns: ns * 10.0 }]);
        }
        let rows = samples.rows();
        let medians: Vec<_> = rows.iter().map(|row| (row.allocator, row.ns_median)).collect();
        assert_eq!(medians, [("a", 20.005), ("b", 2.0)]);
        assert_eq!((rows[1].ns_min, rows[1].ns_max), (1.0, 3.0));
    }

    #[test]
    fn names_are_those_of_the_json() {
        for bench in Bench::ALL {
            let json = serde_json::to_string(&bench).expect("a name");
            assert_eq!(json, format!("\"{}\"", bench.name()));
        }
    }
}
