//! `nearpage trace twin`: a made-up load on a larger machine, after a recorded one.

use std::fmt::Write;
use std::io;
use std::path::PathBuf;

use clap::Args;
use nearpage_machine::shown;
use nearpage_machine::work::Unwatched;
use nearpage_replay::twin::{Distance, Played, Profile, TwinWish, write_twin_files};
use nearpage_replay::{Bundle, Replay, ReplayError};
use serde::Serialize;

use super::TraceFailure;
use crate::commands::input::{Limit, STANDARD_INPUT, is_standard};
use crate::commands::interrupt::Interruptible;
use crate::commands::progress::Bar;
use crate::commands::{CommandError, print, print_json};
use crate::confined::Rights;
use crate::outputs::{Kind, Output};

/// Write a statistical twin of a recording: a load like it on a machine with more CPUs, nodes or hours
///
/// Each copy of the recorded CPUs plays stretches of the recording, shuffled. Rates, orders, migratetypes, lifetimes and who frees are
/// kept, and bursts shorter than a stretch. No kernel ran: there are no refills and drains to compare with.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(super) struct TwinArgs {
    /// A bundle: a folder with meta.json and trace.txt.zst, or a tar of one; - is standard input; the default is a
    /// small one of a Linux 6.12 that comes with nearpage
    #[arg(value_name = "BUNDLE|-")]
    bundle: Option<PathBuf>,

    /// The folder of the twin, a bundle; there must be none
    #[arg(long, value_name = "FOLDER")]
    output: PathBuf,

    /// CPUs, dealt out over the nodes as recorded [default: the recorded ones for each copy of the nodes]
    #[arg(long)]
    cpus: Option<u32>,

    /// Nodes: a multiple of the recorded ones
    #[arg(long)]
    nodes: Option<u32>,

    /// Length in hours [default: the recording's]
    #[arg(long)]
    hours: Option<f64>,

    /// Length of a stretch in seconds [default: an eighth of the recording, at most 2]
    #[arg(long, value_name = "SECONDS")]
    stretch: Option<f64>,

    /// Of all that is drawn: the same seed makes the same bytes
    #[arg(long, default_value_t = 0)]
    seed: u64,

    /// A second recording of the same load: tell how far that one is, too
    #[arg(long, value_name = "BUNDLE")]
    beside: Option<PathBuf>,

    /// Print JSON instead
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    limit: Limit,
}

impl TwinArgs {
    /// What it needs for its inputs and outputs.
    pub(super) fn rights(&self) -> Rights {
        let inputs = self.bundle.iter().chain(&self.beside);
        Rights::default().reading(inputs).writing(Kind::Folder, [&self.output])
    }
}

const AFTER_HELP: &str = "\
Exit status: 0 written, 1 the twin could not be written, 2 wrong usage or unreadable input, 130 ended by Ctrl-C, and nothing is written.

What is told: figures of both loads, and how far they are apart, 0 being the same. Shares (orders, types, lifetimes): half the sum of
differences, 0 to 1. Rates, bursts, runs: the mean of logarithms of ratios.

JSON (--json): schema; output; played (allocs, frees, bulk_pages, reclaimed, left_out, events); recorded, twin, beside (seconds, cpus,
allocs_per_cpu_second, frees_per_cpu_second, orders[], types[], lifetimes[] up to 10 us, 100 us ... 10 s, longer, past the end,
freed_elsewhere, bursts[] in 1, 10, 100 ms, alloc_run, free_run, frees_of_old); apart, beside_apart (rates, orders, types, lifetimes,
freed_elsewhere, bursts, runs, frees_of_old).

Examples:
  nearpage trace twin --cpus 64 --nodes 8 --output large
  nearpage trace twin gcc.tar.zst --hours 1 --seed 7 --output hour && nearpage replay rules hour";

#[derive(Serialize)]
struct Document {
    schema: u32,
    output: String,
    played: Played,
    recorded: Profile,
    twin: Profile,
    apart: Distance,
    beside: Option<Profile>,
    beside_apart: Option<Distance>,
}

pub(super) fn run(arguments: &TwinArgs) -> Result<(), CommandError> {
    let document = write(arguments)?;
    match arguments.json {
        true => print_json(&document),
        false => print(&text(&document)),
    }
}

