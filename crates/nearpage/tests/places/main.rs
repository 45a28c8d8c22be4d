//! nearpage's own rules on random machines: what holds whichever page is handed out.
//!
//! The model is a set of pages and a few numbers. What is handed out is aligned, online, of a zone that the request may use,
//! and nobody's; what is held may be freed, and nothing else; limits, marks and reserves are kept to the page; a request is
//! refused only if nobody has what it asks for; no page is lost, and in the end all pageblocks are whole.
//!
//! A failure prints how to replay it:
//!
//! ```text
//! NEARPAGE_SEED=17 cargo test -p nearpage --test places -- --nocapture
//! ```
//!
//! `NEARPAGE_SEEDS=2000` runs that many seeds instead of the usual ones; both together run so many from that seed on.

#[path = "../random/host.rs"]
mod host;
mod lent;
mod memory;
mod naive;
mod play;
mod requests;
mod run;

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use rayon::prelude::*;

use naive::Wrong;
use run::{Plan, Planted, Tally, run};

/// Machines in a usual run, and operations on each.
const SEEDS: u64 = 60;
const OPERATIONS: u64 = 4000;

const fn plan(seed: u64) -> Plan {
    Plan { seed, operations: OPERATIONS, planted: Planted::Nothing, thorough: false }
}

/// A number from the environment.
fn number(name: &str) -> Option<u64> {
    let value = env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value}: a number is accepted")))
}

/// Runs a seed; a panic of the allocator counts as wrong too.
fn run_caught(plan: Plan) -> Result<Tally, Wrong> {
    let caught = catch_unwind(AssertUnwindSafe(|| run(plan)));
    caught.unwrap_or_else(|_| Err("a panic, see above".to_owned()))
}

/// Runs a failed seed again, thoroughly, to find the operation; says how to replay it.
fn explain(seed: u64, wrong: &str) -> String {
    let again = run_caught(Plan { thorough: true, ..plan(seed) });
    let first = again.err().unwrap_or_else(|| "not found by looking more often".to_owned());
    format!(
        "seed {seed}: {wrong}\nfirst: {first}\n\
         replay: NEARPAGE_SEED={seed} cargo test -p nearpage --test places -- --nocapture"
    )
}

#[test]
fn what_must_hold_holds_on_random_machines() {
    let begun = Instant::now();
    let seeds = match number("NEARPAGE_SEED") {
        Some(seed) => seed..seed + number("NEARPAGE_SEEDS").unwrap_or(1),
        None => 0..number("NEARPAGE_SEEDS").unwrap_or(SEEDS),
    };
    let run = |seed| (seed, run_caught(plan(seed)));
    let results: Vec<(u64, Result<Tally, Wrong>)> = seeds.into_par_iter().map(run).collect();
    let (mut tally, mut failures) = (Tally::new(), vec![]);
    for (seed, result) in &results {
        match result {
            Ok(one) => one.iter().for_each(|(name, n)| *tally.entry(name).or_default() += n),
            Err(wrong) => failures.push((*seed, wrong)),
        }
    }
    println!("{} machines, {:.1} s", results.len(), begun.elapsed().as_secs_f64());
    tally.iter().for_each(|(name, count)| println!("{count:>10} {name}"));
    let explained: Vec<String> =
        failures.iter().take(3).map(|(seed, wrong)| explain(*seed, wrong)).collect();
    let (count, explained) = (failures.len(), explained.join("\n"));
    assert!(failures.is_empty(), "{count} seeds failed, so the first of them:\n{explained}");
}

#[test]
fn a_seed_does_the_same_twice() {
    for seed in 0..3 {
        let short = Plan { operations: 1000, ..plan(seed) };
        assert_eq!(run(short), run(short), "seed {seed}");
    }
}

/// Seeds, of the first `count`, that find a mistake.
fn finds(planted: Planted, count: u64) -> usize {
    let found = |&seed: &u64| run(Plan { planted, operations: 1500, ..plan(seed) }).is_err();
    (0..count).into_par_iter().filter(found).count()
}

#[test]
fn canary_a_block_lost_on_its_way_from_a_list_is_found() {
    assert!(finds(Planted::LostBlock, 12) >= 9);
}

#[test]
fn canary_a_block_that_nobody_remembers_is_found() {
    assert!(finds(Planted::ForgottenBlock, 12) >= 9);
}

#[test]
fn canary_a_page_handed_out_twice_is_found() {
    assert!(finds(Planted::HeldTwice, 12) >= 9);
}

#[test]
fn canary_a_limit_off_by_a_page_is_found() {
    assert!(finds(Planted::LowerLimit, 40) >= 5);
}

#[test]
fn canary_a_reserve_off_by_a_page_is_found() {
    assert!(finds(Planted::HigherReserve, 40) >= 5);
}
