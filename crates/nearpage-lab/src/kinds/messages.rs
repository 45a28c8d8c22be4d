//! `pcp-autotune`: messages between CPUs under the patches of 2023.
//!
//! **The model.** The sender of a pair allocates, the receiver frees; each side takes a fixed time a message besides.
//! Zone locks queue; what they protect are lines of frames that the other CPU wrote last. Now and then the two sides
//! of a pair change roles, as tasks that nobody pins do.
//!
//! **Calibrated** is one figure a workload: the time a message takes besides, to the share of time that CPUs wait for
//! zone locks in the "base" row. All else is predicted; the ratios of drains to pages depend on no time at all.

use nearpage::rules::PcpRules;
use nearpage::rules::pagesets::Series2023;
use nearpage::{Config, CpuId, Order, PageCount};
use nearpage_sim::scheduler::VirtualTime;
use nearpage_sim::workload::messages::{Block, FreedBy, Messages, MessagesResult};
use nearpage_sim::{Costs, Machine, Setup, Sim, picoseconds, simulate};

use crate::error::LabError;
use crate::kind::Probe;
use crate::options::{Options, Sampled, sampled};
use crate::report::{Report, Tolerance};
use crate::scenario::{MessagesWorkload, Reference, Scenario};

/// What came out of one workload under one choice of patches.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    result: MessagesResult,
    /// Time that CPUs waited for locks.
    waited_ps: u64,
    counts: PageCounts,
}

/// What pagesets and zones counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PageCounts {
    pub(super) high_order_drains: u64,
    pub(super) drains: u64,
    pub(super) from_zone: u64,
    /// In one hold of a zone's lock, ever.
    pub(super) most_pages_per_hold: u64,
    /// Operations in one hold of a zone's lock or of another CPU's pagesets, ever.
    pub(super) most_operations: u64,
    /// In pagesets now.
    pub(super) cached_pages: u64,
}

impl PageCounts {
    /// All of a run so far.
    pub(super) fn of(sim: &Sim<'_, '_>) -> Self {
        let mut counts = Self::default();
        for (_, _, pagesets) in sim.allocator.cpus() {
            for pageset in pagesets {
                counts.high_order_drains += pageset.counts().high_order_drains;
                counts.drains += pageset.counts().drains;
                counts.from_zone += pageset.counts().refilled_pages.0;
                counts.cached_pages += pageset.count().0;
            }
        }
        let holds = sim.allocator.zones().iter().map(|zone| zone.holds().most_pages.0);
        let zones = sim.allocator.zones().iter().map(|zone| zone.work());
        let taken = sim.allocator.cpus().map(|(cpu, ..)| sim.allocator.taken_by_others(cpu));
        let operations = zones.chain(taken).map(|work| work.most_operations);
        counts.most_operations = operations.max().unwrap_or(0);
        Self { most_pages_per_hold: holds.max().unwrap_or(0), ..counts }
    }

    /// Since an earlier look.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            high_order_drains: self.high_order_drains - before.high_order_drains,
            drains: self.drains - before.drains,
            from_zone: self.from_zone - before.from_zone,
            ..self
        }
    }
}

impl Outcome {
    fn zone_lock_percent(&self) -> f64 {
        100.0 * self.waited_ps as f64 / self.result.busy_ps.max(1) as f64
    }

    fn free_high_per_page(&self) -> f64 {
        self.counts.high_order_drains as f64 / self.counts.from_zone.max(1) as f64
    }

    fn score(&self) -> f64 {
        self.result.messages as f64 / self.result.real_ps.max(1) as f64
    }
}