fn write(arguments: &TwinArgs) -> Result<Document, TraceFailure> {
    let budget = arguments.limit.budget();
    let replay = match &arguments.bundle {
        None => Replay::shipped(),
        Some(path) if is_standard(path) => {
            Replay::of(Bundle::read(STANDARD_INPUT, io::stdin().lock(), &budget)?)?
        }
        Some(path) => Replay::open(path, &budget)?,
    };
    let beside = arguments.beside.as_ref().map(|path| Replay::open(path, &budget)).transpose()?;
    let unwritten =
        |error| ReplayError::Unwritten { output: shown(&arguments.output).to_string(), error };
    let (output, _) = Output::begun(Kind::Folder, &arguments.output).map_err(unwritten)?;
    let wish = TwinWish {
        cpus: arguments.cpus,
        nodes: arguments.nodes,
        seconds: arguments.hours.map(|hours| hours * 3600.0),
        stretch_seconds: arguments.stretch,
        seed: arguments.seed,
    };
    let observer = Interruptible::begin(Bar::percent("twin")).map_err(TraceFailure::Signals)?;
    let recorded = Profile::of(&replay, &observer)?;
    let path = &arguments.output;
    let create = |name: &str| output.add(name);
    let played = write_twin_files(&replay, &wish, path, &create, &observer)?;
    drop(observer);
    output.keep().map_err(unwritten)?;
    // It is written: what is left is short, and tells of it.
    let twin = Profile::of(&Replay::open(path, &budget)?, &Unwatched)?;
    let beside = beside.map(|replay| Profile::of(&replay, &Unwatched)).transpose()?;
    Ok(Document {
        schema: 1,
        output: shown(&arguments.output).to_string(),
        played,
        apart: recorded.distance(&twin),
        beside_apart: beside.as_ref().map(|beside| recorded.distance(beside)),
        recorded,
        twin,
        beside,
    })
}

/// A line of a table: its name, and what it shows of a column.
type Figure<T> = (&'static str, fn(&T) -> f64);

fn text(document: &Document) -> String {
    let Document { output, played, recorded, twin, apart, beside, beside_apart, .. } = document;
    let Played { allocs, frees, bulk_pages, reclaimed, left_out, .. } = played;
    let mut out =
        format!("{output}: {allocs} blocks allocated, {frees} freed, {bulk_pages} pages in bulk\n");
    if *reclaimed > 0 {
        let _ = writeln!(
            out,
            "{reclaimed} of the frees are of blocks that the recording kept: memory was full"
        );
    }
    if *left_out > 0 {
        let _ = writeln!(
            out,
            "{left_out} allocations were left out: memory was full of blocks that live on"
        );
    }
    let second = if beside.is_some() { "    beside" } else { "" };
    let _ = writeln!(out, "\n{:<24} {:>10} {:>10}{second}", "", "recorded", "twin");
    let figures: [Figure<Profile>; 10] = [
        ("seconds", |of| of.seconds),
        ("CPUs", |of| of.cpus as f64),
        ("allocations/s, a CPU", |of| of.allocs_per_cpu_second),
        ("frees/s, a CPU", |of| of.frees_per_cpu_second),
        ("order 0, %", |of| of.orders[0] * 100.0),
        ("movable, %", |of| of.types[1] * 100.0),
        ("live past the end, %", |of| of.lifetimes.last().map_or(0.0, |share| share * 100.0)),
        ("freed elsewhere, %", |of| of.freed_elsewhere * 100.0),
        ("bursts in 10 ms", |of| of.bursts[1]),
        ("allocations in a row", |of| of.alloc_run),
    ];
    let columns: Vec<&Profile> = [recorded, twin].into_iter().chain(beside).collect();
    for (name, figure) in figures {
        let _ = write!(out, "{name:<24}");
        for column in &columns {
            let _ = write!(out, " {:>10.2}", figure(column));
        }
        out.push('\n');
    }
    let second = if beside.is_some() { "    beside" } else { "" };
    let _ = writeln!(out, "\n{:<24} {:>10} {:>10}{second}", "apart from recorded", "", "twin");
    let figures: [Figure<Distance>; 8] = [
        ("rates", |of| of.rates),
        ("orders", |of| of.orders),
        ("types", |of| of.types),
        ("lifetimes", |of| of.lifetimes),
        ("freed elsewhere", |of| of.freed_elsewhere),
        ("bursts", |of| of.bursts),
        ("runs", |of| of.runs),
        ("frees of old blocks", |of| of.frees_of_old),
    ];
    for (name, figure) in figures {
        let _ = write!(out, "{name:<24} {:>10} {:>10.3}", "", figure(apart));
        if let Some(beside) = beside_apart {
            let _ = write!(out, " {:>10.3}", figure(beside));
        }
        out.push('\n');
    }
    out
}
