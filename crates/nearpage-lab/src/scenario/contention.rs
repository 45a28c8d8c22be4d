//! The keys of work that is compared between models: what CPUs wait for zone locks.

use std::ops::Range;

use nearpage::{Config, Order, ZoneInstances};
use nearpage_machine::size;
use nearpage_sim::Machine;
use nearpage_sim::workload::lifetimes::Lifetime;
use nearpage_sim::workload::messages::{Block, FreedBy};
use serde::Deserialize;
use toml::Spanned;

use super::figures::{at_least_one, at_most, bytes_of, lock_percent, time_ns, time_ns_or_0};
use super::lifetimes::{groups, percent_of};
use super::messages::{MessagesWorkload, pairs_of};
use super::reference::{self, Reference};
use super::wrong::{Checked, wrong};

/// Work that each of the scenario's models does.
#[derive(Clone, Debug)]
pub struct ContentionWorkload {
    /// What the rows of the table are called.
    pub name: String,
    /// Memory of the machine and of the workload is divided by this.
    pub scale: u64,
    /// What runs.
    pub does: Does,
    /// Time for a page (ns), unless it is calibrated.
    pub page_ns: f64,
    /// Time for a page that is freed (ns).
    pub free_ns: f64,
    /// The one figure of the first model that calibrates the time for a page.
    pub calibrate: Option<Target>,
    /// What is published.
    pub references: Vec<Reference>,
}

/// What runs.
#[derive(Clone, Debug)]
pub enum Does {
    /// Processes fill memory and give it back at once.
    Fill(FillWork),
    /// One CPU of each pair fills pages, and the other one frees them.
    Purge(MessagesWorkload),
    /// Processes as in a recording.
    Build(BuildWork),
}

/// Processes that fill memory and give it back at once.
#[derive(Clone, Copy, Debug)]
pub struct FillWork {
    /// CPUs that run one, from the first one on.
    pub processes: usize,
    /// Memory of each, before it is scaled.
    pub bytes: u64,
    /// How often each fills and frees.
    pub rounds: u64,
    /// Whether they free at the same time.
    pub leave_together: bool,
    /// Whether they free in random order.
    pub is_shuffled: bool,
    /// CPUs after those which fill and free a little meanwhile.
    pub bystanders: usize,
}

impl FillWork {
    /// Pages that all fill, about, for each that a process does: as long as those queue for the lock of their zone, bystanders go on.
    pub(crate) fn pages_a_page(bystanders: usize) -> u64 {
        1 + bystanders as u64 / 4
    }
}

/// Processes as in a recording.
#[derive(Clone, Debug)]
pub struct BuildWork {
    /// CPUs that run them, from the first one on.
    pub cpus: usize,
    /// The recording: a name or a file.
    pub trace: String,
    /// Groups of processes.
    pub groups: Vec<Vec<Lifetime>>,
    /// Groups that each CPU runs before anything counts.
    pub warm_up: u64,
    /// Groups that each CPU runs.
    pub count: u64,
    /// Of a hundred processes, those whose pages another CPU frees.
    pub moves_percent: u32,
}

