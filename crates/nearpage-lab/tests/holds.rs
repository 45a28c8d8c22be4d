//! What must hold of each published result and scenario, on shortened ones: the whole ones are `nearpage lab all`.

use nearpage_lab::report::Verdict;
use nearpage_lab::scenario::{ContentionWorkload, Does, Workload};
use nearpage_lab::{Options, Report, Scenario, catalog};

fn scenario(name: &str) -> Scenario {
    catalog::scenario(name).expect("it is built in")
}

fn run(scenario: &Scenario) -> Report {
    let report = run_any(scenario);
    let failed: Vec<_> = report.holds.iter().filter(|hold| !hold.ok).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    report
}

fn run_any(scenario: &Scenario) -> Report {
    nearpage_lab::run(scenario, &Options::default()).expect("it can be run")
}

/// Rows that are off, known misses aside, among those whose column begins so.
fn off(report: &Report, column: &str) -> Vec<String> {
    let of_column = report.rows.iter().filter(|row| row.column.starts_with(column));
    let off = of_column.filter(|row| row.verdict == Verdict::Off);
    off.map(|row| format!("{}: {} for {}", row.row, row.model, row.reference)).collect()
}

#[test]
fn zonelist_cache() {
    let mut scenario = scenario("zonelist-cache");
    let Workload::MemoryHog(work) = &mut scenario.workload else { panic!("a memory hog") };
    work.scale *= 2;
    work.memory = vec![38 << 30, 90 << 30];
    work.threads = vec![1, 19];
    let report = run(&scenario);
    assert_eq!(report.holds.len(), 4 + 3 + 4, "{:#?}", report.holds);
}

#[test]
fn memoryless_slab() {
    let mut scenario = scenario("memoryless-slab");
    let Workload::SlabMessages(work) = &mut scenario.workload else { panic!("messages") };
    (work.messages, work.burst) = (3000, 1000);
    let others = work.others.len();
    let report = run(&scenario);
    assert_eq!((report.holds.len(), others), (6, 2));
}

#[test]
fn pcp_autotune() {
    let mut scenario = scenario("pcp-autotune");
    let Workload::Patched(all) = &mut scenario.workload else { panic!("messages") };
    for work in &mut all.messages {
        (work.messages, work.turn) = (work.messages / 5, work.turn / 5);
    }
    all.lifetimes = None;
    // As among other scenarios.
    all.contention.truncate(1);
    all.contention.iter_mut().for_each(shorten);
    let report = run(&scenario);
    assert_eq!(off(&report, "free_high_per_page"), Vec::<String>::new());
}

#[test]
fn a_compile_keeps_its_pages_and_gives_them_back() {
    let mut scenario = scenario("pcp-autotune");
    scenario.patches = vec![0, 1, 10];
    let Workload::Patched(all) = &mut scenario.workload else { panic!("messages") };
    all.messages.clear();
    all.contention.clear();
    let work = all.lifetimes.as_mut().expect("a compile");
    // A time for a page instead of the calibrated one; fewer CPUs hardly wait, so times say nothing here.
    (work.cpus, work.warm_up, work.count, work.page_ns) = (12, 1, 1, 3000.0);
    work.zone_lock_percent = None;
    let report = run_any(&scenario);
    // All but the order of build times.
    let counted: Vec<_> =
        report.holds.iter().filter(|hold| !hold.what.contains("build times")).collect();
    assert_eq!(counted.len(), 1 + 3 * 2 + 1, "{counted:#?}");
    assert!(counted.iter().all(|hold| hold.ok), "{counted:#?}");
    for column in ["alloc_zone", "free_high", "used memory"] {
        assert_eq!(off(&report, column), Vec::<String>::new());
    }
    let count = |what: &str| report.counts[&format!("kbuild -j112, {what}")];
    assert_eq!(count("patch 10: refused"), 0.0);
    assert_eq!(count("base: pages"), count("patch 10: pages"), "the same work");
    assert!(count("patch 10: pages_from_zone") < 0.4 * count("base: pages_from_zone"));
    assert!(count("patch 1: high_order_drains") < 0.6 * count("base: high_order_drains"));
    assert!(count("patch 10: cached_pages_most") > 10.0 * count("base: cached_pages_most"));
}

