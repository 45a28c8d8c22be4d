//! Loads by name: what engineers call a load, on a machine of their own.
//!
//! Each is one work of [contention](crate::scenario::ContentionWorkload). Its numbers come from measurements that
//! [`Load::source`] names; what differs from them is a note of the report.

use std::collections::BTreeMap;

use nearpage::{Config, Model, Order, PageblockOwners};
use nearpage_machine::MachineDescription;
use nearpage_sim::workload::lifetimes::Lifetime;
use nearpage_sim::workload::messages::{Block, FreedBy};
use nearpage_sim::{Machine, check_machine};

use crate::error::LabError;
use crate::options::Options;
use crate::report::{Ran, Report};
use crate::scenario::{
    BuildWork, ContentionWorkload, Does, FillWork, MachineOf, MessagesWorkload, PatchedWorkload,
    Scenario, Variant, Workload, groups_of,
};
use crate::sweep::Over;

/// A load by its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Load {
    /// Compilers one after the other on each CPU.
    Build,
    /// Processes with much memory exit at once.
    Exit,
    /// One CPU of a pair allocates, and the other one frees soon after.
    OneWay,
    /// Threads touch new pages, and a purger gives them back, thousands at a time.
    Purge,
    /// Processes fill memory and give it back, again and again.
    Fill,
    /// As [`Fill`](Self::Fill), but pages are freed in random order.
    Random,
    /// Readers fill the page cache, and reclaim frees its oldest pages.
    PageCache,
    /// Page faults as `page_fault1` of will-it-scale makes them.
    Faults,
}

/// The time for a page that is touched (ns), beside the allocator: the fault, clearing, the first use. The scenarios
/// `container-exit-18x6GB` and `jemalloc-purger` take the same.
const PAGE_NS: f64 = 500.0;
/// The time to find and unmap a page that is freed (ns), as in all scenarios that fill.
const FREE_NS: f64 = 60.0;
/// The largest machine whose memory is simulated whole.
const BYTES_MOST: u64 = 64 << 30;
/// Pages that a run allocates, about, at most, unless more time is asked for. A host simulates about a million in a second.
const RUN_PAGES: u64 = 32 << 20;
/// Pages that a process fills at least where many exit, so that it empties its pageset more than once, four of the largest batches.
const EXIT_PAGES_LEAST: u64 = 8192;
/// Memory of a process that exits, of the containers of 2024.
const PROCESS_BYTES: u64 = 6 << 30;
/// `page_fault1` maps so much.
const FAULTS_BYTES: u64 = 128 << 20;
/// Seeds of a load that draws, for the range of its answer.
const SEEDS: u64 = 3;
/// Model time that a process is given to fill and free once, at least.
const SECONDS: f64 = 0.25;

