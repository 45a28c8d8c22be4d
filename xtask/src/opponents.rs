//! `cargo xtask opponents`: loads that are made to be hard for rules of pagesets, as traces on the machine of the bundle that
//! comes along, and what `nearpage replay rules` finds for them.
//!
//! Each load is a pattern with parameters: how many pages move, how often. The worst of each pattern, by the ratio to the bound,
//! is what counts; its trace stays in `target/opponents`.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use fastrand::Rng;
use serde_json::Value;

/// The random orders are the same each time.
const SEED: u64 = 44;
/// The bundle whose machine the loads run on: two nodes with two CPUs each.
const BUNDLE: &str = "bundles/q612-n2-mixed.tar.zst";
/// CPUs of the machine.
const CPUS: u64 = 4;
/// When a load begins, in microseconds of the trace's clock.
const START_US: u64 = 15_600_000;
/// The first frame of the loads, and how many there are.
const FIRST_PFN: u64 = 0x4000;
const FRAMES: u64 = 120_000;
/// Most events of a trace: longer ones end earlier.
const EVENTS_MAX: u64 = 250_000;

#[derive(clap::Args)]
/// Play loads that are made to be hard for rules of pagesets, and tell the worst: a minute
pub struct OpponentsArgs {
    /// Rules to play against
    #[arg(long, default_values = ["linux-6.18", "nearpage"])]
    model: Vec<String>,
}

#[derive(thiserror::Error, Debug)]
pub enum OpponentsError {
    #[error("{what}: {error}")]
    Io { what: String, error: io::Error },
    #[error("nearpage replay rules failed:\n{0}")]
    Failed(String),
    #[error("what nearpage replay rules printed is not its JSON: {0}")]
    Json(serde_json::Error),
}

fn failed(what: impl Into<String>) -> impl FnOnce(io::Error) -> OpponentsError {
    let what = what.into();
    move |error| OpponentsError::Io { what, error }
}

/// A page that comes or goes.
#[derive(Clone, Copy)]
struct Event {
    us: u64,
    cpu: u64,
    page: u64,
    is_free: bool,
}

/// A load.
struct Load {
    name: String,
    events: Vec<Event>,
}

/// Pages that CPUs take and give back.
#[derive(Default)]
struct Script {
    events: Vec<Event>,
}

impl Script {
    /// A CPU takes, or frees, `pages` pages from `first` on, one each `step_us` microseconds.
    fn burst(
        &mut self,
        us: u64,
        cpu: u64,
        first: u64,
        pages: u64,
        (is_free, step_us): (bool, u64),
    ) {
        let page = |at| Event { us: us + at * step_us, cpu, page: first + at, is_free };
        self.events.extend((0..pages).map(page));
    }

    fn load(mut self, name: String) -> Load {
        self.events.sort_by_key(|event| event.us);
        Load { name, events: self.events }
    }
}

const TAKE: (bool, u64) = (false, 1);
const FREE: (bool, u64) = (true, 1);

/// Rounds of so many events each that a trace has room for, and no more than 3 seconds of them.
fn rounds(period_us: u64, events: u64) -> u64 {
    (EVENTS_MAX / events).min(3_000_000 / period_us).max(2)
}

/// All loads.
fn loads() -> Vec<Load> {
    let mut loads = Vec::new();
    for pages in [300, 1100, 2100, 4200, 9000, 17_000] {
        for period_us in [12_000, 31_000, 36_000, 70_000, 300_000] {
            if period_us > 3 * pages {
                loads.push(sawtooth(pages, period_us));
                loads.push(alternating(pages, period_us));
                loads.push(exits(pages / 2, period_us));
            }
        }
        for every_us in [4, 12, 50] {
            loads.push(one_way(pages, every_us));
            loads.push(purgers(pages, every_us));
        }
        for every_us in [1, 8] {
            loads.push(replacing(pages, every_us));
        }
        for period_us in [12_000, 70_000, 300_000] {
            if period_us > 3 * pages {
                loads.push(random_frees(pages, period_us));
            }
        }
        loads.push(process_exit(pages));
        loads.push(idle(pages));
    }
    loads.push(random_frees(50_000, 300_000));
    loads.push(process_exit(50_000));
    loads
}

/// A CPU of each node takes pages and frees them.
fn sawtooth(pages: u64, period_us: u64) -> Load {
    let mut script = Script::default();
    for round in 0..rounds(period_us, 4 * pages) {
        for (cpu, first) in [(0, 0), (2, FRAMES / 2)] {
            let us = round * period_us;
            script.burst(us, cpu, first, pages, TAKE);
            script.burst(us + period_us / 2, cpu, first, pages, FREE);
        }
    }
    script.load(format!("sawtooth-{pages}-{period_us}us"))
}

