//! Work that is compared between models: what CPUs wait for the locks of zones, and how long one refill takes.
//!
//! **The model.** A process takes a fixed time for each page that it fills and for each that it frees; refills and drains
//! touch the frames of all their pages under the zone's lock, and locks queue.
//!
//! **Calibrated** is at most one figure, the time for a page, to one figure of the first model. All else is predicted.

use std::num::NonZeroUsize;

use nearpage::{Config, Model, PageblockOwners, ZoneInstances};
use nearpage_sim::scheduler::VirtualTime;
use nearpage_sim::workload::fill::{Fill, Times};
use nearpage_sim::workload::lifetimes::Lifetimes;
use nearpage_sim::workload::messages::Messages;
use nearpage_sim::{Costs, LockCounts, Machine, Setup, Sim, picoseconds, simulate};

use super::messages::{PageCounts, pairs, set_slices, slice_of};
use crate::error::LabError;
use crate::kind::{Probe, Waits};
use crate::options::{Options, Sampled, sampled};
use crate::report::{Report, Table, Tolerance};
use crate::scenario::{ContentionWorkload, Does, Reference, Scenario, Target, Variant};

/// Pages that a bystander fills before it frees them: 8 MiB of 4 KiB pages.
const BYSTANDER_PAGES: u64 = 2048;

/// What came out of one work under one model.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    pages: u64,
    refused: u64,
    /// Time of all CPUs together (ps), but for bystanders'.
    busy_ps: u64,
    bystander_ps: u64,
    locks: LockCounts,
    counts: PageCounts,
    cached_most: u64,
    /// Of processes that fill.
    refills: Times,
    bystander_refills: Times,
}

impl Outcome {
    fn zone_lock_percent(&self) -> f64 {
        100.0 * self.locks.waited_ps as f64 / (self.busy_ps + self.bystander_ps).max(1) as f64
    }

    /// Pages a second of a CPU.
    fn speed(&self) -> f64 {
        1e12 * self.pages as f64 / self.busy_ps.max(1) as f64
    }

    fn of(&self, target: Target) -> (f64, f64) {
        match target {
            Target::ZoneLockPercent(wanted) => (self.zone_lock_percent(), wanted),
            Target::RefillUs(wanted) => (self.refills.mean_ns() / 1e3, wanted),
        }
    }
}

/// What all runs of one work have in common.
struct Bench<'a> {
    scenario: &'a Scenario,
    work: &'a ContentionWorkload,
    machine: Machine,
    costs: &'a Costs,
    seed: u64,
}

/// Adds a table for the models of a scenario, with rows for each work.
pub(super) fn add(
    scenario: &Scenario,
    works: &[ContentionWorkload],
    costs: &Costs,
    options: &Options<'_>,
    report: &mut Report,
) -> Result<(), LabError> {
    let header = [
        "work, rules",
        "zone lock %",
        "holds",
        "worst wait us",
        "worst hold us",
        "pages a hold, most",
        "refill us",
        "worst refill us",
        "a bystander's",
        "cached, most",
        "score",
    ];
    let mut table = Table { header: header.map(str::to_owned).to_vec(), rows: Vec::new() };
    for work in works {
        let machine = work.scaled(&scenario.machine.machine);
        let bench = Bench { scenario, work, machine, costs, seed: options.seed };
        let page_ns = bench.calibrated(options, report)?;
        let last = scenario.models.len() - 1;
        let jobs: Vec<(usize, &Variant)> = scenario.models.iter().enumerate().collect();
        let measure = |&(at, variant): &(usize, &Variant)| {
            let is_sampled = options.samples && (at == 0 || at == last);
            bench.measure(bench.config(variant), page_ns, is_sampled)
        };
        let name = |at: usize| row_name(work, &scenario.models[at]);
        let outcomes = report.keep_samples(options.each(&jobs, measure)?, name);
        tabulate(work, &scenario.models, &outcomes, &mut table);
        compare(work, &scenario.models, &outcomes, report);
    }
    report.notes.push("score: pages a second of a CPU, 100 for the first rules".into());
    match report.table.rows.is_empty() {
        true => report.table = table,
        false => report.further.push(table),
    }
    Ok(())
}

