//! What was measured, and how the measurements of several rounds become rows.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::counts::Moves;
use crate::measure::{Clock, Phase, Summary, ns_per_operation, percentiles};

/// What was done.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Work {
    /// One page allocated and freed, again and again.
    Pair,
    /// One block of this order allocated and freed, again and again.
    OrderPair(u8),
    /// Blocks of this order allocated by two threads, each call timed for itself.
    OrderAlloc(u8),
    /// The same freed.
    OrderFree(u8),
    /// The first request of order 9 after the pages of a memory of `n` were freed in random order.
    Order9First,
    /// The longest call of another thread meanwhile.
    Order9Stall,
    /// Many pages allocated one at a time.
    Fill,
    /// The same freed, the last one first.
    FreeLifo,
    /// The same freed in random order.
    FreeRandom,
    /// One of `n` pages that are held, chosen at random, freed, and one allocated in its place.
    Replace,
    /// Blocks of this order allocated among blocks of another, each call timed for itself.
    MixedAlloc(u8),
    /// The same freed.
    MixedFree(u8),
    /// Pages allocated on one CPU and freed on another.
    Cross,
    /// `n` pages allocated one at a time.
    SingleAlloc,
    /// The same freed one at a time.
    SingleFree,
    /// As `SingleAlloc` with the loop of 2017: `n + 1` pages, divided by `n`.
    SingleAlloc2017,
    /// As `SingleFree` with the loop of 2017.
    SingleFree2017,
    /// `n` pages allocated by one call.
    BulkAlloc,
    /// The same freed by one call.
    BulkFree,
    /// A page of the CPU's node allocated and freed, while `n` - 1 other nodes are full.
    Near,
    /// A page of the farthest node allocated and freed, while `n` - 1 nearer ones are full.
    Far,
    /// The lock of a page locked and unlocked, again and again.
    LockPair,
    /// The same by several threads, all with one page.
    LockContended,
    /// One object of `n` bytes allocated and freed, again and again.
    ObjPair,
    /// Many objects of 64 bytes allocated.
    ObjFill,
    /// The same freed in random order.
    ObjFreeRandom,
    /// Objects allocated on one CPU and freed on another.
    ObjCross,
    /// Pairs by all CPUs of an emulated node with memory.
    ObjPairNear,
    /// Pairs by all CPUs of an emulated node without.
    ObjPairMemoryless,
    /// The same with the behaviour before 2010.
    ObjPairMemorylessOld,
}

impl Work {
    /// Whether each call is a sample.
    fn times_each_call(self) -> bool {
        matches!(
            self,
            Self::OrderAlloc(_) | Self::OrderFree(_) | Self::MixedAlloc(_) | Self::MixedFree(_)
        )
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OrderPair(order) => return write!(f, "order{order}_pair"),
            Self::OrderAlloc(order) => return write!(f, "order{order}_alloc"),
            Self::OrderFree(order) => return write!(f, "order{order}_free"),
            Self::MixedAlloc(order) => return write!(f, "mixed_order{order}_alloc"),
            Self::MixedFree(order) => return write!(f, "mixed_order{order}_free"),
            Self::Order9First => "order9_first",
            Self::Order9Stall => "order9_stall",
            Self::Pair => "pair",
            Self::Fill => "fill",
            Self::FreeLifo => "free_lifo",
            Self::FreeRandom => "free_random",
            Self::Replace => "replace",
            Self::Cross => "cross",
            Self::SingleAlloc => "single_alloc",
            Self::SingleFree => "single_free",
            Self::SingleAlloc2017 => "single_alloc_2017",
            Self::SingleFree2017 => "single_free_2017",
            Self::BulkAlloc => "bulk_alloc",
            Self::BulkFree => "bulk_free",
            Self::Near => "near",
            Self::Far => "far",
            Self::LockPair => "lock_pair",
            Self::LockContended => "lock_contended",
            Self::ObjPair => "obj_pair",
            Self::ObjFill => "obj_fill",
            Self::ObjFreeRandom => "obj_free_random",
            Self::ObjCross => "obj_cross",
            Self::ObjPairNear => "obj_pair_near",
            Self::ObjPairMemoryless => "obj_pair_memoryless",
            Self::ObjPairMemorylessOld => "obj_pair_memoryless_old",
        })
    }
}