/// Two CPUs of a node take what the other one frees, in turns.
fn alternating(pages: u64, period_us: u64) -> Load {
    let mut script = Script::default();
    for round in 0..rounds(period_us, 2 * pages) {
        let us = round * period_us;
        script.burst(us, round % 2, 0, pages, TAKE);
        script.burst(us + period_us / 2, (round + 1) % 2, 0, pages, FREE);
    }
    script.load(format!("alternating-{pages}-{period_us}us"))
}

/// All CPUs free at once what they took one after the other.
fn exits(pages: u64, period_us: u64) -> Load {
    let mut script = Script::default();
    for round in 0..rounds(period_us, 2 * CPUS * pages) {
        for cpu in 0..CPUS {
            let us = round * period_us;
            script.burst(us + cpu, cpu, cpu * FRAMES / CPUS, pages, TAKE);
            // Another CPU's pages, as a task that has moved frees them.
            let of = (cpu + round) % CPUS;
            script.burst(us + period_us / 2 + cpu, cpu, of * FRAMES / CPUS, pages, FREE);
        }
    }
    script.load(format!("exits-{pages}-{period_us}us"))
}

/// One CPU takes, another one frees, `window` pages behind.
fn one_way(window: u64, every_us: u64) -> Load {
    let mut script = Script::default();
    for at in 0..(EVENTS_MAX / 2).min(2_000_000 / every_us) {
        let page = |at: u64| at % (2 * window);
        script.burst(at * every_us, 0, page(at), 1, TAKE);
        if let Some(before) = at.checked_sub(window) {
            script.burst(at * every_us + 1, 1, page(before), 1, FREE);
        }
    }
    script.load(format!("one-way-{window}-{every_us}us"))
}

/// All CPUs but one take; that one frees what waited, `window` pages at a time.
fn purgers(window: u64, every_us: u64) -> Load {
    let mut script = Script::default();
    let takers = CPUS - 1;
    for at in 0..(EVENTS_MAX / 2).min(2_000_000 / every_us) {
        script.burst(at * every_us, at % takers, at % (2 * window), 1, TAKE);
        if (at + 1) % window == 0 {
            script.burst(
                at * every_us + 1,
                CPUS - 1,
                (at + 1 - window) % (2 * window),
                window,
                (true, 0),
            );
        }
    }
    script.load(format!("purger-{window}-{every_us}us"))
}

/// A CPU of each node takes pages, and frees them in random order.
fn random_frees(pages: u64, period_us: u64) -> Load {
    let mut script = Script::default();
    let mut rng = Rng::with_seed(SEED);
    for round in 0..rounds(period_us, 4 * pages) {
        for (cpu, first) in [(0, 0), (2, FRAMES / 2)] {
            let us = round * period_us;
            script.burst(us, cpu, first, pages, TAKE);
            let mut order: Vec<u64> = (first..first + pages).collect();
            rng.shuffle(&mut order);
            for (at, page) in (us + period_us / 2..).zip(order) {
                script.burst(at, cpu, page, 1, FREE);
            }
        }
    }
    script.load(format!("random-frees-{pages}-{period_us}us"))
}

/// A CPU holds pages, and again and again frees one, chosen at random, and takes another one.
fn replacing(pages: u64, every_us: u64) -> Load {
    let mut script = Script::default();
    let mut rng = Rng::with_seed(SEED);
    script.burst(0, 0, 0, pages, TAKE);
    let mut held: Vec<u64> = (0..pages).collect();
    // What is taken is what was freed longest ago, so that pages come back in no order.
    let mut others: VecDeque<u64> = (pages..2 * pages).collect();
    for at in 0..((EVENTS_MAX - pages) / 2).min(2_000_000 / every_us) {
        let us = pages + at * every_us;
        let page = &mut held[rng.usize(..pages as usize)];
        script.burst(us, 0, *page, 1, FREE);
        others.push_back(*page);
        *page = others.pop_front().expect("there are as many others as pages");
        script.burst(us, 0, *page, 1, TAKE);
    }
    script.load(format!("replacing-{pages}-{every_us}us"))
}

/// A process fills pages, and exits: its CPU frees all of them at once, the first one first. The next process runs on the other
/// CPU of the node.
fn process_exit(pages: u64) -> Load {
    let period_us = 4 * pages;
    let mut script = Script::default();
    for round in 0..rounds(period_us, 2 * pages) {
        let us = round * period_us;
        script.burst(us, round % 2, 0, pages, TAKE);
        script.burst(us + 2 * pages, round % 2, 0, pages, (true, 0));
    }
    script.load(format!("process-exit-{pages}"))
}

