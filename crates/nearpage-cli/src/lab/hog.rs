//! `zonelist-cache`: a memory hog on a machine of many nodes, without the zonelist cache and with it.
//!
//! **The model.** A fault costs what the table of costs says, plus the allocator's own lines and locks, plus clearing
//! the page, dearer from afar. Each zone that is asked and is full runs `zone_reclaim`, as that machine had it on: a
//! call that returns early, and takes a line of the zone exclusively, which moves if another CPU was there last. Far
//! accesses get slower the more CPUs clear far pages at the same time.
//!
//! **Calibrated** are two figures, to two cells of the "before" column: the factor between the model's seconds and the
//! reference's, and how much other CPUs slow far accesses. All else is predicted.

use std::cell::Cell;

use nearpage::alloc::{Config, Request, ScanCounts};
use nearpage::gfp::Gfp;
use nearpage::model::Model;
use nearpage::platform::{NodeReclaimed, Shortage};
use nearpage::units::{CpuId, NodeId, Order, Pfn};
use nearpage::zonelist::cache::CacheRule;
use nearpage_sim::costs::{Costs, CostsError};
use nearpage_sim::executor::Tasks;
use nearpage_sim::lines::LineCounts;
use nearpage_sim::machine::Machine;
use nearpage_sim::platform::Help;
use nearpage_sim::pool;
use nearpage_sim::scheduler::VirtualTime;
use nearpage_sim::sim::{self, Setup};
use nearpage_sim::workload::hog::{Hog, HogResult};
use nearpage_sim::world::World;

use super::Options;
use super::error::LabError;
use super::report::{Report, Tolerance};
use super::scenario::{HogCalibration, HogWorkload, Scenario};
use super::sweep::Probe;

/// Rules of the cache, in the order of the tables.
const RULES: [(&str, CacheRule); 3] =
    [("off", CacheRule::Off), ("original", CacheRule::Original), ("keyed", CacheRule::Keyed)];

/// One amount of memory, one number of threads, one rule.
#[derive(Clone, Copy, Debug)]
struct Variant {
    bytes: u64,
    threads: usize,
    rule: CacheRule,
}

/// What came out.
#[derive(Clone, Copy, Default, Debug)]
struct Outcome {
    hog: HogResult,
    scans: ScanCounts,
    lines: LineCounts,
    pages: f64,
    worst_hold_pages: u64,
    cached_pages: u64,
}

/// `zone_reclaim` as it was: a zone that has nothing to give says so, early.
struct EarlyReclaim {
    call_ns: f64,
    calls: Cell<u64>,
}

impl Help for EarlyReclaim {
    fn node_reclaim(&self, world: &World, shortage: Shortage) -> NodeReclaimed {
        self.calls.set(self.calls.get() + 1);
        world.charge_ns(self.call_ns);
        world.take_line(shortage.node.0 as usize);
        NodeReclaimed::Nothing
    }
}

/// What all cells have in common.
struct Bench<'a> {
    scenario: &'a Scenario,
    workload: &'a HogWorkload,
    machine: Machine,
    costs: Costs,
    call_ns: f64,
}

pub(super) fn run(
    scenario: &Scenario,
    workload: &HogWorkload,
    costs: &Costs,
    options: &Options<'_>,
) -> Result<Report, LabError> {
    let missing = |error: CostsError| LabError::Costs { name: costs.name.clone(), error };
    let mut machine = scenario.machine.machine.clone();
    machine.nodes.iter_mut().for_each(|node| node.bytes /= workload.scale);
    let call_ns = costs.more("zone_reclaim_ns").map_err(missing)?;
    costs
        .more("fault_ns")
        .and(costs.more("store_ns"))
        .and(costs.more("teardown_ns"))
        .map_err(missing)?;
    let mut bench = Bench { scenario, workload, machine, costs: costs.clone(), call_ns };
    let mut report = Report::new(&scenario.name, &scenario.title);
    let scale = match &workload.calibrate {
        Some(cells) => bench.calibrate(cells, &mut report)?,
        None => 1.0,
    };
    let mut cells = Vec::new();
    for (&bytes, &threads) in
        workload.memory.iter().flat_map(|m| workload.threads.iter().map(move |t| (m, t)))
    {
        cells.extend(RULES.map(|(_, rule)| Variant { bytes, threads, rule }));
    }
    let total = cells.len();
    let done = |finished| (options.progress)(finished, total);
    let outcomes = pool::run(options.threads, &cells, |cell| bench.measure(cell), done);
    let outcomes: Vec<Outcome> = outcomes.into_iter().collect::<Result<_, _>>()?;
    tabulate(&bench, &cells, &outcomes, scale, &mut report);
    if scenario.reference.is_some() {
        poisoning(&bench, &mut report)?;
    }
    Ok(report)
}