impl Serialize for Work {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What a row is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Key {
    /// What was done.
    #[serde(rename = "bench")]
    pub work: Work,
    /// By whom.
    pub allocator: &'static str,
    /// On so many CPUs at once.
    pub threads: usize,
    /// Pages per call, or pages held, or pages of the memory, or 1; 0 for locks.
    pub n: usize,
}

/// One round of one thing.
#[derive(Clone, Debug)]
pub struct Sample {
    /// What it is of.
    pub key: Key,
    /// Nanoseconds per page, or per pair.
    pub ns: f64,
    /// The same, sample by sample within the round; empty where a round is not divided.
    pub samples_ns: Vec<f64>,
    /// What the allocator counted meanwhile, where it is asked.
    pub moves: Option<Moves>,
}

impl Sample {
    /// What threads that worked side by side say of a key.
    pub fn of(clock: Clock, key: Key, phases: Vec<Phase>) -> Self {
        let ns = ns_per_operation(clock, &phases);
        let samples_ns = phases.into_iter().flat_map(|phase| phase.samples_ns).collect();
        Self { key, ns, samples_ns, moves: None }
    }
}

/// All rounds of one thing.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What it is of.
    #[serde(flatten)]
    pub key: Key,
    /// Of the rounds.
    #[serde(flatten, serialize_with = "serialize_summary")]
    pub summary: Summary,
    /// The 99th percentile of the samples within all rounds; `None` if rounds are not divided.
    #[serde(rename = "ns_p99", serialize_with = "serialize_p99")]
    pub p99: Option<f64>,
    /// Beside it, where each call is a sample: in [`Work::OrderAlloc`], [`Work::MixedAlloc`] and their frees.
    #[serde(flatten)]
    pub tails: Option<Tails>,
    /// What the allocator counted in the rounds, if it does.
    #[serde(flatten)]
    pub moves: Option<Moves>,
}

/// The middle one and the slowest of many calls.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Tails {
    /// Nanoseconds that half of the calls do not exceed.
    #[serde(rename = "ns_p50", serialize_with = "serialize_ns")]
    pub p50: f64,
    /// Nanoseconds that all calls but one in 1000 do not exceed.
    #[serde(rename = "ns_p999", serialize_with = "serialize_ns")]
    pub p999: f64,
    /// The same for one in 10 000.
    #[serde(rename = "ns_p9999", serialize_with = "serialize_ns")]
    pub p9999: f64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn serialize_ns<S: Serializer>(ns: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    round_ns(*ns).serialize(serializer)
}

fn serialize_summary<S: Serializer>(summary: &Summary, serializer: S) -> Result<S::Ok, S::Error> {
    use serde::ser::SerializeMap;
    let mut map = serializer.serialize_map(Some(3))?;
    let figures = [("ns_median", summary.median), ("ns_min", summary.min), ("ns_max", summary.max)];
    for (name, ns) in figures {
        map.serialize_entry(name, &round_ns(ns))?;
    }
    map.end()
}

#[allow(clippy::ref_option, reason = "the signature is serde's")]
fn serialize_p99<S: Serializer>(p99: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    p99.map(round_ns).serialize(serializer)
}

/// Rounds to a picosecond, far below what repeats.
pub fn round_ns(ns: f64) -> f64 {
    (ns * 1000.0).round() / 1000.0
}

/// What was measured of one thing.
#[derive(Debug)]
struct Series {
    key: Key,
    /// Round by round.
    rounds_ns: Vec<f64>,
    /// Of all rounds.
    samples_ns: Vec<f64>,
    moves: Option<Moves>,
}

/// Collects the samples of all rounds.
#[derive(Debug, Default)]
pub struct Samples {
    series: Vec<Series>,
}