/// What a figure of the first model has to be.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Target {
    /// The share of time that CPUs wait for zone locks.
    ZoneLockPercent(f64),
    /// The mean time of a refill (us).
    RefillUs(f64),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ContentionTable {
    name: String,
    scale: Option<Spanned<u64>>,
    fill: Option<FillTable>,
    purge: Option<PurgeTable>,
    build: Option<BuildTable>,
    page_ns: Option<Spanned<f64>>,
    free_ns: Spanned<f64>,
    calibrate: Option<Spanned<TargetTable>>,
    #[serde(default)]
    reference: Vec<Spanned<Reference>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FillTable {
    processes: Spanned<usize>,
    memory: Spanned<String>,
    rounds: Spanned<u64>,
    #[serde(default)]
    leave_together: bool,
    #[serde(default)]
    bystanders: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PurgeTable {
    pairs: Spanned<usize>,
    pages: Spanned<u64>,
    window: Spanned<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BuildTable {
    cpus: Spanned<usize>,
    trace: Spanned<String>,
    warm_up: Spanned<u64>,
    count: Spanned<u64>,
    moves_percent: Spanned<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TargetTable {
    zone_lock_percent: Option<Spanned<f64>>,
    refill_us: Option<Spanned<f64>>,
}

impl ContentionTable {
    pub(super) fn check(
        table: Spanned<Self>,
        machine: &Machine,
        models_count: usize,
    ) -> Checked<ContentionWorkload> {
        let span = table.span();
        let table = table.into_inner();
        let scale = table.scale.as_ref().map_or(Ok(1), |scale| at_least_one("scale", scale))?;
        let does = match (table.fill, table.purge, table.build) {
            (Some(fill), None, None) => Does::Fill(fill.check(machine, scale)?),
            (None, Some(purge), None) => Does::Purge(purge.check(&table.name, machine)?),
            (None, None, Some(build)) => Does::Build(build.check(machine)?),
            _ => return wrong(span, "contention: accepted: one of fill, purge, build"),
        };
        let calibrate = table.calibrate.map(TargetTable::check).transpose()?;
        if let (Some(Target::RefillUs(_)), Does::Purge(_) | Does::Build(_)) = (calibrate, &does) {
            return wrong(span, "calibrate.refill_us belongs to fill");
        }
        let references = table.reference.into_iter().map(|of| {
            let span = of.span();
            let of = reference::CONTENTION.check(of)?;
            let is_model = |row: &&Vec<f64>| (0..models_count).any(|at| row[0] == at as f64);
            match of.rows.iter().find(|row| !is_model(row)) {
                Some(row) => {
                    let message = format!(
                        "reference.rows: variant is {}; accepted: 0 to {}",
                        row[0],
                        models_count.saturating_sub(1)
                    );
                    wrong(span, message)
                }
                None => Ok(of),
            }
        });
        Ok(ContentionWorkload {
            name: table.name,
            scale,
            does,
            page_ns: time_ns_or_0("page_ns", table.page_ns.as_ref())?,
            free_ns: time_ns("free_ns", &table.free_ns)?,
            calibrate,
            references: references.collect::<Checked<_>>()?,
        })
    }
}

impl FillTable {
    fn check(self, machine: &Machine, scale: u64) -> Checked<FillWork> {
        let bytes = bytes_of("memory", &self.memory)?;
        let all: u64 = machine.nodes.iter().map(|node| node.bytes).sum();
        let processes = cpus_of("processes", &self.processes, machine)?;
        if bytes / scale < machine.page_bytes() || bytes.saturating_mul(processes as u64) > all {
            let most = size::format(all / processes as u64);
            let message = format!("memory: accepted: a page and more, scaled, and at most {most}");
            return wrong(self.memory.span(), message);
        }
        let most = machine.cpus().count() - processes;
        if self.bystanders > most {
            let message = format!("bystanders is {}; accepted: 0 to {most}", self.bystanders);
            return wrong(self.processes.span(), message);
        }
        let Self { leave_together, bystanders, .. } = self;
        let rounds = at_least_one("rounds", &self.rounds)?;
        Ok(FillWork { processes, bytes, rounds, leave_together, is_shuffled: false, bystanders })
    }
}

impl PurgeTable {
    fn check(self, name: &str, machine: &Machine) -> Checked<MessagesWorkload> {
        let pages = at_least_one("pages", &self.pages)?;
        Ok(MessagesWorkload {
            name: name.to_owned(),
            pairs: pairs_of(&self.pairs, machine)?,
            messages: pages,
            // They never change roles.
            turn: pages,
            window: at_least_one("window", &self.window)? as usize,
            blocks: vec![Block { order: Order(0), every: 1, freed_by: FreedBy::Receiver }],
            copy_ns: 0.0,
            zone_lock_percent: None,
        })
    }
}

impl BuildTable {
    fn check(self, machine: &Machine) -> Checked<BuildWork> {
        Ok(BuildWork {
            cpus: cpus_of("cpus", &self.cpus, machine)?,
            groups: groups(&self.trace)?,
            trace: self.trace.into_inner(),
            warm_up: at_most("warm_up", &self.warm_up)?,
            count: at_least_one("count", &self.count)?,
            moves_percent: percent_of("moves_percent", &self.moves_percent)?,
        })
    }
}

impl TargetTable {
    fn check(table: Spanned<Self>) -> Checked<Target> {
        let span: Range<usize> = table.span();
        match table.into_inner() {
            Self { zone_lock_percent: Some(percent), refill_us: None } => {
                Ok(Target::ZoneLockPercent(lock_percent(&percent)?))
            }
            Self { zone_lock_percent: None, refill_us: Some(us) } if *us.get_ref() > 0.0 => {
                Ok(Target::RefillUs(*us.get_ref()))
            }
            _ => wrong(span, "calibrate: accepted: one of zone_lock_percent, refill_us"),
        }
    }
}

fn cpus_of(key: &str, value: &Spanned<usize>, machine: &Machine) -> Checked<usize> {
    let most = machine.cpus().count();
    match *value.get_ref() {
        count if (1..=most).contains(&count) => Ok(count),
        count => wrong(value.span(), format!("{key} is {count}; accepted: 1 to {most}")),
    }
}

impl ContentionWorkload {
    /// The machine with the memory that is simulated.
    pub(crate) fn scaled(&self, machine: &Machine) -> Machine {
        let mut machine = machine.clone();
        machine.nodes.iter_mut().for_each(|node| node.bytes /= self.scale);
        machine
    }

    /// Pages that a run of it allocates, about.
    pub(crate) fn pages(&self, page_bytes: u64) -> u64 {
        match &self.does {
            Does::Fill(work) => {
                let pages = work.rounds * (work.bytes / self.scale / page_bytes);
                work.processes as u64 * pages * FillWork::pages_a_page(work.bystanders)
            }
            Does::Purge(work) => work.pairs as u64 * work.messages,
            Does::Build(work) => {
                let all = work.groups.iter().flatten().flatten().filter(|run| run.allocates);
                let pages: u64 = all.map(|run| u64::from(run.blocks) << run.order.0).sum();
                let groups = work.cpus as u64 * (work.warm_up + work.count);
                pages / work.groups.len().max(1) as u64 * groups
            }
        }
    }

    /// Rules whose sizes fit the memory that is simulated.
    pub(crate) fn scaled_rules(&self, config: Config) -> Config {
        let mut config = config;
        if let ZoneInstances::OfPages(pages) = &mut config.model.zone_instances {
            pages.0 = (pages.0 / self.scale).max(1);
        }
        config
    }
}
