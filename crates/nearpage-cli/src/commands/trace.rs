//! `nearpage trace`: traces for other tools, and twins.

mod summary;
mod twin;

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{ArgGroup, Args, Subcommand};
use nearpage_machine::{Budget, read_within, shown};
use nearpage_replay::{Bundle, ReplayError};
use nearpage_report::file::WriteError;
use nearpage_trace::timeline::{Counted, Format, Timeline};
use nearpage_trace::{
    Symbols, TraceCounts, TraceError, TraceEvent, read_trace_with_frames, unpacked,
};
use serde::Serialize;

use super::input::{Limit, STANDARD_INPUT, is_standard, page_file};
use super::interrupt::Interruptible;
use super::progress::Bar;
use super::{CommandError, print, print_json};
use crate::confined::Rights;
use crate::outputs::{Kind, Output};

/// Write traces of the page allocator for other tools, or of loads like a recorded one.
#[derive(Args, Debug)]
pub struct TraceArgs {
    #[command(subcommand)]
    action: Action,
}

impl TraceArgs {
    /// What it needs for its inputs and outputs.
    pub(super) fn rights(&self) -> Rights {
        let rights = match &self.action {
            Action::Export(arguments) => Rights::default()
                .reading(arguments.bundle.iter().chain(&arguments.trace))
                .reading(&arguments.names.symbols)
                .writing(Kind::Page, arguments.perfetto.iter().chain(&arguments.chrome)),
            Action::Twin(arguments) => arguments.rights(),
            Action::Summary(arguments) => arguments.rights(),
        };
        rights.unpacking()
    }
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Write a timeline: pages, refills, drains, marks of zones and stalls as tracks
    Export(ExportArgs),
    Twin(twin::TwinArgs),
    Summary(summary::SummaryArgs),
}

/// `nearpage trace export`.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER_HELP)]
#[command(group(ArgGroup::new("outputs").required(true).multiple(true)))]
struct ExportArgs {
    /// A bundle: a folder with meta.json and trace.txt.zst, or a tar of one; - is standard input; the default is a
    /// small one of a Linux 6.12 that comes with nearpage
    #[arg(value_name = "BUNDLE|-")]
    bundle: Option<PathBuf>,

    /// Read this trace instead of the bundle's, or without a bundle alone: ftrace's trace file, trace-cmd report, perf
    /// script, trace.dat or perf.data
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Write Perfetto's protobuf, for ui.perfetto.dev
    #[arg(long, value_name = "OUT|-", group = "outputs")]
    perfetto: Option<PathBuf>,

    /// Write JSON of Chrome's trace events
    #[arg(long, value_name = "OUT|-", group = "outputs")]
    chrome: Option<PathBuf>,

    #[command(flatten)]
    names: Names,

    /// Print what was written as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    limit: Limit,
}

/// `--symbols`.
#[derive(Args, Debug)]
struct Names {
    /// Names for addresses in call chains, where the trace has none: a copy of /proc/kallsyms of its machine since that boot
    #[arg(long, value_name = "FILE")]
    symbols: Option<PathBuf>,
}

impl Names {
    /// Reads them; none are there without the option.
    fn read(&self, budget: &Budget) -> Result<Arc<Symbols>, CommandError> {
        let Some(path) = &self.symbols else { return Ok(Arc::default()) };
        let text = File::open(path).and_then(|file| read_within(file, budget.file_bytes));
        let text = text.map_err(|source| {
            let input = shown(path).to_string();
            TraceFailure::Trace(TraceError::Unreadable { input, offset: 0, source })
        })?;
        let symbols = Symbols::read(text);
        if symbols.is_empty() {
            let problem = format!(
                "--symbols {}: no function has an address: /proc/kallsyms shows them to root alone (lines as `ffffffff8120a1b0 T get_page_from_freelist`)",
                shown(path)
            );
            return Err(CommandError::Usage(problem));
        }
        Ok(Arc::new(symbols))
    }
}

const AFTER_HELP: &str = "\
Exit status: 0 written, 1 an output could not be written, 2 wrong usage or unreadable input, 130 ended by Ctrl-C.

Tracks: pages, refills, drains, bulk allocations and refusals of each CPU; of each zone the pages taken since the start,
and free pages, min, low and high whenever zoneinfo was read; waits of each task for reclaim and compaction, if those
events were traced; markers. Events of objects are left out. Times are those of the trace.