/// The largest cell under other rules and settings.
pub(super) fn probe(
    scenario: &Scenario,
    workload: &HogWorkload,
    costs: &Costs,
    config: Config,
) -> Result<Probe, LabError> {
    let mut machine = scenario.machine.machine.clone();
    machine.nodes.iter_mut().for_each(|node| node.bytes /= workload.scale);
    let call_ns = costs
        .more("zone_reclaim_ns")
        .map_err(|error| LabError::Costs { name: costs.name.clone(), error })?;
    let page_bytes = machine.page_bytes();
    let scenario = &Scenario { config, ..scenario.clone() };
    let bench = Bench { scenario, workload, machine, costs: costs.clone(), call_ns };
    let largest = Variant {
        bytes: workload.memory.iter().copied().max().unwrap_or(0),
        threads: workload.threads.iter().copied().max().unwrap_or(1),
        rule: config.model.zonelist_cache,
    };
    let outcome = bench.measure(&largest)?;
    Ok(Probe {
        work_per_second: outcome.pages * 1e12 / outcome.hog.real_ps.max(1) as f64,
        worst_hold_pages: outcome.worst_hold_pages,
        cached_bytes: outcome.cached_pages * page_bytes,
    })
}

impl Bench<'_> {
    fn measure(&self, variant: &Variant) -> Result<Outcome, LabError> {
        let setup = Setup {
            machine: &self.machine,
            costs: &self.costs,
            config: with_rule(self.scenario.config, variant.rule),
            slab: None,
        };
        let page_bytes = self.machine.page_bytes();
        let hog = Hog {
            cpus: self.machine.cpus().take(variant.threads).map(|(cpu, _)| cpu).collect(),
            pages: variant.bytes / self.workload.scale / page_bytes,
            page_bytes,
            further_stores: self.workload.stores_per_page - 1,
        };
        let help = EarlyReclaim { call_ns: self.call_ns, calls: Cell::new(0) };
        let outcome = sim::with_help(&setup, Box::new(VirtualTime::default()), &help, |sim| {
            let result = hog.run(sim, &self.costs)?;
            let counts = |node| sim.allocator.scan_counts(node);
            let scans = sim.allocator.topology().indexes().map(counts);
            let scans = scans.fold(ScanCounts::default(), ScanCounts::plus);
            let lines = sim.world.line_counts();
            let holds = sim.allocator.zones().iter().map(|zone| zone.holds().most_pages.0);
            Ok(Outcome {
                hog: result,
                scans,
                lines,
                pages: hog.pages as f64,
                worst_hold_pages: holds.max().unwrap_or(0),
                cached_pages: sim.allocator.totals().cached_pages.0,
            })
        });
        let name = || self.scenario.name.clone();
        outcome
            .map_err(|error| LabError::Machine { name: name(), error })?
            .map_err(|error| LabError::Costs { name: self.costs.name.clone(), error })
    }

    /// System time without the cache, s of the model, before the scale.
    fn sys_before(&self, (bytes, threads): (u64, usize)) -> Result<f64, LabError> {
        let outcome = self.measure(&Variant { bytes, threads, rule: CacheRule::Off })?;
        Ok(outcome.hog.sys_ps as f64 * self.workload.scale as f64 * 1e-12)
    }

    fn published(&self, (bytes, threads): (u64, usize)) -> Option<f64> {
        let reference = self.scenario.reference.as_ref()?;
        let at = reference.column("sys_before")?;
        let row = row_of(reference, bytes, threads)?;
        Some(row[at])
    }

    /// Sets the slowdown by load; returns the factor between the model's seconds and the reference's.
    fn calibrate(&mut self, cells: &HogCalibration, report: &mut Report) -> Result<f64, LabError> {
        let (Some(one), Some(other)) =
            (self.published(cells.scale), self.published(cells.load_slowdown))
        else {
            return Ok(1.0);
        };
        let scale = one / self.sys_before(cells.scale)?;
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..10 {
            self.costs.load_slowdown.value = (low + high) / 2.0;
            let is_low = self.sys_before(cells.load_slowdown)? * scale < other;
            *(if is_low { &mut low } else { &mut high }) = self.costs.load_slowdown.value;
        }
        let slowdown = self.costs.load_slowdown.value;
        report.count("calibrated.scale", scale);
        report.count("calibrated.load_slowdown", slowdown);
        report.notes.push(format!(
            "calibrated: model seconds x {scale:.1} (sys before, {}), and far accesses slower by {:.1} % for each \
             other CPU that clears a far page (sys before, {}); all else is predicted",
            label(cells.scale.0, cells.scale.1),
            slowdown * 100.0,
            label(cells.load_slowdown.0, cells.load_slowdown.1),
        ));
        Ok(scale)
    }
}

