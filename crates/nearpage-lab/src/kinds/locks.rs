//! `page-waitqueue`: a page-lock storm with wait tables per zone, one for all, and per node.
//!
//! **The model.** Nobody waits for a page, so what differs is what an unlock reads: the line of a bucket, and with tables
//! per zone a line of the zone that tells where they are. The working sets that stream through a node's cache sweep
//! those lines out of it; then they come from memory of the node that has the table, whose home agent serves one line
//! after the other. The waiters bit makes the unlock read nothing.
//!
//! **Calibrated** is one figure, how long a home is busy with a line, to the step from per zone to global at the
//! largest number of processes. All else is predicted; who reads what from where depends on no time at all.

use nearpage::Config;
use nearpage::rules::{PageLockRules, WaitTables, WaitersBit};
use nearpage_sim::scheduler::VirtualTime;
use nearpage_sim::workload::page_locks::{PageLocks, PageLocksResult};
use nearpage_sim::{Costs, CostsError, Machine, Setup, Sim, picoseconds, simulate};

use crate::error::LabError;
use crate::kind::{Kind, Probe};
use crate::options::{Options, Sampled, sampled};
use crate::report::{Report, Tolerance};
use crate::scenario::{LocksWorkload, Scenario};

/// Kinds of tables, in the order of the reference's rows, and without and with the bit.
const TABLES: [(&str, WaitTables); 3] = [
    ("per zone (4.8)", WaitTables::PerZone),
    ("global (4.9)", WaitTables::Global),
    ("per node", WaitTables::PerNode),
];
const BITS: [(&str, WaitersBit); 2] = [("", WaitersBit::Off), (", waiters bit", WaitersBit::On)];

/// One choice of tables and bit for so many processes.
#[derive(Clone, Copy, Debug)]
struct Variant {
    tables: WaitTables,
    waiters_bit: WaitersBit,
    processes: usize,
    streamed_bytes: u64,
}

/// What came out.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    result: PageLocksResult,
    worst_hold_pages: u64,
    cached_pages: u64,
}

impl Outcome {
    fn faults_a_second(&self) -> f64 {
        self.result.faults as f64 * 1e12 / self.result.real_ps.max(1) as f64
    }

    fn a_fault(&self, count: u64) -> f64 {
        count as f64 / self.result.faults.max(1) as f64
    }
}

/// What all variants have in common.
struct Bench<'a> {
    scenario: &'a Scenario,
    workload: &'a LocksWorkload,
    machine: &'a Machine,
    costs: Costs,
    fault_ns: f64,
    seed: u64,
}

impl Kind for LocksWorkload {
    fn run(
        &self,
        scenario: &Scenario,
        costs: &Costs,
        options: &Options<'_>,
    ) -> Result<Report, LabError> {
        let mut report = Report::new(&scenario.name, &scenario.title);
        let mut bench = Bench::new(scenario, self, costs, options.seed)?;
        if self.calibrates {
            bench.calibrate(options, &mut report)?;
        }
        let mut variants = Vec::new();
        for &processes in &self.processes {
            for (_, tables) in TABLES {
                variants.extend(BITS.map(|(_, waiters_bit)| Variant {
                    tables,
                    waiters_bit,
                    processes,
                    streamed_bytes: self.streamed_bytes,
                }));
            }
        }
        let run =
            |variant: &Variant| bench.run(variant, options.samples && bench.is_shown(variant));
        let outcomes = options.each(&variants, run)?;
        let name = |at: usize| format!("{} processes, one table", variants[at].processes);
        let outcomes: Vec<Outcome> = report.keep_samples(outcomes, name);
        tabulate(self, &outcomes, &mut report);
        if scenario.reference.is_some() {
            compare(scenario, self, &outcomes, &mut report);
            bench.extremes(&mut report)?;
        }
        report.notes.push("times are model time; a process is one on a CPU of its own".into());
        Ok(report)
    }

    /// As many processes as possible.
    fn probe(
        &self,
        scenario: &Scenario,
        costs: &Costs,
        config: Config,
        seed: u64,
    ) -> Result<Probe, LabError> {
        let scenario = &Scenario { config, ..scenario.clone() };
        let bench = Bench::new(scenario, self, costs, seed)?;
        let PageLockRules { tables, waiters_bit } = config.model.page_lock;
        let streamed_bytes = self.streamed_bytes;
        let variant = Variant { tables, waiters_bit, processes: self.most(), streamed_bytes };
        let outcome = bench.measure(&variant)?;
        Ok(Probe {
            work_per_second: outcome.faults_a_second(),
            worst_hold_pages: outcome.worst_hold_pages,
            cached_bytes: outcome.cached_pages * scenario.machine.machine.page_bytes(),
            waits: None,
        })
    }
}