/// A CPU frees a burst and goes idle, while another one takes as much, again and again.
fn idle(pages: u64) -> Load {
    let mut script = Script::default();
    for round in 0..rounds(700_000, 4 * pages) {
        let us = round * 700_000;
        script.burst(us, 0, 0, pages, TAKE);
        script.burst(us + 50_000, 0, 0, pages, FREE);
        script.burst(us + 350_000, 1, pages, pages, TAKE);
        script.burst(us + 400_000, 1, pages, pages, FREE);
    }
    script.load(format!("idle-{pages}"))
}

/// The trace as the kernel writes it.
fn trace(load: &Load) -> String {
    let end_us = load.events.last().map_or(0, |event| event.us);
    let mut lines = String::new();
    let mut count = 0;
    let mut line = |us: u64, cpu: u64, text: &str| {
        let (seconds, rest) = (us / 1_000_000, us % 1_000_000);
        _ = writeln!(
            lines,
            "            load-315     [{cpu:03}] ..... {seconds:5}.{rest:06}: {text}"
        );
        count += 1;
    };
    let mark = |text: &str| format!("tracing_mark_write: nearpage: {text}");
    for (before_us, text) in
        [(90_000, "before begin"), (50_000, "before end"), (30_000, "cmd begin")]
    {
        line(START_US - before_us, 0, &mark(text));
    }
    for event in &load.events {
        let pfn = FIRST_PFN + event.page;
        let what = match event.is_free {
            true => format!("mm_page_free: page=0xffd4{:012x} pfn=0x{pfn:x} order=0", pfn * 64),
            false => format!(
                "mm_page_alloc: page=0xffd4{:012x} pfn=0x{pfn:x} order=0 migratetype=1 \
                 gfp_flags=GFP_HIGHUSER_MOVABLE|__GFP_COMP|__GFP_ZERO",
                pfn * 64
            ),
        };
        line(START_US + event.us, event.cpu, &what);
    }
    let ends = ["cmd end rc=0", "cmdend begin", "cmdend end", "after begin", "after end"];
    for (text, after_us) in ends.into_iter().zip((1..).map(|step| step * 10_000)) {
        line(START_US + end_us + after_us, 0, &mark(text));
    }
    format!(
        "# tracer: nop\n#\n# entries-in-buffer/entries-written: {count}/{count}   #P:{CPUS}\n#\n{lines}"
    )
}

/// Unpacks the bundle that comes along.
fn unpack(root: &Path, into: &Path) -> Result<PathBuf, OpponentsError> {
    let path = root.join(BUNDLE);
    let file = fs::File::open(&path).map_err(failed(BUNDLE))?;
    let decoder = ruzstd::decoding::StreamingDecoder::new(file).map_err(|error| {
        OpponentsError::Io { what: BUNDLE.into(), error: io::Error::other(error) }
    })?;
    tar::Archive::new(decoder).unpack(into).map_err(failed(BUNDLE))?;
    Ok(into.join("q612-n2-mixed"))
}

/// Writes a load as a bundle: the machine's, with another trace.
fn write(machine: &Path, folder: &Path, load: &Load) -> Result<PathBuf, OpponentsError> {
    let path = folder.join(&load.name);
    for snapshot in ["before", "after"] {
        copy_folder(&machine.join(snapshot), &path.join(snapshot)).map_err(failed(snapshot))?;
    }
    let text = fs::read_to_string(machine.join("meta.json")).map_err(failed("meta.json"))?;
    let mut meta: Value = serde_json::from_str(&text).map_err(OpponentsError::Json)?;
    if let Some(meta) = meta.as_object_mut() {
        for key in ["per_cpu", "event_counts", "event_lines", "trace_bytes"] {
            meta.remove(key);
        }
        meta.insert("name".into(), load.name.clone().into());
    }
    fs::write(path.join("meta.json"), meta.to_string()).map_err(failed("meta.json"))?;
    fs::write(path.join("trace.txt"), trace(load)).map_err(failed("trace.txt"))?;
    Ok(path)
}

fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy_folder(&entry.path(), &to)?,
            false => _ = fs::copy(entry.path(), to)?,
        }
    }
    Ok(())
}

/// What the program finds for all of them.
fn compare(root: &Path, bundles: &[PathBuf], models: &[String]) -> Result<Value, OpponentsError> {
    let output = Command::new("cargo")
        .args(["run", "--quiet", "--release", "--package", "nearpage-cli", "--"])
        .args(["replay", "rules", "--json"])
        .args(bundles)
        .args(models.iter().flat_map(|model| ["--model", model]))
        .current_dir(root)
        .output()
        .map_err(failed("cargo"))?;
    // 1: a must is missed.
    if !matches!(output.status.code(), Some(0 | 1)) {
        return Err(OpponentsError::Failed(String::from_utf8_lossy(&output.stderr).into()));
    }
    serde_json::from_slice(&output.stdout).map_err(OpponentsError::Json)
}