impl Load {
    /// All loads.
    pub const ALL: [Load; 8] = [
        Load::Build,
        Load::Exit,
        Load::OneWay,
        Load::Purge,
        Load::Fill,
        Load::Random,
        Load::PageCache,
        Load::Faults,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Load::Build => "build",
            Load::Exit => "exit",
            Load::OneWay => "one-way",
            Load::Purge => "purge",
            Load::Fill => "fill",
            Load::Random => "random",
            Load::PageCache => "pagecache",
            Load::Faults => "faults",
        }
    }

    /// What a page takes beside the allocator, in nanoseconds. Of two loads the scenario zone-instances-224c calibrates it, by the share of
    /// time in zone locks that was measured: without that, CPUs would do nothing but allocate.
    fn page_ns(self) -> f64 {
        match self {
            Load::Build => 7433.0,
            Load::Faults => 1157.0,
            _ => PAGE_NS,
        }
    }

    /// Pages that a run allocates, about, for each that processes of the load ask for. All the time that they queue to exit,
    /// bystanders go on.
    fn run_pages(self, cpus: usize) -> u64 {
        match self {
            Load::Exit => FillWork::pages_a_page(bystanders(cpus)),
            // With each of its seeds.
            Load::Random => SEEDS,
            _ => 1,
        }
    }

    /// Whether something of it is random.
    pub fn draws(self) -> bool {
        matches!(self, Load::Build | Load::Random)
    }

    /// Seeds for the range of its answer, from a first one on: one if nothing of it is random.
    pub fn seeds(self, first: u64) -> Vec<u64> {
        (0..if self.draws() { SEEDS } else { 1 }).map(|more| first.wrapping_add(more)).collect()
    }

    /// The load called `name`.
    pub fn by_name(name: &str) -> Option<Load> {
        Load::ALL.into_iter().find(|load| load.name() == name)
    }

    /// What it does, in a sentence.
    pub fn about(self) -> &'static str {
        match self {
            Load::Build => {
                "each CPU runs compilers one after the other; of a hundred, 22 have their pages freed by another CPU, where one runs"
            }
            Load::Exit => {
                "processes fill up to 6 GiB each and exit at the same time, while other CPUs fill and free 8 MiB each"
            }
            Load::OneWay => {
                "one CPU of each pair allocates, and the other one frees 256 pages later: no CPU frees what it allocates"
            }
            Load::Purge => {
                "threads touch new pages, and one thread a pair gives them back 4096 pages later"
            }
            Load::Fill => "processes fill up to 6 GiB each and free it in order, not together",
            Load::Random => {
                "as fill, but each process frees its pages in random order: no two that follow lie side by side"
            }
            Load::PageCache => {
                "one CPU of each pair reads files into memory, and reclaim on the other one frees the oldest of 65536 pages: as purge, with 16 times as much held, and the same holds of locks where memory suffices"
            }
            Load::Faults => {
                "processes map 128 MiB, touch each page, and unmap, as page_fault1 of will-it-scale"
            }
        }
    }

    /// Where its numbers come from, and what it found where a machine is known.
    pub fn source(self) -> &'static str {
        match self {
            Load::Build => {
                "lifetimes of pages of gcc, recorded on Linux 6.1; on 224 CPUs 12.7 % of time was measured in zone locks in 2023 (scenario zone-instances-224c)"
            }
            Load::Exit => {
                "containers of 6 GB of 2024; published is that others stall (scenarios pcp-batch-tails, container-exit-18x6GB)"
            }
            Load::OneWay => {
                "messages over a socket; with those of AF_UNIX, blocks of order 3 to 0, 50.0 % of time was measured in zone locks in 2023 (scenario pcp-autotune)"
            }
            Load::Purge => {
                "purgers of jemalloc's kind, 4096 pages at a time (scenario jemalloc-purger); no published figure"
            }
            Load::Fill => {
                "the loop of 2024 that maps, fills and unmaps 6 GB: refills of 449.8 us with batches that double five times, on 64 cores (scenario pcp-batch-tails)"
            }
            Load::Random => {
                "the loop of 2024 with frees in random order, as heaps that have run for long free; no published figure"
            }
            Load::PageCache => {
                "a reader and reclaim side by side; no published figure, 256 MiB of cache a pair is assumed"
            }
            Load::Faults => {
                "will-it-scale page_fault1: 13.01 % of time in zone locks with 16 processes on a socket of 112 CPUs in 2023 (scenario zone-instances-224c)"
            }
        }
    }
}

/// CPUs beside those that exit.
fn bystanders(cpus: usize) -> usize {
    cpus - (cpus / 2).max(1)
}

/// The counts that the answer about a load begins with.
pub const FIRST: [&str; 4] = ["zone_lock_percent", "worst_wait_us", "holds", "worst_hold_us"];

/// What a load is to run on.
#[derive(Clone, Debug)]
pub struct LoadWish<'a> {
    /// The machine.
    pub machine: &'a MachineDescription,
    /// The name of its table of costs, or a file; `None`: the nearest one of the catalogue.
    pub costs: Option<&'a str>,
    /// The rules that are compared, the first one first.
    pub rules: Vec<Model>,
    /// CPUs that run the load; `None`: all.
    pub cpus: Option<usize>,
    /// Model time of each CPU, about; `None`: as short as the load allows.
    pub seconds: Option<f64>,
    /// Rules and settings beside the models.
    pub config: Config,
}

/// What processes of a recording did.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Each of them.
    pub processes: Vec<Lifetime>,
    /// CPUs that ran them.
    pub cpus: usize,
    /// Of a hundred, those whose pages another CPU freed.
    pub moved_percent: u32,
    /// From page to page of a CPU, what it did between them included (ns).
    pub page_ns: f64,
}

/// Pages that a simulation of a recording allocates, about, at most.
const PAGES_MOST: u64 = 4 << 20;

