//! `memoryless-slab`: messages between CPUs whose objects come from slab, on machines with and without memoryless
//! nodes.
//!
//! **The model.** List locks are ticket locks of their time: at each hand-over all waiters read the line again. Under them the
//! metadata of each object's slab is changed, a line that another CPU often had last. The
//! objects' own lines, copying and scheduling are one time a message, **calibrated** to the machine without
//! memoryless nodes before the change; all else is predicted, and the counts depend on no time at all.

use nearpage::Config;
use nearpage_sim::scheduler::VirtualTime;
use nearpage_sim::workload::slab_messages::{SlabMessages, SlabMessagesResult};
use nearpage_sim::{Costs, Machine, NodeSpec, Setup, Sim, picoseconds, simulate};
use nearpage_slab::{LocalNode, SlabConfig};

use super::requests;
use crate::catalog;
use crate::error::LabError;
use crate::kind::{Kind, Probe};
use crate::options::{Options, Sampled, sampled};
use crate::report::{Report, Tolerance};
use crate::scenario::{Scenario, SlabWorkload};

/// Before the change and after it.
const VARIANTS: [(&str, LocalNode); 2] =
    [("before", LocalNode::OwnNode), ("after", LocalNode::NearestMemory)];

/// Steps of a calibration at most.
const CALIBRATION_STEPS_MAX: usize = 5;

/// A machine of the table.
struct Place<'a> {
    name: &'a str,
    machine: &'a Machine,
    costs: Costs,
    message_ns: f64,
    /// Objects of a message.
    objects: usize,
}

impl<'a> Place<'a> {
    fn new(name: &'a str, machine: &'a Machine, costs: Costs, workload: &SlabWorkload) -> Self {
        let SlabWorkload { message_ns, ref objects, .. } = *workload;
        Self { name, machine, costs, message_ns, objects: objects.len() }
    }

    fn is_memoryless(&self) -> bool {
        self.machine.nodes.iter().any(|node| node.bytes == 0 && !node.cpus.is_empty())
    }
}

/// One variant on one machine.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    result: SlabMessagesResult,
    /// Seconds of the model for as many messages as published.
    seconds: f64,
    worst_hold_pages: u64,
    cached_pages: u64,
}

impl Outcome {
    fn a_message(&self, count: u64) -> f64 {
        count as f64 / self.result.messages.max(1) as f64
    }
}

impl Kind for SlabWorkload {
    fn run(
        &self,
        scenario: &Scenario,
        costs: &Costs,
        options: &Options<'_>,
    ) -> Result<Report, LabError> {
        let mut report = Report::new(&scenario.name, &scenario.title);
        let name = "cpus all on memoryless nodes";
        let mut places = vec![Place::new(name, &scenario.machine.machine, costs.clone(), self)];
        for (name, other) in &self.others {
            places.push(Place::new(
                name,
                &other.machine,
                catalog::costs_of_scenario(&other.costs)?,
                self,
            ));
        }
        calibrate(scenario, self, &mut places, options, &mut report)?;
        let jobs: Vec<(usize, LocalNode)> =
            (0..places.len()).flat_map(|place| VARIANTS.map(|(_, local)| (place, local))).collect();
        let run = |&(place, local): &(usize, LocalNode)| {
            let message_ns = places[place].message_ns;
            let how = How { local, seed: options.seed, messages: self.messages, message_ns };
            measure(scenario, self, &places[place], how, options.samples && place == 0)
        };
        let outcomes = options.each(&jobs, run)?;
        let outcomes = report.keep_samples(outcomes, |at| {
            format!("{}, {}", places[0].name, VARIANTS[at % VARIANTS.len()].0)
        });
        tabulate(scenario, &places, &outcomes, &mut report);
        if let Some(work) = &self.requests {
            requests::add(scenario, work, options, &mut report)?;
        }
        report.notes.push(
            "times are model time, for as many messages as the reference's hackbench sends".into(),
        );
        Ok(report)
    }

    /// The scenario's machine, objects by the nearest node with memory.
    fn probe(
        &self,
        scenario: &Scenario,
        costs: &Costs,
        config: Config,
        seed: u64,
    ) -> Result<Probe, LabError> {
        let machine = &scenario.machine.machine;
        let message_ns = if self.message_ns > 0.0 { self.message_ns } else { 10_000.0 };
        let place = Place { message_ns, ..Place::new("", machine, costs.clone(), self) };
        let scenario = &Scenario { config, ..scenario.clone() };
        let local = LocalNode::NearestMemory;
        let how = How { local, seed, messages: self.messages, message_ns };
        let (outcome, _) = measure(scenario, self, &place, how, false)?;
        Ok(Probe {
            work_per_second: self.published_messages / outcome.seconds,
            worst_hold_pages: outcome.worst_hold_pages,
            cached_bytes: outcome.cached_pages * machine.page_bytes(),
            waits: None,
        })
    }
}

