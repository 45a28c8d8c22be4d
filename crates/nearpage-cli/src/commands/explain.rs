//! `nearpage explain`: why a kernel refused memory, out of its log.

mod text;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use nearpage_explain::{Explanation, ReadError, Reader};
use nearpage_kcore::Kernel;
use nearpage_machine::shown;
use nearpage_report::Origin;
use nearpage_report::explain::ExplainPage;
use serde::Serialize;

use super::input::{self, STANDARD, STANDARD_INPUT};
use super::{CommandError, write_output};

/// Say why a kernel refused memory: read page allocation failures, OOM reports, stalls and SLUB failures in its log.
///
/// Each report is judged by the rules of the page allocator on the numbers that it has: which rule refused, zone by
/// zone, and what would have helped.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub struct ExplainArgs {
    /// The log: what dmesg, journalctl -k, journalctl -o export or a console printed; - is standard input
    #[arg(value_name = "FILE|-", default_value = STANDARD)]
    log: PathBuf,

    /// Read the log out of an image of a kernel's memory: /proc/kcore, or an ELF dump of QEMU, libvirt or kdump
    #[arg(long, value_name = "FILE", conflicts_with = "log")]
    vmcore: Option<PathBuf>,

    /// Print one JSON object; --help says what is in it
    #[arg(long)]
    json: bool,

    /// Write a page of HTML with the first reports of each kind
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
Exit status: 0 the log was read, with or without reports, 1 the output could not be written, 2 wrong usage or
unreadable input. A log that breaks off is explained as far as it goes.

The log is read as it comes: 1 GB takes no more memory than 1 MB. Times, hosts, priorities and callers in front of
lines are taken off. Lines of reports that are mixed are sorted by caller where the kernel prints it, else by
what a report can still have. Of reports that are alike (process, order, flags, rule) the text shows the first in
full and counts the others; of more than 4096 kinds it counts the rest.

JSON (--json):
  schema                 1
  source                 the file
  reports[]              report: what the kernel printed, sizes in KiB
                         verdict: rule (watermark, lowmem_reserve, highatomic_reserve, no_block,
                           order_too_large, memcg, passes, unknown), node, zone, confined_by (by: kind, policy,
                           this_node, cpuset; elsewhere; hidden_pages), rights, zones[] (pages), no_progress (KiB)
                         remedies[]: change, helps (yes, no, unknown), amount, text
                         unknown[]: what the report does not tell
  lines                  lines read
  error                  why reading ended before the log did; null if it did not";

/// A log could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ExplainFailure {
    /// It cannot be opened.
    #[error("cannot read {path}: {source}")]
    Open {
        /// The path, as messages show it.
        path: String,
        /// What the system says.
        source: io::Error,
    },
    /// It is no log, or reading failed.
    #[error("{path}: {source}")]
    Read {
        /// The path, as messages show it.
        path: String,
        /// Where, and why.
        source: ReadError,
    },
}

/// Runs the command.
///
/// # Errors
///
/// The log cannot be read, or the output cannot be written.
pub fn run(arguments: &ExplainArgs) -> Result<(), CommandError> {
    let log = arguments.vmcore.as_ref().unwrap_or(&arguments.log);
    let name = match input::is_standard(log) {
        true => STANDARD_INPUT.to_owned(),
        false => shown(log).to_string(),
    };
    let file = arguments.report.as_deref();
    let inputs = || [log.as_path()].into_iter();
    let file = file.map(|path| input::page_file(path, inputs())).transpose()?;
    let source: Box<dyn BufRead> = match &arguments.vmcore {
        Some(image) => {
            let log = Kernel::open(image).and_then(|kernel| kernel.log());
            Box::new(Cursor::new(log.map_err(CommandError::from)?))
        }
        None => open(log, &name)?,
    };
    let origin = Origin::new(std::env::args_os(), "none: nothing is random".into());
    let mut page = file.as_ref().map(|_| ExplainPage::new(&name));
    let mut failure = None;
    let mut reader = Reader::new(source);
    write_output(|output| {
        let mut writer = match arguments.json {
            true => Shown::Json { first: true },
            false => Shown::Text(text::Log::default()),
        };
        writer.begin(output, &name)?;
        for report in reader.by_ref() {
            match report {
                Ok(report) => {
                    let explanation = Explanation::of(report);
                    writer.add(output, &explanation)?;
                    page.iter_mut().for_each(|page| page.add(&explanation));
                }
                Err(error) => failure = Some(error),
            }
        }
        writer.end(output, reader.lines(), failure.as_ref())
    })?;
    if let (Some(file), Some(page)) = (file, page) {
        file.write(&page.finish(&origin))?;
    }
    match failure {
        Some(source) => Err(ExplainFailure::Read { path: name, source }.into()),
        None => Ok(()),
    }
}

fn open(path: &Path, name: &str) -> Result<Box<dyn BufRead>, ExplainFailure> {
    if input::is_standard(path) {
        return Ok(Box::new(io::stdin().lock()));
    }
    let failed = |source| ExplainFailure::Open { path: name.into(), source };
    if path.is_dir() {
        return Err(failed(io::ErrorKind::IsADirectory.into()));
    }
    Ok(Box::new(BufReader::with_capacity(256 << 10, File::open(path).map_err(failed)?)))
}

/// How explanations are printed, one after the other: nobody keeps all of them.
enum Shown {
    Json { first: bool },
    Text(text::Log),
}

impl Shown {
    fn begin(&mut self, output: &mut impl Write, name: &str) -> io::Result<()> {
        match self {
            Shown::Json { .. } => {
                let name = serde_json::to_string(name)?;
                write!(output, "{{\n  \"schema\": 1,\n  \"source\": {name},\n  \"reports\": [")
            }
            Shown::Text(_) => Ok(()),
        }
    }

    fn add(&mut self, output: &mut impl Write, explanation: &Explanation) -> io::Result<()> {
        match self {
            Shown::Json { first } => {
                output.write_all(if std::mem::take(first) { b"\n" } else { b",\n" })?;
                let mut text = serde_json::Serializer::with_formatter(
                    &mut *output,
                    serde_json::ser::PrettyFormatter::with_indent(b"  "),
                );
                explanation.serialize(&mut text)?;
            }
            Shown::Text(log) => log.add(output, explanation)?,
        }
        // Who follows a log that goes on sees a report when it ends.
        output.flush()
    }

    fn end(
        &mut self,
        output: &mut impl Write,
        lines: u64,
        failure: Option<&ReadError>,
    ) -> io::Result<()> {
        match self {
            Shown::Json { .. } => {
                let error = serde_json::to_string(&failure.map(ToString::to_string))?;
                writeln!(output, "\n  ],\n  \"lines\": {lines},\n  \"error\": {error}\n}}")
            }
            Shown::Text(log) => log.end(output, lines),
        }
    }
}
