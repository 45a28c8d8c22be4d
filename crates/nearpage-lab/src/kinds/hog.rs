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

use nearpage::Config;
use nearpage::platform::{NodeReclaimed, Shortage};
use nearpage::rules::CacheRule;
use nearpage::stats::ScanCounts;
use nearpage_machine::size;
use nearpage_sim::scheduler::VirtualTime;
use nearpage_sim::workload::hog::{Hog, HogResult};
use nearpage_sim::{
    Costs, CostsError, Help, LineCounts, Machine, Setup, Sim, World, simulate_with_help,
};

use super::homes::Demand;
use super::huge::{self, Case, RULES, with_rule};
use crate::catalog;
use crate::error::LabError;
use crate::kind::{Kind, Probe};
use crate::options::{Options, Sampled, sampled};
use crate::report::{Report, Tolerance};
use crate::scenario::{HogCalibration, HogWorkload, Scenario};

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
    /// Before a node's memory came, if it came later.
    before: Option<HogResult>,
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

impl Kind for HogWorkload {
    fn run(
        &self,
        scenario: &Scenario,
        costs: &Costs,
        options: &Options<'_>,
    ) -> Result<Report, LabError> {
        let mut bench = Bench::new(scenario, self, costs)?;
        let mut report = Report::new(&scenario.name, &scenario.title);
        let scale = match &self.calibrate {
            Some(cells) => bench.calibrate(cells, options, &mut report)?,
            None => 1.0,
        };
        let mut cells = Vec::new();
        for (&bytes, &threads) in
            self.memory.iter().flat_map(|m| self.threads.iter().map(move |t| (m, t)))
        {
            cells.extend(RULES.map(|(_, rule)| Variant { bytes, threads, rule }));
        }
        let run = |cell: &Variant| bench.run(cell, options.samples && bench.is_shown(cell));
        let outcomes = options.each(&cells, run)?;
        let outcomes = report.keep_samples(outcomes, |at| {
            let Variant { bytes, threads, rule } = cells[at];
            let rule = RULES.iter().find(|(_, known)| *known == rule).map_or("", |(name, _)| name);
            format!("{}, zonelist cache {rule}", label(bytes, threads))
        });
        tabulate(&bench, &cells, &outcomes, scale, &mut report);
        if scenario.reference.is_some() {
            let small = small_machine();
            let flat = Costs::flat();
            let case = Case { machine: &small, costs: &flat, pages: 1000, is_sampled: false };
            huge::hold(&scenario.name, &case, Config::default(), &mut report)?;
            today(&bench, options, &mut report)?;
        }
        Ok(report)
    }

    /// The largest cell.
    fn probe(
        &self,
        scenario: &Scenario,
        costs: &Costs,
        config: Config,
        _seed: u64,
    ) -> Result<Probe, LabError> {
        let scenario = &Scenario { config, ..scenario.clone() };
        let bench = Bench::new(scenario, self, costs)?;
        let largest = Variant {
            bytes: self.memory.iter().copied().max().unwrap_or(0),
            threads: self.threads.iter().copied().max().unwrap_or(1),
            rule: config.model.zonelist_cache,
        };
        let outcome = bench.measure(&largest)?;
        Ok(Probe {
            work_per_second: outcome.pages * 1e12 / outcome.hog.real_ps.max(1) as f64,
            worst_hold_pages: outcome.worst_hold_pages,
            cached_bytes: outcome.cached_pages * bench.machine.page_bytes(),
            waits: None,
        })
    }
}

impl<'a> Bench<'a> {
    /// Refuses costs that lack what the work of a hog takes.
    fn new(
        scenario: &'a Scenario,
        workload: &'a HogWorkload,
        costs: &Costs,
    ) -> Result<Self, LabError> {
        let missing = |error: CostsError| LabError::Costs { name: costs.name.clone(), error };
        for cost in ["fault_ns", "store_ns", "teardown_ns"] {
            costs.more(cost).map_err(missing)?;
        }
        let call_ns = costs.more("zone_reclaim_ns").map_err(missing)?;
        let machine = workload.scaled(&scenario.machine.machine);
        Ok(Self { scenario, workload, machine, costs: costs.clone(), call_ns })
    }