/// The first work under other rules and settings.
pub(super) fn probe(
    scenario: &Scenario,
    work: &ContentionWorkload,
    costs: &Costs,
    config: Config,
    seed: u64,
) -> Result<Probe, LabError> {
    let machine = work.scaled(&scenario.machine.machine);
    let page_bytes = machine.page_bytes();
    let bench = Bench { scenario, work, machine, costs, seed };
    // Nothing to compare with: a fixed time a page.
    let page_ns = if work.page_ns > 0.0 { work.page_ns } else { 1000.0 };
    let (outcome, _) = bench.measure(work.scaled_rules(config), page_ns, false)?;
    Ok(Probe {
        work_per_second: outcome.speed(),
        worst_hold_pages: outcome.counts.most_pages_per_hold,
        cached_bytes: outcome.counts.cached_pages * page_bytes,
        waits: Some(Waits {
            zone_lock_percent: outcome.zone_lock_percent(),
            worst_us: outcome.locks.longest_wait_ps as f64 / 1e6,
            holds: outcome.locks.acquisitions,
            worst_hold_us: outcome.locks.longest_hold_ps as f64 / 1e6,
        }),
    })
}

/// A search for the time at which a figure is as wanted. The figure falls with the time, about as a power of it.
#[derive(Debug)]
struct Search {
    /// A time that is too short, and one that is too long (ns), with the figure there, of the wanted one.
    bounds: [(f64, Option<f64>); 2],
    nearest: (f64, f64),
    rounds: usize,
}

impl Search {
    /// Two runs each.
    const ROUNDS_MOST: usize = 6;
    /// The figure may be off by this part.
    const NEAR_ENOUGH: f64 = 0.02;

    fn new() -> Self {
        Self { bounds: [(300.0, None), (1e4, None)], nearest: (1e4, f64::INFINITY), rounds: 0 }
    }

    fn goes_on(&self) -> bool {
        self.rounds < Self::ROUNDS_MOST && self.nearest.1 > Self::NEAR_ENOUGH
    }

    /// Two times between the bounds: beside that where the power says, once there is a figure on each side.
    fn next(&mut self) -> [f64; 2] {
        self.rounds += 1;
        let [(low, at_low), (high, at_high)] = self.bounds;
        let (Some(at_low), Some(at_high)) = (at_low, at_high) else {
            return [1.0, 2.0].map(|part: f64| low * (high / low).powf(part / 3.0));
        };
        let [above, below] = [at_low, at_high].map(|at| at.max(1e-9).ln());
        let part = above / (above - below);
        let nudge = 0.02;
        [part - nudge, part + nudge]
            .map(|part| low * (high / low).powf(part.clamp(nudge, 1.0 - nudge)))
    }

    fn note(&mut self, page_ns: f64, figure: f64) {
        let off = (figure - 1.0).abs();
        if off < self.nearest.1 {
            self.nearest = (page_ns, off);
        }
        let [low, high] = &mut self.bounds;
        if figure > 1.0 && page_ns >= low.0 {
            *low = (page_ns, Some(figure));
        } else if figure <= 1.0 && page_ns <= high.0 {
            *high = (page_ns, Some(figure));
        }
    }
}

