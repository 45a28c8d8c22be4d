//! `nearpage top`: a machine over time, as texts and streams.

mod text;

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use nearpage_machine::shown;
use nearpage_watch::{Mark, Pagesets, Sample, Sampler, marks};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use super::input::{self, STANDARD_INPUT};
use super::{CommandError, watched, write_output};

/// Show what a machine's nodes and zones are at, and what is wrong with them.
///
/// It reads /proc and /sys, needs no root, and changes nothing.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub struct TopArgs {
    /// Print one text, for tickets and scripts
    #[arg(long, conflicts_with_all = ["json", "csv", "count"])]
    once: bool,

    /// Print a JSON object a line, one each interval; --help says what is in it
    #[arg(long, conflicts_with = "csv")]
    json: bool,

    /// Print a line a zone, each interval, under one heading
    #[arg(long)]
    csv: bool,

    /// The interval
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = delay)]
    delay: Duration,

    /// End after so many samples
    #[arg(short = 'n', long, value_name = "N")]
    count: Option<u64>,

    /// Read a copy of /sys and /proc, or a recording, instead of this machine; - is standard input
    #[arg(long, value_name = "PATH|-")]
    sysroot: Option<PathBuf>,

    /// Which capture of a recording
    #[arg(long, value_name = "NAME", requires = "sysroot")]
    capture: Option<String>,
}

const AFTER_HELP: &str = "\
Exit status: 0 done, or ended by Ctrl-C, 1 the output could not be written, 2 wrong usage or unreadable input.

On a terminal, panes are shown until q: ? lists the keys. Elsewhere, or with -n, a text is printed each interval. A
copy or a recording is a moment: its text is printed once unless -n asks for more.

Marks: refusing, reclaiming, kept-away, fragmented, boosted (of a zone); stalled, compacting, spilled, killed (since
the sample before). The book's page on top explains each.

JSON (--json), a line each:
  schema                 1
  source                 where the machine comes from
  sample                 time_ms, kernel, zone_reclaim_mode, nodes[] (KiB), zones[] (pages),
                         events[] (name, count since boot), unreadable[]
  marks[]                word, node, zone, reason

CSV (--csv): time_ms, node, zone, free, min, low, high, boost, managed, pagesets, largest_order, marks.";

fn delay(text: &str) -> Result<Duration, String> {
    let accepted = "expected seconds from 0.1 to 86400";
    let seconds: f64 = text.parse().map_err(|_| accepted.to_owned())?;
    if (0.1..=86_400.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(accepted.into())
    }
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
    let source = match &arguments.sysroot {
        None => "this machine".to_owned(),
        Some(path) if input::is_standard(path) => STANDARD_INPUT.to_owned(),
        Some(path) => shown(path).to_string(),
    };
    let tree = watched::tree(arguments.sysroot.as_deref(), arguments.capture.as_deref())?;
    let has_panes =
        !(arguments.once || arguments.json || arguments.csv || arguments.count.is_some())
            && io::stdout().is_terminal();
    let pagesets = if has_panes { Pagesets::EachCpu } else { Pagesets::Sums };
    let mut sampler =
        Sampler::new(tree).with_budget(Duration::from_millis(5)).with_pagesets(pagesets);
    let stops = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        flag::register(signal, stops.clone())?;
    }
    if has_panes {
        nearpage_top::run(&source, &mut sampler, arguments.delay, &stops)?;
        return Ok(());
    }
    let is_moment = arguments.once || arguments.sysroot.is_some();
    let count = arguments.count.unwrap_or(if is_moment { 1 } else { u64::MAX });
    write_output(|output| {
        let mut before: Option<Sample> = None;
        for at in 0..count {
            let begin = Instant::now();
            let sample = sampler.sample();
            let marks = marks(before.as_ref(), &sample);
            if arguments.json {
                let document =
                    Document { schema: 1, source: &source, sample: &sample, marks: &marks };
                serde_json::to_writer(&mut *output, &document)?;
                std::io::Write::write_all(output, b"\n")?;
            } else if arguments.csv {
                text::write_csv(output, &sample, &marks, at == 0)?;
            } else {
                text::write(output, &source, &sample, &marks)?;
            }
            std::io::Write::flush(output)?;
            before = Some(sample);
            if at + 1 == count || !wait(arguments.delay.saturating_sub(begin.elapsed()), &stops) {
                break;
            }
        }
        Ok(())
    })
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