pub(super) fn run(
    scenario: &Scenario,
    workloads: &[MessagesWorkload],
    costs: &Costs,
    options: &Options<'_>,
) -> Result<Report, LabError> {
    let mut report = Report::new(&scenario.name, &scenario.title);
    let patches = &scenario.patches;
    let mut jobs: Vec<(usize, u8, f64)> = Vec::new();
    for (index, workload) in workloads.iter().enumerate() {
        let copy_ns = calibrated(scenario, workload, costs, options)?;
        if let Some(percent) = workload.zone_lock_percent {
            report.notes.push(format!(
                "calibrated: {copy_ns:.0} ns a message on each side ({}, zone lock {percent} % in the base row); all \
                 else is predicted",
                workload.name,
            ));
            report.count(format!("{}: calibrated.copy_ns", workload.name), copy_ns);
        }
        jobs.extend(patches.iter().map(|&patch| (index, patch, copy_ns)));
    }
    let measure = |&(index, patch, copy_ns): &(usize, u8, f64)| {
        let workload = &workloads[index];
        let config = with_patches(scenario, patch);
        let how = How { config, copy_ns, messages: workload.messages };
        measure(scenario, workload, costs, how, options.samples && is_shown(patches, patch))
    };
    let outcomes = options.each(&jobs, measure)?;
    let outcomes: Vec<Outcome> = report.keep_samples(outcomes, |at| {
        let (index, patch, _) = jobs[at];
        row_name(&workloads[index].name, patch)
    });
    let headings = [
        "workload, patches",
        "free_high a page, base = 1",
        "drains",
        "pages from zone",
        "pages a hold, most",
        "cached, most",
        "zone lock %",
        "score",
    ];
    report.table.header = headings.map(str::to_owned).to_vec();
    for (index, outcomes) in outcomes.chunks(patches.len().max(1)).enumerate() {
        let reference = scenario.reference.as_ref();
        tabulate(index, &workloads[index].name, patches, outcomes, reference, &mut report);
        hold_flow(&workloads[index], patches, outcomes, &mut report);
    }
    if !workloads.is_empty() {
        let note =
            "times are model time; LLC misses are not modelled, so scores know nothing of them";
        report.notes.push(note.into());
    }
    Ok(report)
}

/// The time a message takes besides the allocator, so that the base row waits for locks as long as it should (ns).
fn calibrated(
    scenario: &Scenario,
    workload: &MessagesWorkload,
    costs: &Costs,
    options: &Options<'_>,
) -> Result<f64, LabError> {
    let Some(wanted) = workload.zone_lock_percent else { return Ok(workload.copy_ns) };
    let (mut low, mut high) = (10.0f64, 1e6f64);
    for _ in 0..14 {
        options.observer.step(0, 0)?;
        let middle = (low * high).sqrt();
        let messages = workload.messages / 10;
        let how = How { config: with_patches(scenario, 0), copy_ns: middle, messages };
        let (outcome, _) = measure(scenario, workload, costs, how, false)?;
        *(if outcome.zone_lock_percent() > wanted { &mut low } else { &mut high }) = middle;
    }
    Ok((low * high).sqrt())
}

/// The rules of a scenario with all patches up to one.
pub(super) fn with_patches(scenario: &Scenario, patch: u8) -> Config {
    let pcp = PcpRules::series_2023(Series2023::up_to(patch));
    let model = scenario.config.model.with(|changed| changed.pcp = pcp);
    scenario.config.with_model(model)
}

/// What a row of the table is called.
pub(super) fn row_name(workload: &str, patch: u8) -> String {
    match patch {
        0 => format!("{workload}, base"),
        _ => format!("{workload}, patch {patch}"),
    }
}

/// Runs over their time are shown of the first and the last choice of patches.
pub(super) fn is_shown(patches: &[u8], patch: u8) -> bool {
    patches.first() == Some(&patch) || patches.last() == Some(&patch)
}

/// All workloads under other rules and settings, one after the other.
pub(super) fn probe(
    scenario: &Scenario,
    workloads: &[MessagesWorkload],
    costs: &Costs,
    config: Config,
) -> Result<Probe, LabError> {
    let mut sum = Probe { work_per_second: 0.0, worst_hold_pages: 0, cached_bytes: 0, waits: None };
    for workload in workloads {
        // Nothing to compare with: a fixed time a message, and a part of the messages.
        let copy_ns = if workload.copy_ns > 0.0 { workload.copy_ns } else { 2000.0 };
        let messages = workload.messages.div_ceil(4);
        let how = How { config, copy_ns, messages };
        let (outcome, _) = measure(scenario, workload, costs, how, false)?;
        sum.work_per_second += 1e12 * outcome.score();
        sum.worst_hold_pages = sum.worst_hold_pages.max(outcome.counts.most_pages_per_hold);
        let bytes = outcome.counts.cached_pages * scenario.machine.machine.page_bytes();
        sum.cached_bytes = sum.cached_bytes.max(bytes);
    }
    Ok(sum)
}

/// One run of a workload.
#[derive(Clone, Copy)]
struct How {
    config: Config,
    /// Time of each side for a message.
    copy_ns: f64,
    /// Of each pair.
    messages: u64,
}