impl Bench<'_> {
    fn config(&self, variant: &Variant) -> Config {
        self.work.scaled_rules(self.scenario.config.with_model(variant.model))
    }

    /// The time for a page (ns).
    fn calibrated(&self, options: &Options<'_>, report: &mut Report) -> Result<f64, LabError> {
        let Some(target) = self.work.calibrate else { return Ok(self.work.page_ns) };
        let first = &self.scenario.models[0];
        // Two runs at a time, so that the answer does not depend on threads.
        let threads = options.threads.min(NonZeroUsize::MIN.saturating_add(1));
        let options = Options { threads, ..*options };
        let mut search = Search::new();
        while search.goes_on() {
            let tried = search.next();
            let measure = |&page_ns: &f64| self.measure(self.config(first), page_ns, false);
            for (page_ns, (outcome, _)) in
                tried.into_iter().zip(options.each_before(&tried, measure)?)
            {
                let (found, wanted) = outcome.of(target);
                search.note(page_ns, found / wanted);
            }
        }
        let (page_ns, name) = (search.nearest.0, &self.work.name);
        let what = match target {
            Target::ZoneLockPercent(percent) => format!("zone lock {percent} %"),
            Target::RefillUs(us) => format!("refills of {us} us"),
        };
        report.notes.push(format!(
            "calibrated: {page_ns:.0} ns for a page ({name}, {what} by {}); all else is predicted",
            first.name
        ));
        report.count(format!("{name}: calibrated.page_ns"), page_ns);
        Ok(page_ns)
    }

    fn measure(
        &self,
        config: Config,
        page_ns: f64,
        is_sampled: bool,
    ) -> Result<Sampled<Outcome>, LabError> {
        let setup = Setup { machine: &self.machine, costs: self.costs, config, slab: None };
        let slice = slice_of(self.costs, &self.machine);
        let run = |sim: &Sim<'_, '_>| {
            set_slices(sim, slice);
            let mut before = (LockCounts::default(), PageCounts::default());
            let (outcome, samples) =
                sampled(sim, is_sampled, || self.play(sim, page_ns, &mut before));
            let locks = sim.world.lock_counts();
            let locks = LockCounts {
                acquisitions: locks.acquisitions - before.0.acquisitions,
                waited_ps: locks.waited_ps - before.0.waited_ps,
                ..locks
            };
            let counts = PageCounts::of(sim).since(before.1);
            (Outcome { locks, counts, ..outcome }, samples)
        };
        simulate(&setup, Box::new(VirtualTime::default()), run)
            .map_err(|error| LabError::Machine { name: self.scenario.name.clone(), error })
    }

    /// Runs the work; what locks and pagesets counted before it counts goes to `before`.
    fn play(
        &self,
        sim: &Sim<'_, '_>,
        page_ns: f64,
        before: &mut (LockCounts, PageCounts),
    ) -> Outcome {
        const ENDS: &str = "everybody who waits is woken";
        let cpus = |count: usize| self.machine.cpus().take(count).map(|(cpu, _)| cpu).collect();
        let (page_ps, free_ps) = (picoseconds(page_ns), picoseconds(self.work.free_ns));
        match &self.work.does {
            Does::Fill(work) => {
                let bystanders = self.machine.cpus().skip(work.processes).take(work.bystanders);
                let fill = Fill {
                    cpus: cpus(work.processes),
                    pages: work.bytes / self.work.scale / self.machine.page_bytes(),
                    rounds: work.rounds,
                    leave_together: work.leave_together,
                    shuffled_by: work.is_shuffled.then_some(self.seed),
                    bystanders: bystanders.map(|(cpu, _)| cpu).collect(),
                    bystander_pages: BYSTANDER_PAGES,
                    page_ps,
                    free_ps,
                };
                let result = fill.run(sim).expect(ENDS);
                Outcome {
                    pages: result.pages,
                    refused: result.refused,
                    busy_ps: result.busy_ps,
                    bystander_ps: result.bystander_ps,
                    cached_most: result.cached_most,
                    refills: result.refills,
                    bystander_refills: result.bystander_refills,
                    ..Outcome::default()
                }
            }
            Does::Purge(work) => {
                let messages = Messages {
                    pairs: pairs(&self.machine, work.pairs),
                    blocks: work.blocks.clone(),
                    messages: work.messages,
                    turn: work.turn,
                    window: work.window,
                    copy_ps: page_ps,
                };
                let result = messages.run(sim).expect(ENDS);
                let cached_most = sim.allocator.totals().cached_pages.0;
                Outcome {
                    pages: result.pages,
                    refused: result.refused,
                    busy_ps: result.busy_ps,
                    cached_most,
                    ..Outcome::default()
                }
            }
            Does::Build(work) => {
                let lifetimes = Lifetimes {
                    cpus: cpus(work.cpus),
                    groups: work.groups.clone(),
                    warm_up: work.warm_up,
                    count: work.count,
                    page_ps,
                    free_ps,
                    moves_percent: work.moves_percent,
                    seed: self.seed,
                };
                let begin = || *before = (sim.world.lock_counts(), PageCounts::of(sim));
                let result = lifetimes.run(sim, begin).expect(ENDS);
                Outcome {
                    pages: result.pages,
                    refused: result.refused,
                    busy_ps: result.busy_ps,
                    cached_most: result.cached_most,
                    ..Outcome::default()
                }
            }
        }
    }
}