impl Samples {
    /// Gives a thing its place among the rows.
    pub fn declare(&mut self, key: Key) {
        self.series.push(Series {
            key,
            rounds_ns: Vec::new(),
            samples_ns: Vec::new(),
            moves: None,
        });
    }

    /// Adds one round of a thing that was declared.
    ///
    /// # Panics
    ///
    /// If it was not.
    pub fn add(&mut self, sample: Sample) {
        let mut series = self.series.iter_mut();
        let series = series.find(|series| series.key == sample.key);
        let series = series.expect("each round measures the same things");
        series.rounds_ns.push(sample.ns);
        series.samples_ns.extend(sample.samples_ns);
        series.moves = match (series.moves, sample.moves) {
            (Some(before), Some(moves)) => Some(before.and(moves)),
            (before, moves) => before.or(moves),
        };
    }

    /// The rows that have samples, in the order in which they were declared.
    pub fn rows(&self) -> Vec<Row> {
        let row = |series: &Series| {
            let summary = Summary::of(&series.rounds_ns)?;
            let percentiles = percentiles(&series.samples_ns, [9900, 5000, 9990, 9999]);
            let tails = percentiles.map(|[_, p50, p999, p9999]| Tails { p50, p999, p9999 });
            Some(Row {
                key: series.key,
                summary,
                p99: percentiles.map(|[p99, ..]| p99),
                tails: tails.filter(|_| series.key.work.times_each_call()),
                moves: series.moves,
            })
        };
        self.series.iter().filter_map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(work: Work, ns: f64) -> Sample {
        let key = Key { work, allocator: "nearpage", threads: 1, n: 64 };
        Sample { key, ns, samples_ns: vec![ns * 10.0], moves: None }
    }

    #[test]
    fn rows_have_their_own_samples() {
        let mut samples = Samples::default();
        for work in [Work::Fill, Work::BulkFree, Work::BulkAlloc] {
            samples.declare(sample(work, 0.0).key);
        }
        for ns in [3.0, 1.0, 2.0] {
            samples.add(sample(Work::BulkAlloc, 10.0 * ns));
            samples.add(sample(Work::BulkFree, ns));
        }
        let rows = samples.rows();
        let figures: Vec<_> =
            rows.iter().map(|row| (row.key.work, row.summary.median, row.p99)).collect();
        let expected = [(Work::BulkFree, 2.0, Some(30.0)), (Work::BulkAlloc, 20.0, Some(300.0))];
        assert_eq!(figures, expected);
    }

    #[test]
    fn a_row_as_json() {
        let mut samples = Samples::default();
        samples.declare(sample(Work::OrderPair(9), 0.0).key);
        samples.add(sample(Work::OrderPair(9), 1.23456));
        let undivided = Sample { samples_ns: Vec::new(), ..sample(Work::BulkFree, 2.0) };
        samples.declare(undivided.key);
        samples.add(undivided);
        assert_eq!(
            serde_json::to_string(&samples.rows()).unwrap(),
            "[{\"bench\":\"order9_pair\",\"allocator\":\"nearpage\",\"threads\":1,\"n\":64,\
             \"ns_median\":1.235,\"ns_min\":1.235,\"ns_max\":1.235,\"ns_p99\":12.346},\
             {\"bench\":\"bulk_free\",\"allocator\":\"nearpage\",\"threads\":1,\"n\":64,\
             \"ns_median\":2.0,\"ns_min\":2.0,\"ns_max\":2.0,\"ns_p99\":null}]"
        );
        let mut samples = Samples::default();
        samples.declare(sample(Work::OrderFree(9), 0.0).key);
        samples.add(sample(Work::OrderFree(9), 1.0));
        let json = serde_json::to_string(&samples.rows()).unwrap();
        let tails = "\"ns_p99\":10.0,\"ns_p50\":10.0,\"ns_p999\":10.0,\"ns_p9999\":10.0}]";
        assert!(json.ends_with(tails), "{json}");
    }
}