    /// The largest amount of memory, a middle number of threads, without the cache and with it.
    fn is_shown(&self, Variant { bytes, threads, rule }: &Variant) -> bool {
        let HogWorkload { memory, threads: all, .. } = self.workload;
        memory.iter().all(|other| other <= bytes)
            && all[all.len() / 2] == *threads
            && *rule != CacheRule::Original
    }

    fn measure(&self, variant: &Variant) -> Result<Outcome, LabError> {
        self.run(variant, false).map(|(outcome, _)| outcome)
    }

    fn run(&self, variant: &Variant, is_sampled: bool) -> Result<Sampled<Outcome>, LabError> {
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
        let run = |sim: &Sim<'_, '_>| {
            let (results, samples) = sampled(sim, is_sampled, || self.runs(sim, &hog));
            let (before, result) = results?;
            let counts = |node| sim.allocator.scan_counts(node);
            let scans = sim.allocator.topology().indexes().map(counts);
            let scans: ScanCounts = scans.sum();
            let lines = sim.world.line_counts();
            let holds = sim.allocator.zones().iter().map(|zone| zone.holds().most_pages.0);
            let outcome = Outcome {
                before,
                hog: result,
                scans,
                lines,
                pages: hog.pages as f64,
                worst_hold_pages: holds.max().unwrap_or(0),
                cached_pages: sim.allocator.totals().cached_pages.0,
            };
            Ok((outcome, samples))
        };
        let outcome = simulate_with_help(&setup, Box::new(VirtualTime::default()), &help, run);
        let name = || self.scenario.name.clone();
        outcome
            .map_err(|error| LabError::Machine { name: name(), error })?
            .map_err(|error| LabError::Costs { name: self.costs.name.clone(), error })
    }