fn measure(
    scenario: &Scenario,
    workload: &MessagesWorkload,
    costs: &Costs,
    How { config, copy_ns, messages }: How,
    is_sampled: bool,
) -> Result<Sampled<Outcome>, LabError> {
    let machine = &scenario.machine.machine;
    let setup = Setup { machine, costs, config, slab: None };
    let slice = slice_of(costs, machine);
    let work = Messages {
        pairs: pairs(machine, workload.pairs),
        blocks: workload.blocks.clone(),
        messages,
        turn: turn(workload, messages),
        window: workload.window,
        copy_ps: picoseconds(copy_ns),
    };
    let run = |sim: &Sim<'_, '_>| {
        set_slices(sim, slice);
        let run = || work.run(sim).expect("the two sides of a pair wake each other");
        let (result, samples) = sampled(sim, is_sampled, run);
        let waited_ps = sim.world.lock_counts().waited_ps;
        (Outcome { result, waited_ps, counts: PageCounts::of(sim) }, samples)
    };
    simulate(&setup, Box::new(VirtualTime::default()), run)
        .map_err(|error| LabError::Machine { name: scenario.name.clone(), error })
}

/// In runs with fewer messages those who change roles still do so once.
fn turn(workload: &MessagesWorkload, messages: u64) -> u64 {
    let changes = workload.turn < workload.messages;
    if changes { workload.turn.min(messages.div_ceil(2)).max(1) } else { messages }
}

/// Pairs of neighbouring CPUs, spread over the nodes.
pub(super) fn pairs(machine: &Machine, pairs: usize) -> Vec<(CpuId, CpuId)> {
    let nodes: Vec<&[CpuId]> =
        machine.nodes.iter().map(|node| &*node.cpus).filter(|cpus| cpus.len() > 1).collect();
    let of_nodes = nodes.iter().map(|cpus| cpus.chunks_exact(2).map(|pair| (pair[0], pair[1])));
    let mut of_nodes: Vec<_> = of_nodes.collect();
    let mut all = Vec::new();
    while all.len() < pairs {
        let round: Vec<_> = of_nodes.iter_mut().filter_map(Iterator::next).collect();
        if round.is_empty() {
            break;
        }
        all.extend(round);
    }
    all.truncate(pairs);
    all
}

/// How much of the caches a CPU has for itself.
pub(super) fn slice_of(costs: &Costs, machine: &Machine) -> PageCount {
    let slice_kb = costs.more("cache_slice_kb").unwrap_or(0.0);
    PageCount((slice_kb * 1024.0) as u64 >> machine.page_shift)
}

pub(super) fn set_slices(sim: &Sim<'_, '_>, slice: PageCount) {
    let rules = &sim.allocator.model().pcp;
    for (cpu, _, pagesets) in sim.allocator.cpus() {
        for pageset in pagesets {
            let mut tuning = pageset.tuning();
            tuning.set_cache_slice(rules, slice);
            sim.allocator.set_tuning(cpu, pageset.zone().index(), tuning);
        }
    }
}

/// A part of what the base has, which may be none.
pub(super) fn part(part: f64) -> String {
    if part.is_finite() { format!("{part:.4}") } else { "none".into() }
}

fn tabulate(
    index: usize,
    workload: &str,
    patches: &[u8],
    outcomes: &[Outcome],
    reference: Option<&Reference>,
    report: &mut Report,
) {
    let Some(base) = outcomes.first() else { return };
    let mut before_7 = f64::INFINITY;
    for (&patch, outcome) in patches.iter().zip(outcomes) {
        let name = row_name(workload, patch);
        let free_high = outcome.free_high_per_page() / base.free_high_per_page();
        let score = 100.0 * outcome.score() / base.score();
        let cells = [
            part(free_high),
            outcome.counts.drains.to_string(),
            outcome.counts.from_zone.to_string(),
            outcome.counts.most_pages_per_hold.to_string(),
            outcome.counts.cached_pages.to_string(),
            format!("{:.1}", outcome.zone_lock_percent()),
            format!("{score:.1}"),
        ];
        report.table.rows.push([name.clone()].into_iter().chain(cells).collect());
        report.count(
            format!("{name}: most_pages_per_hold"),
            outcome.counts.most_pages_per_hold as f64,
        );
        report.count(format!("{name}: cached_pages"), outcome.counts.cached_pages as f64);
        report.count(format!("{name}: drains"), outcome.counts.drains as f64);
        report.count(format!("{name}: high_order_drains"), outcome.counts.high_order_drains as f64);
        report.count(format!("{name}: pages_from_zone"), outcome.counts.from_zone as f64);
        report.count(format!("{name}: refused"), outcome.result.refused as f64);
        let tunes = patch == 7 || patch == 9;
        if !tunes {
            before_7 = before_7.min(free_high);
        }
        let Some(reference) = reference else { continue };
        let is_it = |row: &&Vec<f64>| row[0] == index as f64 && row[1] == f64::from(patch);
        let Some(row) = reference.rows.iter().find(is_it) else { continue };
        let exact = if tunes {
            Tolerance::Between(0.0, before_7 - 1e-9)
        } else {
            Tolerance::Absolute(0.002)
        };
        let columns = [
            ("free_high_per_page", free_high, exact),
            ("zone_lock_percent", outcome.zone_lock_percent(), Tolerance::Absolute(8.0)),
            ("score", score, Tolerance::Relative(0.1)),
        ];
        for (column, model, near) in columns {
            if let Some(at) = reference.column(column) {
                report.row(&name, column, row[at], model, near);
            }
        }
    }
    if let Some(reference) = reference {
        order_of_scores(index, workload, patches, outcomes, reference, report);
    }
}

