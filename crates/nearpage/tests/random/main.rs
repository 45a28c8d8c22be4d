//! The allocator under Linux's rules against a naive model of it, on random machines, operation for operation.
//! nearpage's own rules promise no page in particular: `tests/places` is about them.
//!
//! Every answer is compared, all counters every 64 operations, and now and then all lists; the walker
//! runs beside. A seed makes the machine, its rules and settings, and the operations. A failure prints how
//! to replay it:
//!
//! ```text
//! NEARPAGE_SEED=17 cargo test -p nearpage --test random -- --nocapture
//! ```
//!
//! `NEARPAGE_SEEDS=2000` runs that many seeds instead of the usual 60.
//! Both together run so many from that seed on. `NEARPAGE_MODEL=rfc-2026-owned` runs all of them under that model.

mod compare;
mod habits;
mod host;
mod pair;
mod run;

use std::env;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use nearpage::rules::CacheRule;
use nearpage::stats::CheckError;
use nearpage::testing::generate::RandomMachine;
use nearpage::testing::random::Random;
use nearpage::{Gfp, Model, Order, PageblockOwners, Request, ZoneInstances};
use rayon::prelude::*;

use host::with_allocator;
use run::{Plan, Planted, Tally, Thoroughness, run};

/// Machines in a usual run, and operations on each.
const SEEDS: u64 = 60;
const OPERATIONS: u64 = 50_000;

const fn plan(seed: u64) -> Plan {
    let (model, planted, thoroughness) = (None, Planted::Nothing, Thoroughness::Usual);
    Plan { seed, operations: OPERATIONS, model, planted, thoroughness }
}

/// The model of the environment.
fn named_model() -> Option<Model> {
    let name = env::var("NEARPAGE_MODEL").ok()?;
    let model = Model::by_name(&name).filter(|model| model.name != Model::NEARPAGE.name);
    Some(model.unwrap_or_else(|| {
        panic!("NEARPAGE_MODEL={name}: the name of a model of Linux is accepted")
    }))
}

/// A number from the environment.
fn number(name: &str) -> Option<u64> {
    let value = env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value}: a number is accepted")))
}

/// Runs a seed; a panic of the allocator counts as a difference too.
fn run_caught(plan: Plan) -> Result<Tally, String> {
    let caught = catch_unwind(AssertUnwindSafe(|| run(plan)));
    caught.unwrap_or_else(|_| Err("a panic, see above".to_owned()))
}

/// Runs a failed seed again, thoroughly, to find the operation; says how to replay it.
fn explain(seed: u64, difference: &str) -> String {
    let thoroughness = Thoroughness::EachOperation;
    let explained = run_caught(Plan { thoroughness, model: named_model(), ..plan(seed) });
    let first = explained.err().unwrap_or_else(|| "not found by comparing more often".into());
    let model = named_model().map(|model| format!("NEARPAGE_MODEL={} ", model.name));
    format!(
        "seed {seed}: {difference}\nfirst difference: {first}\nreplay: NEARPAGE_SEED={seed} {}\
         cargo test -p nearpage --test random -- --nocapture",
        model.unwrap_or_default()
    )
}

/// Runs seeds on all CPUs; the results are in the order of the seeds.
fn run_all(seeds: Range<u64>) -> Vec<(u64, Result<Tally, String>)> {
    let model = named_model();
    let run = |seed| (seed, run_caught(Plan { model, ..plan(seed) }));
    seeds.into_par_iter().map(run).collect()
}

#[test]
fn the_allocator_does_what_the_naive_model_says() {
    let begun = Instant::now();
    let results = run_all(match number("NEARPAGE_SEED") {
        Some(seed) => seed..seed + number("NEARPAGE_SEEDS").unwrap_or(1),
        None => 0..number("NEARPAGE_SEEDS").unwrap_or(SEEDS),
    });
    let (mut tally, mut failures) = (Tally::default(), vec![]);
    for (seed, result) in &results {
        match result {
            Ok(one) => tally.add(one),
            Err(difference) => failures.push((*seed, difference)),
        }
    }
    print(&tally, results.len(), begun.elapsed().as_secs_f64());
    let explained: Vec<String> =
        failures.iter().take(3).map(|(seed, difference)| explain(*seed, difference)).collect();
    let explained = explained.join("\n");
    assert!(
        failures.is_empty(),
        "{} seeds failed, so the first of them:\n{explained}",
        failures.len()
    );
}

