//! `nearpage top`: a machine over time, as panes, texts and streams, now or recorded.

mod program;
mod signals;
mod source;
mod text;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use nearpage_machine::size;
use nearpage_watch::{Mark, Sample, marks};
use serde::Serialize;

use super::{CommandError, is_output_seen, watched, write_output};
use crate::confined::Rights;
use crate::outputs::Kind;
use source::Source;

/// Live view of free memory by node, zone and process, with problems marked.
///
/// It reads /proc and /sys, needs no root, and changes nothing.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub struct TopArgs {
    /// A copy of /sys and /proc, or a bundle, instead of this machine; - is standard input
    #[arg(value_name = "PATH|-")]
    machine: Option<PathBuf>,

    /// Print one sample, for tickets and scripts: a text, or what --json or --csv say
    #[arg(long, conflicts_with = "count")]
    once: bool,

    /// Print a JSON object a line, one each interval; --help says what is in it
    #[arg(long, conflicts_with = "csv")]
    json: bool,

    /// Print a line a zone, each interval, under one heading
    #[arg(long)]
    csv: bool,

    /// The interval
    #[arg(
        short,
        long,
        value_name = "SECONDS",
        default_value = "1",
        value_parser = watched::delay,
        allow_negative_numbers = true
    )]
    delay: Duration,

    /// End after so many samples
    #[arg(
        short = 'n',
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u64).range(1..),
        allow_negative_numbers = true
    )]
    count: Option<u64>,

    /// The same as the path alone
    #[arg(long, value_name = "PATH|-", conflicts_with = "machine")]
    sysroot: Option<PathBuf>,

    /// Show an image of a kernel's memory: /proc/kcore, or an ELF dump of QEMU, libvirt or kdump
    #[arg(long, value_name = "FILE", conflicts_with_all = ["machine", "sysroot", "process", "capture", "play"])]
    vmcore: Option<PathBuf>,

    /// Which capture of a recording
    #[arg(long, value_name = "NAME")]
    capture: Option<String>,

    /// Watch the allocator of a process that serves its figures, by its id or the path of its socket
    #[arg(short, long, value_name = "PID|SOCKET", conflicts_with_all = ["machine", "sysroot"])]
    process: Option<String>,

    /// The largest processes, so many of them, in texts, JSON and recordings; 0 reads none
    #[arg(long, value_name = "N")]
    processes: Option<usize>,

    /// Keep the samples in a file of bounded size, or go on with one: the newest take the place of the oldest
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,

    /// Its size, 1M to 1G; 4M if it is new
    #[arg(long, value_name = "SIZE", requires = "record", value_parser = tape_size)]
    record_size: Option<u64>,

    /// Show what was recorded
    #[arg(long, value_name = "FILE", conflicts_with_all = ["machine", "sysroot", "process", "record", "capture"])]
    play: Option<PathBuf>,

    #[command(flatten)]
    limit: super::input::Limit,
}

impl TopArgs {
    /// What it needs for another machine than this one, or for a recording.
    pub(super) fn rights(&self) -> Option<Rights> {
        let input = self.other_machine().or(self.play.as_deref())?;
        let rights = Rights::default().reading([input]).writing(Kind::Tape, &self.record);
        Some(rights.with_panes(self.has_panes()))
    }

    /// Whether what is printed is a stream or one text.
    fn is_stream(&self) -> bool {
        self.once || self.json || self.csv || self.count.is_some()
    }

    fn has_panes(&self) -> bool {
        !self.is_stream() && is_output_seen() && has_cursor()
    }

    /// A machine other than this one: a copy, a recording or an image.
    fn other_machine(&self) -> Option<&Path> {
        let named = self.machine.as_ref().or(self.sysroot.as_ref());
        named.or(self.vmcore.as_ref()).map(PathBuf::as_path)
    }
}

const AFTER_HELP: &str = "\
Exit status: 0 done, or ended by Ctrl-C, 1 the output or the recording could not be written, 2 wrong usage or
unreadable input.

On a terminal, panes are shown until q: ? lists the keys. Elsewhere, or with -n, a text is printed each interval; with
--record alone nothing is printed. A copy or a bundle is a moment: its text is printed once unless -n asks for more.

--play shows panes with the samples of the file at the pace at which they were taken: space pauses, left and right
seek, m finds what begins to be wrong. With --once its last sample is printed, with --json or --csv alone all of them.