fn with_rule(config: Config, rule: CacheRule) -> Config {
    Config { model: Model { zonelist_cache: rule, ..config.model }, ..config }
}

fn label(bytes: u64, threads: usize) -> String {
    format!("{} GB, {threads} threads", bytes >> 30)
}

fn row_of(reference: &super::scenario::Reference, bytes: u64, threads: usize) -> Option<&[f64]> {
    let (gb, count) = (reference.column("memory_gb")?, reference.column("threads")?);
    let is_it = |row: &&Vec<f64>| row[gb] == (bytes >> 30) as f64 && row[count] == threads as f64;
    reference.rows.iter().find(is_it).map(Vec::as_slice)
}

/// Cells of several threads whose memory does not fit the nodes that they run on.
fn spills(outcome: &Outcome, threads: usize) -> bool {
    threads > 1 && outcome.hog.remote as f64 > outcome.pages * 0.001
}

fn tabulate(
    bench: &Bench<'_>,
    cells: &[Variant],
    outcomes: &[Outcome],
    scale: f64,
    report: &mut Report,
) {
    let headings = [
        "memory, threads",
        "zones asked a page: off",
        "original",
        "keyed",
        "lines moved a page: off",
        "keyed",
        "far pages %",
        "sys saved %: original",
        "keyed",
    ];
    report.table.header = headings.map(str::to_owned).to_vec();
    let (mut gains, mut far_gains, mut home, mut alone) = (0, 0, 0.0f64, Vec::new());
    for (cells, outcomes) in cells.chunks(RULES.len()).zip(outcomes.chunks(RULES.len())) {
        let name = label(cells[0].bytes, cells[0].threads);
        let [off, original, keyed] = [0, 1, 2].map(|at| outcomes[at]);
        let percent =
            |with: Outcome| 100.0 * (1.0 - with.hog.sys_ps as f64 / off.hog.sys_ps as f64);
        if spills(&off, cells[0].threads) {
            gains += u32::from(percent(original) > 0.0);
            far_gains += 1;
        } else if cells[0].threads == 1 {
            alone.push(percent(original));
        } else {
            home = home.max(percent(original).abs());
        }
        compare(bench, cells, outcomes, scale, percent(original), report);
        for (outcome, (rule, _)) in outcomes.iter().zip(RULES) {
            count(report, &format!("{name}, {rule}"), outcome);
        }
        let asked = |outcome: Outcome| outcome.scans.zones_visited as f64 / outcome.pages;
        let moved = |outcome: Outcome| outcome.lines.moved_far as f64 / outcome.pages;
        let figures = [asked(off), asked(original), asked(keyed), moved(off), moved(keyed)];
        let mut row = vec![name];
        row.extend(figures.map(|figure| format!("{figure:.2}")));
        row.push(format!("{:.0}", 100.0 * off.hog.remote as f64 / off.pages));
        row.extend([percent(original), percent(keyed)].map(|percent| format!("{percent:.1}")));
        report.table.rows.push(row);
    }
    if bench.scenario.reference.is_none() {
        let refused: u64 = outcomes.iter().map(|outcome| outcome.hog.refused).sum();
        report.count("refused", refused as f64);
        return;
    }
    report.hold(
        format!("of {far_gains} spilling cells of several threads all gain"),
        f64::from(gains),
        gains == far_gains,
    );
    report.hold(
        "cells that never leave home: largest change, percent, at most 1",
        home,
        home <= 1.0,
    );
    let most = alone.iter().fold(0.0f64, |most, &percent| most.max(percent));
    let least = alone.iter().fold(100.0f64, |least, &percent| least.min(percent));
    report.hold("one thread: percent saved, at least 0", least, least >= 0.0);
    report.hold("one thread: percent saved, at most 5", most, most <= 5.0);
    report.notes.push(
        "the 4-5 % that the reference has at 55 threads is not claimed: nothing leaves home there"
            .into(),
    );
    report.notes.push(format!(
        "memory of machine and workload / {}; times are model time",
        bench.workload.scale
    ));
}