impl<'a> Bench<'a> {
    fn new(
        scenario: &'a Scenario,
        workload: &'a LocksWorkload,
        costs: &Costs,
        seed: u64,
    ) -> Result<Self, LabError> {
        let missing = |error: CostsError| LabError::Costs { name: costs.name.clone(), error };
        let fault_ns = costs.more("page_fault_ns").map_err(missing)?;
        let machine = &scenario.machine.machine;
        Ok(Self { scenario, workload, machine, costs: costs.clone(), fault_ns, seed })
    }

    /// One run: what differs between tables is no page, and no lock of a zone.
    fn is_shown(&self, variant: &Variant) -> bool {
        variant.processes == self.workload.most()
            && variant.tables == WaitTables::Global
            && variant.waiters_bit == WaitersBit::Off
    }

    fn measure(&self, variant: &Variant) -> Result<Outcome, LabError> {
        self.run(variant, false).map(|(outcome, _)| outcome)
    }

    fn run(&self, variant: &Variant, is_sampled: bool) -> Result<Sampled<Outcome>, LabError> {
        let Variant { tables, waiters_bit, processes, streamed_bytes } = *variant;
        let page_lock = PageLockRules { tables, waiters_bit };
        let model = self.scenario.config.model.with(|changed| changed.page_lock = page_lock);
        let config = self.scenario.config.with_model(model);
        let setup = Setup { machine: self.machine, costs: &self.costs, config, slab: None };
        let work = PageLocks {
            cpus: self.machine.cpus().take(processes).map(|(cpu, _)| cpu).collect(),
            pages: self.workload.pages,
            faults: self.workload.faults,
            sharers: self.workload.sharers,
            fault_ps: picoseconds(self.fault_ns),
            locked_ps: picoseconds(self.workload.locked_ns),
            streamed_bytes,
            seed: self.seed,
        };
        let run = |sim: &Sim<'_, '_>| {
            let run = || work.run(sim).expect("no wake-up is lost");
            let (result, samples) = sampled(sim, is_sampled, run);
            let holds = sim.allocator.zones().iter().map(|zone| zone.holds().most_pages.0);
            let worst_hold_pages = holds.max().unwrap_or(0);
            let cached_pages = sim.allocator.totals().cached_pages.0;
            (Outcome { result, worst_hold_pages, cached_pages }, samples)
        };
        simulate(&setup, Box::new(VirtualTime::default()), run)
            .map_err(|error| LabError::Machine { name: self.scenario.name.clone(), error })
    }

    /// Throughput with one kind of table and no bit, at the largest number of processes.
    fn without_bit(&self, tables: WaitTables, streamed_bytes: u64) -> Result<f64, LabError> {
        let (waiters_bit, processes) = (WaitersBit::Off, self.workload.most());
        let variant = Variant { tables, waiters_bit, processes, streamed_bytes };
        Ok(self.measure(&variant)?.faults_a_second())
    }

    /// Sets how long a home is busy with a line.
    fn calibrate(&mut self, options: &Options<'_>, report: &mut Report) -> Result<(), LabError> {
        let Some(wanted) = published(self.scenario, 1) else { return Ok(()) };
        let of_table = self.costs.home_service_ns.value;
        let streamed = self.workload.streamed_bytes;
        let global_percent = |bench: &Self| -> Result<f64, LabError> {
            let per_zone = bench.without_bit(WaitTables::PerZone, streamed)?;
            Ok(100.0 * bench.without_bit(WaitTables::Global, streamed)? / per_zone)
        };
        report.count("uncalibrated: global, percent of per zone", global_percent(self)?);
        let (mut low, mut high) = (0.0, 200.0);
        for _ in 0..10 {
            options.observer.step(0, 0)?;
            self.costs.home_service_ns.value = (low + high) / 2.0;
            let is_fast = global_percent(self)? > wanted;
            *(if is_fast { &mut low } else { &mut high }) = self.costs.home_service_ns.value;
        }
        let service = self.costs.home_service_ns.value;
        report.count("calibrated.home_service_ns", service);
        report.notes.push(format!(
            "calibrated: a home is busy for {service:.1} ns with a line, so that global is {wanted} % of per zone (the table \
             of costs says {of_table}, which alone makes no such difference: the count `uncalibrated`); all else is \
             predicted"
        ));
        Ok(())
    }

    /// What the same model says if the cache keeps the lines.
    fn extremes(&self, report: &mut Report) -> Result<(), LabError> {
        let per_zone = self.without_bit(WaitTables::PerZone, 0)?;
        for (name, tables) in TABLES {
            let percent = 100.0 * self.without_bit(tables, 0)? / per_zone;
            report.count(format!("nothing evicted: {name}, percent of per zone"), percent);
        }
        Ok(())
    }
}

/// Percent of the throughput of tables per zone, by the position in [`TABLES`].
fn published(scenario: &Scenario, tables: usize) -> Option<f64> {
    let reference = scenario.reference.as_ref()?;
    let at = reference.column("throughput_percent")?;
    let row = reference.rows.iter().find(|row| row[0] == tables as f64)?;
    Some(row[at])
}