#[test]
fn page_waitqueue() {
    let mut scenario = scenario("page-waitqueue");
    let Workload::PageLocks(work) = &mut scenario.workload else { panic!("page locks") };
    (work.pages, work.faults) = (64, 400);
    let report = run(&scenario);
    assert_eq!(report.holds.len(), 8);
    assert!(!report.has_failed(), "{:#?}", report.rows);
}

#[test]
fn scenarios_by_name() {
    for name in catalog::names() {
        let mut scenario = scenario(name);
        match &mut scenario.workload {
            _ if scenario.reference.is_some() => continue,
            Workload::MemoryHog(work) => work.scale *= 2,
            Workload::Patched(all) => {
                all.messages.iter_mut().for_each(|work| work.messages /= 10);
                all.lifetimes.iter_mut().for_each(|work| work.count = 1);
                all.contention.iter_mut().for_each(shorten);
            }
            Workload::SlabMessages(work) => (work.messages, work.burst) = (2000, 1000),
            _ => {}
        }
        let report = run(&scenario);
        assert!(report.holds.len() >= 3, "{name} asserts something: {:#?}", report.holds);
    }
}

/// A time for a page instead of the calibrated one, fewer rounds, and fewer CPUs that build.
fn shorten(work: &mut ContentionWorkload) {
    (work.calibrate, work.page_ns) = (None, 800.0);
    match &mut work.does {
        Does::Fill(fill) => (fill.rounds, fill.bytes) = (1, fill.bytes / 4),
        Does::Purge(purge) => (purge.messages, purge.turn) = (6000, 6000),
        Does::Build(build) => build.cpus = 16,
    }
}

/// The "before" cell calibrates, all others are predicted.
#[test]
fn zone_instances() {
    let mut scenario = scenario("zone-instances-224c");
    let Workload::Patched(all) = &mut scenario.workload else { panic!("contention") };
    all.contention.retain(|work| matches!(work.does, Does::Fill(_)));
    let report = run(&scenario);
    assert_eq!(report.rows.len(), 4);
    assert!(!report.has_failed(), "{:#?}", report.rows);
}

#[test]
fn batches_that_double_make_the_tails() {
    let mut scenario = scenario("pcp-batch-tails");
    let Workload::Patched(all) = &mut scenario.workload else { panic!("contention") };
    all.contention.iter_mut().for_each(shorten);
    let report = run(&scenario);
    let us = |what: &str| report.counts[&format!("10 processes, linux-6.12, {what}: refill_us")];
    assert!(us("scale 5") > 10.0 * us("scale 0"), "{:#?}", report.counts);
    let worst =
        |what: &str| report.counts[&format!("10 processes, linux-6.12, {what}: worst_wait_us")];
    assert!(worst("scale 5") > 10.0 * worst("scale 0"), "{:#?}", report.counts);
}

/// Requests to a block driver: what was published is within what is claimed, and so it is by other tables of costs.
#[test]
fn sheaves_without_memory() {
    let mut scenario = scenario("memoryless-8n2m");
    let Workload::SlabMessages(work) = &mut scenario.workload else { panic!("messages") };
    (work.messages, work.burst) = (2000, 1000);
    assert!(work.requests.is_some());
    let report = run(&scenario);
    assert!(!report.has_failed(), "{:#?}", report.rows);
    let counts: Vec<f64> = ["6.12-like", "7.0-rc1", "7.0", "7.1"]
        .map(|rules| {
            report.counts
                [&format!("8 nodes, 2 with memory, freed across, {rules}: list_locks_per_request")]
        })
        .to_vec();
    assert!(
        counts[1] > counts[2] && counts[2] > 10.0 * counts[0] && counts[3] < 0.001,
        "{counts:?}"
    );
    for name in ["amd-8x6", "intel-8s160", "intel-2s128"] {
        let costs = catalog::costs(name).expect("it is built in");
        let options = Options { costs: Some(&costs), ..Options::default() };
        let report = nearpage_lab::run(&scenario, &options).expect("it can be run");
        assert_eq!(off(&report, "7.0-rc1"), Vec::<String>::new(), "{name}");
        assert!(report.holds.iter().all(|hold| hold.ok), "{name}: {:#?}", report.holds);
    }
}
