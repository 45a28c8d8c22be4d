//! `nearpage explain`: why a kernel refused memory, out of its log.

mod inputs;
mod text;

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufRead, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;

use clap::Args;
use nearpage_explain::{Beside, Explanation, ReadError, Reader, Report, Unread};
use nearpage_kcore::{KcoreError, Kernel};
use nearpage_report::Origin;
use nearpage_report::explain::ExplainPage;
use serde::Serialize;

use super::input::{self, STANDARD};
use super::{CommandError, write_output};
use crate::confined::Rights;
use crate::outputs::Kind;
use inputs::Wanted;

/// Say why a kernel refused memory: read page allocation failures, OOM reports, stalls and SLUB failures in its log.
///
/// Each report is judged by the rules of the page allocator on the numbers that it has: which rule refused, zone by
/// zone, and what would have helped.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub struct ExplainArgs {
    /// Logs, packed or not: what dmesg, journalctl -k, journalctl -o export or a console printed; a sosreport, its folder or
    /// archive; - is standard input
    #[arg(value_name = "FILE|-", default_value = STANDARD)]
    logs: Vec<PathBuf>,

    /// Read the log out of an image of a kernel's memory: /proc/kcore, or an ELF dump of QEMU, libvirt or kdump
    #[arg(long, value_name = "FILE", conflicts_with = "logs")]
    vmcore: Option<PathBuf>,

    /// Print one JSON object; --help says what is in it
    #[arg(long)]
    json: bool,

    /// Write a page of HTML with the first reports of each kind
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    #[command(flatten)]
    limit: input::Limit,
}

impl ExplainArgs {
    /// What it needs for its inputs and outputs.
    pub(super) fn rights(&self) -> Rights {
        Rights::default()
            .reading(self.logs.iter().chain(&self.vmcore))
            .writing(Kind::Page, &self.report)
    }
}

const AFTER_HELP: &str = "\
Exit status: 0 the log was read, with or without reports, 1 the output could not be written, 2 wrong usage or
unreadable input. A log that breaks off is explained as far as it goes.

A log is read as it comes: 1 GB takes no more memory than 1 MB. What its way put around lines is undone: times, hosts,
priorities, callers and other prefixes, JSON, quotes, quoted-printable, HTML, markdown, escapes, broken lines. Lines of
reports that are mixed are sorted by caller where the kernel prints it, else by what a report can still have. Texts of
the machine are taken together with reports, from a log itself and from a sosreport: numactl --hardware, lscpu, zoneinfo,
buddyinfo, pagetypeinfo, meminfo, slabinfo, sysctl. Of reports that are alike (process, order, flags, nodes, rule, zone, first
cause) the text shows the first in full and counts the others; of more than 4096 kinds it counts the rest.