/// The largest hold of a zone's lock: the largest refill or drain, 63 pages doubled five times, and what a last block sticks out.
pub(super) const HOLD_MOST: u64 = (63 << 5) + (1 << 3);

/// What must hold of any flow from one CPU to another, by its blocks alone. Who allocates does not free: whatever is sent comes from
/// the zone. In base each block of order 1 to 3 drains the pageset that it is freed into; the patches can but drain less.
fn hold_flow(
    workload: &MessagesWorkload,
    patches: &[u8],
    outcomes: &[Outcome],
    report: &mut Report,
) {
    let freed = |block: &&Block| block.freed_by == FreedBy::Receiver;
    let cached = |block: &&Block| block.order <= Order::COSTLY;
    let sum = |of: fn(&Block) -> f64| -> f64 {
        let flow = workload.blocks.iter().filter(freed).filter(cached);
        flow.map(|block| of(block) / block.every as f64).sum()
    };
    let drains = sum(|block| f64::from(u8::from(block.order > Order(0))));
    let pages = sum(|block| block.order.pages().0 as f64);
    for (&patch, outcome) in patches.iter().zip(outcomes) {
        if outcome.result.refused > 0 || pages == 0.0 {
            continue;
        }
        let name = row_name(&workload.name, patch);
        let a_message = |count: u64| count as f64 / outcome.result.messages.max(1) as f64;
        // When the two change roles, what one side's pagesets keep serves it.
        let turns = workload.messages.div_ceil(workload.turn) - 1;
        let from_zone = a_message(outcome.counts.from_zone + turns * outcome.counts.cached_pages);
        report.hold(
            format!("{name}: pages from the zone, or kept when roles changed, for each that is sent, at least 0.95"),
            from_zone / pages,
            from_zone >= 0.95 * pages,
        );
        let drained = a_message(outcome.counts.high_order_drains);
        let (what, ok) = match patch {
            0 => (format!("{drains} within 5 %"), (drained - drains).abs() <= 0.05 * drains),
            _ => (format!("at most {drains}"), drained <= drains * 1.05),
        };
        report.hold(format!("{name}: drains for high orders a message, {what}"), drained, ok);
        let most = outcome.counts.most_pages_per_hold;
        let what = format!("{name}: pages in a hold of a zone's lock, at most {HOLD_MOST}");
        report.hold(what, most as f64, most <= HOLD_MOST);
    }
}

/// Rows whose scores differ by more than the noise of the reference must stand in its order.
fn order_of_scores(
    index: usize,
    workload: &str,
    patches: &[u8],
    outcomes: &[Outcome],
    reference: &Reference,
    report: &mut Report,
) {
    const NOISE: f64 = 5.0;
    let Some(at) = reference.column("score") else { return };
    let published = |patch: u8| {
        let is_it = |row: &&Vec<f64>| row[0] == index as f64 && row[1] == f64::from(patch);
        reference.rows.iter().find(is_it).map(|row| row[at])
    };
    let (mut pairs, mut swapped) = (0, 0);
    for (i, j) in (0..patches.len()).flat_map(|i| (0..i).map(move |j| (i, j))) {
        let (Some(one), Some(other)) = (published(patches[i]), published(patches[j])) else {
            continue;
        };
        if (one - other).abs() > NOISE {
            pairs += 1;
            swapped += u32::from((one > other) != (outcomes[i].score() > outcomes[j].score()));
        }
    }
    let what = format!(
        "{workload}: of {pairs} pairs of rows whose scores differ by more than {NOISE}, in another order"
    );
    report.hold(what, f64::from(swapped), swapped == 0);
}