pub fn run(arguments: &OpponentsArgs) -> Result<(), OpponentsError> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folder = root.join("target/opponents");
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(failed("target/opponents")(error));
        }
        _ => {}
    }
    let scratch = tempfile::tempdir().map_err(failed("a temporary folder"))?;
    let machine = unpack(&root, scratch.path())?;
    let loads = loads();
    let bundles: Vec<PathBuf> =
        loads.iter().map(|load| write(&machine, &folder, load)).collect::<Result<_, _>>()?;
    let document = compare(&root, &bundles, &arguments.model)?;
    print!("{}", table(&document, &arguments.model));
    Ok(())
}

/// The worst load of each pattern under each model.
fn table(document: &Value, models: &[String]) -> String {
    let rows: Vec<&Value> = document["rows"].as_array().into_iter().flatten().collect();
    let pattern = |row: &Value| {
        let name = row["bundle"].as_str().unwrap_or_default();
        name.split_once(|c: char| c.is_ascii_digit())
            .map_or(name, |(start, _)| start)
            .trim_end_matches('-')
            .to_owned()
    };
    let mut patterns: Vec<String> = rows.iter().map(|row| pattern(row)).collect();
    patterns.sort();
    patterns.dedup();
    let ratio = |row: &Value| row["bound_ratio"].as_f64().unwrap_or_default();
    let mut text = format!(
        "{:<12} {:<14} {:>5} {:>8} {:>7} {:>8} {:>10}  worst load\n",
        "pattern", "model", "loads", "bound", "holds", "longest", "kept"
    );
    for pattern_name in &patterns {
        for model in models {
            let of: Vec<&&Value> = rows
                .iter()
                .filter(|row| row["model"] == **model && pattern(row) == *pattern_name)
                .collect();
            let Some(worst) = of.iter().max_by(|a, b| ratio(a).total_cmp(&ratio(b))) else {
                continue;
            };
            let longest = of
                .iter()
                .filter_map(|row| row["longest_hold_operations"].as_u64())
                .max()
                .unwrap_or(0);
            _ = writeln!(
                text,
                "{pattern_name:<12} {model:<14} {:>5} {:>8.2} {:>7} {longest:>8} {:>10.0}  {}",
                of.len(),
                ratio(worst),
                worst["holds"],
                worst["kept_pages_mean"].as_f64().unwrap_or_default(),
                worst["bundle"].as_str().unwrap_or_default(),
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A page is taken before it is freed, and not taken twice: a trace that says otherwise is no load.
    #[test]
    fn pages_come_and_go_in_turns() {
        let loads = [
            sawtooth(300, 12_000),
            alternating(300, 12_000),
            exits(150, 12_000),
            one_way(300, 50),
            purgers(300, 50),
            random_frees(300, 12_000),
            replacing(300, 8),
            process_exit(300),
            idle(300),
        ];
        for load in loads {
            let mut taken = BTreeSet::new();
            for event in &load.events {
                let is_new = match event.is_free {
                    true => taken.remove(&event.page),
                    false => taken.insert(event.page),
                };
                assert!(is_new && event.page < FRAMES && event.cpu < CPUS, "{}", load.name);
            }
            let text = trace(&load);
            let lines = text.lines().filter(|line| line.contains("mm_page_")).count();
            assert!(lines == load.events.len() && lines > 500, "{}", load.name);
        }
    }

    /// What the loads are called for: frees in no order, and pages of which each is as likely to go.
    #[test]
    fn random_loads_are_in_no_order_and_an_exit_is_at_once() {
        let frees = |load: &Load| {
            let frees = load.events.iter().filter(|event| event.is_free && event.cpu < 2);
            frees.map(|event| (event.us, event.page)).collect::<Vec<_>>()
        };
        let is_sorted = |load: &Load| frees(load).is_sorted_by_key(|&(_, page)| page);
        let random = random_frees(300, 12_000);
        let first: Vec<_> = frees(&random).into_iter().take(300).map(|(_, page)| page).collect();
        assert_eq!(first.iter().collect::<BTreeSet<_>>().len(), 300, "each page once a round");
        assert!(!first.is_sorted());
        let replaced = replacing(300, 8);
        let pages: BTreeSet<u64> = frees(&replaced).iter().map(|&(_, page)| page).collect();
        assert!(!is_sorted(&replaced) && pages.len() == 600, "{}", pages.len());
        let mut held = 0_i64;
        let counts = replaced.events.iter().map(|event| {
            held += if event.is_free { -1 } else { 1 };
            held
        });
        assert!(counts.skip(300).all(|held| (299..=300).contains(&held)));
        let exit = frees(&process_exit(300));
        assert_eq!(exit.len() % 300, 0);
        for process in exit.chunks(300) {
            assert!(process.iter().all(|&(us, _)| us == process[0].0));
            assert!(process.is_sorted());
        }
    }
}
