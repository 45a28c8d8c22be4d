//! The table of promises, and the figures in it.

use super::Bound::{AtLeast, AtMost};
use super::{Figure, Must, Results};
use crate::fact::Fact;
use crate::sample::{Bench, Key};
use crate::source::Role;

const NEARPAGE: &str = "nearpage";
/// What threads cost each other whatever they do.
const BARE: &str = "bare-stacks";
/// Pages per call for which bulk is compared with one at a time.
const BULK_PAYS: std::ops::RangeInclusive<u32> = 4..=14;
/// Pages per call for which bulk is compared with its own best: where caches of a CPU end.
const BULK_LARGE: std::ops::RangeInclusive<u32> = 8..=14;
/// Pages per call for which bulk is to cost little more than one at a time.
const BULK_SMALL: std::ops::RangeInclusive<usize> = 1..=4;
/// All pages per call.
const BULK_ALL: std::ops::RangeInclusive<u32> = 0..=14;

type Outcome = Result<Figure, String>;

/// What nearpage promises.
pub const MUSTS: &[Must] = &[
    Must {
        name: "pair-limit",
        what: "hot pair, 1 thread, against the bare restartable sequence",
        unit: "x",
        limit: Some(AtMost(2.5)),
        aim: AtMost(1.5),
        figure: |results| ratio(results, (PAIR, NEARPAGE), (PAIR, "rseq-limit")),
    },
    Must {
        name: "pair-peer",
        what: "hot pair, 1 thread: faster than the best peer",
        unit: "x",
        limit: Some(AtLeast(1.2)),
        aim: AtLeast(2.0),
        figure: faster_pair,
    },
    Must {
        name: "fill-peer",
        what: "fill 200 000 pages: faster than the best peer",
        unit: "x",
        limit: Some(AtLeast(2.0)),
        aim: AtLeast(4.0),
        figure: |results| faster(results, Bench::Fill, 1),
    },
    Must {
        name: "free-lifo-peer",
        what: "free them again, LIFO: faster than the best peer",
        unit: "x",
        limit: Some(AtLeast(1.5)),
        aim: AtLeast(3.0),
        figure: |results| faster(results, Bench::FreeLifo, 1),
    },
    Must {
        name: "free-random-peer",
        what: "free them again, random order: faster than the best peer",
        unit: "x",
        limit: Some(AtLeast(0.7)),
        aim: AtLeast(1.5),
        figure: |results| faster(results, Bench::FreeRandom, 1),
    },
    Must {
        name: "two-threads-pair",
        what: "hot pair: 2 threads against 1, against what bare stacks take more",
        unit: "x",
        limit: Some(AtMost(1.3)),
        aim: AtMost(1.05),
        figure: |results| two_threads(results, [(PAIR, key(Bench::Pair, 2, 1))]),
    },
    Must {
        name: "two-threads-bulk",
        what: "bulk, worst of alloc and free at n = 16..16384: 2 threads against 1, against bare stacks",
        unit: "x",
        limit: Some(AtMost(1.3)),
        aim: AtMost(1.05),
        figure: |results| {
            let benches = [Bench::BulkAlloc, Bench::BulkFree];
            let both = |n| benches.map(|bench| (key(bench, 1, n), key(bench, 2, n)));
            let all = series(BULK_PAYS).flat_map(both);
            two_threads(results, all)
        },
    },
    Must {
        name: "two-threads-fill",
        what: "worst of fill, free LIFO, free random: 2 threads against 1, against bare stacks",
        unit: "x",
        limit: Some(AtMost(1.3)),
        aim: AtMost(1.05),
        figure: |results| {
            let mut all = Vec::new();
            for bench in [Bench::Fill, Bench::FreeLifo, Bench::FreeRandom] {
                let of = |threads| results.only(bench, threads, NEARPAGE);
                all.push((of(1)?.0, of(2)?.0));
            }
            two_threads(results, all)
        },
    },
    Must {
        name: "free-random-bitmap",
        what: "free them again, random order, against a bitmap alone",
        unit: "x",
        limit: Some(AtMost(2.0)),
        aim: AtMost(1.2),
        figure: |results| {
            let (key, _) = results.only(Bench::FreeRandom, 1, NEARPAGE)?;
            ratio(results, (key, NEARPAGE), (key, "bitmap-allocator"))
        },
    },
    Must {
        name: "cross-peer",
        what: "allocate on one CPU, free on the other: faster than the best peer",
        unit: "x",
        limit: Some(AtLeast(2.0)),
        aim: AtLeast(3.0),
        figure: |results| faster(results, Bench::Cross, 2),
    },
    Must {
        name: "bulk-single",
        what: "bulk alloc per page, worst of n = 16..16384, against one at a time",
        unit: "x",
        limit: Some(AtMost(0.5)),
        aim: AtMost(0.25),
        figure: |results| {
            largest(series(BULK_PAYS).map(|n| {
                let single = key(Bench::SingleAlloc, 1, n);
                ratio(results, (bulk(n), NEARPAGE), (single, NEARPAGE))
            }))
        },
    },
    Must {
        name: "bulk-small",
        what: "bulk, worst of alloc and free at n = 1..4, against one at a time",
        unit: "x",
        limit: Some(AtMost(1.2)),
        aim: AtMost(1.0),
        figure: |results| {
            largest(BULK_SMALL.flat_map(|n| {
                let works =
                    [(Bench::BulkAlloc, Bench::SingleAlloc), (Bench::BulkFree, Bench::SingleFree)];
                works.map(|(bulk, single)| {
                    ratio(results, (key(bulk, 1, n), NEARPAGE), (key(single, 1, n), NEARPAGE))
                })
            }))
        },
    },
    Must {
        name: "bulk-ns",
        what: "bulk alloc per page, worst of n = 16..16384",
        unit: " ns",
        limit: None,
        aim: AtMost(0.6),
        figure: |results| largest(series(BULK_PAYS).map(|n| median(results, bulk(n), NEARPAGE))),
    },
    Must {
        name: "bulk-flat",
        what: "bulk alloc per page, worst of n = 256..16384, against its own best n",
        unit: "x",
        limit: Some(AtMost(2.0)),
        aim: AtMost(1.2),
        figure: bulk_flat,
    },
    Must {
        name: "order9",
        what: "hot pair of order 9 against order 0",
        unit: "x",
        limit: Some(AtMost(3.0)),
        aim: AtMost(1.5),
        figure: |results| {
            let order9 = key(Bench::Order9Pair, 1, 1);
            ratio(results, (order9, NEARPAGE), (PAIR, NEARPAGE))
        },
    },
    Must {
        name: "locked-pair",
        what: "hot pair without restartable sequences",
        unit: " ns",
        limit: Some(AtMost(30.0)),
        aim: AtMost(18.0),
        figure: |results| median(results, PAIR, "nearpage-locked"),
    },
    Must {
        name: "online-time",
        what: "onlining 64 GiB reserved, nothing touched",
        unit: " ms",
        limit: Some(AtMost(50.0)),
        aim: AtMost(5.0),
        figure: |results| fact(results, Fact::ONLINE_64G_MS),
    },
    Must {
        name: "online-memory",
        what: "resident after onlining 64 GiB reserved, nothing touched",
        unit: " MiB",
        limit: Some(AtMost(80.0)),
        aim: AtMost(8.0),
        figure: |results| fact(results, Fact::ONLINE_64G_RESIDENT_MIB),
    },
];

