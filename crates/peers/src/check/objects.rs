//! The promises about objects.

use super::Bound::{AtLeast, AtMost};
use super::{Figure, Must, Results};
use crate::fact::Fact;
use crate::sample::{Bench, Key};

const NEARPAGE: &str = "nearpage";
/// Whom nearpage is compared with.
const RIVALS: [&str; 4] = ["mimalloc", "jemalloc", "snmalloc", "glibc"];

type Outcome = Result<Figure, String>;

/// What nearpage promises of objects.
pub const MUSTS: &[Must] = &[
    Must {
        name: "obj-pair-64",
        what: "hot pair of 64 B, 1 thread: time against the best peer",
        unit: "x",
        limit: Some(AtMost(1.5)),
        aim: AtMost(1.0),
        figure: |results| against_best(results, key(Bench::ObjPair, 1, 64)),
    },
    Must {
        name: "obj-pair-256",
        what: "the same, 256 B",
        unit: "x",
        limit: Some(AtMost(1.5)),
        aim: AtMost(1.0),
        figure: |results| against_best(results, key(Bench::ObjPair, 1, 256)),
    },
    Must {
        name: "obj-pair-1024",
        what: "the same, 1 KiB",
        unit: "x",
        limit: Some(AtMost(1.5)),
        aim: AtMost(1.0),
        figure: |results| against_best(results, key(Bench::ObjPair, 1, 1024)),
    },
    Must {
        name: "obj-fill",
        what: "fill 1 000 000 objects of 64 B: time against the best peer",
        unit: "x",
        limit: Some(AtMost(1.3)),
        aim: AtMost(1.0),
        figure: |results| against_best(results, key(Bench::ObjFill, 1, 64)),
    },
    Must {
        name: "obj-free-random",
        what: "free them in random order: time against the best peer",
        unit: "x",
        limit: Some(AtMost(1.6)),
        aim: AtMost(1.0),
        figure: |results| against_best(results, key(Bench::ObjFreeRandom, 1, 64)),
    },
    Must {
        name: "obj-cross",
        what: "allocate on one CPU, free on the other, 64 B: time against the best peer",
        unit: "x",
        limit: Some(AtMost(1.0)),
        aim: AtMost(0.5),
        figure: |results| against_best(results, key(Bench::ObjCross, 2, 64)),
    },
    Must {
        name: "obj-memoryless",
        what: "pairs by all CPUs on a memoryless node, against a node with memory",
        unit: "x",
        limit: Some(AtMost(1.1)),
        aim: AtMost(1.0),
        figure: |results| against_near(results, Bench::ObjPairMemoryless),
    },
    Must {
        name: "obj-memoryless-old",
        what: "the same with the behaviour before 2010",
        unit: "x",
        limit: Some(AtLeast(5.0)),
        aim: AtLeast(9.5),
        figure: |results| against_near(results, Bench::ObjPairMemorylessOld),
    },
    Must {
        name: "obj-memoryless-hits",
        what: "allocations on a memoryless node that a CPU's stack served",
        unit: " %",
        limit: Some(AtLeast(95.0)),
        aim: AtLeast(99.0),
        figure: |results| fact(results, Fact::MEMORYLESS_HITS_PERCENT),
    },
    Must {
        name: "obj-memoryless-old-hits",
        what: "the same with the behaviour before 2010",
        unit: " %",
        limit: Some(AtMost(0.0)),
        aim: AtMost(0.0),
        figure: |results| fact(results, Fact::MEMORYLESS_OLD_HITS_PERCENT),
    },
    Must {
        name: "obj-list-locks-old",
        what: "list locks per hackbench message before 2010: off the reference's 2.17 by",
        unit: " %",
        limit: Some(AtMost(10.0)),
        aim: AtMost(1.0),
        figure: |results| off(results, Fact::LIST_LOCKS_OLD_PER_MESSAGE, 2.17),
    },
    Must {
        name: "obj-list-locks",
        what: "list locks per hackbench message: off the reference's 0.107 by",
        unit: " %",
        limit: Some(AtMost(10.0)),
        aim: AtMost(1.0),
        figure: |results| off(results, Fact::LIST_LOCKS_PER_MESSAGE, 0.107),
    },
];

const fn key(bench: Bench, threads: usize, n: usize) -> Key {
    Key { bench, threads, n }
}

fn fact(results: &Results, name: &str) -> Outcome {
    Ok(Figure { value: results.fact(name)?, made_of: name.to_owned() })
}

/// How far a fact is off what was expected, in percent.
fn off(results: &Results, name: &str, expected: f64) -> Outcome {
    let value = results.fact(name)?;
    let made_of = format!("{name} {value:.4}");
    Ok(Figure { value: (value / expected - 1.0).abs() * 100.0, made_of })
}

/// nearpage's time against that of the fastest rival.
fn against_best(results: &Results, key: Key) -> Outcome {
    let own = results.median(key, NEARPAGE)?;
    let mut best: Option<(&str, f64)> = None;
    for rival in RIVALS {
        let ns = results.median(key, rival)?;
        if best.is_none_or(|(_, least)| ns < least) {
            best = Some((rival, ns));
        }
    }
    let (rival, ns) = best.ok_or("no rivals")?;
    Ok(Figure { value: own / ns, made_of: format!("{NEARPAGE} {own} ns; {rival} {ns} ns") })
}

fn against_near(results: &Results, bench: Bench) -> Outcome {
    let (of, own) = results.only_any(bench, NEARPAGE)?;
    let near = results.median(Key { bench: Bench::ObjPairNear, ..of }, NEARPAGE)?;
    let made_of = format!("{own} ns; with memory {near} ns; {} threads", of.threads);
    Ok(Figure { value: own / near, made_of })
}