Processes of other users are shown with what is known of them: where their memory is may be read by their user and
root only. Reading is bounded (3 ms a refresh): the largest processes each time, others in turn.

Marks: refusing, reclaiming, kept-away, fragmented, boosted (of a zone); stalled, compacting, spilled, killed (since
the sample before). The book's page Marks of nearpage top explains each.

JSON (--json), a line each:
  schema                 1
  source                 where the machine comes from
  sample                 time_ms, kernel, zone_reclaim_mode, nodes[] (KiB), zones[] (pages),
                         events[] (name, count since boot), unreadable[],
                         processes: list[] (pid, name, uid, rss and nodes[] in KiB, placement, placed_ago in
                         seconds, runs_on, may_use, minor_faults and major_faults a second), seen, denied, waiting
  marks[]                word, node, zone, reason

CSV (--csv): time_ms, node, zone, free, min, low, high, boost, managed, pagesets, largest_order, marks.

Examples:
  nearpage top
  nearpage top bundles/q612-n2-mixed.tar.zst
  nearpage top --record /var/tmp/top.tape &
  nearpage top --play /var/tmp/top.tape";

fn tape_size(text: &str) -> Result<u64, String> {
    let bytes = size::parse(text).filter(|bytes| (1 << 20..=1 << 30).contains(bytes));
    bytes.ok_or_else(|| "expected a size from 1M to 1G".into())
}

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    source: &'a str,
    sample: &'a Sample,
    marks: &'a [Mark],
}

/// Runs the command.
///
/// # Errors
///
/// The input cannot be read, or the output cannot be written.
pub fn run(arguments: &TopArgs) -> Result<(), CommandError> {
    let (is_stream, has_panes) = (arguments.is_stream(), arguments.has_panes());
    let source = Source::open(arguments, has_panes)?;
    let signals = signals::watch(has_panes)?;
    match has_panes {
        true => {
            let name = source.name().to_owned();
            nearpage_top::run(&name, source.feed(arguments)?, arguments.delay, &signals)?;
            Ok(())
        }
        false => stream(arguments, source, is_stream, &signals.ends),
    }
}

/// Whether a terminal can be written to at any place.
fn has_cursor() -> bool {
    std::env::var("TERM").is_ok_and(|name| !name.is_empty() && name != "dumb")
}

fn stream(
    arguments: &TopArgs,
    mut source: Source,
    is_stream: bool,
    stops: &AtomicBool,
) -> Result<(), CommandError> {
    let is_silent = arguments.record.is_some() && !is_stream;
    let mut recorder = source::recorder(arguments, source.name())?;
    let mut recorded = Ok(());
    let count = arguments.count.unwrap_or_else(|| source.samples(arguments));
    if arguments.once || !is_stream {
        source.skip_to_last();
    }
    write_output(|output| {
        let mut before: Option<Sample> = source.before();
        for at in 0..count {
            let begin = Instant::now();
            let Some(sample) = source.next() else { break };
            let marks = marks(before.as_ref(), &sample);
            if let Some(writer) = &mut recorder
                && let Err(error) = writer.append(&sample)
            {
                recorded = Err(CommandError::Recording(error));
                break;
            }
            if is_silent {
                // The file is all that was asked for.
            } else if arguments.json {
                let name = source.name();
                let document = Document { schema: 1, source: name, sample: &sample, marks: &marks };
                serde_json::to_writer(&mut *output, &document)?;
                output.write_all(b"\n")?;
            } else if arguments.csv {
                text::write_csv(output, &sample, &marks, at == 0)?;
            } else {
                text::write(output, source.name(), &sample, &marks)?;
            }
            output.flush()?;
            before = Some(sample);
            let left = arguments.delay.saturating_sub(begin.elapsed());
            let left = if source.is_played() { Duration::ZERO } else { left };
            if at + 1 == count || !wait(left, stops) {
                break;
            }
        }
        Ok(())
    })?;
    recorded
}

/// Waits; false if a signal ended it.
fn wait(time: Duration, stops: &AtomicBool) -> bool {
    let until = Instant::now() + time;
    while !stops.load(Ordering::Relaxed) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        thread::sleep(left.min(Duration::from_millis(100)));
    }
    false
}