const PAIR: Key = key(Bench::Pair, 1, 1);

const fn key(bench: Bench, threads: usize, n: usize) -> Key {
    Key { bench, threads, n }
}

const fn bulk(n: usize) -> Key {
    key(Bench::BulkAlloc, 1, n)
}

fn series(shifts: std::ops::RangeInclusive<u32>) -> impl Iterator<Item = usize> {
    shifts.map(|shift| 1 << shift)
}

fn median(results: &Results, key: Key, allocator: &str) -> Outcome {
    let value = results.median(key, allocator)?;
    let Key { bench, n, .. } = key;
    Ok(Figure { value, made_of: format!("{} of {allocator}, n {n}", bench.name()) })
}

fn fact(results: &Results, name: &str) -> Outcome {
    Ok(Figure { value: results.fact(name)?, made_of: name.to_owned() })
}

fn ratio(results: &Results, above: (Key, &str), below: (Key, &str)) -> Outcome {
    let (over, under) = (results.median(above.0, above.1)?, results.median(below.0, below.1)?);
    let name = |(key, allocator): (Key, &str), ns| {
        format!("{allocator} {} threads {} n {}: {ns} ns", key.bench.name(), key.threads, key.n)
    };
    let made_of = format!("{}; {}", name(above, over), name(below, under));
    Ok(Figure { value: over / under, made_of })
}

/// How many times nearpage's time goes into the best peer's.
fn faster(results: &Results, bench: Bench, threads: usize) -> Outcome {
    let (key, own) = results.only(bench, threads, NEARPAGE)?;
    let (peer, best) = results.best(key, &[Role::Peer])?;
    let pool = match results.best(key, &[Role::Pool]) {
        Ok((pool, ns)) => format!("; not counted: {pool} {ns} ns"),
        Err(_) => String::new(),
    };
    let made_of = format!("{NEARPAGE} {own} ns; {peer} {best} ns{pool}");
    Ok(Figure { value: best / own, made_of })
}

/// As [`faster`], where a pool of one size does the same work as an allocator.
fn faster_pair(results: &Results) -> Outcome {
    let own = results.median(PAIR, NEARPAGE)?;
    let (peer, best) = results.best(PAIR, &[Role::Peer, Role::Pool])?;
    Ok(Figure { value: best / own, made_of: format!("{NEARPAGE} {own} ns; {peer} {best} ns") })
}

/// What two threads take more than one, of what bare stacks take more: the worst of some work.
fn two_threads(results: &Results, works: impl IntoIterator<Item = (Key, Key)>) -> Outcome {
    largest(works.into_iter().map(|(one, two)| {
        let own = ratio(results, (two, NEARPAGE), (one, NEARPAGE))?;
        let bare = ratio(results, (two, BARE), (one, BARE))?;
        let made_of = format!("{}; {}", own.made_of, bare.made_of);
        Ok(Figure { value: own.value / bare.value, made_of })
    }))
}

fn bulk_flat(results: &Results) -> Outcome {
    let of = |n| median(results, bulk(n), NEARPAGE);
    let worst = largest(series(BULK_LARGE).map(of))?;
    let all: Vec<Figure> = series(BULK_ALL).map(of).collect::<Result<_, _>>()?;
    let best = all.into_iter().min_by(|a, b| a.value.total_cmp(&b.value)).ok_or("no bulk rows")?;
    let name = |figure: &Figure| format!("{}: {} ns", figure.made_of, figure.value);
    let made_of = format!("{}; {}", name(&worst), name(&best));
    Ok(Figure { value: worst.value / best.value, made_of })
}

/// The largest figure, or the first that is missing.
fn largest(figures: impl IntoIterator<Item = Outcome>) -> Outcome {
    let figures: Vec<Figure> = figures.into_iter().collect::<Result<_, _>>()?;
    figures
        .into_iter()
        .max_by(|a, b| a.value.total_cmp(&b.value))
        .ok_or_else(|| "nothing to compare".to_owned())
}