JSON (--json): schema; events; outputs[] with path, format, and counts: packets, tracks, instants, slices, values,
allocs, frees, refills, refilled_blocks, drains, drained_blocks, bulks, stalls, refused, markers, left_out.

Examples:
  nearpage trace export --perfetto out.perfetto-trace
  nearpage trace export --trace perf.data --chrome out.json";

/// The timeline was not written.
#[derive(Debug, thiserror::Error)]
pub enum TraceFailure {
    /// The bundle or its trace cannot be read, or reading was stopped.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The trace alone cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// An output cannot be written.
    #[error("cannot write {path}: {error}")]
    Write {
        /// The output.
        path: String,
        /// What the system says.
        #[source]
        error: io::Error,
    },
    /// Signals cannot be caught.
    #[error("cannot catch signals: {0}")]
    Signals(#[source] io::Error),
}

impl TraceFailure {
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            TraceFailure::Replay(ReplayError::Stopped(_)) => super::interrupt::INTERRUPTED,
            TraceFailure::Replay(ReplayError::Unwritten { .. }) => 1,
            TraceFailure::Replay(_) | TraceFailure::Trace(_) => 2,
            TraceFailure::Write { .. } | TraceFailure::Signals(_) => 1,
        }
    }
}

/// Runs the command.
///
/// # Errors
///
/// The input cannot be read, or an output cannot be written.
pub fn run(arguments: &TraceArgs) -> Result<(), CommandError> {
    let arguments = match &arguments.action {
        Action::Export(arguments) => arguments,
        Action::Twin(arguments) => return twin::run(arguments),
        Action::Summary(arguments) => return summary::run(arguments),
    };
    let outputs = check(arguments)?;
    let symbols = arguments.names.read(&arguments.limit.budget())?;
    Ok(export(arguments, &symbols, outputs)?).and_then(|document| tell(arguments, &document))
}

/// Refuses outputs that would replace an input or each other. Gives them, and `None` for standard output.
fn check(arguments: &ExportArgs) -> Result<Vec<Option<Output>>, CommandError> {
    let outputs: Vec<&Path> = [&arguments.perfetto, &arguments.chrome]
        .into_iter()
        .flatten()
        .map(PathBuf::as_path)
        .collect();
    let places: Vec<PathBuf> = outputs.iter().map(|path| place(path)).collect();
    if let [first, second] = &places[..]
        && first == second
    {
        return Err(CommandError::Usage(
            "--perfetto and --chrome name the same output: each needs one of its own".into(),
        ));
    }
    if arguments.json && outputs.iter().any(|path| is_standard(path)) {
        return Err(CommandError::Usage(
            "--json prints on standard output, where the timeline goes: give the timeline a file"
                .into(),
        ));
    }
    let output = |path: &Path| {
        if is_standard(path) {
            return Ok(None);
        }
        let inputs =
            [&arguments.bundle, &arguments.trace].into_iter().flatten().map(PathBuf::as_path);
        match page_file(path, inputs) {
            Ok(output) => Ok(Some(output)),
            Err(WriteError::Unwritable { path, source: error }) => {
                Err(TraceFailure::Write { path, error }.into())
            }
            Err(error) => Err(error.into()),
        }
    };
    outputs.into_iter().map(output).collect()
}

/// Where a path leads to, whatever it is called: behind links where it is there, else in its folder.
fn place(path: &Path) -> PathBuf {
    if is_standard(path) {
        return path.into();
    }
    let in_folder = || {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = fs::canonicalize(folder.unwrap_or(Path::new("."))).ok()?;
        Some(folder.join(path.file_name()?))
    };
    fs::canonicalize(path).ok().or_else(in_folder).unwrap_or_else(|| path.into())
}

#[derive(Serialize)]
struct Document {
    schema: u32,
    events: u64,
    outputs: Vec<Written>,
}

#[derive(Serialize)]
struct Written {
    path: String,
    format: &'static str,
    counts: Counted,
}