/// The processes of a recording as a scenario, and what had to be assumed, a sentence each. Each CPU of the machine runs as many
/// of them as a recorded one did, one after the other.
///
/// # Errors
///
/// As [`scenario_of`].
pub fn scenario_of_recorded(
    recorded: Recorded,
    wish: &LoadWish<'_>,
) -> Result<(Scenario, Vec<String>), LabError> {
    let name = RECORDED;
    let Recorded { processes, cpus: recorded_cpus, moved_percent, page_ns } = recorded;
    if processes.is_empty() {
        return Err(refused(name)("no process of the recording allocates".into()));
    }
    let allocated = processes.iter().flatten().filter(|run| run.allocates);
    let pages: u64 = allocated.map(|run| u64::from(run.blocks) << run.order.0).sum();
    let each_pages = (pages / processes.len() as u64).max(1);
    let of_each = processes.len().div_ceil(recorded_cpus.max(1)) as u64;
    let about = format!(
        "each CPU runs {of_each} of the {} recorded processes, as many as a recorded one did, picked at random; of a hundred, {moved_percent} \
         have their pages freed by another CPU, as recorded",
        processes.len()
    );
    let numbers = format!(
        "numbers: the recording; a CPU took a page each {:.1} us, and does here",
        page_ns / 1e3
    );
    let head = vec![about, numbers];
    scenario(By::Recording { page_ns }, head, wish, |_, cpus, _, _, notes| {
        let most = (PAGES_MOST / (each_pages * cpus as u64)).max(1);
        if of_each > most {
            notes.push(format!("{most} processes of each CPU are simulated, for speed"));
        }
        Ok(Does::Build(BuildWork {
            cpus,
            trace: name.into(),
            groups: processes.into_iter().map(|process| vec![process]).collect(),
            warm_up: 0,
            count: of_each.min(most),
            moves_percent: moved_percent,
        }))
    })
}

/// Runs a load that [`scenario_of`] made, with each of some seeds. Counts are of the first one.
///
/// # Errors
///
/// As [`crate::run`].
pub fn run(
    scenario: &Scenario,
    machine: &MachineDescription,
    seeds: &[u64],
    options: &Options<'_>,
) -> Result<Report, LabError> {
    let run = |at: usize, seed: u64| {
        let of_all = |done: u64, all: u64| {
            options.observer.progress(at as u64 * all + done, seeds.len() as u64 * all)
        };
        crate::run(scenario, &Options { seed, observer: &of_all, ..*options })
    };
    let (&first, others) = seeds.split_first().unwrap_or((&options.seed, &[]));
    let mut report = run(0, first)?;
    let mut range = BTreeMap::new();
    for (at, &seed) in (1..).zip(others) {
        let other = run(at, seed)?;
        for (name, value) in &report.counts {
            let more = other.counts.get(name).copied().unwrap_or(*value);
            let [least, most] = range.entry(name.clone()).or_insert([*value; 2]);
            (*least, *most) = (least.min(more), most.max(more));
        }
    }
    range.retain(|_, [least, most]| least != most);
    report.ran = Some(Ran::of(scenario, machine, seeds, options, range));
    Ok(report)
}

/// Runs a load that [`scenario_of`] made under all combinations of some settings, with one seed.
///
/// # Errors
///
/// As [`crate::sweep`].
pub fn sweep(
    scenario: &Scenario,
    machine: &MachineDescription,
    over: &[Over],
    options: &Options<'_>,
) -> Result<Report, LabError> {
    let mut report = crate::sweep(scenario, over, options)?;
    report.ran = Some(Ran::of(scenario, machine, &[options.seed], options, BTreeMap::new()));
    Ok(report)
}

impl Ran {
    fn of(
        scenario: &Scenario,
        machine: &MachineDescription,
        seeds: &[u64],
        options: &Options<'_>,
        range: BTreeMap<String, [f64; 2]>,
    ) -> Ran {
        let costs = options.costs.map_or(&scenario.machine.costs, |costs| &costs.name).clone();
        Ran { machine: machine.source.clone(), costs, seeds: seeds.to_vec(), range }
    }