JSON (--json):
  schema                 2
  source                 the files
  reports[]              source: the log
                         report: what the kernel printed, sizes in KiB; a figure that is not exact is an object
                           (least, most), one of which nothing is known is null
                         verdict: rule (watermark, lowmem_reserve, highatomic_reserve, no_block,
                           order_too_large, memcg, area_too_large, addresses, no_zone, passes, unknown), answer
                           (refused, passes, open), depends_on[], mark (min, high), node, zone, confined_by (by: kind,
                           policy, this_node, cpuset; elsewhere; hidden_pages), rights, zones[] (pages), no_progress (KiB)
                         causes[]: kind, kib, text; what decides first, then what fills memory
                         remedies[]: change, effect (helps, helps_a_little, unknown, no_effect, harmful), amount, text
                         unknown[]: what the report does not tell
                         beside[]: what texts of the machine add to it
  unread[]               source, line and why: what looks like a report and cannot be read as one, at most 64 a log
  beside                 what texts of the machine told: nodes, zones, meminfo, settings, largest_cache, texts
  seen_again             reports that stood in a log before, and are left out
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
/// A log cannot be read, or the output cannot be written.
pub fn run(arguments: &ExplainArgs) -> Result<(), CommandError> {
    let image = arguments.vmcore.as_deref();
    let log =
        image.map(|path| -> Result<_, KcoreError> { Kernel::open(path)?.log() }).transpose()?;
    // Without names the log is standard input, but for an image.
    let logs = if image.is_some() { &[][..] } else { &arguments.logs };
    let inputs = || logs.iter().map(PathBuf::as_path);
    let file = arguments.report.as_deref();
    let file = file.map(|path| input::page_file(path, inputs().chain(image))).transpose()?;
    inputs().try_for_each(inputs::check)?;
    let names: Vec<String> = inputs().chain(image).map(inputs::name).collect();
    let origin = Origin::new(std::env::args_os(), "none: nothing is random".into());
    let budget = arguments.limit.budget();
    let mut beside = Beside::default();
    for path in inputs() {
        let mut failed = None;
        inputs::each(path, Wanted::Texts, &budget, &mut |name, source| {
            // A log that cannot be read is told when it is read for its reports.
            let is_log = !path.is_dir() && name == inputs::name(path);
            failed = beside.add_from(source).err().filter(|_| !is_log);
            if failed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        if let Some(source) = failed {
            return Err(ExplainFailure::Open { path: inputs::name(path), source }.into());
        }
    }
    let mut page = file.as_ref().map(|_| ExplainPage::new(&names.join(", ")));
    let mut failure = None;
    write_output(|output| {
        let mut shown = Shown::new(arguments.json, names, beside, page.as_mut());
        shown.begin(output)?;
        if let (Some(log), Some(path)) = (&log, image) {
            shown.read(output, &inputs::name(path), Box::new(log.as_bytes()), &mut failure)?;
        }
        for path in inputs() {
            let mut written = Ok(());
            let read = inputs::each(path, Wanted::Logs, &budget, &mut |name, source| {
                written = shown.read(output, name, source, &mut failure);
                if written.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            written?;
            failure = failure.take().or(read.err());
        }
        shown.end(output, failure.as_ref())
    })?;
    if let (Some(file), Some(page)) = (file, page) {
        file.write(&page.finish(&origin))?;
    }
    match failure {
        Some(failure) => Err(failure.into()),
        None => Ok(()),
    }
}

/// Explanations as they are printed, one after the other: nobody keeps all of them.
struct Shown<'p> {
    form: Form,
    page: Option<&'p mut ExplainPage>,
    beside: Beside,
    lines: u64,
    unread: Vec<(String, Unread)>,
    /// The inputs; a part of one has a name of its own.
    names: Vec<String>,
    /// Reports of the parts before: a sosreport has some in several logs.
    seen: HashSet<u64>,
    seen_again: u64,
}

enum Form {
    Json { is_first: bool },
    Text(text::Log),
}

/// An explanation with the log that it is from.
#[derive(Serialize)]
struct OfLog<'a, T> {
    source: &'a str,
    #[serde(flatten)]
    inner: &'a T,
}

/// Reports that are remembered, to find those that stand in several logs.
const SEEN_MOST: usize = 1 << 16;

impl<'p> Shown<'p> {
    fn new(
        is_json: bool,
        names: Vec<String>,
        beside: Beside,
        page: Option<&'p mut ExplainPage>,
    ) -> Self {
        let form = match is_json {
            true => Form::Json { is_first: true },
            false => Form::Text(text::Log::default()),
        };
        let (unread, seen) = (Vec::new(), HashSet::new());
        Shown { form, page, beside, lines: 0, unread, names, seen, seen_again: 0 }
    }

    fn begin(&self, output: &mut impl Write) -> io::Result<()> {
        if let Form::Json { .. } = self.form {
            let name = serde_json::to_string(&self.names.join(", "))?;
            write!(output, "{{\n  \"schema\": 2,\n  \"source\": {name},\n  \"reports\": [")?;
        }
        Ok(())
    }

    /// Reads a log and shows its reports. What ends the reading early goes to `failure`.
    fn read(
        &mut self,
        output: &mut impl Write,
        name: &str,
        source: Box<dyn BufRead + '_>,
        failure: &mut Option<ExplainFailure>,
    ) -> io::Result<()> {
        let mut reader = Reader::new(source);
        let mut seen = Vec::new();
        while let Some(report) = reader.next() {
            let report = match report {
                Ok(report) => report,
                Err(source) => {
                    let error = ExplainFailure::Read { path: name.into(), source };
                    failure.get_or_insert(error);
                    break;
                }
            };
            let print = fingerprint(&report);
            if self.seen.contains(&print) {
                self.seen_again += 1;
                continue;
            }
            seen.push(print);
            // What a stream told so far; of a file all is known.
            let beside = if self.beside.is_empty() { reader.beside() } else { &self.beside };
            let explanation = Explanation::with(report, beside);
            self.page.iter_mut().for_each(|page| page.add(&explanation));
            self.add(output, name, &explanation)?;
        }
        let room = SEEN_MOST.saturating_sub(self.seen.len());
        self.seen.extend(seen.into_iter().take(room));
        self.lines += reader.lines();
        match &mut self.form {
            Form::Json { .. } => {
                self.unread
                    .extend(reader.unread().iter().map(|unread| (name.into(), unread.clone())));
            }
            Form::Text(log) => {
                let is_named = self.names.len() > 1 || self.names.iter().all(|of| of != name);
                log.end(output, reader.lines(), reader.unread(), is_named.then_some(name))?;
                *log = text::Log::default();
            }
        }
        if self.beside.is_empty() {
            self.beside = reader.beside().clone();
        }
        Ok(())
    }

    fn add(
        &mut self,
        output: &mut impl Write,
        name: &str,
        explanation: &Explanation,
    ) -> io::Result<()> {
        match &mut self.form {
            Form::Json { is_first } => {
                output.write_all(if std::mem::take(is_first) { b"\n" } else { b",\n" })?;
                let mut text = serde_json::Serializer::with_formatter(
                    &mut *output,
                    serde_json::ser::PrettyFormatter::with_indent(b"  "),
                );
                OfLog { source: name, inner: explanation }.serialize(&mut text)?;
            }
            Form::Text(log) => log.add(output, explanation)?,
        }
        // Who follows a log that goes on sees a report when it ends.
        output.flush()
    }

    fn end(&mut self, output: &mut impl Write, failure: Option<&ExplainFailure>) -> io::Result<()> {
        match &mut self.form {
            Form::Json { .. } => {
                let of_log = |(source, inner): &(String, Unread)| {
                    serde_json::to_string(&OfLog { source, inner })
                };
                let unread: Result<Vec<String>, _> = self.unread.iter().map(of_log).collect();
                let unread = unread?.join(", ");
                let beside = serde_json::to_string(&self.beside)?;
                let error = failure.map(|failure| match failure {
                    ExplainFailure::Read { source, .. } => source.to_string(),
                    other => other.to_string(),
                });
                let error = serde_json::to_string(&error)?;
                write!(output, "\n  ],\n  \"unread\": [{unread}],\n  \"beside\": {beside},\n")?;
                writeln!(output, "  \"seen_again\": {},", self.seen_again)?;
                writeln!(output, "  \"lines\": {},\n  \"error\": {error}\n}}", self.lines)
            }
            Form::Text(_) => text::end(output, &self.beside, self.seen_again),
        }
    }
}

/// What is equal of a report in every log that has it.
fn fingerprint(report: &Report) -> u64 {
    let mut hasher = DefaultHasher::new();
    let Report { kind, process, pid, order, nodes, zones, victim, .. } = report;
    format!("{kind:?}{process}{pid:?}{order:?}{nodes:?}{zones:?}{victim:?}").hash(&mut hasher);
    hasher.finish()
}