fn count(report: &mut Report, name: &str, outcome: &Outcome) {
    let a_page = |count: u64| count as f64 / outcome.pages;
    report.count(format!("{name}: zones_visited_per_page"), a_page(outcome.scans.zones_visited));
    report.count(format!("{name}: zones_skipped_per_page"), a_page(outcome.scans.zones_skipped));
    report.count(format!("{name}: lines_moved_per_page"), a_page(outcome.lines.moved_far));
    report.count(format!("{name}: far_pages_per_page"), a_page(outcome.hog.remote));
    report.count(format!("{name}: refused"), outcome.hog.refused as f64);
    report.count(format!("{name}: zaps"), outcome.scans.zaps as f64);
}

/// The reference's columns beside the model's.
fn compare(
    bench: &Bench<'_>,
    cells: &[Variant],
    outcomes: &[Outcome],
    scale: f64,
    percent: f64,
    report: &mut Report,
) {
    let Variant { bytes, threads, .. } = cells[0];
    let Some(reference) = &bench.scenario.reference else { return };
    let Some(row) = row_of(reference, bytes, threads) else { return };
    let name = label(bytes, threads);
    let seconds = |ps: u64| ps as f64 * bench.workload.scale as f64 * 1e-12 * scale;
    let [off, original] = [0, 1].map(|at| outcomes[at].hog);
    let near_percent = if threads == 1 {
        Tolerance::Between(0.0, 5.0)
    } else if spills(&outcomes[0], threads) {
        Tolerance::Absolute(5.0)
    } else {
        Tolerance::NearZero(1.0)
    };
    let columns = [
        ("sys_before", seconds(off.sys_ps), Tolerance::Relative(0.3)),
        ("real_before", seconds(off.real_ps), Tolerance::Relative(0.4)),
        ("sys_after", seconds(original.sys_ps), Tolerance::Relative(0.3)),
        ("real_after", seconds(original.real_ps), Tolerance::Relative(0.4)),
        ("percent", percent, near_percent),
    ];
    for (column, model, near) in columns {
        if let Some(at) = reference.column(column) {
            report.row(&name, column, row[at], model, near);
        }
    }
}

/// The case that got the cache deleted: a failed huge page marks the next node full, and single pages go past it.
fn poisoning(bench: &Bench<'_>, report: &mut Report) -> Result<(), LabError> {
    const FAULT_NS: f64 = 1e5;
    let mut machine = Machine::uniform(3, 2, 256 << 20);
    machine.distances = vec![10, 20, 30, 20, 10, 20, 30, 20, 10];
    for (name, rule) in RULES {
        let costs = Costs::flat();
        let setup = Setup {
            machine: &machine,
            costs: &costs,
            config: with_rule(Config::default(), rule),
            slab: None,
        };
        let near = Cell::new(0u64);
        let all = 1000u64;
        let task = |sim: &sim::Sim<'_, '_>| {
            fill_near(sim);
            let huge = Gfp::TRANSHUGE_LIGHT.or(Gfp::NORETRY);
            // Whether it is got does not matter: node 1 has no such block.
            let _ = sim.allocator.alloc(Request::new(Order(9), huge));
            for _ in 0..all {
                sim.world.charge_ns(FAULT_NS);
                let page = sim.allocator.alloc(Request::new(Order(0), Gfp::HIGHUSER_MOVABLE));
                near.set(
                    near.get()
                        + u64::from(page.is_ok_and(|page| sim.world.node_of_page(page) == 1)),
                );
            }
        };
        let run = |sim: &sim::Sim<'_, '_>| {
            let mut tasks = Tasks::default();
            tasks.add(CpuId(0), || task(sim));
            sim.run(tasks).is_ok()
        };
        sim::with(&setup, Box::new(VirtualTime::default()), run)
            .map_err(|error| LabError::Machine { name: bench.scenario.name.clone(), error })?;
        let share = near.get() as f64 / all as f64 * 100.0;
        let (what, ok) = match rule {
            CacheRule::Original => ("at most 10: poisoned", share <= 10.0),
            _ => ("at least 90", share >= 90.0),
        };
        let text = format!(
            "after a failed huge page, percent of single pages from the near node, {name}: {what}"
        );
        report.hold(text, share, ok);
    }
    Ok(())
}

/// Node 0 has nothing left; node 1 has every other page.
fn fill_near(sim: &sim::Sim<'_, '_>) {
    let take = |node| {
        let request =
            Request::new(Order(0), Gfp::HIGHUSER_MOVABLE.or(Gfp::THISNODE)).on(NodeId(node));
        core::iter::from_fn(|| sim.allocator.alloc(request).ok()).collect::<Vec<Pfn>>()
    };
    take(0);
    for page in take(1).into_iter().filter(|page| page.0 % 2 == 0) {
        sim.allocator.free(page, Order(0)).expect("it was just allocated");
    }
    sim.allocator.drain_all().expect("nobody else drains");
}