    /// What it ran with, and the range of what its answer begins with, a sentence each.
    pub fn lines(&self) -> Vec<String> {
        let Ran { machine, costs, seeds, range } = self;
        let seeds = match &seeds[..] {
            [only] => format!("seed {only} alone"),
            all => {
                let all: Vec<String> = all.iter().map(u64::to_string).collect();
                format!("seeds {}; figures are of the first", all.join(", "))
            }
        };
        let mut lines = vec![format!("ran on {machine}, costs {costs}, {seeds}")];
        let first = range.iter().filter(|(name, _)| {
            FIRST.iter().any(|first| name.strip_suffix(first).is_some_and(|of| of.ends_with(": ")))
        });
        lines.extend(first.map(|(name, [least, most])| {
            format!("by seed {name} is {least} at least and {most} at most")
        }));
        lines
    }
}

/// A load as a scenario, and what had to be assumed, a sentence each.
///
/// # Errors
///
/// The machine has too few CPUs or too little memory for the load, or cannot be simulated.
pub fn scenario_of(load: Load, wish: &LoadWish<'_>) -> Result<(Scenario, Vec<String>), LabError> {
    let head = vec![load.about().to_owned(), format!("numbers: {}", load.source())];
    scenario(By::Name(load), head, wish, |machine, cpus, bytes, scale, notes| {
        does(load, machine, cpus, bytes, scale, wish.seconds, notes)
    })
}

fn refused(load: &'static str) -> impl Fn(String) -> LabError {
    move |problem| LabError::Load { load, problem }
}

/// What the processes of a recording are called.
const RECORDED: &str = "recorded";

/// Where a load comes from.
#[derive(Clone, Copy)]
enum By {
    Name(Load),
    Recording { page_ns: f64 },
}

impl By {
    fn name(self) -> &'static str {
        match self {
            By::Name(load) => load.name(),
            By::Recording { .. } => RECORDED,
        }
    }

    /// What a page takes beside the allocator (ns).
    fn page_ns(self) -> f64 {
        match self {
            By::Recording { page_ns } => page_ns,
            By::Name(load) => load.page_ns(),
        }
    }

    /// How that is known, and what a page that is freed takes.
    fn known(self, free_ns: f64) -> String {
        const NOT_MEASURED: &str = "; neither was measured there";
        let page_ns = self.page_ns();
        let (known, end) = match self {
            By::Recording { .. } => ("as recorded, what its CPU did meanwhile included", ""),
            By::Name(_) if page_ns == PAGE_NS => ("assumed", NOT_MEASURED),
            By::Name(_) => ("calibrated by what was measured in 2023", NOT_MEASURED),
        };
        format!(
            "a page takes {page_ns:.0} ns beside the allocator, {known}; a page that is freed {free_ns:.0} ns, assumed{end}"
        )
    }
}