/// Sets the time of a message, for each table of costs from the machine without memoryless nodes.
fn calibrate(
    scenario: &Scenario,
    workload: &SlabWorkload,
    places: &mut [Place<'_>],
    options: &Options<'_>,
    report: &mut Report,
) -> Result<(), LabError> {
    let Some(reference) = &scenario.reference else { return Ok(()) };
    let published = |at: usize| reference.rows.iter().find(|row| row[0] == at as f64);
    let calibrates = |&at: &usize| !places[at].is_memoryless() && published(at).is_some();
    let calibrated: Vec<usize> = (0..places.len()).filter(calibrates).collect();
    let times = options.each_before(&calibrated, |&at| {
        let wanted = published(at).map_or(0.0, |row| row[1]);
        calibrated_ns(scenario, workload, &places[at], wanted, options)
    })?;
    for (at, message_ns) in calibrated.into_iter().zip(times) {
        let (costs, name) = (places[at].costs.name.clone(), places[at].name);
        report.notes.push(format!(
            "calibrated: {message_ns:.0} ns a message ({name}, before); all else of this machine is predicted"
        ));
        report.count(format!("{name}: calibrated.message_ns"), message_ns);
        for place in places.iter_mut().filter(|place| place.costs.name == costs) {
            place.message_ns = message_ns;
        }
    }
    Ok(())
}

/// The time of a message with which a place takes as many seconds as it should (ns).
fn calibrated_ns(
    scenario: &Scenario,
    workload: &SlabWorkload,
    place: &Place<'_>,
    wanted: f64,
    options: &Options<'_>,
) -> Result<f64, LabError> {
    // Without any waiting a message would take its part of all CPUs' time; what the allocator takes of that is
    // found in a few steps, each of which corrects by what the one before was off. Mostly the second is off by next to
    // nothing: what the allocator takes hardly depends on the time of a message.
    let a_message = 1e9 / workload.published_messages * place.machine.cpus().count() as f64;
    let mut message_ns = wanted * a_message;
    for _ in 0..CALIBRATION_STEPS_MAX {
        options.observer.step(0, 0)?;
        let how = How {
            local: LocalNode::OwnNode,
            seed: options.seed,
            messages: workload.burst,
            message_ns,
        };
        let (outcome, _) = measure(scenario, workload, place, how, false)?;
        let correction = (wanted - outcome.seconds) * a_message;
        message_ns = (message_ns + correction).max(1.0);
        if correction.abs() <= 0.005 * message_ns {
            break;
        }
    }
    Ok(message_ns)
}

/// One run of a place.
#[derive(Clone, Copy)]
struct How {
    local: LocalNode,
    seed: u64,
    /// Of each CPU.
    messages: u64,
    /// Time of a message.
    message_ns: f64,
}

fn measure(
    scenario: &Scenario,
    workload: &SlabWorkload,
    place: &Place<'_>,
    How { local, seed, messages, message_ns }: How,
    is_sampled: bool,
) -> Result<Sampled<Outcome>, LabError> {
    let slab = SlabConfig::LINUX_2_6_35.with_local(local);
    let config = scenario.config;
    let setup = Setup { machine: place.machine, costs: &place.costs, config, slab: Some(slab) };
    let work = SlabMessages {
        objects: workload.objects.clone(),
        warm_up: 2 * workload.burst,
        messages,
        burst: workload.burst,
        message_ps: picoseconds(message_ns),
        seed,
    };
    let run = |sim: &Sim<'_, '_>| {
        let run = || work.run(sim).expect("nobody waits for anybody");
        let (result, samples) = sampled(sim, is_sampled, run);
        let holds = sim.allocator.zones().iter().map(|zone| zone.holds().most_pages.0);
        (result, holds.max().unwrap_or(0), sim.allocator.totals().cached_pages.0, samples)
    };
    let (result, worst_hold_pages, cached_pages, samples) =
        simulate(&setup, Box::new(VirtualTime::default()), run)
            .map_err(|error| LabError::Machine { name: scenario.name.clone(), error })?;
    let sent = (messages * place.machine.cpus().count() as u64) as f64;
    let seconds = result.real_ps as f64 * 1e-12 * workload.published_messages / sent;
    Ok((Outcome { result, seconds, worst_hold_pages, cached_pages }, samples))
}

fn tabulate(scenario: &Scenario, places: &[Place<'_>], outcomes: &[Outcome], report: &mut Report) {
    let headings = [
        "machine",
        "list locks a message, memory nodes",
        "memoryless nodes",
        "failed THISNODE",
        "alien locks",
        "model s",
    ];
    report.table.header = headings.map(str::to_owned).to_vec();
    for (at, (place, pair)) in places.iter().zip(outcomes.chunks(VARIANTS.len())).enumerate() {
        for (outcome, (variant, _)) in pair.iter().zip(VARIANTS) {
            let result = &outcome.result;
            let counts = [
                result.memory_node_locks,
                result.memoryless_node_locks,
                result.this_node_failures,
                result.alien_locks,
            ]
            .map(|count| outcome.a_message(count));
            let name = format!("{}, {variant}", place.name);
            let names =
                ["memory_node_locks", "memoryless_node_locks", "failed_this_node", "alien_locks"];
            for (what, count) in names.into_iter().zip(counts) {
                report.count(format!("{name}: {what}_per_message"), count);
            }
            report.count(format!("{name}: refused"), result.refused as f64);
            let mut row = vec![name];
            row.extend(counts.map(|count| format!("{count:.3}")));
            row.push(format!("{:.3}", outcome.seconds));
            report.table.rows.push(row);
        }
        compare(scenario, place, at, pair, report);
    }
    if scenario.reference.is_some() {
        hold_published(outcomes, report);
    } else {
        let gain = outcomes[0].seconds / outcomes[1].seconds;
        let what = "the nearest node with memory against the CPU's own: times faster, at least 1";
        report.hold(what, gain, gain >= 1.0);
        let refused = outcomes[0].result.refused + outcomes[1].result.refused;
        // Without memory enough, requests fail everywhere.
        if places[0].is_memoryless() && refused == 0 {
            hold_counts(&places[0], outcomes, report);
        }
    }
}

fn compare(
    scenario: &Scenario,
    place: &Place<'_>,
    at: usize,
    pair: &[Outcome],
    report: &mut Report,
) {
    let Some(reference) = &scenario.reference else { return };
    let Some(row) = reference.rows.iter().find(|row| row[0] == at as f64) else { return };
    // On memoryless nodes the reference itself moved by a sixth between kernels; elsewhere nothing may change.
    let near =
        if place.is_memoryless() { Tolerance::Relative(0.5) } else { Tolerance::Relative(0.1) };
    for (column, index) in [("before_s", 0), ("after_s", 1)] {
        if let Some(column_at) = reference.column(column) {
            report.row(place.name, column, row[column_at], pair[index].seconds, near);
        }
    }
}

/// What must hold on any machine: each object that a CPU without memory at home asks for fails there twice, when the list
/// is refilled and when a slab is made; by the nearest node with memory nothing does, and nobody locks lists of nodes
/// that have nothing. Counted are messages that were received: some are on their way when it ends.
fn hold_counts(place: &Place<'_>, outcomes: &[Outcome], report: &mut Report) {
    let [before, after] = [outcomes[0], outcomes[1]];
    let cpus = |is_counted: fn(&NodeSpec) -> bool| -> usize {
        place.machine.nodes.iter().filter(|node| is_counted(node)).map(|node| node.cpus.len()).sum()
    };
    let part = cpus(|node| node.bytes == 0) as f64 / cpus(|_| true) as f64;
    let wanted = 2.0 * place.objects as f64 * part;
    let failures = before.a_message(before.result.this_node_failures);
    report.hold(
        format!("before: failed THISNODE requests a message, {wanted} within 10 %"),
        failures,
        (failures - wanted).abs() <= 0.1 * wanted,
    );
    let failures = after.a_message(after.result.this_node_failures);
    report.hold("after: failed THISNODE requests a message, 0", failures, failures == 0.0);
    let locks = after.a_message(after.result.memoryless_node_locks);
    report.hold("after: list locks of memoryless nodes a message, 0", locks, locks == 0.0);
}

/// What the reference's three machines must show.
fn hold_published(outcomes: &[Outcome], report: &mut Report) {
    let [before, after] = [outcomes[0], outcomes[1]];
    let locks = before.a_message(before.result.memory_node_locks);
    report.hold(
        "before: list locks of the memory node a message, 2.17 within 2 %",
        locks,
        (locks / 2.17 - 1.0).abs() <= 0.02,
    );
    let locks = after.a_message(after.result.memory_node_locks);
    report.hold(
        "after: list locks of the memory node a message, 0.107 within 5 %",
        locks,
        (locks / 0.107 - 1.0).abs() <= 0.05,
    );
    let failures = before.a_message(before.result.this_node_failures);
    report.hold(
        "before: failed THISNODE requests a message, 4",
        failures,
        (failures - 4.0).abs() < 0.01,
    );
    let failures = after.a_message(after.result.this_node_failures);
    report.hold("after: failed THISNODE requests a message, 0", failures, failures == 0.0);
    let memoryless = "cpus all on memoryless nodes";
    let ratio = before.seconds / after.seconds;
    report.row(memoryless, "before / after", 9.48, ratio, Tolerance::Between(7.0, 12.0));
    let ratio = after.seconds / outcomes[3].seconds;
    report.row(memoryless, "after / ia64 after", 2.38, ratio, Tolerance::Between(1.8, 3.0));
    for (name, pair) in [("ia64", &outcomes[2..4]), ("x86_64", &outcomes[4..6])] {
        let loss = pair[1].seconds / pair[0].seconds - 1.0;
        report.hold(
            format!("{name} without memoryless nodes: after / before - 1, within 0.02"),
            loss,
            loss.abs() <= 0.02,
        );
    }
}
