//! The promises about the malloc.

use super::Bound::AtMost;
use super::{Figure, Must, Results};
use crate::sample::{Bench, Key};

const NEARPAGE: &str = "nearpage";
const HARDENED: &str = "nearpage-hardened";
/// Whom nearpage is compared with; one that is not here is left out.
const RIVALS: [&str; 4] = ["mimalloc", "jemalloc", "tcmalloc", "snmalloc"];

/// What nearpage promises of its malloc.
pub const MUSTS: &[Must] = &[
    Must {
        name: "malloc-pair-64",
        what: "hot pair of 64 B, 1 thread: time against the best peer",
        unit: "x",
        limit: Some(AtMost(1.6)),
        aim: AtMost(1.3),
        figure: |results| against_best(results, key(Bench::ObjPair, 1)),
    },
    Must {
        name: "malloc-fill",
        what: "fill 1 000 000 objects of 64 B: time against the best peer",
        unit: "x",
        limit: Some(AtMost(1.3)),
        aim: AtMost(1.0),
        figure: |results| against_best(results, key(Bench::ObjFill, 1)),
    },
    Must {
        name: "malloc-free-random",
        what: "free them in random order: time against the best peer",
        unit: "x",
        limit: Some(AtMost(1.3)),
        aim: AtMost(1.0),
        figure: |results| against_best(results, key(Bench::ObjFreeRandom, 1)),
    },
    Must {
        name: "malloc-cross",
        what: "allocate on one CPU, free on the other, 64 B: time against the best peer",
        unit: "x",
        limit: Some(AtMost(1.0)),
        aim: AtMost(0.8),
        figure: |results| against_best(results, key(Bench::ObjCross, 2)),
    },
    Must {
        name: "malloc-hardened",
        what: "hot pair of 64 B, hardened: time against the default",
        unit: "x",
        limit: Some(AtMost(2.0)),
        aim: AtMost(1.5),
        figure: |results| {
            let key = key(Bench::ObjPair, 1);
            let (own, plain) = (results.median(key, HARDENED)?, results.median(key, NEARPAGE)?);
            let made_of = format!("{HARDENED} {own} ns; {NEARPAGE} {plain} ns");
            Ok(Figure { value: own / plain, made_of })
        },
    },
];

const fn key(bench: Bench, threads: usize) -> Key {
    Key { bench, threads, n: 64 }
}

/// nearpage's time against that of the fastest rival that is here.
fn against_best(results: &Results, key: Key) -> Result<Figure, String> {
    let own = results.median(key, NEARPAGE)?;
    let times = RIVALS.iter().filter_map(|rival| Some((rival, results.median(key, rival).ok()?)));
    let (rival, ns) =
        times.min_by(|(_, one), (_, other)| one.total_cmp(other)).ok_or("no rivals")?;
    Ok(Figure { value: own / ns, made_of: format!("{NEARPAGE} {own} ns; {rival} {ns} ns") })
}