/// The scenario of what `does` makes of the machine, its CPUs that run, its memory, and by what both are divided.
fn scenario(
    by: By,
    head: Vec<String>,
    wish: &LoadWish<'_>,
    does: impl FnOnce(&Machine, usize, u64, u64, &mut Vec<String>) -> Result<Does, String>,
) -> Result<(Scenario, Vec<String>), LabError> {
    let name = by.name();
    let refuse = refused(name);
    let machine = Machine::from(&wish.machine.machine);
    let all = machine.cpus().count();
    let cpus = wish.cpus.unwrap_or(all);
    if all == 0 {
        return Err(refuse("the machine has no CPUs, expected one whose nodes have some".into()));
    }
    if cpus == 0 || cpus > all {
        return Err(refuse(format!("--cpus {cpus}, expected 1 to {all}: the machine has no more")));
    }
    let bytes: u64 = machine.nodes.iter().map(|node| node.bytes).sum();
    let mut notes = head;
    let scale = bytes.div_ceil(BYTES_MOST).max(1);
    let mut scaled = machine.clone();
    scaled.nodes.iter_mut().for_each(|node| node.bytes /= scale);
    check_machine(&scaled).map_err(|error| refuse(error.to_string()))?;
    if scale > 1 {
        notes.push(format!(
            "memory of the machine and of the load is divided by {scale}: pagesets are as large as on such a machine"
        ));
    }
    let costs = match wish.costs {
        Some(costs) => costs.to_owned(),
        None => {
            let costs = nearest_costs(&machine);
            let others = match by {
                By::Name(_) => format!(
                    "; nearpage lab {name} --costs takes another, and nearpage lab costs --measure makes one"
                ),
                By::Recording { .. } => String::new(),
            };
            notes.push(format!(
                "no table of costs is given: {costs} is taken, the nearest by CPUs and nodes{others}"
            ));
            costs.to_owned()
        }
    };
    let does = does(&machine, cpus, bytes, scale, &mut notes).map_err(refuse)?;
    let free_ns = if matches!(does, Does::Purge(_)) { 0.0 } else { FREE_NS };
    if matches!(by, By::Name(load) if !load.draws()) {
        notes.push("nothing of it is random: every seed gives the same".into());
    }
    if wish.rules.iter().any(|rules| rules.owners == PageblockOwners::Quotas) {
        notes.push("under the rules nearpage CPUs share lines instead of locks: their time is charged, and counted in no wait and no hold, where a replay calls each write to such a line a hold".into());
    }
    let work = ContentionWorkload {
        name: name.into(),
        scale,
        does,
        page_ns: by.page_ns(),
        free_ns,
        calibrate: None,
        references: Vec::new(),
    };
    notes.push(by.known(free_ns));
    notes.push("all memory is free at the start: what numactl calls free is not used".into());
    let variant = |&model: &Model| Variant { name: model.name.into(), model };
    let scenario = Scenario {
        name: name.into(),
        title: format!(
            "{name} on {cpus} of {all} CPUs, {} nodes, {}: {}",
            machine.nodes.len(),
            nearpage_machine::size::format(bytes),
            wish.machine.source
        ),
        machine: MachineOf { machine, costs },
        config: wish.config,
        patches: Vec::new(),
        models: wish.rules.iter().map(variant).collect(),
        workload: Workload::Patched(PatchedWorkload {
            messages: Vec::new(),
            lifetimes: None,
            contention: vec![work],
        }),
        reference: None,
    };
    Ok((scenario, notes))
}