fn row_name(work: &ContentionWorkload, variant: &Variant) -> String {
    format!("{}, {}", work.name, variant.name)
}

fn tabulate(
    work: &ContentionWorkload,
    models: &[Variant],
    outcomes: &[Outcome],
    table: &mut Table,
) {
    let us = |ps: u64| format!("{:.1}", ps as f64 / 1e6);
    let if_any = |times: &Times, text: String| if times.count() > 0 { text } else { "-".into() };
    for (variant, outcome) in models.iter().zip(outcomes) {
        let Outcome { locks, refills, bystander_refills, .. } = outcome;
        table.rows.push(vec![
            row_name(work, variant),
            format!("{:.2}", outcome.zone_lock_percent()),
            locks.acquisitions.to_string(),
            us(locks.longest_wait_ps),
            us(locks.longest_hold_ps),
            outcome.counts.most_pages_per_hold.to_string(),
            if_any(refills, format!("{:.1}", refills.mean_ns() / 1e3)),
            if_any(refills, us(refills.longest_ps)),
            if_any(bystander_refills, us(bystander_refills.longest_ps)),
            outcome.cached_most.to_string(),
            format!("{:.1}", 100.0 * outcome.speed() / outcomes[0].speed()),
        ]);
    }
}

/// Figures beside published ones, counts, and what must hold.
fn compare(
    work: &ContentionWorkload,
    models: &[Variant],
    outcomes: &[Outcome],
    report: &mut Report,
) {
    for (at, (variant, outcome)) in models.iter().zip(outcomes).enumerate() {
        let name = row_name(work, variant);
        for reference in &work.references {
            for row in reference.rows.iter().filter(|row| row[0] == at as f64) {
                add_row(&name, reference, row, outcome, &outcomes[0], report);
            }
        }
        let Outcome { locks, counts, refills, .. } = outcome;
        for (what, count) in [
            ("zone_lock_percent", outcome.zone_lock_percent()),
            ("holds", locks.acquisitions as f64),
            ("worst_wait_us", locks.longest_wait_ps as f64 / 1e6),
            ("worst_hold_us", locks.longest_hold_ps as f64 / 1e6),
            ("most_pages_per_hold", counts.most_pages_per_hold as f64),
            ("pages_from_zone", counts.from_zone as f64),
            ("drains", counts.drains as f64),
            ("pages", outcome.pages as f64),
            ("refused", outcome.refused as f64),
            ("cached_pages_most", outcome.cached_most as f64),
            ("pages_per_second", outcome.speed()),
            ("score", 100.0 * outcome.speed() / outcomes[0].speed()),
        ] {
            report.count(format!("{name}: {what}"), count);
        }
        if refills.count() > 0 {
            report.count(format!("{name}: refills"), refills.count() as f64);
            report.count(format!("{name}: refill_us"), refills.mean_ns() / 1e3);
            let shares = refills.by_power.iter().enumerate().filter(|(_, count)| **count > 0);
            for (power, _) in shares {
                let what = format!("{name}: refills of 2^{power} ns and more, percent");
                report.count(what, refills.percent(power, power + 1));
            }
        }
        report.hold(
            format!("{name}: pages that were not to be had, none"),
            outcome.refused as f64,
            outcome.refused == 0,
        );
        match variant.model.owners {
            // The largest refill or drain: a batch of 63 pages that doubled, and what a last block sticks out.
            PageblockOwners::Nobody => {
                let most = (63 << variant.model.pcp.batch_scale_max.min(5)) + (1 << 3);
                let found = counts.most_pages_per_hold;
                let what = format!("{name}: pages in a hold of a zone's lock, at most {most}");
                report.hold(what, found as f64, found <= most);
            }
            // They pass with all that is free in them: operations are bounded.
            PageblockOwners::Quotas => {
                let found = counts.most_operations;
                let what = format!("{name}: operations in a hold of a lock, at most 256");
                report.hold(what, found as f64, found <= 256);
                let is_today = |other: &Variant| other.model.name == Model::LINUX_6_18.name;
                let today = models.iter().position(is_today).map(|today| &outcomes[today]);
                if let Some(today) = today.filter(|today| today.zone_lock_percent() >= 1.0) {
                    hold_waits(&name, outcome, today, report);
                }
            }
            // Whole pageblocks pass, and pieces of them that were merged before.
            _ => {}
        }
        let is_whole = |other: &&Variant| {
            other.model.zone_instances == ZoneInstances::ONE
                && variant.model.zone_instances != ZoneInstances::ONE
                && undivided(&other.model) == undivided(&variant.model)
        };
        if let Some(whole) = models.iter().position(|other| is_whole(&other)) {
            let of_whole = outcomes[whole].zone_lock_percent().max(f64::MIN_POSITIVE);
            let part = outcome.zone_lock_percent() / of_whole;
            let what =
                format!("{name}: wait for zone locks, of that without instances, less than 1");
            report.hold(what, part, part < 1.0);
        }
    }
}