fn tabulate(workload: &LocksWorkload, outcomes: &[Outcome], report: &mut Report) {
    let headings = [
        "processes, tables",
        "lines a fault: from another node",
        "from its own",
        "from a cache",
        "waits",
        "million faults a model second",
        "percent of per zone",
    ];
    report.table.header = headings.map(str::to_owned).to_vec();
    let of_counts = outcomes.chunks(TABLES.len() * BITS.len());
    for (&processes, outcomes) in workload.processes.iter().zip(of_counts) {
        let names = TABLES.iter().flat_map(|(table, _)| BITS.map(|(bit, _)| (table, bit)));
        for ((table, bit), outcome) in names.zip(outcomes) {
            let name = format!("{processes}, {table}{bit}");
            let lines = outcome.result.lines;
            let percent = 100.0 * outcome.faults_a_second() / outcomes[0].faults_a_second();
            let figures = [
                ("lines_from_other_node_per_fault", outcome.a_fault(lines.moved_far)),
                ("lines_from_own_node_per_fault", outcome.a_fault(lines.from_memory)),
                (
                    "lines_from_cache_per_fault",
                    outcome.a_fault(lines.own_hits + lines.node_hits + lines.moved_near),
                ),
                ("waits", outcome.result.waits.waits as f64),
                ("faults_per_second", outcome.faults_a_second()),
            ];
            for (what, figure) in figures {
                report.count(format!("{name}: {what}"), figure);
            }
            report.count(format!("{name}: refused"), outcome.result.refused as f64);
            let [far, own, cached, waits, faults] = figures.map(|(_, figure)| figure);
            let mut row = vec![name];
            row.extend([far, own, cached].map(|lines| format!("{lines:.3}")));
            row.extend([format!("{waits:.0}"), format!("{:.2}", faults / 1e6)]);
            row.push(format!("{percent:.1}"));
            report.table.rows.push(row);
        }
    }
}

/// The reference's figures, and what must hold.
fn compare(
    scenario: &Scenario,
    workload: &LocksWorkload,
    outcomes: &[Outcome],
    report: &mut Report,
) {
    let group = TABLES.len() * BITS.len();
    let at_most = workload.processes.iter().position(|&processes| processes == workload.most());
    let all = &outcomes[at_most.unwrap_or(0) * group..][..group];
    let processes = workload.most();
    let [per_zone, global, per_node, with_bit] = [0, 2, 4, 5].map(|at| all[at].faults_a_second());
    for (index, (column, near)) in [
        ("throughput_percent (definition)", Tolerance::Relative(0.0)),
        ("throughput_percent (calibrated)", Tolerance::Absolute(1.0)),
        ("throughput_percent", Tolerance::Relative(0.1)),
    ]
    .into_iter()
    .enumerate()
    {
        if let Some(reference) = published(scenario, index) {
            let percent = 100.0 * all[2 * index].faults_a_second() / per_zone;
            let row = format!("{processes} processes, {}", TABLES[index].0);
            report.row(&row, column, reference, percent, near);
        }
    }
    let ratio = per_node / global;
    let row = format!("{processes} processes");
    report.row(&row, "per node / global", 1.95, ratio, Tolerance::Between(1.3, 2.6));
    let order = |report: &mut Report, what: &str, ratio: f64, ok: bool| {
        report.hold(format!("{processes} processes: {what}"), ratio, ok);
    };
    let (slower, better) = (per_zone / global, per_node / per_zone);
    order(report, "per zone / global, above 1 (calibrated)", slower, slower > 1.0);
    order(report, "per node / per zone, above 1", better, better > 1.0);
    order(
        report,
        "per node with the bit / without, at least 1",
        with_bit / per_node,
        with_bit >= per_node,
    );
    order(report, "per node / global, 1.3 to 2.6", ratio, (1.3..=2.6).contains(&ratio));
    let machine = &scenario.machine.machine;
    let far_cpus = machine.cpus().take(processes).filter(|&(_, node)| node != 0).count();
    let wanted = far_cpus as f64 / processes as f64;
    let far = |at: usize| all[at].a_fault(all[at].result.lines.moved_far);
    let what = format!("global: buckets from another node a fault, exactly {wanted}");
    order(report, &what, far(2), far(2) == wanted);
    order(report, "per node: buckets from another node a fault, exactly 0", far(4), far(4) == 0.0);
    let touched = all[1].result.lines.touched()
        + all[3].result.lines.touched()
        + all[5].result.lines.touched();
    order(report, "with the bit: lines of tables touched, exactly 0", touched as f64, touched == 0);
    let one_socket = machine.nodes.first().map_or(0, |node| node.cpus.len());
    if let Some(at) = workload.processes.iter().position(|&processes| processes <= one_socket) {
        let some = &outcomes[at * group..][..group];
        let ratio = some[4].faults_a_second() / some[2].faults_a_second();
        let what = format!(
            "{} processes on one socket: per node / global, 1 within 0.02",
            workload.processes[at]
        );
        report.hold(what, ratio, (ratio - 1.0).abs() <= 0.02);
    }
}