fn does(
    load: Load,
    machine: &Machine,
    cpus: usize,
    bytes: u64,
    scale: u64,
    seconds: Option<f64>,
    notes: &mut Vec<String>,
) -> Result<Does, String> {
    let page_bytes = machine.page_bytes();
    let too_short = |notes: &mut Vec<String>, least: &str| {
        let of =
            |seconds| format!("{seconds} s are too short for this load: {least}, as without them");
        notes.extend(seconds.map(of));
    };
    // Pages of all who exit pass one lock: with many, each takes as much longer.
    let queue = if load == Load::Exit { (cpus as f64 / 8.0).max(1.0) } else { 1.0 };
    let page_s = (load.page_ns() + FREE_NS) * queue / 1e9;
    let most = (RUN_PAGES / (cpus as u64 * load.run_pages(cpus))) as f64 * page_s;
    if seconds.is_none() && most < SECONDS && load != Load::Build {
        notes.push(format!(
            "{most:.3} s of model time are asked of each CPU instead of {SECONDS}, so that the run ends soon; nearpage lab --seconds asks for more"
        ));
    }
    // What a CPU does in the time that is asked for.
    let pages = (seconds.unwrap_or(SECONDS.min(most)) / page_s).max(1.0) as u64;
    let fill = |notes: &mut Vec<String>,
                most_bytes: u64,
                leave_together: bool,
                is_shuffled: bool,
                processes: usize,
                bystanders: usize| {
        // Half of the memory stays free, so that nothing is reclaimed.
        let each = (bytes / 2 / processes as u64).min(most_bytes);
        let scaled_pages = each / scale / page_bytes;
        if pages <= scaled_pages {
            too_short(notes, "each process fills its memory and frees it twice");
        }
        match scaled_pages {
            0 => Err("there is less than a page for each process".to_owned()),
            _ => Ok(Does::Fill(FillWork {
                processes,
                bytes: each,
                rounds: pages.div_ceil(scaled_pages).max(2),
                leave_together,
                is_shuffled,
                bystanders,
            })),
        }
    };
    let bounded = |notes: &mut Vec<String>, processes: usize| {
        let each = bytes / 2 / processes as u64;
        if each < PROCESS_BYTES {
            let each = nearpage_machine::size::format(each);
            notes.push(format!(
                "a process fills {each}: half of the memory stays free, whatever was free on the machine"
            ));
        }
    };
    let pairs = |notes: &mut Vec<String>, window: usize| {
        let own = machine.nodes.iter().map(|node| node.cpus.len() / 2).sum::<usize>();
        let pairs = (cpus / 2).min(own);
        if pairs == 0 {
            return Err("it takes two CPUs of one node, expected a machine with them".to_owned());
        }
        let least = 2 * window as u64;
        if pages < least {
            too_short(notes, &format!("each pair moves {least} pages"));
        }
        let messages = pages.max(least);
        Ok(Does::Purge(MessagesWorkload {
            name: load.name().into(),
            pairs,
            messages,
            turn: messages,
            window: (window as u64 / scale).max(64) as usize,
            blocks: vec![Block { order: Order(0), every: 1, freed_by: FreedBy::Receiver }],
            copy_ns: 0.0,
            zone_lock_percent: None,
        }))
    };
    match load {
        Load::Build => {
            let count = seconds.map_or(1, |seconds| seconds.ceil().max(1.0) as u64);
            if let Some(seconds) = seconds {
                notes.push(format!(
                    "each CPU runs whole compilers, one for each second that begins: {count} in {seconds} s"
                ));
            }
            Ok(Does::Build(BuildWork {
                cpus,
                trace: "gcc".into(),
                groups: groups_of("gcc").expect("it comes along"),
                warm_up: 0,
                count,
                moves_percent: 22,
            }))
        }
        Load::Exit => {
            let processes = (cpus / 2).max(1);
            bounded(notes, processes);
            let most = RUN_PAGES / load.run_pages(cpus) / (2 * processes as u64);
            let most_bytes = most.max(EXIT_PAGES_LEAST).saturating_mul(scale * page_bytes);
            if most_bytes < PROCESS_BYTES.min(bytes / 2 / processes as u64) {
                let each = nearpage_machine::size::format(most_bytes);
                notes.push(format!("of that a process fills {each}, so that the run ends soon"));
            }
            fill(notes, PROCESS_BYTES.min(most_bytes), true, false, processes, bystanders(cpus))
        }
        Load::Fill | Load::Random => {
            bounded(notes, cpus);
            fill(notes, PROCESS_BYTES, false, load == Load::Random, cpus, 0)
        }
        Load::Faults => fill(notes, FAULTS_BYTES.saturating_mul(scale), false, false, cpus, 0),
        Load::OneWay => pairs(notes, 256),
        Load::Purge => pairs(notes, 4096),
        Load::PageCache => pairs(notes, 65_536),
    }
}

/// The table whose machine has about as many CPUs, on about as many nodes.
fn nearest_costs(machine: &Machine) -> &'static str {
    /// Tables of machines of today with their CPUs and nodes.
    const TABLES: [(&str, f64, f64); 4] = [
        ("amd-1s64", 64.0, 1.0),
        ("intel-2s128", 128.0, 2.0),
        ("intel-2s224", 224.0, 2.0),
        ("intel-8s160", 160.0, 8.0),
    ];
    let cpus = machine.cpus().count().max(1) as f64;
    let nodes = machine.nodes.iter().filter(|node| !node.cpus.is_empty()).count().max(1) as f64;
    let far = |of: &(&str, f64, f64)| (of.1 / cpus).ln().abs() + 2.0 * (of.2 / nodes).ln().abs();
    let nearest = TABLES.iter().min_by(|one, other| far(one).total_cmp(&far(other)));
    nearest.expect("there are tables").0
}

#[cfg(test)]
mod tests {
    use nearpage_machine::MachineInput;

    use super::*;
    use crate::{catalog, run};

    fn machine(nodes: &[&str]) -> MachineDescription {
        let nodes = nodes.iter().map(ToString::to_string).collect();
        let input = MachineInput::ShortForm { nodes, distances: Vec::new() };
        MachineDescription::read(&input, &nearpage_machine::Budget::DEFAULT).unwrap()
    }