fn print(tally: &Tally, topologies: usize, seconds: f64) {
    let rate = tally.operations as f64 / seconds / 1e6;
    println!(
        "{} operations on {topologies} topologies, {} pages handed out, {seconds:.1} s, {rate:.2} \
         million operations a second; digest {:016x}",
        tally.operations, tally.pages, tally.digest
    );
    for (name, count) in &tally.by_name {
        println!("{count:>10} {name}");
    }
}

#[test]
fn a_seed_gives_the_same_answers_twice() {
    for seed in 0..4 {
        let short = Plan { operations: 5_000, ..plan(seed) };
        assert_eq!(run(short), run(short), "seed {seed}");
    }
    assert_ne!(run(plan(0)), run(plan(1)));
}

/// Seeds, of the first `count`, that find a mistake.
fn finds(planted: Planted, count: u64) -> usize {
    let found = |seed: &u64| run(Plan { planted, operations: 5_000, ..plan(*seed) }).is_err();
    (0..count).filter(found).count()
}

#[test]
fn canary_a_page_lost_in_a_drain_is_found() {
    assert!(finds(Planted::LostBlock, 20) >= 15);
}

#[test]
fn canary_the_walker_alone_finds_a_lost_page() {
    let machine = RandomMachine::new(&mut Random(0));
    with_allocator(&machine, |allocator| {
        let cpu = machine.topology.nodes.iter().find_map(|node| node.cpus.first()).copied();
        allocator.platform().run_on(cpu.expect("the machine has a CPU"));
        for &range in &machine.boot {
            allocator.online(range).expect("memory of the machine");
        }
        let page = allocator.alloc(Request::new(Order(0), Gfp::KERNEL)).expect("an empty machine");
        allocator.free(page, Order(0)).expect("it was just allocated");
        assert!(allocator.check().is_ok());
        allocator.platform().lose_a_block_in_drain(1);
        allocator.drain_all().expect("nobody else drains");
        let found = allocator.check();
        let is_found =
            matches!(found, Err(CheckError::Lost { .. } | CheckError::PagesetCount { .. }));
        assert!(is_found, "{found:?}");
    });
}

#[test]
fn canary_a_wrong_constant_is_found() {
    fn shorter_holds(model: Model) -> Model {
        let batch_scale_max = 4;
        model.with(|changed| {
            changed.pcp = model.pcp.with(|changed| changed.batch_scale_max = batch_scale_max)
        })
    }
    assert!(finds(Planted::Rules(shorter_holds), 20) >= 5);
}

#[test]
fn canary_a_poisoned_hint_is_found() {
    fn poisoned(model: Model) -> Model {
        let zonelist_cache = match model.zonelist_cache {
            CacheRule::Keyed => CacheRule::Original,
            other => other,
        };
        model.with(|changed| changed.zonelist_cache = zonelist_cache)
    }
    assert!(finds(Planted::Rules(poisoned), 60) >= 5);
}

#[test]
fn canary_a_limit_off_by_one_is_found() {
    assert!(finds(Planted::LooseLimit, 60) >= 5);
}

#[test]
fn canary_a_missing_drain_at_cpu_off_is_found() {
    assert!(finds(Planted::MissingDrain, 60) >= 10);
}

#[test]
fn canary_an_owner_that_is_passed_over_is_found() {
    fn without_owners(model: Model) -> Model {
        model.with(|changed| changed.owners = PageblockOwners::Nobody)
    }
    assert!(finds(Planted::Rules(without_owners), 60) >= 3);
}

#[test]
fn canary_a_zone_that_is_not_divided_is_found() {
    fn whole(model: Model) -> Model {
        model.with(|changed| changed.zone_instances = ZoneInstances::ONE)
    }
    assert!(finds(Planted::Rules(whole), 60) >= 3);
}