/// What must hold of waits for zone locks where CPUs own pageblocks with maps, beside `linux-6.18`.
fn hold_waits(name: &str, outcome: &Outcome, today: &Outcome, report: &mut Report) {
    let share = outcome.zone_lock_percent() / today.zone_lock_percent();
    let wait = outcome.locks.longest_wait_ps as f64 / today.locks.longest_wait_ps as f64;
    for (what, part) in [("wait for zone locks", share), ("worst wait", wait)] {
        let what = format!("{name}: {what}, of that under linux-6.18, at most 0.2");
        report.hold(what, part, part <= 0.2);
    }
}

/// The rules but for what instances there are.
fn undivided(model: &Model) -> Model {
    model.with(|changed| (changed.name, changed.zone_instances) = ("", ZoneInstances::ONE))
}

fn add_row(
    name: &str,
    reference: &Reference,
    row: &[f64],
    outcome: &Outcome,
    first: &Outcome,
    report: &mut Report,
) {
    // From 2^18 ns on, buckets double.
    let share = |from: usize, to: usize| outcome.refills.percent(from, to);
    for (column, &published) in reference.columns.iter().zip(row).skip(1) {
        let of_share = match published {
            published if published >= 10.0 => Tolerance::Absolute(10.0),
            published => Tolerance::Between(published / 2.0, published * 2.0),
        };
        let (model, near) = match column.as_str() {
            "zone_lock_percent" => (outcome.zone_lock_percent(), Tolerance::Absolute(2.0)),
            "zone_lock_percent_most" => {
                (outcome.zone_lock_percent(), Tolerance::Between(0.0, published))
            }
            "score" => (100.0 * outcome.speed() / first.speed(), Tolerance::Relative(0.1)),
            "refill_us" => (outcome.refills.mean_ns() / 1e3, Tolerance::Relative(0.1)),
            "refills_below_262us_percent" => (share(0, 18), of_share),
            "refills_262us_percent" => (share(18, 19), of_share),
            "refills_524us_percent" => (share(19, 20), of_share),
            "refills_1ms_percent" => (share(20, 21), of_share),
            "refills_2ms_percent" => (share(21, 22), of_share),
            "refills_4ms_percent" => (share(22, 23), of_share),
            _ => (share(11, 15), Tolerance::Between(published, 100.0)),
        };
        report.row(name, column, published, model, near);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_found_where_the_figure_falls_as_a_power_of_it() {
        for (wanted_ns, power) in [(983.0, 3.0), (320.0, 0.5), (9000.0, 1.0), (5700.0, 6.0)] {
            let mut search = Search::new();
            while search.goes_on() {
                for page_ns in search.next() {
                    search.note(page_ns, (wanted_ns / page_ns).powf(power));
                }
            }
            assert!(search.nearest.1 <= Search::NEAR_ENOUGH, "{wanted_ns} ns: {search:?}");
        }
    }
}