    #[test]
    fn every_load_runs_and_its_size_acts() {
        let machine = machine(&["1G,cpus=0-3", "1G,cpus=4-7"]);
        for load in Load::ALL {
            assert_eq!(Load::by_name(load.name()), Some(load));
            let counts = |cpus: usize| {
                let wish = LoadWish {
                    machine: &machine,
                    costs: None,
                    rules: vec![Model::LINUX_6_12],
                    cpus: Some(cpus),
                    seconds: Some(0.01),
                    config: Config::default(),
                };
                let (scenario, notes) = scenario_of(load, &wish).unwrap();
                assert!(notes.iter().any(|note| note.starts_with("numbers: ")));
                let report = run(&scenario, &Options::default()).unwrap();
                assert!(!report.has_failed(), "{report:?}");
                assert!(report.counts[&format!("{}, linux-6.12: pages", load.name())] > 0.0);
                report.counts
            };
            assert_ne!(counts(4), counts(2), "{}", load.name());
        }
    }

    /// A CPU may be stopped within a hold, where memory serves one line after the other: who waits for the lock then waits as well.
    #[test]
    fn cpus_wait_for_locks_by_every_table_of_costs() {
        let machine = machine(&["16G,cpus=0-7"]);
        let measured = |load: Load, costs: &str| {
            let wish = LoadWish {
                machine: &machine,
                costs: Some(costs),
                rules: vec![Model::LINUX_6_12],
                cpus: None,
                seconds: Some(0.01),
                config: Config::default(),
            };
            let (scenario, _) = scenario_of(load, &wish).unwrap();
            let report = run(&scenario, &Options::default()).unwrap();
            ["zone_lock_percent", "worst_wait_us", "worst_hold_us"]
                .map(|name| report.counts[&format!("{}, linux-6.12: {name}", load.name())])
        };
        for costs in catalog::cost_names() {
            let [percent, ..] = measured(Load::Fill, costs);
            assert!(percent > 2.0, "{costs}: {percent}");
            for load in [Load::Fill, Load::Build] {
                let [_, wait, hold] = measured(load, costs);
                // A queue of all the others, each with the longest hold.
                assert!(
                    wait <= 8.0 * (hold + 1.0),
                    "{load:?} {costs}: {wait} us, holds of {hold} us"
                );
            }
        }
    }

    #[test]
    fn what_changes_nothing_is_told() {
        let machine = machine(&["1G,cpus=0-3"]);
        let notes = |load, seconds| {
            let wish = LoadWish {
                machine: &machine,
                costs: None,
                rules: vec![Model::NEARPAGE],
                cpus: None,
                seconds: Some(seconds),
                config: Config::default(),
            };
            let (_, notes) = scenario_of(load, &wish).unwrap();
            let has = |text: &str| notes.iter().any(|note| note.contains(text));
            (has("too short"), has("every seed"), has("in no wait"))
        };
        assert_eq!(notes(Load::Fill, 0.01), (true, true, true));
        assert_eq!(notes(Load::Fill, 2.0), (false, true, true));
        assert_eq!(notes(Load::Random, 0.01), (true, false, true));
        assert_eq!(notes(Load::Purge, 0.001), (true, true, true));
        assert_eq!(notes(Load::Build, 0.01), (false, false, true));
    }

    /// A run of a large machine simulates a bounded number of pages, and no smaller pagesets for it.
    #[test]
    fn work_is_bounded_on_large_machines() {
        let large = machine(&["512G,cpus=0-103", "512G,cpus=104-207"]);
        for load in Load::ALL {
            let wish = LoadWish {
                machine: &large,
                costs: None,
                rules: vec![Model::LINUX_6_12],
                cpus: None,
                seconds: None,
                config: Config::default(),
            };
            let (scenario, notes) = scenario_of(load, &wish).unwrap();
            assert!(
                (1..2 * RUN_PAGES).contains(&scenario.pages()),
                "{load:?}: {}",
                scenario.pages()
            );
            let is_told = notes.iter().any(|note| note.contains("the run ends soon"));
            assert_eq!(is_told, load != Load::Build, "{load:?}: {notes:?}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let machine = machine(&["64M,cpus=0"]);
        let wish = LoadWish {
            machine: &machine,
            costs: None,
            rules: vec![Model::NEARPAGE],
            cpus: None,
            seconds: None,
            config: Config::default(),
        };
        let error = scenario_of(Load::Purge, &wish).unwrap_err().to_string();
        assert!(error.contains("two CPUs of one node"), "{error}");
        let error = scenario_of(Load::Fill, &LoadWish { cpus: Some(2), ..wish }).unwrap_err();
        assert!(error.to_string().contains("expected 1 to 1"), "{error}");
    }
}