    /// The run, and if a node's memory comes later the one before it.
    fn runs(
        &self,
        sim: &Sim<'_, '_>,
        hog: &Hog,
    ) -> Result<(Option<HogResult>, HogResult), CostsError> {
        let Some(node) = self.workload.hot_add else {
            return Ok((None, hog.run(sim, &self.costs)?));
        };
        sim.allocator.offline_node(node).expect("nobody has a page of it yet");
        let before = hog.run(sim, &self.costs)?;
        sim.allocator.online_node(node).expect("it is offline");
        Ok((Some(before), hog.run(sim, &self.costs)?))
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
    fn calibrate(
        &mut self,
        cells: &HogCalibration,
        options: &Options<'_>,
        report: &mut Report,
    ) -> Result<f64, LabError> {
        let (Some(one), Some(other)) =
            (self.published(cells.scale), self.published(cells.load_slowdown))
        else {
            return Ok(1.0);
        };
        let scale = one / self.sys_before(cells.scale)?;
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..10 {
            options.observer.step(0, 0)?;
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

/// Three nodes in a line.
fn small_machine() -> Machine {
    let machine = Machine::uniform(3, 2, 256 << 20);
    Machine { distances: vec![10, 20, 30, 20, 10, 20, 30, 20, 10], ..machine }
}

fn label(bytes: u64, threads: usize) -> String {
    let memory = match bytes.is_multiple_of(1 << 30) {
        true => format!("{} GB", bytes >> 30),
        false => size::format(bytes),
    };
    format!("{memory}, {threads} threads")
}

fn row_of(reference: &crate::scenario::Reference, bytes: u64, threads: usize) -> Option<&[f64]> {
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
        hold_homes(bench, cells, outcomes, report);
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

/// What must hold without a reference, for each cell: with the cache no page goes further than without.
fn hold_homes(bench: &Bench<'_>, cells: &[Variant], outcomes: &[Outcome], report: &mut Report) {
    for (cells, outcomes) in cells.chunks(RULES.len()).zip(outcomes.chunks(RULES.len())) {
        let Variant { bytes, threads, .. } = cells[0];
        let name = label(bytes, threads);
        let [off, keyed] = [0, 2].map(|at| outcomes[at]);
        Demand::of(&bench.machine, threads, off.pages as u64).hold(&name, &keyed.hog, report);
        let further = 100.0 * (keyed.hog.remote as f64 - off.hog.remote as f64) / off.pages;
        let what =
            format!("{name}: far pages that the keyed cache adds, percent of all, at most 1");
        report.hold(what, further, further <= 1.0);
    }
}

fn count(report: &mut Report, name: &str, outcome: &Outcome) {
    let a_page = |count: u64| count as f64 / outcome.pages;
    report.count(format!("{name}: zones_visited_per_page"), a_page(outcome.scans.zones_visited));
    report.count(format!("{name}: zones_skipped_per_page"), a_page(outcome.scans.zones_skipped));
    report.count(format!("{name}: lines_moved_per_page"), a_page(outcome.lines.moved_far));
    report.count(format!("{name}: far_pages_per_page"), a_page(outcome.hog.remote));
    report.count(format!("{name}: cpuless_pages_per_page"), a_page(outcome.hog.of_cpuless));
    report.count(format!("{name}: refused"), outcome.hog.refused as f64);
    if let Some(before) = outcome.before {
        report.count(format!("{name}: far_pages_per_page before it came"), a_page(before.remote));
        report.count(format!("{name}: refused before it came"), before.refused as f64);
        let far = |hog: &HogResult| a_page(hog.remote + hog.refused);
        let what =
            format!("{name}: pages far or refused a page since the memory came, fewer than before");
        report.hold(what, far(&outcome.hog), far(&outcome.hog) < far(&before));
    }
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

/// A machine of today, of so many nodes of four CPUs, without zone reclaim: what the cache saves when it is nearly full.
fn today(bench: &Bench<'_>, options: &Options<'_>, report: &mut Report) -> Result<(), LabError> {
    const NODE_BYTES: u64 = 64 << 20;
    let costs = catalog::costs("intel-2s128")?;
    let config = Config::default();
    let workload = HogWorkload {
        scale: 1,
        memory: Vec::new(),
        threads: Vec::new(),
        stores_per_page: 1,
        calibrate: None,
        hot_add: None,
    };
    for (nodes, least, most) in [(2u32, -1.0, 1.0), (32, 0.0, 100.0)] {
        let machine = Machine::uniform(nodes, 4, NODE_BYTES);
        let scenario = Scenario { config, reference: None, ..bench.scenario.clone() };
        let today = Bench {
            scenario: &scenario,
            workload: &workload,
            machine,
            costs: costs.clone(),
            call_ns: 0.0,
        };
        let bytes = u64::from(nodes) * NODE_BYTES / 10 * 9;
        let cells: Vec<Variant> = [1, 4]
            .into_iter()
            .flat_map(|threads| {
                [CacheRule::Off, CacheRule::Keyed].map(|rule| Variant { bytes, threads, rule })
            })
            .collect();
        let outcomes = options.each_before(&cells, |cell| today.measure(cell))?;
        for (cells, pair) in cells.chunks(2).zip(outcomes.chunks(2)) {
            let sys = |at: usize| pair[at].hog.sys_ps as f64;
            let saved = 100.0 * (1.0 - sys(1) / sys(0));
            let name = format!("today, {nodes} nodes nearly full, {} threads", cells[0].threads);
            count(report, &format!("{name}, off"), &pair[0]);
            count(report, &format!("{name}, keyed"), &pair[1]);
            let what = format!(
                "{name}, no zone reclaim: percent of sys that the keyed cache saves, {least} to {most}"
            );
            report.hold(what, saved, (least..=most).contains(&saved));
        }
    }
    Ok(())
}