fn export(
    arguments: &ExportArgs,
    symbols: &Arc<Symbols>,
    outputs: Vec<Option<Output>>,
) -> Result<Document, TraceFailure> {
    let named = [
        (&arguments.perfetto, Format::Perfetto, "perfetto"),
        (&arguments.chrome, Format::Chrome, "chrome"),
    ];
    let named: Vec<_> = named
        .into_iter()
        .filter_map(|(path, format, name)| Some((path.as_ref()?, format, name)))
        .collect();
    let budget = arguments.limit.budget();
    let bundle = match (&arguments.bundle, &arguments.trace) {
        (None, Some(_)) => None,
        (None, None) => Some(Bundle::shipped()),
        (Some(path), trace) => {
            let bundle = match is_standard(path) {
                true => Bundle::read(STANDARD_INPUT, io::stdin().lock(), &budget)?,
                false => Bundle::open(path, &budget)?,
            };
            Some(match trace {
                Some(trace) => bundle.with_trace(trace)?,
                None => bundle,
            })
        }
    };
    let zones = bundle.as_ref().map(Bundle::zone_frames).transpose()?.unwrap_or_default();
    let mut timelines = Vec::new();
    for ((path, format, _), output) in named.iter().zip(&outputs) {
        let timeline =
            opened_output(output.as_ref()).and_then(|to| Timeline::new(*format, to, zones.clone()));
        let timeline = timeline.map_err(|error| failed(path, error))?;
        timelines.push(timeline.with_symbols(Arc::clone(symbols)));
    }
    let counts = match (&bundle, &arguments.trace) {
        (Some(bundle), _) => {
            let observer =
                Interruptible::begin(Bar::percent("read")).map_err(TraceFailure::Signals)?;
            bundle.draw(&mut timelines, &observer)?
        }
        (None, Some(path)) => draw_alone(path, &budget, &mut timelines)?,
        (None, None) => unreachable!("without a trace there is a bundle"),
    };
    let mut written = Vec::new();
    for ((timeline, (path, _, format)), output) in timelines.into_iter().zip(named).zip(outputs) {
        let kept = timeline.finish().and_then(|(counts, mut to)| {
            to.flush()?;
            output.map_or(Ok(()), |output| output.keep())?;
            Ok(counts)
        });
        let counts = kept.map_err(|error| failed(path, error))?;
        written.push(Written { path: shown(path).to_string(), format, counts });
    }
    Ok(Document { schema: 1, events: counts.events, outputs: written })
}

fn draw_alone(
    path: &Path,
    budget: &Budget,
    timelines: &mut [Timeline<BufWriter<Box<dyn Write>>>],
) -> Result<TraceCounts, TraceFailure> {
    let (name, text) = opened(path, budget)?;
    let timelines = RefCell::new(timelines);
    let each = |event: &TraceEvent<'_>| {
        timelines.borrow_mut().iter_mut().for_each(|timeline| timeline.event(event));
        Ok::<(), TraceError>(())
    };
    Ok(read_trace_with_frames(&name, text, each, |line| {
        timelines.borrow_mut().iter_mut().for_each(|timeline| timeline.frame(line));
    })?)
}

/// The name and the text of a trace alone: of a file, or of standard input.
fn opened(path: &Path, budget: &Budget) -> Result<(String, Box<dyn io::Read>), TraceError> {
    let name = if is_standard(path) { STANDARD_INPUT.to_owned() } else { shown(path).to_string() };
    let packed: io::Result<Box<dyn io::Read>> = match is_standard(path) {
        true => Ok(Box::new(io::stdin().lock())),
        false => File::open(path).map(|file| Box::new(file) as _),
    };
    match packed.and_then(|packed| unpacked(packed, budget)) {
        Ok(text) => Ok((name, text)),
        Err(source) => Err(TraceError::Unreadable { input: name, offset: 0, source }),
    }
}

fn failed(path: &Path, error: io::Error) -> TraceFailure {
    let path = if is_standard(path) { "standard output".into() } else { shown(path).to_string() };
    TraceFailure::Write { path, error }
}

fn tell(arguments: &ExportArgs, document: &Document) -> Result<(), CommandError> {
    if arguments.json {
        return print_json(document);
    }
    let is_out = [&arguments.perfetto, &arguments.chrome]
        .into_iter()
        .flatten()
        .any(|path| is_standard(path));
    if is_out {
        // The timeline itself is there.
        return Ok(());
    }
    let mut text = String::new();
    for Written { path, counts, .. } in &document.outputs {
        use std::fmt::Write as _;
        let Counted { packets, tracks, instants, slices, values, left_out, .. } = counts;
        let _ = writeln!(
            text,
            "{path}: {packets} packets: {tracks} tracks, {instants} instants, {slices} slices, {values} values of counters; {} events, {left_out} of them on no track",
            document.events
        );
    }
    print(&text)
}

/// Where a timeline is written to.
fn opened_output(output: Option<&Output>) -> io::Result<BufWriter<Box<dyn Write>>> {
    Ok(BufWriter::new(match output {
        Some(output) => Box::new(output.begin()?),
        None => Box::new(io::stdout()),
    }))
}
